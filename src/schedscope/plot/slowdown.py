"""CPU time and the time lost waiting for it: one bar per group of threads."""

from __future__ import annotations

import polars as pl
from matplotlib.axes import Axes

from schedscope.plot.style import CAUSE_COLORS, COLORS, canvas, require, time_axis, visible

_FIXED = ("threads", "n_censored", "wall", "cpu", "waiting", "unknown", "preempted", "ratio",
          "slowdown")  # fmt: skip


def slowdown(frame: pl.DataFrame, *, top: int = 20, ax: Axes | None = None) -> Axes:
    """Draw what `schedscope.slowdown` returned: what each group ran and waited.

    Waiting after a preemption is shown apart from other waiting. The number beside a bar is the
    slowdown: the length of the bar divided by that of its running part. At most the first `top`
    groups are drawn.
    """
    require(frame, _FIXED, "schedscope.slowdown")
    names = [c for c in frame.columns if c not in _FIXED]
    drawn = frame.head(top)
    with canvas(ax, height=1.6 + 0.28 * max(drawn.height, 1)) as axes:
        labels = []
        for y, row in enumerate(drawn.iter_rows(named=True)):
            label = " · ".join("-" if row[name] is None else str(row[name]) for name in names)
            labels.append(f"{label or 'all threads'}  ({row['threads']:,})")
            # The ledger may hold a little more than the states where a switch was missed.
            preempted = min(row["preempted"], row["waiting"])
            left = 0
            for value, color in (
                (row["cpu"], COLORS[0]),
                (preempted, CAUSE_COLORS["preempt"]),
                (row["waiting"] - preempted, COLORS[5]),
            ):
                axes.barh(y, value, left=left, height=0.7, color=color)
                left += value
            if row["slowdown"] is not None:
                axes.annotate(
                    f"{row['slowdown']:.3g} times",
                    (left, y),
                    xytext=(5, 0),
                    textcoords="offset points",
                    va="center",
                    fontsize=8,
                )
        for color, label in (
            (COLORS[0], "running"),
            (CAUSE_COLORS["preempt"], "waiting after a preemption"),
            (COLORS[5], "waiting otherwise"),
        ):
            axes.barh([0], [0], color=color, label=label)
        time_axis(axes.xaxis)
        longest = (drawn["cpu"] + drawn["waiting"]).max() if drawn.height else 0
        axes.set_xlim(0, 1.1 * max(float(longest or 0), 1.0))  # type: ignore[arg-type]
        axes.set_yticks(range(len(labels)), visible(labels))
        axes.set_ylim(max(len(labels), 1) - 0.4, -0.6)
        axes.grid(visible=False, axis="y")
        axes.tick_params(axis="y", length=0)
        axes.spines["left"].set_visible(False)
        axes.set_xlabel("time, summed over threads")
        more = (
            f", the first {drawn.height} of {frame.height}" if drawn.height < frame.height else ""
        )
        by = f" by {', '.join(names)}" if names else ""
        axes.set_title(f"Running and waiting{by}, and the slowdown{more}", pad=28)
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=3, columnspacing=1.2)
    return axes
