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
    trace: Trace, series: str, *, threads: Sequence[str] | None = None, ax: Axes | None = None
) -> Axes:
    """One internal series of a policy over time, a step curve for each thread.

    `threads` picks names; without it the first seven are drawn.
    """
    rows = internals(trace).filter(pl.col("series").cast(pl.String) == series)
    if rows.is_empty():
        known = internals(trace)["series"].cast(pl.String).unique().sort().to_list()
        raise UsageError(f"series {series!r}", f"one of {', '.join(known)}")
    names = trace.threads.select("utid", "comm").collect()
    rows = rows.join(names, on="utid", how="left")
    who = list(threads) if threads else rows["comm"].unique(maintain_order=True).to_list()[:7]
    with style.canvas(ax) as ax:
        for i, name in enumerate(who):
            one = rows.filter(pl.col("comm") == name)
            if one.is_empty():
                raise UsageError(f"thread {name!r}", "a thread with points in this series")
            color = style.COLORS[i % len(style.COLORS)]
            ax.step(
                one["ts"].to_list(), one["value"].to_list(), where="post", label=name, color=color
            )
        ax.set(xlabel="time", ylabel=series)
        style.time_axis(ax.xaxis)
        ax.legend(fontsize=8)
    return ax
