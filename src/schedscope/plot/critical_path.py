"""The critical path as swim lanes: a lane per thread, the path from lane to lane."""

from __future__ import annotations

import polars as pl
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.patches import Patch

from schedscope import units
from schedscope.plot.style import COLORS, FAINT, INK, canvas, require, visible

_NEEDED = ("ts", "dur", "kind", "comm", "tid", "utid", "ended")
_KINDS = {
    "run": ("runs", COLORS[2]),
    "wait": ("waits for a CPU", COLORS[1]),
    "wake": ("being placed", COLORS[4]),
    "sleep": ("waits for an interrupt", COLORS[5]),
    "unknown": ("unknown", FAINT),
}


def critical_path(
    frame: pl.DataFrame, *, top: int = 16, origin: int = 0, ax: Axes | None = None
) -> Axes:
    """Draw what `schedscope.critical_path` returned: a lane per thread, in seconds after `origin`.

    Lanes are in the order in which the path first comes to their threads; a line from lane to lane
    is a wakeup. At most `top` lanes are drawn, those with the most time of the path; the rest of
    the path is in the last one.
    """
    require(frame, _NEEDED, "schedscope.critical_path")
    time = frame.group_by("utid").agg(pl.col("dur").sum()).sort("dur", "utid", descending=True)
    several = time.height > top
    chosen = set(time.head(top - 1 if several else top)["utid"])
    lanes: dict[int | None, int] = {}
    labels: list[str] = []
    for row in frame.iter_rows(named=True):
        if row["utid"] in chosen and row["utid"] not in lanes:
            lanes[row["utid"]] = len(lanes)
            tid = "" if row["tid"] is None else f" {row['tid']}"
            labels.append(f"{units.printable(row['comm'] or '?')}{tid}")
    if several:
        lanes[None] = len(lanes)
        labels.append(f"{time.height - len(chosen)} others")
    total = int(frame["dur"].sum())
    with canvas(ax, width=9, height=2.0 + 0.34 * max(len(labels), 1)) as axes:
        boxes: dict[str, list[list[tuple[float, float]]]] = {kind: [] for kind in _KINDS}
        hops = []
        before: int | None = None
        for row in frame.iter_rows(named=True):
            y = lanes.get(row["utid"], len(lanes) - 1)
            a = (row["ts"] - origin) / 1e9
            b = (row["ts"] + row["dur"] - origin) / 1e9
            boxes[row["kind"]].append([(a, y - 0.36), (a, y + 0.36), (b, y + 0.36), (b, y - 0.36)])
            if before is not None and before != y:
                hops.append([(a, before), (a, y)])
            before = y
        axes.add_collection(LineCollection(hops, colors=INK, linewidths=0.5, alpha=0.6))
        for kind, found in boxes.items():
            color = _KINDS[kind][1]
            # An edge of the same colour: a step of a microsecond is thinner than a pixel.
            axes.add_collection(
                PolyCollection(found, facecolors=color, edgecolors=color, linewidths=0.4)
            )
        axes.autoscale_view()
        axes.set_yticks(range(len(labels)), visible(labels))
        axes.set_ylim(max(len(labels), 1) - 0.4, -0.6)
        axes.tick_params(axis="y", length=0)
        axes.grid(visible=False, axis="y")
        axes.spines["left"].set_visible(False)
        axes.set_xlabel("time in s")
        steps = units.several(len(frame), "step")
        drawn = [kind for kind in _KINDS if boxes[kind]]
        axes.set_title(
            f"Critical path: {units.duration(total)} in {steps}", pad=12 + 17 * -(-len(drawn) // 3)
        )
        shares = {
            kind: int(frame.filter(pl.col("kind") == kind)["dur"].sum()) / max(total, 1)
            for kind in _KINDS
        }
        axes.legend(
            handles=[
                Patch(
                    color=_KINDS[kind][1], label=f"{_KINDS[kind][0]} {units.percent(shares[kind])}"
                )
                for kind in drawn
            ],
            loc="lower left",
            bbox_to_anchor=(0, 1),
            ncols=3,
            columnspacing=1.2,
        )
    return axes
