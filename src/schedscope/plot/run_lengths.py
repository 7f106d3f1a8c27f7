"""How long threads run before they leave the CPU: a row of dots per group."""

from __future__ import annotations

import polars as pl
from matplotlib.axes import Axes

from schedscope.plot.style import COLORS, FAINT, INK, canvas, require, time_axis, visible

_FIXED = ("n", "n_censored", "mean", "max", "total", "total_censored")


def run_lengths(frame: pl.DataFrame, *, top: int = 20, ax: Axes | None = None) -> Axes:
    """Draw what `schedscope.run_lengths` returned: quantiles and the longest run of each group.

    The axis is logarithmic. At most the first `top` groups with a complete run are drawn.
    """
    require(frame, _FIXED, "schedscope.run_lengths")
    quantiles = [c for c in frame.columns if c[0] == "p" and c[1:].replace(".", "", 1).isdigit()]
    names = [c for c in frame.columns if c not in _FIXED and c not in quantiles]
    seen = frame.filter(pl.col("n") > 0)
    drawn = seen.head(top)
    with canvas(ax, height=1.6 + 0.28 * max(drawn.height, 1)) as axes:
        labels = []
        for y, row in enumerate(drawn.iter_rows(named=True)):
            label = " · ".join("-" if row[name] is None else str(row[name]) for name in names)
            labels.append(f"{label or 'all runs'}  ({row['n']:,})")
            first = row[quantiles[0]] if quantiles else row["max"]
            axes.plot(
                [first, row["max"]], [y, y], color=FAINT, lw=5, solid_capstyle="round", zorder=1
            )
            for name, color in zip(quantiles, COLORS, strict=False):
                axes.plot(row[name], y, "o", color=color, markersize=6, zorder=2)
            axes.plot(row["max"], y, "|", color=INK, markersize=11, markeredgewidth=2, zorder=3)
        for name, color in zip(quantiles, COLORS, strict=False):
            axes.plot([], [], "o", color=color, label=name)
        axes.plot([], [], "|", color=INK, markersize=11, markeredgewidth=2, label="max")
        axes.set_xscale("log")
        time_axis(axes.xaxis, log=True)
        axes.set_yticks(range(len(labels)), visible(labels))
        axes.set_ylim(max(len(labels), 1) - 0.4, -0.6)
        axes.grid(visible=False, axis="y")
        axes.tick_params(axis="y", length=0)
        axes.spines["left"].set_visible(False)
        axes.set_xlabel("time from switch-in to switch-out")
        more = f", the first {drawn.height} of {seen.height}" if drawn.height < seen.height else ""
        by = f" by {', '.join(names)}" if names else ""
        axes.set_title(f"Run lengths{by}{more}", pad=28)
        axes.legend(
            loc="lower left", bbox_to_anchor=(0, 1), ncols=7, handletextpad=0.1, columnspacing=1.2
        )
    return axes
