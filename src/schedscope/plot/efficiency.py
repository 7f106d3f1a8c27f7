"""What the CPUs did with their time: one bar per CPU."""

from __future__ import annotations

import polars as pl
from matplotlib.axes import Axes

from schedscope import units
from schedscope.plot.style import COLORS, FAINT, INK, canvas, keep_visible, require, visible

_PARTS = (("busy", COLORS[0]), ("idle", COLORS[5]), ("unknown", FAINT))


def efficiency(frame: pl.DataFrame, *, top: int = 64, ax: Axes | None = None) -> Axes:
    """Draw what `schedscope.efficiency` returned: a bar for the whole window of each CPU.

    Its parts are busy, idle and unknown time. Beside each bar are the CPU's context switches per
    second and the share of involuntary ones, a range where the source cannot say. Of more than
    `top` CPUs, the busiest are drawn.
    """
    require(frame, ("cpu", "busy", "switches_hz"), "schedscope.efficiency")
    hidden = max(frame.height - top, 0)
    if hidden:
        frame = frame.sort("busy", "cpu", descending=[True, False], nulls_last=True).head(top)
    with canvas(ax, height=1.6 + 0.3 * max(frame.height, 1)) as axes:
        names = []
        for y, row in enumerate(frame.iter_rows(named=True)):
            whole = max(sum(row[name] for name, _ in _PARTS), 1)
            left = 0.0
            for name, color in _PARTS:
                share = 100 * row[name] / whole
                bar = axes.barh(y, share, left=left, height=0.7, color=color)
                keep_visible(bar, 100)
                left += share
            axes.annotate(
                _beside(row),
                (100, y),
                xytext=(6, 0),
                textcoords="offset points",
                va="center",
                fontsize=8,
                color=INK,
                annotation_clip=False,
            )
            names.append("all CPUs" if row["cpu"] is None else f"CPU {row['cpu']}")
        for name, color in _PARTS:
            axes.barh([0], [0], color=color, label="unknown" if name == "unknown" else name)
        axes.set_xlim(0, 100)
        axes.set_yticks(range(len(names)), visible(names))
        axes.set_ylim(max(len(names), 1) - 0.5, -0.5)
        axes.grid(visible=False, axis="y")
        axes.tick_params(axis="y", length=0)
        axes.spines["left"].set_visible(False)
        axes.set_xlabel("% of the window")
        more = f" ({hidden} less busy not drawn)" if hidden else ""
        axes.set_title(f"CPU time; switches per second and involuntary share{more}", pad=28)
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=3)
    return axes


def _beside(row: dict[str, float | None]) -> str:
    if row["switches_hz"] is None:
        return "nothing known"
    text = f"{units.count(row['switches_hz'])}/s"
    low, high = row["involuntary_frac_min"], row["involuntary_frac_max"]
    if low is None or high is None:
        return text
    share = f"{100 * low:.0f}" if round(100 * low) == round(100 * high) else (
        f"{100 * low:.0f} to {100 * high:.0f}"
    )  # fmt: skip
    return f"{text}, {share} % forced"
