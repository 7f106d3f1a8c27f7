"""Figures of simulations: waits under each policy, and a policy's internals over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import polars as pl
from matplotlib.patches import Patch

from schedscope.analysis.sums.quantiles import quantile
from schedscope.errors import UsageError
from schedscope.plot import style
from schedscope.simulator.policies.policy import series as series_of
from schedscope.simulator.runs.run import policy_series as recorded_series
from schedscope.store.trace import Trace

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes


FEW = 7
"""More curves than this in one figure cannot be told apart."""


def policies(traces: Mapping[str, Trace], *, ax: Axes | None = None) -> Axes:
    """Waits for a CPU under each policy, on a logarithmic axis.

    Up to `FEW` policies each have a curve: the share of waits longer than x, from 1 us on. More
    policies each have a row with the median, p99 and longest wait, the best p99 on top; values
    below 1 us are drawn at the left edge.
    """
    if not traces:
        raise UsageError("no traces", "at least one policy's trace")
    waits = {
        name: trace.waits.select("wait").drop_nulls().collect()["wait"].sort()
        for name, trace in traces.items()
    }
    with style.canvas(ax, height=5 if len(waits) <= FEW else 1.4 + 0.25 * len(waits)) as ax:
        if not any(len(w) and w[-1] >= SHORTEST for w in waits.values()):
            ax.text(0.5, 0.5, "no wait of 1 µs or more", transform=ax.transAxes, ha="center")
        elif len(waits) <= FEW:
            _survival(ax, waits)
        else:
            _ranges(ax, waits)
        ax.set_xlabel("wait for a CPU")
        ax.set_title("Waits under each policy")
    return ax


SHORTEST = 1000


def _survival(ax: Axes, waits: Mapping[str, pl.Series]) -> None:
    for (name, all_of_them), color in zip(waits.items(), style.COLORS, strict=False):
        long = all_of_them.filter(all_of_them >= SHORTEST)
        if long.is_empty():
            ax.plot([], [], label=f"{name} (none over 1 µs)", color=color)
            continue
        share = pl.int_range(long.len(), 0, -1, eager=True) / all_of_them.len()
        ax.step(long.to_list(), share.to_list(), where="post", label=name, color=color)
    ax.set(xscale="log", yscale="log", ylabel="share of waits that last longer")
    ax.yaxis.set_major_formatter(lambda value, _: f"{100 * value:g} %")
    style.time_axis(ax.xaxis, log=True)
    ax.legend(loc="lower left", ncols=2, fontsize=8)


def _ranges(ax: Axes, waits: Mapping[str, pl.Series]) -> None:
    marks = (("median", 0.5, "o"), ("p99", 0.99, "D"), ("longest", 1.0, ">"))
    points = {
        name: [max(SHORTEST, quantile(w, q) or 0) for _, q, _ in marks] for name, w in waits.items()
    }
    order = sorted(points, key=lambda name: points[name][1:], reverse=True)
    ax.hlines(
        range(len(order)),
        [points[name][0] for name in order],
        [points[name][2] for name in order],
        color=style.FAINT,
        lw=3,
        zorder=1,
    )
    for i, (label, _, marker) in enumerate(marks):
        values = [points[name][i] for name in order]
        color = style.COLORS[i]
        ax.scatter(values, range(len(order)), marker=marker, color=color, s=26, label=label)
    ax.set(xscale="log", yticks=range(len(order)), ylim=(-0.7, len(order) - 0.3))
    ax.set_yticklabels(order)
    ax.grid(visible=False, axis="y")
    style.time_axis(ax.xaxis, log=True)
    if any(value == SHORTEST for row in points.values() for value in row):
        # A logarithmic axis cannot show waits of 0.
        ax.xaxis.set_major_formatter(
            lambda value, _: ("≤ " if value <= SHORTEST else "") + style.short(value)
        )
    ax.legend(loc="lower right", ncols=3, fontsize=8, bbox_to_anchor=(1, 1))


def policy_series(
    trace: Trace,
    series: str | Sequence[str] | None = None,
    *,
    threads: Sequence[str] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """A policy's internal values over time, below the timeline of the CPUs.

    On top a lane for each CPU shows who runs there; below, a panel for each of `series` (all that
    were recorded if None) has a step curve for each thread, in the thread's colour of the lanes.
    `threads` picks names; without it the seven that ran longest are drawn. Threads of one name are
    distinguished by their tid. With `ax` there are no lanes, and one series.

    Raises `UsageError` for a series or a thread that the trace does not have.
    """
    points = recorded_series(trace).with_columns(pl.col("series").cast(pl.String))
    known = points["series"].unique(maintain_order=True).to_list()
    wanted = [series] if isinstance(series, str) else list(series or known)
    for name in wanted:
        if name not in known:
            raise UsageError(f"series {name!r}", f"one of {', '.join(sorted(known))}")
    if not wanted:
        raise UsageError(
            f"{trace.name} holds no point of any series",
            "a policy that records some",
            "`schedscope simulate --policies --format json` lists the series of each",
        )
    if ax is not None and len(wanted) > 1:
        raise UsageError(f"{len(wanted)} series on one `ax`", "one series", "leave `ax` out")
    shown = points.filter(pl.col("series").is_in(wanted))
    names = _names(trace, shown)
    shown = shown.join(names.select("utid", "who"), on="utid", how="left").with_columns(
        who=pl.coalesce("who", pl.format("CPU {}", "cpu"))
    )
    all_of_them = shown["who"].unique(maintain_order=True).to_list()
    who = _chosen(names, all_of_them, threads)
    colors = dict(zip(who, style.COLORS * (1 + len(who) // len(style.COLORS)), strict=False))
    begin, end = trace.window
    policy = (trace.info.get("scheduler") or {}).get("name") or "a policy"
    units = _units(policy)
    with style.canvas(ax, height=1.4 + 0.25 * trace.ncpu + 2.1 * len(wanted)) as first:
        panels = [first]
        others = False
        if ax is None:
            figure = first.get_figure(root=True)
            assert figure is not None
            figure.clear()
            ratios = [0.5 + 0.25 * trace.ncpu, *[2.1] * len(wanted)]
            panels = list(figure.subplots(len(ratios), 1, sharex=True, height_ratios=ratios))
            others = _lanes(panels[0], trace, names, colors)
        for panel, name in zip(panels[len(panels) - len(wanted) :], wanted, strict=True):
            rows = shown.filter(pl.col("series") == name)
            for label in who:
                one = rows.filter(pl.col("who") == label)
                if one.is_empty():
                    continue
                # The last value holds to the end.
                ts = [*((one["ts"] - begin).to_list()), end - begin]
                values = [*one["value"].to_list(), one["value"][-1]]
                panel.step(ts, values, where="post", label=label, color=colors[label], lw=1.2)
            panel.set_ylabel(name)
            if units.get(name) == "ns":
                style.time_axis(panel.yaxis)
        panels[-1].set_xlabel("time")
        style.time_axis(panels[-1].xaxis)
        keys = {str(line.get_label()): line for panel in panels for line in panel.lines}
        keys = {name: keys[name] for name in who if name in keys}
        _head(panels[0], f"{policy}: policy series", keys, others=others)
    return panels[0]


def _names(trace: Trace, points: pl.DataFrame) -> pl.DataFrame:
    """`utid, comm, who, ran` of the threads with points: `who` is unique, `ran` in ns."""
    ran = (
        trace.states.filter(pl.col("state") == "running")
        .group_by("utid")
        .agg(ran=pl.col("dur").sum())
    )
    found = (
        trace.threads.select("utid", "comm", "tid")
        .join(ran, on="utid", how="left")
        .collect()
        .join(points.select("utid").unique(), on="utid", how="semi")
    )
    alone = pl.len().over("comm") == 1
    return found.with_columns(
        who=pl.when(alone).then("comm").otherwise(pl.format("{} {}", "comm", "tid")),
        ran=pl.col("ran").fill_null(0),
    )


def _chosen(
    names: pl.DataFrame, all_of_them: Sequence[str], threads: Sequence[str] | None
) -> list[str]:
    """The threads to draw, in the order of their first points."""
    if threads:
        for name in threads:
            if name not in all_of_them and name not in names["comm"]:
                raise UsageError(f"thread {name!r}", "a thread with points in this series")
        meant = names.filter(pl.col("comm").is_in(list(threads)))["who"].to_list()
        return [name for name in all_of_them if name in threads or name in meant]
    longest = names.sort("ran", descending=True, maintain_order=True)["who"].to_list()
    known = set(longest)
    first = [name for name in all_of_them if name not in known] + longest
    most = set(first[: len(style.COLORS)])
    return [name for name in all_of_them if name in most]


def _head(ax: Axes, title: str, keys: Mapping[str, Artist], *, others: bool) -> None:
    """The title, and below it the legend in as many columns as its names leave room for."""
    labelled: dict[str, Artist] = dict(keys)
    if others:
        labelled["others"] = Patch(color=style.FAINT)
    # In points: 5 for a letter, 40 for the line and gap beside a name.
    widest = 5 * max((len(name) for name in labelled), default=0) + 40
    columns = max(1, int(500 / widest))
    rows = -(-len(labelled) // columns)
    if labelled:
        ax.legend(
            list(labelled.values()),
            list(labelled),
            fontsize=8,
            ncols=columns,
            loc="lower left",
            bbox_to_anchor=(0, 1),
        )
    ax.set_title(title, pad=10 + 14 * rows)


def _units(policy: str) -> dict[str, str]:
    """The unit of each series of a built-in policy."""
    try:
        return dict(series_of(policy).select("name", "unit").iter_rows())
    except UsageError:
        return {}


def _lanes(ax: Axes, trace: Trace, names: pl.DataFrame, colors: Mapping[str, str]) -> bool:
    """The thread that runs on each CPU: coloured threads in their colour, others grey; returns
    whether there are others.
    """
    runs = (
        trace.states.filter((pl.col("state") == "running") & (pl.col("utid") >= trace.ncpu))
        .select("utid", "cpu", ts=pl.col("ts") - trace.window[0], dur="dur")
        .collect()
        .join(names.select("utid", "who"), on="utid", how="left")
        .with_columns(pl.when(pl.col("who").is_in(list(colors))).then("who"))
    )
    for (who, cpu), spans in runs.partition_by(["who", "cpu"], as_dict=True).items():
        bars = list(spans.select("ts", "dur").iter_rows())
        color = colors.get(str(who), style.FAINT) if who is not None else style.FAINT
        ax.broken_barh(bars, (cpu - 0.4, 0.8), color=color, lw=0)
    ax.set(ylim=(trace.ncpu - 0.5, -0.5), yticks=range(trace.ncpu))
    ax.set_yticklabels([f"CPU {cpu}" for cpu in range(trace.ncpu)])
    ax.grid(visible=False)
    return bool(runs["who"].is_null().any())
