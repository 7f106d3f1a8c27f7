"""Where threads ran, and whether they returned to the cache with their data."""

from __future__ import annotations

import itertools

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter

from schedscope import units
from schedscope.errors import UsageError
from schedscope.plot.style import COLORS, FAINT, INK, canvas, keep_visible, require, short, visible

_WORDS = {
    "cpu": "CPU",
    "core": "core",
    "llc": "cache",
    "package": "package",
    "numa_node": "node",
}

# The number of parts of a bar that remain distinguishable.
_MOST = 16

# The upper end of the strip of bars below the shares.
_STRIP = -0.3

# Columns of `cpus` that put CPUs into groups, as in analysis/cpus/topology.py.
_PLACES = ("cpu", "core", "llc", "package", "numa_node")


def residency(frame: pl.DataFrame, *, top: int = 15, ax: Axes | None = None) -> Axes:
    """Draw what `schedscope.residency` returned: a bar per group, a colour per CPU (or cache ...).

    A bar is all of the group's running time, and the figure at its end says how long that was, so
    that groups can be compared. At most `top` groups are drawn, those that ran longest. With more
    than 16 CPUs (or caches ...), the ones with most of a bar are coloured, and the others are one
    grey part at its end.
    """
    require(frame, ("running", "running_frac", "runs"), "schedscope.residency")
    over = frame.columns[frame.columns.index("running") - 1]
    if over not in _PLACES:
        raise UsageError(
            f"the frame has {over!r} before `running`",
            "the frame that schedscope.residency returns",
        )
    names = frame.columns[: frame.columns.index(over)]
    label = pl.concat_str(
        [pl.col(c).cast(pl.String).fill_null("-") for c in names], separator=" · "
    )
    named = frame.with_columns(group=label if names else pl.lit("all threads"))
    ranked = (
        named.group_by("group").agg(pl.col("running").sum())
        .sort("running", "group", descending=[True, False])
    )  # fmt: skip
    hidden = max(ranked.height - top, 0)
    ranked = ranked.head(top)
    places = sorted(named[over].unique().to_list(), key=lambda place: (place is None, place))
    parts = _parts(named.filter(pl.col("group").is_in(ranked["group"].implode())), over)
    many = len(places) > _MOST
    with canvas(ax, height=1.6 + 0.34 * max(ranked.height, 2)) as axes:
        rows = np.arange(ranked.height)[::-1]
        base = np.zeros(ranked.height)
        # Without a legend a color need not be of one place alone, as long as neighbours differ.
        shades = COLORS if many else _colors(len(places))
        colors = dict(zip(places, itertools.cycle(shades), strict=False))
        for (place, _), part in parts.group_by([over, "small"], maintain_order=True):
            shares = dict(part.select("group", "running_frac").iter_rows())
            widths = np.array([shares.get(group, 0.0) for group in ranked["group"]])
            some = widths > 0
            bars = axes.barh(
                rows[some], widths[some], left=base[some], height=0.72,
                color=FAINT if place is None else colors[place], edgecolor="white", linewidth=0.6,
                label=f"{_WORDS[over]} unknown" if place is None else f"{_WORDS[over]} {place}",
            )  # fmt: skip
            keep_visible(bars, 1)
            base += widths
        for row, running in zip(rows.tolist(), ranked["running"], strict=True):
            axes.text(1.01, row, units.duration(running), va="center", fontsize=9, color=INK)
        axes.set_yticks(rows, visible(ranked["group"].to_list()))
        axes.tick_params(axis="y", length=0)
        axes.spines["left"].set_visible(False)
        axes.grid(False, axis="y")
        axes.set_xlim(0, 1.12)
        axes.set_ylim(-0.6, max(ranked.height, 1) - 0.4)
        axes.set_xticks([0, 0.25, 0.5, 0.75, 1])
        axes.xaxis.set_major_formatter(PercentFormatter(1, symbol=" %"))
        axes.set_xlabel("share of the running time")
        notes = [f"{hidden} groups with less time not drawn"] if hidden else []
        notes += [f"grey: all but a bar's {_MOST} largest parts"] if many else []
        columns = min(len(places), 8)
        lines = 0 if many else -(-len(places) // max(columns, 1))
        more = f" ({'; '.join(notes)})" if notes else ""
        axes.set_title(f"Where the time was spent{more}", pad=10 + 18 * lines)
        if places and not many:
            axes.legend(
                loc="lower left", bbox_to_anchor=(0, 1), ncols=columns,
                columnspacing=1.2, handlelength=1.2,
            )  # fmt: skip
    return axes


def cpu_returns(frame: pl.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Draw what `schedscope.cpu_returns` returned: the share of returns by the time since the last
    run.

    Each dot is the share of the runs after such a time, with its 95 % interval (Wilson). The grey
    bars below show how many runs there were.
    """
    needed = ("since_from", "since_to", "n", "same_cpu", "same_llc")
    require(frame, needed, "schedscope.cpu_returns")
    rows = frame.filter(pl.col("since_from").is_not_null())
    drawn = rows.filter(pl.col("n") > 0)
    first, last = (0, -1) if drawn.is_empty() else (drawn["since_from"][0], drawn["since_from"][-1])
    rows = rows.filter(pl.col("since_from").is_between(first, last))
    with canvas(ax) as axes:
        x = np.arange(rows.height)
        n = rows["n"].to_numpy().astype(float)
        most = max(n.max(initial=0), 1)
        # A strip of their own below the shares, which have another scale.
        axes.bar(x, 0.2 * n / most, width=0.9, bottom=_STRIP, color=FAINT, zorder=0)
        for row, count in zip(x.tolist(), rows["n"], strict=True):
            axes.text(
                row, _STRIP + 0.2 * count / most + 0.012, units.count(count),
                ha="center", fontsize=8, color=INK,
            )  # fmt: skip
        axes.text(
            -0.012, _STRIP + 0.1, "runs", transform=axes.get_yaxis_transform(),
            ha="right", va="center", color=INK,
        )  # fmt: skip
        axes.axhline(0, color=INK, linewidth=0.8)
        series = [("same_cpu", "to the same CPU", COLORS[0], "o", -0.08)]
        if not rows["same_llc"].has_nulls():
            series.append(("same_llc", "to the same last-level cache", COLORS[1], "s", 0.08))
        for column, text, color, marker, shift in series:
            hits = rows[column].to_numpy().astype(float)
            some = n > 0
            share = hits[some] / n[some]
            low, high = _wilson(hits[some], n[some])
            axes.errorbar(
                x[some] + shift, share, yerr=[share - low, high - share],
                color=color, marker=marker, markersize=6, linewidth=1.4, elinewidth=1,
                capsize=2, label=text,
            )  # fmt: skip
        # Buckets adjoin: their bounds stand between them.
        bounds = [*rows["since_from"], *rows["since_to"].tail(1)]
        texts = ["∞" if bound is None else short(bound) for bound in bounds]
        axes.set_xticks(np.arange(len(bounds)) - 0.5, texts)
        axes.set_xlim(-0.6, max(rows.height, 1) - 0.4)
        axes.set_yticks([0, 0.25, 0.5, 0.75, 1])
        axes.set_ylim(_STRIP, 1.08)
        axes.yaxis.set_major_formatter(PercentFormatter(1, symbol=" %"))
        axes.grid(False, axis="x")
        axes.set_xlabel("time since the thread last ran")
        axes.set_ylabel("share of the runs")
        axes.set_title("Did threads return to the CPU they ran on last?", pad=28)
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2)
    return axes


def _parts(named: pl.DataFrame, over: str) -> pl.DataFrame:
    """`group`, place, `small`, `running_frac`: what is drawn, in order.

    A place that is `small` is null: it stands for all that are beyond the largest of a group.
    """
    every = named.group_by("group", over).agg(pl.col("running_frac").sum())
    rank = pl.col("running_frac").rank("ordinal", descending=True).over("group")
    many = named[over].n_unique() > _MOST
    small = (rank > _MOST) if many else pl.lit(value=False)
    return (
        every.sort("group", over)
        .with_columns(small=small)
        .with_columns(pl.when(~pl.col("small")).then(over).alias(over))
        .group_by("group", over, "small")
        .agg(pl.col("running_frac").sum())
        .sort("small", over, nulls_last=True)
    )


def _colors(n: int) -> list[str]:
    """Neighbours differ in hue, and every seven again in brightness."""
    from matplotlib.colors import to_hex, to_rgb

    found = []
    for i in range(n):
        pale = 0.0 if n <= len(COLORS) else min(i // len(COLORS), 3) * 0.25
        red, green, blue = to_rgb(COLORS[i % len(COLORS)])
        found.append(
            to_hex((red + (1 - red) * pale, green + (1 - green) * pale, blue + (1 - blue) * pale))
        )
    return found


def _wilson(hits: np.ndarray, n: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Wilson's interval of a share (1927): it never leaves 0 .. 1, and holds for few runs."""
    z = 1.959964
    middle = (hits + z * z / 2) / (n + z * z)
    half = z / (n + z * z) * np.sqrt(hits * (n - hits) / n + z * z / 4)
    # Rounding may put an end on the wrong side of the share itself.
    share = hits / n
    return np.minimum(middle - half, share), np.maximum(middle + half, share)
