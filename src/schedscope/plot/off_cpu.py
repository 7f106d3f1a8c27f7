"""What threads slept or were blocked for: one bar per reason."""

from __future__ import annotations

import polars as pl
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from schedscope import units
from schedscope.plot.style import COLORS, INK, canvas, nothing, require, time_axis, visible

_STATES = ("sleeping", "blocked", "stopped", "parked")


def off_cpu(frame: pl.DataFrame, *, top: int = 20, ax: Axes | None = None) -> Axes:
    """Draw what `schedscope.off_cpu` returned: a bar per row, as long as its total time.

    Bars are coloured by state; beside each is the number of times and their mean length. At most
    the first `top` rows are drawn.
    """
    require(frame, ("state", "kind", "reason", "n", "total", "mean"), "schedscope.off_cpu")
    before = frame.columns[: frame.columns.index("state")]
    hidden = max(frame.height - top, 0)
    rows = frame.head(top).rows(named=True)
    with canvas(ax, height=1.6 + 0.3 * max(len(rows), 1)) as axes:
        names = []
        for y, row in enumerate(rows):
            color = COLORS[_STATES.index(row["state"])]
            axes.barh(y, row["total"], height=0.7, color=color)
            axes.annotate(
                f"{units.several(row['n'], 'time')} {units.duration(row['mean'])}",
                (row["total"], y), xytext=(4, 0), textcoords="offset points", va="center",
                fontsize=8, color=INK,
            )  # fmt: skip
            what = row["reason"] or row["kind"] or row.get("cause") or row["state"]
            if row["kind"] == "lock":
                what = f"lock {what}"
            names.append(" ".join([*(str(row[name]) for name in before), str(what)])[:40])
        for state in dict.fromkeys(row["state"] for row in rows):
            axes.barh([0], [0], color=COLORS[_STATES.index(state)], label=state)
        axes.set_yticks(range(len(names)), visible(names))
        axes.set_ylim(max(len(names), 1) - 0.5, -0.5)
        axes.margins(x=0.18)
        axes.set_xlim(left=0)
        axes.grid(visible=False, axis="y")
        axes.tick_params(axis="y", length=0)
        if rows:
            time_axis(axes.xaxis)
            axes.xaxis.set_major_locator(MaxNLocator(nbins=7))
        else:
            nothing(axes, "no off-CPU time")
        axes.set_xlabel("off the CPU, sum over threads")
        more = f" ({hidden} more not drawn)" if hidden else ""
        axes.set_title(f"Off-CPU time by reason{more}", pad=28)
        if rows:
            axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=4)
    return axes
