"""Figures of simulations: waits under each policy, and a policy's own view of time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import polars as pl

from schedscope.errors import UsageError
from schedscope.plot import style
from schedscope.simulator.run import internals
from schedscope.trace import Trace

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plot_policies(traces: Mapping[str, Trace], *, ax: Axes | None = None) -> Axes:
    """Share of waits longer than x, one curve for each policy, both axes logarithmic.

    Waits of less than 1 us, most of them of no length at all, are left of the
    axis: a curve begins at the share of waits that are longer.
    """
    if not traces:
        raise UsageError("no traces", "at least one policy's trace")
    with style.canvas(ax, height=5) as ax:
        dashes = ("-", "--", ":", "-.")
        for i, (name, trace) in enumerate(traces.items()):
            waits = trace.waits.select("wait").drop_nulls().collect()["wait"].sort()
            long = waits.filter(waits >= 1000)
            if long.is_empty():
                ax.plot([], [], label=f"{name} (none over 1 µs)")
                continue
            share = pl.int_range(long.len(), 0, -1, eager=True) / waits.len()
            color = style.COLORS[i % len(style.COLORS)]
            dash = dashes[i // len(style.COLORS) % len(dashes)]
            ax.step(long.to_list(), share.to_list(), where="post", label=name, color=color, ls=dash)
        if not any(len(line.get_xdata()) for line in ax.lines):  # type: ignore[arg-type]
            ax.text(0.5, 0.5, "no wait of 1 µs or more", transform=ax.transAxes, ha="center")
        else:
            ax.set(xscale="log", yscale="log")
        ax.set(xlabel="wait for a CPU", ylabel="share of longer waits")
        ax.set_title("Waits under each policy")
        style.time_axis(ax.xaxis, log=ax.get_xscale() == "log")
        ax.legend(loc="lower left", ncols=2, fontsize=8)
    return ax


def plot_internals(
    trace: Trace,
    series: str | Sequence[str] | None = None,
    *,
    threads: Sequence[str] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """A policy's own view of its threads over time, below the timeline of the CPUs.

    On top a lane for each CPU shows who runs there; below, a panel for each of
    `series` (all that were recorded if None) has a step curve for each thread, in
    the thread's colour of the lanes. `threads` picks names; without it the first
    seven to have a point are drawn. With `ax` there are no lanes, and one series.

    Raises `UsageError` for a series or a thread that the trace does not have.
    """
    points = internals(trace).with_columns(pl.col("series").cast(pl.String))
    known = points["series"].unique(maintain_order=True).to_list()
    wanted = [series] if isinstance(series, str) else list(series or known)
    for name in wanted:
        if name not in known:
            raise UsageError(f"series {name!r}", f"one of {', '.join(sorted(known))}")
    if not wanted or (ax is not None and len(wanted) > 1):
        raise UsageError(f"{len(wanted)} series on one `ax`", "one series", "leave `ax` out")
    points = points.join(
        trace.threads.select("utid", "comm").collect(), on="utid", how="left"
    ).with_columns(who=pl.coalesce("comm", pl.format("CPU {}", "cpu")))
    shown = points.filter(pl.col("series").is_in(wanted))
    all_of_them = shown["who"].unique(maintain_order=True).to_list()
    who = list(threads) if threads else all_of_them[: len(style.COLORS)]
    for name in who:
        if name not in all_of_them:
            raise UsageError(f"thread {name!r}", "a thread with points in this series")
    colors = dict(zip(who, style.COLORS * (1 + len(who) // len(style.COLORS)), strict=False))
    begin, end = trace.window
    with style.canvas(ax, height=1.4 + 0.25 * trace.ncpu + 2.1 * len(wanted)) as first:
        panels = [first]
        if ax is None:
            figure = first.get_figure(root=True)
            assert figure is not None
            figure.clear()
            ratios = [0.5 + 0.25 * trace.ncpu, *[2.1] * len(wanted)]
            panels = list(figure.subplots(len(ratios), 1, sharex=True, height_ratios=ratios))
            _lanes(panels[0], trace, colors)
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
        panels[-1].set_xlabel("time")
        style.time_axis(panels[-1].xaxis)
        handles, labels = panels[-1].get_legend_handles_labels()
        panels[0].legend(
            handles, labels, fontsize=8, ncols=7, loc="lower right", bbox_to_anchor=(1, 1)
        )
        policy = (trace.info.get("scheduler") or {}).get("name")
        panels[0].set_title(f"{policy}, its own view" if policy else "A policy's own view")
    return panels[0]


def _lanes(ax: Axes, trace: Trace, colors: Mapping[str, str]) -> None:
    """Who runs on each CPU: those with a colour in it, others grey."""
    runs = (
        trace.states.filter((pl.col("state") == "running") & (pl.col("utid") >= trace.ncpu))
        .join(trace.threads.select("utid", "comm"), on="utid")
        .select("comm", "cpu", ts=pl.col("ts") - trace.window[0], dur="dur")
        .collect()
    )
    for (comm, cpu), spans in runs.partition_by(["comm", "cpu"], as_dict=True).items():
        bars = list(spans.select("ts", "dur").iter_rows())
        color = colors.get(str(comm), style.FAINT)
        ax.broken_barh(bars, (cpu - 0.4, 0.8), color=color, lw=0)
    ax.set(ylim=(trace.ncpu - 0.5, -0.5), yticks=range(trace.ncpu))
    ax.set_yticklabels([f"CPU {cpu}" for cpu in range(trace.ncpu)])
    ax.grid(visible=False)
