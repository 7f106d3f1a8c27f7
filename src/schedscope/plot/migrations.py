"""From which CPU to which threads moved, and how often, over time."""

from __future__ import annotations

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.ticker import MaxNLocator

from schedscope import units
from schedscope.plot.style import COLORS, FAINT, INK, canvas, nothing, require, short

# White means zero; the dark end is dark enough for white digits.
_HEAT = LinearSegmentedColormap.from_list("heat", ["#eef5fa", COLORS[5], COLORS[0], "#00355a"])
# More CPUs than this have no room for a number in each field.
_NUMBERS = 16
# More fields than this in a row are too small to see.
_FIELDS = 64
_COLORS = {
    "wake": COLORS[0],
    "balance": COLORS[1],
    "fork": COLORS[2],
    "exec": COLORS[4],
    "affinity": COLORS[3],
    "unknown": COLORS[6],
}


def migration_matrix(frame: pl.DataFrame, *, value: str = "n", ax: Axes | None = None) -> Axes:
    """Draw what `schedscope.migration_matrix` returned: from the CPU of a row to that of a column.

    `value` is the column to show: "n", a cause, "n_waited", or "queued" (time). A darker field has
    more; a field without a colour has none. Thin lines separate the last-level caches, as far as
    the distances show them. With more than 64 CPUs, each row and column stands for neighbours that
    share a cache, or for several such groups; the diagonal then has the moves within a group.
    """
    require(frame, ("from_cpu", "to_cpu", "distance", value), "schedscope.migration_matrix")
    cpus = sorted({*frame["from_cpu"], *frame["to_cpu"]})
    field = np.zeros((len(cpus), len(cpus)))
    ends = [np.searchsorted(cpus, frame[name].to_numpy()) for name in ("from_cpu", "to_cpu")]
    field[ends[0], ends[1]] = frame[value].fill_null(0).to_numpy()
    borders = _borders(frame, cpus)
    names = [str(cpu) for cpu in cpus]
    if len(cpus) > _FIELDS:
        # Without a row for each pair it is not known where all caches end.
        whole = frame.height >= len(cpus) * (len(cpus) - 1)
        begins = _groups(borders if whole else [], len(cpus))
        field = np.add.reduceat(np.add.reduceat(field, begins, axis=0), begins, axis=1)
        names, borders = _ranges(cpus, begins), []
    size = min(2.8 + 0.5 * max(len(names), 2), 9.5)
    with canvas(ax, width=size + 1.2, height=size) as axes:
        shown = np.ma.masked_equal(field, 0)
        most = float(field.max()) if field.size else 0.0
        image = axes.imshow(shown, cmap=_HEAT, vmin=0, vmax=most or 1, interpolation="nearest")
        axes.figure.colorbar(
            image,
            ax=axes,
            shrink=0.75,
            label=_meaning(value),
            format=lambda v, _: _amount(v, value),
            ticks=MaxNLocator(nbins=6, integer=value != "queued"),
        )
        if len(names) <= _NUMBERS:
            for (row, column), amount in np.ndenumerate(field):
                if row != column or amount:
                    color = "white" if amount > 0.55 * most else INK
                    axes.text(
                        column, row, _amount(amount, value), color=color,
                        ha="center", va="center", fontsize=9 if len(names) <= 8 else 7,
                    )  # fmt: skip
        for border in borders:
            axes.axhline(border - 0.5, color=INK, linewidth=0.8)
            axes.axvline(border - 0.5, color=INK, linewidth=0.8)
        step = -(-len(names) // 32) if names else 1
        ticks = range(0, len(names), step)
        grouped = len(names) < len(cpus)
        axes.set_xticks(ticks, [names[i] for i in ticks], rotation=90 if grouped else 0)
        axes.set_yticks(ticks, [names[i] for i in ticks])
        axes.tick_params(length=0)
        axes.grid(False)
        for spine in axes.spines.values():
            spine.set_visible(True)
            spine.set_color(FAINT)
        axes.set_xlabel("to CPUs" if grouped else "to CPU")
        axes.set_ylabel("from CPUs" if grouped else "from CPU")
        total = _amount(float(field.sum()), value)
        axes.set_title(f"{_meaning(value).capitalize()}: {total} in all")
    return axes


def migration_rates(
    frame: pl.DataFrame, *, top: int = 6, origin: int = 0, ax: Axes | None = None
) -> Axes:
    """Draw what `schedscope.migration_summary(..., every=...)` returned: migrations per second.

    Each bar is a time bucket, stacked by the groups that migrated most; all others are one group,
    grey. Time in s after `origin`. The last, partial bucket is drawn only if it is at least half a
    bucket long: over a short time the rate is a spike or zero, by chance.
    """
    require(frame, ("ts", "n", "rate_hz"), "schedscope.migration_summary(..., every=...)")
    names = frame.columns[1 : frame.columns.index("n")]
    label = pl.concat_str(
        [pl.col(c).cast(pl.String).fill_null("-") for c in names], separator=" · "
    )
    named = frame.with_columns(group=label if names else pl.lit("all"))
    ranked = (
        named.group_by("group").agg(pl.col("n").sum()).filter(pl.col("n") > 0)
        .sort("n", "group", descending=[True, False])
    )  # fmt: skip
    groups = ranked["group"].to_list()
    begins = frame["ts"].unique().sort().to_list()
    # As long as the rates say: the last bucket ends with the window.
    told = frame.filter(pl.col("n") > 0).select("ts", length=pl.col("n") / pl.col("rate_hz"))
    lengths = dict(told.iter_rows())
    widths = np.array([lengths.get(ts, 0.0) for ts in begins])
    stub = len(widths) > 1 and widths[-1] < widths.max() / 2
    left_out = f"; the last {units.duration(widths[-1] * 1e9)} not drawn" if stub else ""
    if stub:
        begins, widths = begins[:-1], widths[:-1]
    with canvas(ax, height=4) as axes:
        base = np.zeros(len(begins))
        x = (np.array(begins, dtype=np.float64) - origin) / 1e9
        for i, group in enumerate([*groups[:top], *([None] if len(groups) > top else [])]):
            chosen = (
                pl.col("group").is_in(groups[top:]) if group is None else pl.col("group") == group
            )
            rates = dict(
                named.filter(chosen).group_by("ts").agg(pl.col("rate_hz").sum()).iter_rows()
            )
            heights = np.array([rates.get(ts) or 0.0 for ts in begins])
            color = FAINT if group is None else _COLORS.get(group, COLORS[i % len(COLORS)])
            count = int(ranked.filter(chosen)["n"].sum())
            word = f"{len(groups) - top} others" if group is None else group
            axes.bar(
                x, heights, width=widths, align="edge", bottom=base, color=color,
                edgecolor="white", linewidth=0.4 if len(begins) < 200 else 0,
                label=f"{word} ({units.count(count)})",
            )  # fmt: skip
            base += heights
        axes.set_xlabel("time in s")
        axes.set_ylabel("migrations per second")
        axes.yaxis.set_major_locator(MaxNLocator(nbins=6))
        bucket = f", buckets of {short(widths.max() * 1e9)}" if widths.any() else ""
        axes.set_title(f"Migrations over time{bucket}{left_out}", pad=10)
        axes.grid(False, axis="x")
        if groups:
            # From top to bottom, as the bars are stacked.
            axes.legend(loc="upper left", bbox_to_anchor=(1, 1), reverse=True)
        else:
            nothing(axes, "none")
    return axes


def _borders(frame: pl.DataFrame, cpus: list[int]) -> list[int]:
    """Between which neighbours the cache ends."""
    pairs = frame.filter(pl.col("distance").is_in(["package", "numa"]))
    pairs = pairs.filter(pl.col("from_cpu") < pl.col("to_cpu"))
    following = pl.DataFrame(
        {"from_cpu": cpus[:-1], "to_cpu": cpus[1:], "at": range(1, len(cpus) or 1)},
        {"from_cpu": pl.Int64, "to_cpu": pl.Int64, "at": pl.Int64},
    )
    ends = pairs.select(pl.col("from_cpu", "to_cpu").cast(pl.Int64))
    return following.join(ends, on=["from_cpu", "to_cpu"]).sort("at")["at"].to_list()


def _groups(borders: list[int], n: int) -> list[int]:
    """Where each group of neighbours begins: the caches of a machine, or equal parts of it.

    So many neighbours are one that `_FIELDS` groups are enough.
    """
    begins = [0, *borders] if borders else list(range(n))
    return begins[:: -(-len(begins) // _FIELDS)]


def _ranges(cpus: list[int], begins: list[int]) -> list[str]:
    ends = [*begins[1:], len(cpus)]
    spans = [(cpus[begin], cpus[end - 1]) for begin, end in zip(begins, ends, strict=True)]
    return [str(first) if first == last else f"{first}-{last}" for first, last in spans]


def _meaning(value: str) -> str:
    if value in ("wake", "balance", "fork", "exec", "affinity", "unknown"):
        return f"migrations by {value}"
    words = {
        "n": "migrations",
        "n_waited": "migrations that waited anyway",
        "queued": "waiting after a migration",
    }
    return words.get(value, value)


def _amount(amount: float, value: str) -> str:
    return units.duration(amount) if value == "queued" else units.count(amount)
