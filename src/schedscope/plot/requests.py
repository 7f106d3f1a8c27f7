"""What requests took, part by part: a bar per row."""

from __future__ import annotations

import polars as pl
from matplotlib.axes import Axes

from schedscope import units
from schedscope.plot.style import (
    COLORS,
    INK,
    canvas,
    keep_visible,
    nothing,
    require,
    time_axis,
    visible,
)

_PARTS = (
    *("running", "waiting", "throttled", "interrupted", "locks", "io", "timer", "other_sleep"),
    *("backlog", "unknown"),
)

_SHADES = (*COLORS[:6], "#b2a300", "#8b5a2b", "#c2185b", COLORS[6])


def requests(frame: pl.DataFrame, *, top: int = 20, ax: Axes | None = None) -> Axes:
    """Draw what `schedscope.requests` returned: the mean request of each row, divided.

    With `by="request"` each bar is one request. At most the first `top` rows are drawn.
    """
    require(frame, ("running", "waiting", "locks", "io"), "schedscope.requests")
    single = "which" not in frame.columns
    rows = frame.head(top).rows(named=True)
    with canvas(ax, height=1.6 + 0.4 * max(len(rows), 1)) as axes:
        names = []
        wholes = [row["dur"] if single else row["total"] / row["n"] for row in rows]
        longest = max(wholes, default=0)
        for y, row in enumerate(rows):
            n, whole = (1, row["dur"]) if single else (row["n"], row["total"])
            left = 0.0
            for part, color in zip(_PARTS, _SHADES, strict=True):
                if row[part]:
                    bar = axes.barh(y, row[part] / n, left=left, height=0.7, color=color)
                    keep_visible(bar, longest)
                    left += row[part] / n
            axes.annotate(
                units.duration(whole / n), (left, y), xytext=(4, 0),
                textcoords="offset points", va="center", fontsize=8, color=INK,
            )  # fmt: skip
            if single:
                names.append(f"{row['comm']} {row['tid']}")
            else:
                keys = frame.columns[: frame.columns.index("which")]
                said = [row[name] for name in [*keys, "which"] if row[name] is not None]
                names.append(" ".join(map(str, said)))
        parts = [part for part in _PARTS if frame[part].sum()]
        for part in parts:
            color = _SHADES[_PARTS.index(part)]
            axes.barh([0], [0], color=color, label=part.replace("_", " "))
        axes.set_yticks(range(len(names)), visible(names))
        axes.set_ylim(max(len(names), 1) - 0.5, -0.5)
        axes.margins(x=0.14)
        axes.set_xlim(left=0)
        axes.grid(visible=False, axis="y")
        axes.tick_params(axis="y", length=0)
        if rows:
            time_axis(axes.xaxis)
            axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=5, columnspacing=1.2)
        else:
            nothing(axes, "no requests")
        axes.set_xlabel("time of the request")
        lines = -(-len(parts) // 5)
        axes.set_title("Requests" if single else "Mean request", pad=10 + 17 * lines)
    return axes
