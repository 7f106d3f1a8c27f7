"""How many threads wanted each CPU, over time: one lane per CPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.patches import Patch, StepPatch

from schedscope.plot.style import COLORS, FAINT, INK, canvas, require, visible

if TYPE_CHECKING:
    import numpy.typing as npt

    Ints = npt.NDArray[np.int64]
    Numbers = npt.NDArray[np.float64]

_COLUMNS = ("cpu", "ts", "dur", "waiting", "running", "depth")
_PARTS = ("cpu", "ts", "dur", "unknown", "waiting", "depth", "waiting_max", "depth_max", "held")
# Above this many steps of a CPU a lane shows means and maxima of as many columns.
_PIXELS = 1200


def queue_depth(
    frame: pl.DataFrame,
    *,
    running: bool = True,
    top: int = 16,
    origin: int = 0,
    ax: Axes | None = None,
) -> Axes:
    """Draw what `schedscope.queue_depth` returned, steps or buckets: a lane per CPU.

    Time is in s after `origin`.

    Without `running` only the threads that wait are drawn. Where there are more steps than pixels,
    the dark area is the exact mean over each pixel's time, and the light area behind it the
    maximum; fully grey is time in which the depth is not known. At most `top` lanes are drawn,
    those with the most waiting.
    """
    require(frame, ("cpu", "ts"), "schedscope.queue_depth")
    parted = set(_PARTS) <= set(frame.columns)
    require(frame, _PARTS if parted else _COLUMNS, "schedscope.queue_depth")
    name = "depth" if running else "waiting"
    if parted:
        frame = frame.with_columns(drawn=pl.col(f"{name}_max"))
        held = pl.col("held").sum()
    else:
        known = pl.when(pl.col("running").is_not_null())
        frame = frame.with_columns(drawn=known.then(pl.col(name)))
        held = (pl.col("waiting").cast(pl.Int64) * pl.col("dur")).sum()
    ranked = frame.group_by("cpu").agg(held=held).sort("held", "cpu", descending=[True, False])
    chosen = ranked.head(top)["cpu"].sort(nulls_last=True).to_list()
    hidden = ranked.height - len(chosen)
    highest = max(1, int(frame["drawn"].max() or 0))  # type: ignore[arg-type]
    lanes = frame.partition_by("cpu", as_dict=True)
    with canvas(ax, height=1.8 + 0.7 * max(len(chosen), 1)) as axes:
        for lane, cpu in enumerate(chosen):
            levels = _of_parts(lanes[(cpu,)], name) if parted else _of_steps(lanes[(cpu,)])
            _lane(axes, levels, len(chosen) - 1 - lane, 0.85 / highest, origin)
            _scale(axes, len(chosen) - 1 - lane, highest)
        names = ["all" if cpu is None else f"CPU {cpu}" for cpu in chosen]
        if None in chosen and len(chosen) > 1:
            names[-1] = "no queue"
        axes.set_yticks(range(len(names)), visible(names[::-1]))
        axes.set_ylim(-0.05, max(len(names), 1))
        axes.margins(x=0.01)
        axes.tick_params(axis="y", length=0)
        axes.spines["left"].set_visible(False)
        axes.set_xlabel("time in s")
        what = "Threads on the queue or running" if running else "Threads on the queue"
        more = f" ({hidden} with less not drawn)" if hidden else ""
        axes.set_title(f"{what}; a full lane is {highest}{more}", pad=28)
        axes.legend(
            handles=[
                Patch(color=COLORS[0], label="mean"),
                Patch(color=COLORS[5], alpha=0.5, label="maximum"),
                Patch(color=FAINT, label="unknown"),
            ],
            loc="lower left",
            bbox_to_anchor=(0, 1),
            ncols=3,
        )
    return axes


@dataclass(frozen=True)
class _Levels:
    """What a lane shows from each of `edges` to the next."""

    edges: Ints
    mean: Numbers
    most: Ints
    blind: npt.NDArray[np.bool_]


def _of_parts(parts: pl.DataFrame, name: str) -> _Levels:
    begins = parts["ts"].to_numpy()
    return _Levels(
        np.append(begins, begins[-1] + parts["dur"][-1]),
        parts[name].fill_null(0.0).to_numpy(),
        parts["drawn"].to_numpy().astype(np.int64),
        (parts["unknown"] >= parts["dur"]).to_numpy(),
    )


def _of_steps(steps: pl.DataFrame) -> _Levels:
    begins = steps["ts"].to_numpy()
    edges = np.append(begins, begins[-1] + steps["dur"][-1])
    unknown = steps["drawn"].is_null().to_numpy()
    levels = steps["drawn"].fill_null(0).to_numpy().astype(np.int64)
    if len(levels) <= _PIXELS:
        return _Levels(edges, levels.astype(np.float64), levels, unknown)
    columns = np.linspace(edges[0], edges[-1], _PIXELS + 1).astype(np.int64)
    length = np.diff(columns)
    held = np.diff(_integral(edges, levels, columns))
    dark = np.diff(_integral(edges, unknown.astype(np.int64), columns))
    first = np.searchsorted(edges, columns[:-1], side="right") - 1
    last = np.searchsorted(edges, columns[1:], side="left")
    most = np.array([levels[a:b].max() for a, b in zip(first, last, strict=True)])
    # Over the known part only: unknown time is not idle time.
    return _Levels(columns, held / np.maximum(length - dark, 1), most, dark >= length)


def _lane(axes: Axes, levels: _Levels, bottom: int, scale: float, origin: int) -> None:
    x = (levels.edges - origin) / 1e9
    shades = ((levels.most, COLORS[5], 0.5), (levels.mean, COLORS[0], 1.0))
    for values, color, alpha in shades:
        _stairs(axes, bottom + values * scale, x, bottom, color, alpha)
    # Of mostly unknown stretches, draw only the start and the end.
    blind = levels.blind.astype(np.int64)
    turns = np.flatnonzero(np.diff(blind, prepend=-1))
    edges = np.append(x[:-1][turns], x[-1])
    _stairs(axes, bottom + 0.85 * blind[turns], edges, bottom, FAINT, 1.0)


def _scale(axes: Axes, bottom: int, highest: int) -> None:
    """Labels for the bottom and the full height of a lane, at its right end."""
    axes.axhline(bottom + 0.85, color=FAINT, linewidth=0.6, zorder=0.5)
    for text, y, side in (("0", bottom, "bottom"), (str(highest), bottom + 0.85, "top")):
        axes.annotate(
            text, (1, y), xycoords=("axes fraction", "data"), xytext=(4, 0),
            textcoords="offset points", va=side, fontsize=8, color=INK, annotation_clip=False,
        )  # fmt: skip


def _stairs(
    axes: Axes,
    values: npt.NDArray[np.floating[Any]],
    edges: npt.NDArray[np.floating[Any]],
    bottom: int,
    color: str,
    alpha: float,
) -> None:
    """`axes.stairs`, without a look at every edge for the limits of the axes, which are known."""
    axes.add_artist(StepPatch(values, edges, baseline=bottom, fill=True, color=color, alpha=alpha))
    axes.update_datalim([(edges[0], bottom), (edges[-1], bottom + 1)])
    axes.autoscale_view(scaley=False)


def _integral(edges: Ints, levels: Ints, at: Ints) -> Numbers:
    """The integral of a step function from its first edge to each of `at`."""
    # Times since the first edge: sums of ns since boot would round in floating point.
    sums = np.concatenate([[0], np.cumsum(levels * np.diff(edges))])
    integral: Numbers = np.interp(at - edges[0], edges - edges[0], sums)
    return integral
