"""Do the sums hold? docs/trace-model.md, Conservation.

They hold for every input by construction of the rules, so a difference is
either a bug of the engine, or tables that do not belong together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from schedscope.analysis.check.counts import number_of
from schedscope.analysis.check.row import CheckRow, must_hold, unanswered
from schedscope.analysis.cpus.accounting import Tiling, tiling
from schedscope.analysis.wait_breakdown import PARTS, every_wait
from schedscope.units import count, duration, several

if TYPE_CHECKING:
    from schedscope.store.trace import Trace

_PARTED = 200_000
"""Rows of `states` whose waits are divided to see whether their parts add up. All of 10 M rows
would take as long as the rest of `check`."""


def conservation(trace: Trace, tiles: Tiling | None = None) -> list[CheckRow]:
    """The five sums; a sixth row says where the fault lies if one is off.

    `tiles` is `tiling(trace)` where the caller has it already.
    """
    tiles = tiles or tiling(trace)
    findings = _sums(trace, tiles)
    if any(finding.level == "violated" for finding in findings):
        findings.append(_origin(trace))
    return findings


def _sums(trace: Trace, tiles: Tiling) -> list[CheckRow]:
    return [
        _cpu_time(trace, tiles),
        _thread_lives(trace, tiles),
        _running_time(trace, tiles),
        _ledger(trace),
        _wait_parts(trace),
    ]


def _origin(trace: Trace) -> CheckRow:
    """Reconstructs the tables again from the facts: do the sums hold then?"""
    from schedscope import _native
    from schedscope.store.trace import Trace

    names = ("switches", "wakeups", "migrations", "yields", "losses")
    facts = {name: getattr(trace, name).collect() for name in names}
    others = {name: getattr(trace, name).collect() for name in ("threads", "irqs")}
    answer = _native.reconstruct(facts, trace.ncpu, trace.window)
    anew = Trace.from_tables(
        others
        | {
            "switches": facts["switches"],
            "states": pl.DataFrame(answer["states"]),
            "waits": pl.DataFrame(answer["waits"]),
        },
        {"ncpu": trace.ncpu, "window": trace.window, "per_cpu": answer["per_cpu"]},
    )
    tiles = tiling(anew)
    if all(finding.level == "ok" for finding in _sums(anew, tiles)):
        text = "states and waits do not follow from the events: edited, or made elsewhere"
    elif _revived(_ends(anew, tiles)):
        text = "the events contradict each other: a thread is seen again after its exit"
    else:
        text = "a bug in schedscope: please report it with this trace"
    return CheckRow("origin", "violated", 1, None, "rows", text)


def _cpu_time(trace: Trace, tiles: Tiling) -> CheckRow:
    """Running intervals of a CPU must not overlap nor leave the window, and sum up as counted."""
    off = tiles.excess
    for cpu in trace.info.get("per_cpu") or []:
        run, rest = tiles.per_cpu.get(cpu["cpu"], (0, 0))
        off += abs(cpu["running"] + cpu["idle"] + cpu["unknown"] - trace.duration)
        off += abs(cpu["running"] - run) + abs(cpu["idle"] - rest)
    text = "per CPU, running + idle + unknown = window"
    if off:
        text = f"per CPU, running + idle + unknown differs from the window by {duration(off)}"
    return must_hold("cpu time", off, trace.duration * trace.ncpu, "ns", text)


def _ends(trace: Trace, tiles: Tiling) -> pl.DataFrame:
    """Intervals that the thread's next one does not adjoin, unless the thread has exited."""
    deaths = trace.switches.filter(pl.col("prev_state") == "dead").select(
        utid="prev_utid", until="ts", dead=True
    )
    ends = tiles.ends.lazy().join(deaths.unique(), on=["utid", "until"], how="left")
    return ends.with_columns(pl.col("dead").fill_null(False)).collect()


def _revived(ends: pl.DataFrame) -> int:
    return ends.filter("dead", pl.col("following") > pl.col("until")).height


def _thread_lives(trace: Trace, tiles: Tiling) -> CheckRow:
    """Intervals must adjoin until death or the end of the window."""
    ends = _ends(trace, tiles)
    last = pl.col("following").is_null()
    revived = _revived(ends)
    broken = ends.filter(~last).height - revived
    cut = ends.filter(last, ~pl.col("dead"), pl.col("until") != trace.window[1]).height
    intervals = tiles.intervals
    complaints = []
    if revived:
        complaints.append(f"{several(revived, 'thread')} seen again after exit")
    if broken:
        complaints.append(f"{several(broken, 'gap or overlap', 'gaps or overlaps')} in lives")
    if cut:
        complaints.append(f"{several(cut, 'life', 'lives')} cut short")
    text = "; ".join(complaints) or f"{count(intervals)} intervals adjoin, without gap or overlap"
    return must_hold("thread lives", revived + broken + cut, intervals, "rows", text)


def _running_time(trace: Trace, tiles: Tiling) -> CheckRow:
    """Summed over CPUs as counted by the engine, and over threads as the rows say."""
    per_cpu = trace.info.get("per_cpu")
    over_threads = tiles.of_threads
    if per_cpu is None:
        return unanswered("running time", "ns", "the trace has no totals per CPU")
    over_cpus = sum(cpu["running"] for cpu in per_cpu)
    off = abs(over_cpus - over_threads)
    text = f"{duration(over_threads)} summed over threads, the same as over CPUs"
    if off:
        text = f"{duration(over_threads)} over threads, {duration(over_cpus)} over CPUs"
    return must_hold("running time", off, over_cpus, "ns", text)


def _ledger(trace: Trace) -> CheckRow:
    """Each switch-in of a thread must have its row, thread by thread."""
    ins = trace.switches.filter(pl.col("next_utid") >= trace.ncpu)
    expected = ins.group_by(utid="next_utid").agg(ins=pl.len().cast(pl.Int64))
    ended = trace.waits.filter(pl.col("ts_run").is_not_null())
    rows = ended.group_by("utid").agg(rows=pl.len().cast(pl.Int64))
    both = expected.join(rows, on="utid", how="full").select(pl.col("ins", "rows").fill_null(0))
    off, total = (
        both.select(
            (pl.col("ins") - pl.col("rows")).abs().sum(), pl.col("ins").sum().alias("total")
        )
        .collect()
        .row(0)
    )
    text = f"one wait row for each of {count(total)} switch-ins"
    if off:
        text = f"{count(off)} of {count(total)} switch-ins with no wait row, or with two"
    return must_hold("ledger", off, total, "rows", text)


def _wait_parts(trace: Trace) -> CheckRow:
    """Parts of each wait must add up to it, none be negative, and waits to the time runnable."""
    columns = ("ts", "dur", "utid", "state", "cpu", "prio")
    states = trace.states.select(columns).head(_PARTED).collect().lazy()
    waits = every_wait(trace, states)
    begin, end = trace.window
    until = (pl.col("ts") + pl.col("dur")).clip(upper_bound=end)
    runnable = (
        states.filter(pl.col("state") == "runnable", pl.col("utid") >= trace.ncpu)
        .group_by(pl.col("utid").cast(pl.UInt32))
        .agg(runnable=(until - pl.col("ts").clip(lower_bound=begin)).clip(lower_bound=0).sum())
        .collect()
    )
    sums = waits.group_by("utid").agg(pl.col("wait").sum())
    both = runnable.join(sums, on="utid", how="full").select(
        pl.col("runnable", "wait").fill_null(0)
    )
    negative = pl.sum_horizontal((-pl.col(part)).clip(lower_bound=0) for part in PARTS)
    uneven = (pl.sum_horizontal(PARTS) - pl.col("wait")).abs() + negative
    off = int(waits.select(uneven.sum()).item())
    off += int(both.select((pl.col("runnable") - pl.col("wait")).abs().sum()).item())
    total = int(both["runnable"].sum())
    several_waits = several(waits.height, "wait")
    scope = f" (the first {count(_PARTED)} rows)" if number_of(trace.states) > _PARTED else ""
    text = f"parts of {several_waits} add up to {duration(total)} of runnable time{scope}"
    if off:
        text = (
            f"parts of {several_waits} differ from {duration(total)} of runnable time by"
            f" {duration(off)}{scope}"
        )
    return must_hold("wait parts", off, total, "ns", text)
