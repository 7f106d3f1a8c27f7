"""What a trace shows about waiting, in sentences."""

from __future__ import annotations

from typing import Any

import polars as pl

from schedscope import units
from schedscope.analysis.latency import latency
from schedscope.analysis.worst_waits import worst_waits
from schedscope.present import bounds
from schedscope.report.subject import Subject
from schedscope.store.trace import Trace

WORST = 15
"""Waits that the report lists one by one."""

_CAUSES = {
    "wake": "after they had been woken",
    "preempt": "after they had been preempted",
    "yield": "after they had yielded",
    "new": "when they had just been created",
    "unknown": "for an unknown reason",
}


def summary(subject: Subject) -> list[str]:
    """A few sentences, the plainest first; each says a number and what it means."""
    trace = subject.trace
    whole = subject.ask(latency).row(0, named=True)
    who = "Threads" if subject.where is None else "The selected threads"
    if not whole["n"]:
        of = "" if subject.where is None else " of the selected threads"
        return [f"No wait{of} for a CPU was recorded from start to end."]
    text = units.duration
    if not whole["max"] and not whole["n_censored"]:
        no = "No" if subject.where is None else "No selected"
        return [
            f"{no} thread had to wait for a CPU within {text(trace.duration)} on"
            f" {_cpus(trace.ncpu)}: each of {units.count(whole['n'])} found one free.",
            *_busy(trace),
        ]
    total = units.interval(whole["total"], whole["total_high"])
    of = "all threads" if subject.where is None else "the selected threads"
    covered = bounds.coverage_line(whole["coverage"], of)
    found = [f"{covered}."] if covered else []
    found.append(
        f"{who} waited for a CPU {bounds.several(whole['n'], whole['n_high'], 'time')}, {total} in"
        f" total, within {text(trace.duration)} on {_cpus(trace.ncpu)}."
        f" Half of the waits lasted at most {units.interval(whole['p50'], whole['p50_high'])},"
        f" {_tail(whole)}."
    )
    found += _worst(subject, whole)
    found += _most(subject, whole)
    found += _causes(subject, whole)
    found += _busy(trace)
    found += _unseen(whole)
    return found


def _tail(row: dict[str, Any]) -> str:
    """The worst in a hundred, where there are so many."""
    if row["n"] < 100:
        return f"the longest {units.interval(row['max'], row['max_high'])}"
    return f"one in a hundred longer than {units.interval(row['p99'], row['p99_high'])}"


def _unseen(row: dict[str, Any]) -> list[str]:
    still, before = row["n_censored"], row["n_excluded"]
    parts = []
    if still:
        were = "was" if still == 1 else "were"
        parts.append(f"{units.several(still, 'wait')} {were} unfinished when last observed")
    if before:
        parts.append(f"the start of {units.several(before, 'wait')} was not recorded")
    if not parts:
        return []
    text = " and ".join(parts)
    return [f"{text[0].upper()}{text[1:]}; the numbers above have what is known of them."]


def _worst(subject: Subject, whole: dict[str, Any]) -> list[str]:
    row = subject.ask(worst_waits, n=WORST).row(0, named=True)
    at = units.instant(row["ts_ready"], subject.trace.origin)
    length = units.duration(row["wait"])
    name = units.printable(row["comm"])
    if row["censored"] == "right":
        return [
            f"The longest wait, of {name}, started {at} into the trace"
            f" and was unfinished after {length}."
        ]
    most = whole["max_high"]
    if most == row["wait"]:
        return [f"The longest wait, {length}, was that of {name}; it started {at} into the trace."]
    longer = "have been longer" if most is None else f"have lasted {units.duration(most)}"
    return [
        f"The longest wait that was measured, {length}, was that of {name}; it started {at} into"
        f" the trace. Another may {longer}."
    ]


def _share(part: dict[str, Any], whole: dict[str, Any]) -> str:
    """Of all waiting time; what is not known for certain may be of any part, or of none."""
    least, most = part["total"], part["total_high"]
    of_all = least / whole["total_high"], most / max(most + whole["total"] - least, 1)
    return units.interval(*of_all, units.percent)


def _most(subject: Subject, whole: dict[str, Any]) -> list[str]:
    by_comm = subject.ask(latency, by="comm")
    if by_comm.height < 2 or not whole["total"]:
        return []
    first = by_comm.row(0, named=True)
    return [
        f"Threads named {units.printable(first['comm'])} waited most:"
        f" {_share(first, whole)} of all waiting time in"
        f" {bounds.several(first['n'], first['n_high'], 'wait')}, {_tail(first)}."
    ]


def _causes(subject: Subject, whole: dict[str, Any]) -> list[str]:
    by_cause = subject.ask(latency, by="cause").filter(pl.col("total") > 0)
    if by_cause.is_empty():
        return []
    parts = [
        f"{_share(row, whole)} {_CAUSES[row['cause']]}" for row in by_cause.iter_rows(named=True)
    ]
    return [f"Of the waiting time, threads spent {_listed(parts)}."]


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
