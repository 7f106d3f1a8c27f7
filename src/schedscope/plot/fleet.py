"""Hosts of a fleet beside each other, and groups of hosts."""

from __future__ import annotations

import polars as pl
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from schedscope.plot.style import COLORS, canvas, nothing, require, visible

_GREY = "#8a8a8a"
_NAMED = 12


def fleet_hosts(frame: pl.DataFrame, *, measure: str = "p99", ax: Axes | None = None) -> Axes:
    """Draw each host's ratio to the median host with its interval, the largest first.

    `frame` is that of the hosts on the page of `schedscope fleet`. Hosts that stand out are
    coloured, and the first of them named.
    """
    require(frame, ("host", "measure", "ratio", "lower", "upper", "verdict"), "fleet")
    rows = frame.filter(pl.col("measure") == measure).sort(
        "ratio", "host", descending=[True, False]
    )
    with canvas(ax, width=9, height=4) as axes:
        if rows.is_empty():
            nothing(axes, "too few hosts to compare")
            return axes
        named = 0
        for rank, row in enumerate(rows.iter_rows(named=True), 1):
            out = bool(row["verdict"])
            color = (COLORS[1] if row["ratio"] > 1 else COLORS[0]) if out else _GREY
            if row["lower"] is not None:
                axes.plot([rank, rank], [row["lower"], row["upper"]], color=color, linewidth=1)
            axes.plot([rank], [row["ratio"]], "o", color=color, markersize=4 if out else 2.5)
            if out and named < _NAMED:
                named += 1
                axes.annotate(
                    visible([row["host"]])[0],
                    (rank, row["ratio"]),
                    xytext=(6, 0),
                    textcoords="offset points",
                    va="center",
                    fontsize=8,
                    color=color,
                )
        axes.set_yscale("log")
        _ratios(axes, "y")
        axes.set_xlim(0, rows.height + 1)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_xlabel("host, by rank")
        axes.set_ylabel(f"{measure} over the median host's")
        axes.set_title("Hosts beside the median host")
    return axes


def fleet_groups(frame: pl.DataFrame, *, top: int = 30, ax: Axes | None = None) -> Axes:
    """Draw each group's ratio to the largest group of its column as a forest plot.

    `frame` is that of the groups on the page of `schedscope fleet`; at most `top` rows.
    """
    require(frame, ("column", "group", "measure", "ratio", "lower", "verdict"), "fleet")
    rows = frame.filter(pl.col("ratio").is_not_null()).head(top)
    with canvas(ax, width=9, height=1.5 + 0.3 * max(rows.height, 2)) as axes:
        if rows.is_empty():
            nothing(axes, "no two groups to compare")
            return axes
        labels = []
        for number, row in enumerate(rows.iter_rows(named=True)):
            y = rows.height - number
            verdict = row["verdict"]
            color = {"more": COLORS[1], "less": COLORS[0]}.get(verdict, _GREY)
            axes.plot([row["lower"], row["upper"]], [y, y], color=color, linewidth=2)
            fill = "white" if verdict == "within noise" else color
            axes.plot([row["ratio"]], [y], "o", color=color, markerfacecolor=fill, zorder=3)
            column = str(row["column"]).removeprefix("setting_").removeprefix("label_")
            labels.append(f"{column} {row['group']}  ·  {row['measure']}")
        axes.axvline(1, color=_GREY, linewidth=1)
        axes.set_xscale("log")
        _ratios(axes, "x")
        axes.set_yticks(range(rows.height, 0, -1), visible(labels))
        axes.set_ylim(0.4, rows.height + 0.6)
        axes.set_xlabel("ratio to the reference group, with its 95 % interval")
        axes.set_title("Groups of hosts")
    return axes


_STEPS = ((1,), (1, 2, 5), (1, 1.5, 2, 3, 5, 7), (1, 1.1, 1.2, 1.35, 1.5, 1.75, 2, 2.5, 3, 4, 6, 8))
"""Ratios in a power of ten to write beside an axis, from few to many."""


def _ratios(axes: Axes, which: str) -> None:
    """Names at least three ratios, however near each other the hosts are."""
    axis = axes.yaxis if which == "y" else axes.xaxis
    low, high = sorted(axis.get_view_interval())
    if high < 2 * low:
        low, high = low / 1.5, high * 1.5
        (axes.set_ylim if which == "y" else axes.set_xlim)(low, high)
    for steps in _STEPS:
        locator = LogLocator(subs=steps, numticks=12)
        if sum(low <= value <= high for value in locator.tick_values(low, high)) >= 3:
            break
    axis.set_major_locator(locator)
    axis.set_minor_formatter(NullFormatter())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g} x"))
