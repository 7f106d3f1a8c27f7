"""Which locks did threads queue for?"""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from schedscope.analysis.asking.memo import once
from schedscope.analysis.causes.lock_convoys import Convoy, convoys
from schedscope.analysis.findings.facts import Facts
from schedscope.analysis.findings.finding import Finding
from schedscope.units import duration, percent, printable, several

_CONVOY = 0.01
"""Of the window: nobody misses less time, and a lock that is wanted at all is taken at times."""
_QUEUED = 0.1
"""Of the time in which anyone waited for a lock: below this there was no queue for it."""
_HELD = 0.1
"""Of the window: a thread that had a lock for so long while another wanted it, and lacked a CPU for
most of that, is reported even without a queue."""


def lock_convoys(facts: Facts) -> Iterator[Finding]:
    """Locks that threads queued for, or whose holder lacked a CPU."""
    for convoy in _queues(facts):
        if convoy.waited < _CONVOY * facts.trace.duration:
            continue
        queue = convoy.queued >= _QUEUED * convoy.waited
        if not queue and not _lacks(convoy, _HELD * facts.trace.duration):
            continue
        lock = f"the {convoy.kind} {convoy.address:#x}"
        if convoy.pid is not None:
            lock += f" of process {convoy.pid}"
        text = (
            f"{several(convoy.threads, 'thread')} {'queued' if queue else 'waited'} for {lock}:"
            f" {several(convoy.n, 'wait')}, {duration(convoy.total)} in total, the longest"
            f" {duration(convoy.dur)}. At least one waited for {duration(convoy.waited)}, two or"
            f" more for {duration(convoy.queued)}. {_holder(facts, convoy)}"
        )
        if convoy.own != convoy.total:
            text += f" The selected threads waited {duration(convoy.own)} of that."
        place = (convoy.ts, convoy.dur, convoy.utid)
        yield Finding("lock convoy", convoy.own, text, "off-cpu", *place)


def _lacks(convoy: Convoy, least: float) -> bool:
    """Whether the holder lacked a CPU for most of the time, of at least this length."""
    return convoy.held >= least and 2 * convoy.held_runnable > convoy.held


def _queues(facts: Facts) -> list[Convoy]:
    if facts.affected is None:
        return once(convoys, facts.trace)
    return convoys(facts.trace, affected=facts.affected)


def _holder(facts: Facts, convoy: Convoy) -> str:
    if convoy.holder is None:
        return "Who held it is unknown: no release was recorded."
    who = facts.trace.threads.filter(pl.col("utid") == convoy.holder)
    name, tid = who.select("comm", "tid").collect().row(0)
    asleep = convoy.held - convoy.held_running - convoy.held_runnable
    unknown = f" (it is unknown for {duration(convoy.unproved)})" if convoy.unproved else ""
    text = (
        f"{printable(name or '?')} ({tid}) released it at the end of"
        f" {percent(convoy.held / convoy.waited)} of this time{unknown}; in that part it ran"
        f" {duration(convoy.held_running)}, slept {duration(asleep)} and waited"
        f" {duration(convoy.held_runnable)} for a CPU itself."
    )
    if _lacks(convoy, 0):
        return text + " The holder lacks a CPU: give it a better priority, or more CPUs."
    if 2 * asleep > convoy.held:
        return text + " It sleeps while it holds the lock: let it release the lock first."
    return text + " Do less work under the lock, or use several locks for what it protects."
