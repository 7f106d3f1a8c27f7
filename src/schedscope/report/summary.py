"""What a trace says about waiting, in sentences."""

from __future__ import annotations

import polars as pl

from schedscope import units
from schedscope.analysis.once import once
from schedscope.analysis.runqueue_latency import runqueue_latency
from schedscope.analysis.worst_waits import worst_waits
from schedscope.trace import Trace

_CAUSES = {
    "wake": "after they had been woken",
    "preempt": "after they had been preempted",
    "yield": "after they had yielded",
    "new": "when they had just been created",
    "unknown": "for an unknown reason",
}


def summary(trace: Trace) -> list[str]:
    """A few sentences, the plainest first; each says a number and what it means."""
    whole = once(runqueue_latency, trace).row(0, named=True)
    if not whole["n"]:
        return ["No thread was seen waiting for a CPU from begin to end."]
    text = units.duration
    found = [
        f"Threads waited for a CPU {whole['n']:,} times, {text(whole['total'])} in all,"
        f" within {text(trace.duration)} on {_cpus(trace.ncpu)}."
        f" Half of the waits lasted at most {text(whole['p50'])},"
        f" one in a hundred longer than {text(whole['p99'])}."
    ]
    found += _worst(trace)
    found += _most(trace, whole["total"])
    found += _causes(trace, whole["total"])
    found += _busy(trace)
    if whole["n_censored"] or whole["n_excluded"]:
        found.append(
            f"{whole['n_censored']:,} further waits had not ended when they went out of sight, and"
            f" of {whole['n_excluded']:,} the begin was not seen;"
            " neither count in the figures above."
        )
    return found


def _worst(trace: Trace) -> list[str]:
    row = worst_waits(trace, 1).row(0, named=True)
    at = units.instant(row["ts_ready"], trace.origin)
    length = units.duration(row["wait"])
    name = units.printable(row["comm"])
    if row["censored"] == "right":
        return [
            f"The longest wait, of {name}, began {at} into the trace"
            f" and had not ended after {length}."
        ]
    return [f"The longest wait, {length}, was that of {name}; it began {at} into the trace."]


def _most(trace: Trace, total: int) -> list[str]:
    by_comm = once(runqueue_latency, trace, by="comm")
    if by_comm.height < 2 or not total:
        return []
    first = by_comm.row(0, named=True)
    return [
        f"Threads named {units.printable(first['comm'])} waited most:"
        f" {units.percent(first['total'] / total)} of all waiting time in"
        f" {first['n']:,} waits, of which one in a hundred lasted longer than"
        f" {units.duration(first['p99'])}."
    ]


def _causes(trace: Trace, total: int) -> list[str]:
    by_cause = once(runqueue_latency, trace, by="cause").filter(pl.col("total") > 0)
    if by_cause.is_empty():
        return []
    parts = [
        f"{units.percent(row['total'] / total)} {_CAUSES[row['cause']]}"
        for row in by_cause.iter_rows(named=True)
    ]
    return [f"Of the waiting time threads spent {_listed(parts)}."]


def _busy(trace: Trace) -> list[str]:
    per_cpu = trace.info.get("per_cpu") or []
    if not per_cpu or not trace.duration:
        return []
    capacity = trace.duration * trace.ncpu
    idle = sum(cpu["idle"] for cpu in per_cpu) / capacity
    running = sum(cpu["running"] for cpu in per_cpu) / capacity
    return [
        f"The CPUs ran threads {units.percent(running)} of the time"
        f" and were idle {units.percent(idle)}."
    ]


def _cpus(n: int) -> str:
    return "one CPU" if n == 1 else f"{n} CPUs"


def _listed(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else ", ".join(parts[:-1]) + " and " + parts[-1]
