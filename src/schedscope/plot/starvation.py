"""One episode of starvation: the thread that waited, above what the CPUs did meanwhile."""

from __future__ import annotations

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.patches import Patch, PathPatch
from matplotlib.path import Path

from schedscope import units
from schedscope.plot.style import COLORS, FAINT, INK, canvas, require, visible

_COLUMNS = ("lane", "cpu", "ts", "dur", "state", "kind", "comm", "waited")
_WAITING = COLORS[1]
_RUNNING = COLORS[0]
# Colours for culprits: all but the two of the waiting thread.
_CULPRITS = (COLORS[3], COLORS[2], COLORS[4], COLORS[5], "#8073ac", "#b2182b")
_OTHERS = ("#7d7d7d", "#a9a9a9")
"""In turn, by name: where one of them ends and the next begins is seen."""
# Intervals narrower than a pixel of their lane are drawn as one.
_PIXELS = 4000
# Room for a letter of a name in a bar, as a part of the axis.
_LETTER = 0.011
# Heights of the lanes.
_CPU, _THREAD = 0.72, 0.5
# Characters in a line of the legend, and those that a patch of colour takes.
_LINE, _SYMBOL = 84, 6


TOP = 6
"""Names with a colour."""
CPUS = 16
"""CPUs that have a lane, of those on whose queue the thread did not wait."""


def starvation(
    frame: pl.DataFrame,
    *,
    origin: int = 0,
    top: int = TOP,
    cpus: int = CPUS,
    ax: Axes | None = None,
) -> Axes:
    """Draw what `schedscope.starvation_timeline` returned, in s after `origin`.

    The top lane is the thread itself, waiting and running. Below it is a lane for each CPU on whose
    queue it waited, in strong colours while it did. Then come the other CPUs that it may use; of
    more than `cpus`, those that idled longest. The `top` names with the largest part of the time
    that it waited, or of all the time that is drawn, each have a colour; the others are in two
    greys, with their names where there is room. An idle CPU is blank; where the trace does not show
    what the CPU did, the lane is hatched.
    """
    require(frame, _COLUMNS, "schedscope.starvation_timeline")
    lanes = _lanes(frame, cpus)
    left_out = frame.filter(pl.col("lane") != "thread")["cpu"].n_unique() - lanes.height
    frame = _on(frame, lanes)
    order = lanes.rows()
    begin = int(frame["ts"].min() or 0)  # type: ignore[arg-type]
    end = int((frame["ts"] + frame["dur"]).max() or 0)  # type: ignore[arg-type]
    ran = frame.filter(pl.col("kind").cast(pl.String) == "thread")
    spent = _names(frame)
    names = spent["comm"].to_list()
    colors = dict(zip(names[:top], _CULPRITS, strict=False))
    greys = {name: _OTHERS[i % len(_OTHERS)] for i, name in enumerate(names[top:])}
    drawn = spent["drawn"].to_list()
    rest = sum(drawn[top:]) / max(1, sum(drawn))
    with canvas(ax, height=1.9 + 0.55 * (len(order) + 1)) as axes:
        mine = frame.filter(pl.col("lane") == "thread")
        axes.barh(
            range(len(order)),
            (end - begin) / 1e9,
            left=(begin - origin) / 1e9,
            height=_CPU,
            facecolor="white",
            edgecolor=FAINT,
            hatch="/////",
            linewidth=0,
        )
        bars = _bars(mine, frame, order, {**greys, **colors}).sort("layer", "color", "y", "ts")
        for (color, alpha), own in bars.group_by("color", "alpha", maintain_order=True):
            _draw(axes, own, str(color), float(str(alpha)), origin, end - begin)
        others = ran.filter(pl.col("comm").is_in(list(greys)))
        _write_names(axes, others, order, origin, end - begin)
        who = mine["comm"][0] if mine.height else ""
        labels = [units.printable(str(who))] + [f"CPU {cpu}" for _, cpu in order]
        axes.set_yticks(range(len(labels)), visible(labels[::-1]))
        axes.get_yticklabels()[-1].set_fontweight("bold")
        axes.tick_params(axis="y", length=0)
        axes.spines["left"].set_visible(False)
        axes.grid(visible=False, axis="y")
        axes.set_ylim(-0.6, len(labels) - 0.4)
        axes.set_xlim((begin - origin) / 1e9, (end - origin) / 1e9)
        few = f"; {units.several(left_out, 'CPU')} that idled less not drawn" if left_out else ""
        axes.set_xlabel(f"time in s{few}")
        seen = frame.filter(pl.col("lane") != "thread")["dur"].sum()
        unknown = seen < len(order) * (end - begin)
        idle = frame.filter(pl.col("lane") != "thread", pl.col("kind").cast(pl.String) == "idle")
        rows_of_legend = _legend(axes, colors, len(greys), rest, idle.height > 0, unknown)
        axes.set_title(f"Who ran while {labels[0] or 'it'} waited", pad=14 + 15 * rows_of_legend)
        axes.title.set_color(INK)
    return axes


def _lanes(frame: pl.DataFrame, cpus: int) -> pl.DataFrame:
    """The CPUs with a lane (`lane`, `cpu`), from the top."""
    idled = pl.col("dur").filter(pl.col("kind").cast(pl.String) == "idle").sum()
    lanes = (
        frame.filter(pl.col("lane") != "thread")
        .group_by("lane", "cpu")
        .agg(idle=idled)
        .sort("lane", "idle", "cpu", descending=[False, True, False])
    )
    queues = lanes.filter(pl.col("lane") == "queue")
    others = lanes.filter(pl.col("lane") == "other").head(cpus)
    return pl.concat([queues, others]).sort("lane", "cpu").select("lane", "cpu")


def _on(frame: pl.DataFrame, lanes: pl.DataFrame) -> pl.DataFrame:
    """What is drawn: the thread's own rows, and those on these lanes."""
    on_lane = frame.join(lanes, on=["lane", "cpu"], how="semi")
    return pl.concat([frame.filter(pl.col("lane") == "thread"), on_lane])


def names_drawn(frame: pl.DataFrame, cpus: int = CPUS) -> pl.DataFrame:
    """The threads that ran in the figure, in the order in which names get their colours.

    * `comm`: the name; null where it is not known;
    * `held_back`: time that they ran on a CPU while the thread was on its queue;
    * `drawn`: time that they ran on any of the CPUs that are drawn.
    """
    return _names(_on(frame, _lanes(frame, cpus)))


def _names(drawn: pl.DataFrame) -> pl.DataFrame:
    both = pl.col("held_back", "drawn")
    return (
        drawn.filter(pl.col("kind").cast(pl.String) == "thread")
        .group_by("comm")
        .agg(held_back=pl.col("dur").filter(pl.col("waited")).sum(), drawn=pl.col("dur").sum())
        .with_columns(share=pl.max_horizontal(both / both.sum()))
        .sort("share", "held_back", "comm", descending=[True, True, False])
        .drop("share")
    )


def _legend(
    axes: Axes, colors: dict[str, str], others: int, rest: float, idle: bool, unknown: bool
) -> int:
    handles = [
        Patch(color=_WAITING, label="it waits"),
        Patch(color=_RUNNING, label="it runs"),
        *(Patch(color=color, label=units.printable(name)) for name, color in colors.items()),
    ]
    if others > 0:
        label = f"{units.several(others, 'other name')}, {units.percent(rest)} of what ran"
        handles.append(Patch(facecolor=_OTHERS[0], edgecolor=_OTHERS[1], hatch="|||", label=label))
    if idle:
        handles.append(Patch(facecolor="white", edgecolor=FAINT, label="idle"))
    if unknown:
        handles.append(
            Patch(facecolor="white", edgecolor=FAINT, hatch="/////", linewidth=0, label="unknown")
        )
    columns = _columns([str(handle.get_label()) for handle in handles])
    axes.legend(
        handles=handles,
        loc="lower left",
        bbox_to_anchor=(0, 1),
        ncols=columns,
        columnspacing=1.2,
        handlelength=1.2,
    )
    return -(-len(handles) // columns)


def _columns(labels: list[str]) -> int:
    """How many columns of a legend fit beside each other; they are filled one after the other."""
    for columns in range(min(6, len(labels)), 1, -1):
        widths = [max(map(len, part)) + _SYMBOL for part in np.array_split(labels, columns)]
        if sum(widths) <= _LINE:
            return columns
    return 1


def _bars(
    mine: pl.DataFrame, frame: pl.DataFrame, order: list[tuple[str, int]], colors: dict[str, str]
) -> pl.DataFrame:
    """Where (`y`, `height`), when (`ts`, `dur`) and how to draw; higher `layer`s come later."""
    lanes = pl.DataFrame(
        [(kind, cpu, len(order) - 1 - lane) for lane, (kind, cpu) in enumerate(order)],
        schema={"lane": frame.schema["lane"], "cpu": frame.schema["cpu"], "y": pl.Int64},
        orient="row",
    )
    when = ("ts", "dur")
    there = frame.join(lanes, on=["lane", "cpu"])
    ran = there.filter(pl.col("kind").cast(pl.String) == "thread")
    known = there.select("y", *when, height=pl.lit(_CPU), color=pl.lit("white"), alpha=1.0, layer=0)
    by_name = ran.select(
        "y",
        *when,
        height=pl.lit(_CPU),
        color=pl.col("comm").replace_strict(colors, return_dtype=pl.String),
        alpha=pl.when("waited").then(1.0).otherwise(0.4),
        layer=1,
    )
    state = pl.col("state").cast(pl.String)
    own = mine.filter(state.is_in(["runnable", "running"])).select(
        *when,
        y=pl.lit(len(order), pl.Int64),
        height=pl.lit(_THREAD),
        color=pl.when(state == "running").then(pl.lit(_RUNNING)).otherwise(pl.lit(_WAITING)),
        alpha=1.0,
        layer=1,
    )
    return pl.concat([known, by_name, own.select(known.columns)])


def _write_names(
    axes: Axes, others: pl.DataFrame, order: list[tuple[str, int]], origin: int, length: int
) -> None:
    """Names of threads without a colour, in bars that are wide enough: a thread's runs with short
    gaps.
    """
    gap = max(length // _PIXELS, 1)
    apart = pl.col("ts") - (pl.col("ts") + pl.col("dur")).shift() > gap
    wide = (
        others.sort("lane", "cpu", "ts")
        .with_columns(new=(apart | pl.struct("lane", "cpu", "comm").rle_id().diff().ne(0)))
        .group_by("lane", "cpu", "comm", run=pl.col("new").fill_null(True).cum_sum())
        .agg(pl.col("ts").min(), until=(pl.col("ts") + pl.col("dur")).max())
        .filter(
            pl.col("until") - pl.col("ts") > pl.col("comm").str.len_chars() * (_LETTER * length)
        )
        .sort("ts")
    )
    for lane, cpu, comm, _, ts, until in wide.iter_rows():
        axes.text(
            ((ts + until) / 2 - origin) / 1e9, len(order) - 1 - order.index((lane, cpu)),
            units.printable(comm), ha="center", va="center", fontsize=7, color=INK, clip_on=True,
        )  # fmt: skip


def _draw(
    axes: Axes, bars: pl.DataFrame, color: str, alpha: float, origin: int, length: int
) -> None:
    """Bars of one colour as one path: neighbours that no eye could tell apart are one bar."""
    gap = max(length // _PIXELS, 1)
    until = pl.col("ts") + pl.col("dur")
    apart = (pl.col("ts") - until.shift()).fill_null(gap + 1) > gap
    joined = (
        bars.sort("y", "ts")
        .with_columns(run=apart.over("y").cum_sum())
        .group_by("run", maintain_order=True)
        .agg(pl.col("y", "height", "ts").first(), until=until.max())
    )
    left, right = ((joined[name] - origin).to_numpy() / 1e9 for name in ("ts", "until"))
    y, half = joined["y"].to_numpy(), joined["height"].to_numpy() / 2
    corners = ((left, y - half), (left, y + half), (right, y + half), (right, y - half))
    outline = np.stack([np.stack(corner, axis=1) for corner in corners], axis=1)
    path = Path.make_compound_path_from_polys(outline)
    # The thread's own runs are what it waited for: to be seen, however short.
    edge = 0.8 if color == _RUNNING else 0
    axes.add_artist(PathPatch(path, facecolor=color, edgecolor=color, alpha=alpha, linewidth=edge))
