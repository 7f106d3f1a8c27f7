"""The longest waits, where they lie in time."""

from __future__ import annotations

import polars as pl
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from schedscope import units
from schedscope.plot.style import CAUSE_COLORS, canvas, require, visible


def worst_waits(frame: pl.DataFrame, *, origin: int = 0, ax: Axes | None = None) -> Axes:
    """Draw what `schedscope.worst_waits` returned: a bar from start to end of each wait.

    The longest is on top. Bars are coloured by cause, in seconds after `origin`; an arrow at the
    end marks a wait that was still open.
    """
    require(frame, ("ts_ready", "wait", "cause", "comm"), "schedscope.worst_waits")
    with canvas(ax, height=1.6 + 0.28 * max(frame.height, 1)) as axes:
        labels = []
        seen = []
        until = (frame["ts_ready"] + frame["wait"]).max() or 0
        first = origin or frame["ts_ready"].min() or 0
        span = (int(until) - int(first)) / 1e9  # type: ignore[arg-type]
        for y, row in enumerate(frame.iter_rows(named=True)):
            begin = (row["ts_ready"] - origin) / 1e9
            length = row["wait"] / 1e9
            color = CAUSE_COLORS[row["cause"]]
            axes.barh(y, length, left=begin, height=0.62, color=color)
            if length < 0.01 * span:
                # A wait of 1 ms in a trace of 60 s is thinner than a pixel.
                axes.plot(begin, y, "|", color=color, markersize=9, markeredgewidth=1.4)
            still_open = row["censored"] == "right"
            if still_open:
                axes.plot(begin + length, y, ">", color=color, markersize=7)
            text = ("≥ " if still_open else "") + units.duration(row["wait"])
            axes.annotate(
                text,
                (begin + length, y),
                xytext=(8, 0),
                textcoords="offset points",
                va="center",
                fontsize=8,
            )
            labels.append(f"{row['comm']} {row['tid'] if row['tid'] is not None else ''}".strip())
            if row["cause"] not in seen:
                seen.append(row["cause"])
        axes.set_yticks(range(len(labels)), visible(labels))
        axes.set_ylim(len(labels) - 0.4, -0.6)
        axes.margins(x=0.12)
        axes.grid(visible=False, axis="y")
        axes.tick_params(axis="y", length=0)
        axes.spines["left"].set_visible(False)
        axes.set_xlabel("time in s")
        axes.set_title(f"The {frame.height} longest waits for a CPU, by cause", pad=28)
        if seen:
            axes.legend(
                handles=[Patch(color=CAUSE_COLORS[cause], label=cause) for cause in seen],
                loc="lower left",
                bbox_to_anchor=(0, 1),
                ncols=5,
                columnspacing=1.2,
            )
        if origin:  # from the start of the window, so that the position shows when it was
            axes.set_xlim(left=0)
    return axes
