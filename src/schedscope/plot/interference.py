"""Which threads ran while each victim waited: a bar per victim, divided."""

from __future__ import annotations

import polars as pl
from matplotlib.axes import Axes

from schedscope import units
from schedscope.plot.style import COLORS, FAINT, INK, canvas, require, time_axis, visible

_NEEDED = ("wait", "kind", "time", "share")
_REST = {
    "idle": ("the CPU idled", COLORS[5]),
    "unknown": ("unknown", "#999999"),
    "no_queue": ("on no known queue", "#bbbbbb"),
    "others": ("others", FAINT),
}


def interference(
    frame: pl.DataFrame, *, victims: int = 8, top: int = 6, ax: Axes | None = None
) -> Axes:
    """Draw what `schedscope.interference` returned: a bar for each that ran, by victim.

    Drawn are the `victims` that waited longest. Each has bars for the `top` that ran longest, for
    idle and for unknown time, and one bar for the rest. The bars of a victim add up to its wait.
    """
    require(frame, _NEEDED, "schedscope.interference")
    of_victim = [name for name in frame.columns if name.startswith("victim_")]
    parts = (
        frame.partition_by(of_victim, maintain_order=True) if of_victim and len(frame) else [frame]
    )
    bars: list[tuple[str, float, str, str]] = []
    marks: list[tuple[int, str]] = []
    for part in parts[:victims]:
        if not len(part):
            continue
        first = part.row(0, named=True)
        name = _name(first, "victim_") if of_victim else "the selected threads"
        marks.append((len(bars), f"{name} waited {units.duration(first['wait'])}"))
        threads = part.filter(pl.col("kind") == "thread")
        for row in threads.head(top).iter_rows(named=True):
            bars.append((_name(row), row["time"], COLORS[1], units.percent(row["share"])))
        rest = threads.slice(top)
        if len(rest):
            together = int(rest["time"].sum())
            share = units.percent(together / first["wait"])
            others = "1 other" if len(rest) == 1 else f"{len(rest)} others"
            bars.append((others, together, FAINT, share))
        for row in part.filter(pl.col("kind") != "thread").iter_rows(named=True):
            label, color = _REST[row["kind"]]
            bars.append((label, row["time"], color, units.percent(row["share"])))
    # A line of its own for each victim's name.
    with canvas(ax, height=1.5 + 0.26 * max(len(bars) + len(marks), 1)) as axes:
        y, ticks, labels = 0, [], []
        begins = dict(marks)
        longest = max([1.0, *(bar[1] for bar in bars)])
        for i, (label, time, color, text) in enumerate(bars):
            if i in begins:
                axes.text(0, y, begins[i], fontweight="bold", va="center", color=INK)
                y += 1
            axes.barh(y, time, height=0.72, color=color)
            axes.annotate(
                text, (time, y), xytext=(4, 0), textcoords="offset points", va="center", fontsize=8
            )
            ticks.append(y)
            labels.append(label)
            y += 1
        axes.set_yticks(ticks, visible(labels))
        axes.set_ylim(max(y, 1) - 0.4, -0.6)
        axes.set_xlim(0, longest * 1.12)
        axes.tick_params(axis="y", length=0)
        axes.grid(visible=False, axis="y")
        axes.spines["left"].set_visible(False)
        time_axis(axes.xaxis)
        hidden = len(parts) - victims
        more = f" ({hidden} more victims not drawn)" if hidden > 0 else ""
        axes.set_title(f"Who ran meanwhile on the CPU waited for{more}")
    return axes


def _name(row: dict[str, object], prefix: str = "") -> str:
    names = [row.get(f"{prefix}{key}") for key in ("comm", "tid")]
    if all(name is None for name in names):
        names = [row.get(f"{prefix}process_name") or "process", row.get(f"{prefix}pid")]
    return " ".join(units.printable(str(name)) for name in names if name is not None)
