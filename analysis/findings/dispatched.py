"""Does a scheduler of sched_ext dispatch late, come near its watchdog, or end?"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

import polars as pl

from schedscope.analysis.asking.memo import once
from schedscope.analysis.asking.needs import has
from schedscope.analysis.findings.facts import Facts
from schedscope.analysis.findings.finding import Finding
from schedscope.analysis.findings.late_dispatch import late_dispatch
from schedscope.analysis.waits.waits import waits
from schedscope.units import duration, percent, printable, several

NEAR = 0.5
"""Of the watchdog's limit: it looks twice in that time."""
_USUAL = 30_000_000_000
"""SCX_WATCHDOG_MAX_TIMEOUT, and the limit of a scheduler that sets none, ns."""
_ENDED = re.compile(r"triggered exit kind \d+")
"""The first line of a dump; the next one is the reason, and the message in parentheses."""
_NAMED = 5
"""Threads that came nearest to it, which are named."""


def dispatched_late(facts: Facts) -> Iterator[Finding]:
    """Waits in dispatch queues while a CPU idled that the thread may use."""
    trace = facts.trace
    if not has(trace, "dispatch_queues") or facts.phantoms:
        return
    rows = facts.mine(once(late_dispatch, trace))
    if rows.is_empty():
        return
    worst, cost = rows.row(0, named=True), int(rows["late"].sum())
    queues = rows.group_by("queue").agg(pl.col("late").sum())
    queue, most = queues.sort("late", "queue", descending=[True, False]).row(0)
    text = (
        f"Dispatch to an idle CPU came late: {several(rows.height, 'wait')} passed"
        f" {duration(cost)} in dispatch queues while a CPU that the thread may use idled,"
        f" {'all' if most == cost else duration(most)} of it in queue {queue}. The longest:"
        f" {_name(facts, worst['utid'])} waited {duration(worst['wait'])},"
        f" {duration(worst['late'])} of it beside an idle CPU, in queue {worst['queue']}."
    )
    advice = None
    if queue.startswith("local"):
        advice = (
            "In the scheduler, insert into the local queue of a CPU that is idle"
            " (scx_bpf_select_cpu_dfl finds one), or into a queue that idle CPUs look into."
        )
    place = (worst["ts"], worst["wait"], worst["utid"])
    yield Finding("late dispatch", cost, text, "dispatch-queues", *place, advice=advice)


def near_watchdog(facts: Facts) -> Iterator[Finding]:
    """Threads that waited for half of the time after which the kernel ends the scheduler."""
    trace = facts.trace
    if not has(trace, "dispatch_queues"):
        return
    puts = trace.dispatch_queues.filter(pl.col("step") == "insert")
    told = puts.select(pl.col("limit").filter(pl.col("limit") > 0).min()).collect().item()
    limit = told or _USUAL
    under = puts.select(pl.col("utid").cast(pl.UInt32).unique()).collect()
    columns = ["utid", "ts_ready", "wait", "wait_high", "censored"]
    rows = waits(trace, columns).filter(pl.col("wait") >= NEAR * limit).collect()
    rows = facts.mine(rows.with_columns(pl.col("utid").cast(pl.UInt32)))
    rows = rows.join(under, on="utid", how="semi").sort(
        "wait", "ts_ready", descending=[True, False]
    )
    if rows.is_empty():
        return
    per_thread = rows.unique("utid", keep="first", maintain_order=True)
    nearest = [
        f"{_name(facts, row['utid'])} {_length(row)} ({percent(row['wait'] / limit)})"
        for row in per_thread.head(_NAMED).iter_rows(named=True)
    ]
    whose = (
        "as the scheduler set it"
        if told
        else "the kernel's default: the scheduler's own was not recorded"
    )
    text = (
        f"{several(per_thread.height, 'thread')} waited for half of the watchdog's limit or longer."
        f" The kernel ends a scheduler of sched_ext under which a runnable thread does not run for"
        f" {duration(limit)} ({whose})."
        f" {'Nearest' if len(nearest) > 1 else 'It is'}: {', '.join(nearest)}."
    )
    worst = rows.row(0, named=True)
    place = (worst["ts_ready"], worst["wait"], worst["utid"])
    cost = int(rows["wait"].sum())
    yield Finding("watchdog", cost, text, "dispatch-queues --slices", *place, always=True)


def scheduler_ended(facts: Facts) -> Iterator[Finding]:
    """A scheduler of sched_ext that ended, or began, within the recording."""
    trace = facts.trace
    told = (trace.info.get("scheduler") or {}).get("sched_ext") or {}
    before, after = (_state(told.get(name)) for name in ("begin", "end"))
    if before is None or after is None or before == after:
        return
    name, other = (printable(state[0] or "") for state in (before, after))
    reason, ts = _reason(trace.info)
    if before[0] is None:
        if after[0] is None:
            return  # one came and went: its name is unknown
        text = (
            f"The scheduler {other} of sched_ext was loaded during the recording: what is before"
            " that is the work of the kernel's own scheduler."
        )
        yield Finding("scheduler exit", 0, text, "info", level="note", always=True)
        return
    then = (
        f"{other} of sched_ext was loaded" if after[0] is not None
        else "the kernel's own scheduler took over"
    )  # fmt: skip
    if name == other:
        then = "it was loaded again"
    text = f"The scheduler {name} of sched_ext ended during the recording, and {then}."
    lines = sum((trace.info.get("events") or {}).get("sched_ext_dump", {}).values())
    if reason:
        text += f" The kernel's reason: {printable(reason)}."
    elif lines:
        text += f" The kernel wrote {several(lines, 'line')} about it (sched_ext_dump)."
    else:
        text += " The recording does not hold the reason; the kernel's log does."
    failed = bool(reason or lines)
    if ts is None and after[0] is None and has(trace, "dispatch_queues"):
        last = trace.dispatch_queues.select(pl.col("ts").max()).collect().item()
        ts = int(last)
    yield Finding(
        "scheduler exit", 0, text, "info", ts, None if ts is None else 0,
        level=None if failed else "note", always=True,
    )  # fmt: skip


def _state(read: Any) -> tuple[str | None, str] | None:
    """Which scheduler is in control, or none, and how often one was loaded."""
    if not isinstance(read, Mapping) or not read.get("state"):
        return None
    loaded = read["state"] == "enabled"
    return (str(read.get("root/ops") or "?") if loaded else None), str(read.get("enable_seq"))


def _reason(info: Mapping[str, Any]) -> tuple[str | None, int | None]:
    """What the kernel wrote when it ended a scheduler for an error, and when."""
    lines = info.get("scheduler_dump") or []
    for (ts, first), (_, second) in pairwise(lines):
        if _ENDED.search(first):
            return str(second).strip(), int(ts)
    return None, None


def _name(facts: Facts, utid: int) -> str:
    rows = facts.trace.threads.filter(pl.col("utid") == utid).select("comm", "tid").collect()
    comm, tid = rows.row(0) if rows.height else (None, None)
    return f"{printable(comm or '?')} ({tid})"


def _length(row: Mapping[str, Any]) -> str:
    """How long a wait was, or between which lengths."""
    if row["censored"] == "none":
        return duration(row["wait"])
    high = row["wait_high"]
    if high is not None and high > row["wait"]:
        return f"{duration(row['wait'])} to {duration(high)}"
    return f"at least {duration(row['wait'])}"
