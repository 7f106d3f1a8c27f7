"""A scheduler's score of threads over time: one lane per thread."""

from __future__ import annotations

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from schedscope import units
from schedscope.analysis.asking.policies import rules
from schedscope.plot.style import COLORS, FAINT, INK, canvas, require, visible

_COLUMNS = ("ts", "utid", "tid", "comm", "score", "interactive", "scheduler")
_INTERACTIVE, _BATCH = COLORS[2], COLORS[1]
# Above this many changes a lane shows the last one of each of as many columns.
_PIXELS = 2000


def interactivity(
    frame: pl.DataFrame,
    *,
    top: int = 12,
    origin: int = 0,
    until: int | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw what `schedscope.interactivity_series` returned: a lane per thread, time in s.

    The height is the score, and the colour says whether the scheduler would call the thread
    interactive. Grey is time that the trace does not show, until the thread is seen again (if it is
    not, the lane ends). At most `top` lanes are drawn: those whose class changed most often, then
    those with the most changes of score. Time counts from `origin` to `until` (both ns; if `until`
    is None, to the last change).
    """
    require(frame, _COLUMNS, "schedscope.interactivity_series")
    flips = (pl.col("interactive") != pl.col("interactive").shift()).fill_null(False).sum()
    ranked = (
        frame.group_by("utid", maintain_order=True)
        .agg(
            pl.col("comm", "tid").last(), flips=flips, changes=pl.len(), best=pl.col("score").max()
        )
        .filter(pl.col("best").is_not_null())
        .sort("flips", "changes", "utid", descending=[True, True, False])
    )
    chosen = ranked.head(top).sort("utid")
    schedulers = frame["scheduler"].unique().to_list()
    known = rules("scores")
    limits = [known[name]["score_limit"] for name in schedulers if name in known]
    least = max(limits, default=100)
    highest = max([least, *ranked["best"].to_list()])
    last: int = until if until is not None else max(frame["ts"].to_list(), default=origin)
    with canvas(ax, height=1.8 + 0.55 * max(chosen.height, 1)) as axes:
        for lane, utid in enumerate(chosen["utid"]):
            rows = frame.filter(pl.col("utid") == utid).sort("ts", maintain_order=True)
            _lane(axes, rows, chosen.height - 1 - lane, 0.85 / highest, origin, last)
        names = [_name(*row) for row in chosen.select("utid", "comm", "tid").rows()]
        axes.set_yticks([y + 0.42 for y in range(len(names))], visible(names[::-1]))
        axes.set_ylim(-0.05, max(len(names), 1))
        axes.tick_params(axis="y", length=0)
        axes.grid(visible=False, axis="y")
        axes.spines["left"].set_visible(False)
        axes.set_xlabel("time in s")
        hidden = ranked.height - chosen.height
        more = f" ({hidden} threads with fewer changes not drawn)" if hidden else ""
        by = f" by {', '.join(schedulers)}" if schedulers else ""
        axes.set_title(f"Interactivity{by}; a full lane is {highest}{more}", pad=28)
        axes.legend(
            handles=[
                Patch(color=_INTERACTIVE, alpha=0.6, label="interactive"),
                Patch(color=_BATCH, alpha=0.6, label="not interactive"),
                Patch(color=FAINT, label="unknown"),
            ],
            loc="lower left",
            bbox_to_anchor=(0, 1),
            ncols=3,
        )
    return axes


def _name(utid: int, comm: str | None, tid: int | None) -> str:
    parts = [units.printable(comm)] if comm else []
    if tid is not None:
        parts.append(str(tid))
    return " ".join(parts) or f"thread {utid}"


def _lane(
    axes: Axes, rows: pl.DataFrame, bottom: int, scale: float, origin: int, last: int
) -> None:
    if rows["score"][-1] is None:
        last = int(rows["ts"][-1])
        rows = rows.head(-1)
    if rows.is_empty():
        return
    begins = rows["ts"].to_numpy()
    if rows.height > _PIXELS:
        column = (begins - begins[0]) * _PIXELS // max(int(last - begins[0]), 1)
        keep = np.append(column[1:] != column[:-1], True)
        rows = rows.filter(pl.Series(keep))
        begins = rows["ts"].to_numpy()
    edges = (np.append(begins, max(last, int(begins[-1]))) - origin) / 1e9
    known = rows["score"].is_not_null().to_numpy()
    height = rows["score"].fill_null(0).to_numpy() * scale
    good = rows["interactive"].fill_null(False).to_numpy()
    # Keep a score of 0 visible as a sliver of its colour.
    drawn = np.maximum(height, 0.03)
    for mask, color in ((known & good, _INTERACTIVE), (known & ~good, _BATCH)):
        axes.stairs(
            bottom + np.where(mask, drawn, 0),
            edges,
            baseline=bottom,
            fill=True,
            color=color,
            alpha=0.6,
            linewidth=0,
        )
    axes.stairs(bottom + 0.85 * ~known, edges, baseline=bottom, fill=True, color=FAINT)
    axes.stairs(
        np.where(known, bottom + height, np.nan), edges, baseline=None, color=INK, linewidth=0.7
    )
