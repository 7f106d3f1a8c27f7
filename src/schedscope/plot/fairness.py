"""Shares due and received, and lag over time."""

from __future__ import annotations

import polars as pl
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import PercentFormatter

from schedscope import units
from schedscope.plot.style import COLORS, INK, canvas, require, time_axis, visible
from schedscope.units import interval

_BEHIND, _AHEAD, _EITHER = COLORS[1], COLORS[0], "0.6"


def fairness(frame: pl.DataFrame, *, top: int = 16, ax: Axes | None = None) -> Axes:
    """Draw what `schedscope.fairness` returned: the share due and the share received of each row.

    A ring is what was due and a dot what was received, both as shares of what the row and its
    competitors got while it competed, at least. The bar between them is orange for rows that are
    behind and blue for rows that are ahead, with the lag beside it; grey where what is unknown
    decides which it is. Drawn are the `top` rows that are furthest
    off, either way.
    """
    require(frame, ("comm", "lag", "share_due", "share_received"), "schedscope.fairness")
    known = frame.drop_nulls(["share_due", "share_received"])
    if "lag_high" not in known.columns:
        known = known.with_columns(lag_high="lag")
    certainly = pl.max_horizontal("lag", -pl.col("lag_high"))
    chosen = known.sort(certainly, descending=True).head(top).sort("lag", descending=True)
    with canvas(ax, height=1.9 + 0.3 * max(chosen.height, 1)) as axes:
        labels = []
        for y, row in enumerate(chosen.iter_rows(named=True)):
            low, high = row["lag"], row["lag_high"]
            color = _BEHIND if low > 0 else _AHEAD if high <= 0 else _EITHER
            due, got = row["share_due"], row["share_received"]
            axes.plot(
                [due, got], [y, y], color=color, linewidth=5, alpha=0.35, solid_capstyle="butt"
            )
            axes.plot(due, y, "o", markersize=8, markerfacecolor="white", color=INK)
            axes.plot(got, y, "o", markersize=6, color=color)
            far = interval(*((low, high) if low > 0 else (-high, -low)))
            text = f"{far} {'behind' if low > 0 else 'ahead'}"
            if color == _EITHER:
                text = f"{units.duration(-low)} ahead to {units.duration(high)} behind"
            axes.annotate(
                text,
                (max(due, got), y),
                xytext=(9, 0),
                textcoords="offset points",
                va="center",
                fontsize=8,
            )
            labels.append(_label(row))
        axes.set_yticks(range(len(labels)), visible(labels))
        axes.set_ylim(max(len(labels), 1) - 0.4, -0.6)
        axes.margins(x=0.18)
        axes.set_xlim(left=-0.01)
        axes.grid(visible=False, axis="y")
        axes.tick_params(axis="y", length=0)
        axes.spines["left"].set_visible(False)
        axes.xaxis.set_major_formatter(PercentFormatter(1, decimals=0, symbol=" %"))
        axes.set_xlabel("of the CPU time of its class while it wanted CPU time")
        hidden = known.height - chosen.height
        more = f" ({hidden} rows with smaller lag not drawn)" if hidden else ""
        axes.set_title(f"Share due and share received{more}", pad=28)
        axes.legend(
            handles=[
                Line2D(
                    [],
                    [],
                    marker="o",
                    linestyle="",
                    markerfacecolor="white",
                    color=INK,
                    markersize=8,
                    label="due by weight",
                ),
                Line2D([], [], marker="o", linestyle="", color=_BEHIND, label="too little"),
                Line2D([], [], marker="o", linestyle="", color=_AHEAD, label="too much"),
            ],
            loc="lower left",
            bbox_to_anchor=(0, 1),
            ncols=3,
        )
    return axes


def lag(frame: pl.DataFrame, *, origin: int = 0, top: int = 6, ax: Axes | None = None) -> Axes:
    """Draw what `schedscope.lag` returned: how far each thread is behind, over time in s.

    Above zero a thread is behind what was due to it, below zero it is ahead. Drawn are the `top`
    threads whose lag was ever furthest from zero. Straight lines join the rows; the lag itself is
    nearly straight between them, too.
    """
    require(frame, ("utid", "comm", "tid", "ts", "lag"), "schedscope.lag")
    furthest = (
        frame.group_by("utid")
        .agg(far=pl.col("lag").abs().max(), **{n: pl.col(n).last() for n in ("lag", "comm", "tid")})
        .sort("far", "utid", descending=[True, False])
    )
    chosen = furthest.head(top)
    until = int(frame["ts"].max() or 0)  # type: ignore[arg-type]
    with canvas(ax, height=4.6) as axes:
        axes.axhline(0, color=INK, linewidth=1)
        ranked = chosen.sort("lag", descending=True).iter_rows(named=True)
        for number, row in enumerate(ranked):
            color = COLORS[number % len(COLORS)]
            line = frame.filter(pl.col("utid") == row["utid"])
            # It stays where it was from its last row on.
            x = [*((line["ts"] - origin) / 1e9), (until - origin) / 1e9]
            y = [*line["lag"], row["lag"]]
            axes.plot(x, y, color=color, linewidth=1.4, label=_label(row))
        time_axis(axes.yaxis)
        axes.set_xlabel("time in s")
        hidden = furthest.height - chosen.height
        more = f" ({hidden} threads with smaller lag not drawn)" if hidden else ""
        axes.set_title(f"Lag: service due minus service received{more}")
        axes.annotate(
            "behind",
            (0, 0.985),
            xycoords="axes fraction",
            xytext=(5, 0),
            textcoords="offset points",
            va="top",
            color="#777777",
            fontsize=9,
        )
        axes.annotate(
            "ahead",
            (0, 0.015),
            xycoords="axes fraction",
            xytext=(5, 0),
            textcoords="offset points",
            va="bottom",
            color="#777777",
            fontsize=9,
        )
        if chosen.height:
            axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))
    return axes


def _label(row: dict[str, object]) -> str:
    name = units.printable(str(row["comm"] or "")) or "(no name)"
    number = row.get("tid")
    if number is None and row.get("pid") is not None:
        number = f"pid {row['pid']}"
    return name if number is None else f"{name} {number}"
