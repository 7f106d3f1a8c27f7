"""Does one CPU handle the interrupts of all?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import polars as pl

from schedscope.analysis.causes.softirqs import softirq
from schedscope.analysis.findings.finding import Finding
from schedscope.units import count, duration, percent

if TYPE_CHECKING:
    from schedscope.store.trace import Trace

_SHARE = 0.05
"""Of a CPU's time: below, interrupts are not what it lacks."""
_UNEVEN = 3
"""So many times as much as on the others, on average."""


def interrupts(trace: Trace) -> Iterator[Finding]:
    """The CPU that handles most, where it is much more than the others; if they were recorded."""
    rows = trace.irqs.select("cpu", "ts", "kind", "id", "dur").sort("cpu", "ts").collect()
    if rows.is_empty() or trace.ncpu < 2:
        return
    # Nested ones count once: only the part after all earlier ones have ended.
    end = pl.col("ts") + pl.col("dur")
    before = end.cum_max().shift().over("cpu").fill_null(0)
    own = (end - pl.max_horizontal("ts", before)).clip(lower_bound=0)
    of_cpu = rows.with_columns(own=own).group_by("cpu").agg(pl.col("own").sum())
    of_cpu = of_cpu.sort("own", "cpu", descending=[True, False])
    cpu, most = of_cpu.row(0)
    others = (int(of_cpu["own"].sum()) - most) / (trace.ncpu - 1)
    if most < _SHARE * trace.duration or most < _UNEVEN * others:
        return
    kinds = (
        rows.filter(pl.col("cpu") == cpu)
        .group_by(pl.col("kind").cast(pl.String), "id")
        .agg(pl.col("dur").sum(), pl.len(), pl.col("ts").min())
        .sort("dur", descending=True)
    )
    kind, number, time, times, ts = kinds.row(0)
    text = (
        f"Interrupts took {duration(most)} of CPU {cpu} ({percent(most / trace.duration)}), and"
        f" {percent(others / trace.duration)} of each other CPU on average. Most of it was"
        f" {_name(kind, number)}: {count(times)} times, {duration(time)} in total. Threads that ran"
        " or waited there were delayed by as much."
    )
    yield Finding("interrupts", most, text, f"wait-breakdown --cpu {cpu} --by comm", ts, cpu=cpu)


def _name(kind: str, number: int) -> str:
    return softirq(number) if kind == "soft" else f"interrupt {number}"
