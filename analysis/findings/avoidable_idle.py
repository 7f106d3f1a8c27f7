"""Did CPUs idle while threads waited elsewhere?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import polars as pl

from schedscope.analysis.affinity import affinity
from schedscope.analysis.asking.memo import once
from schedscope.analysis.causes.throttled_waits import held_back
from schedscope.analysis.findings.facts import Facts
from schedscope.analysis.findings.finding import Finding, listed
from schedscope.analysis.findings.quotas import quotas_named
from schedscope.analysis.work_conservation import idle_episodes, work_conservation
from schedscope.units import duration, interval, percent, printable, several

STRETCHES = 8
"""Stretches of wasted time that the report lists."""
_STAYED = 0.99
"""A thread with this share of its time on one CPU may well be pinned there."""


def wasted(facts: Facts) -> Iterator[Finding]:
    """CPUs that idled while threads that may use them waited for others."""
    row = facts.machine
    # Threads that only seem to wait could not have run elsewhere.
    if not row["wasted"] or facts.phantoms:
        return
    every = facts.ask(work_conservation, by="thread").filter(pl.col("avoidable") > 0)
    if facts.where is not None and every.is_empty():
        return
    threads = every.head(20)
    stayed, (held, quota) = _stayed(facts, threads), _held(facts, every)
    sure = "that may use them " if not stayed and not held else ""
    if facts.where is None:
        cost, high = row["wasted"] - held, row["wasted_high"]
        shares = row["wasted_idle_frac"], row["wasted_idle_frac_high"]
        text = (
            f"CPUs were idle for {interval(row['wasted'], high)}"
            f" ({interval(*shares, percent)} of all idle time) while threads {sure}waited"
            " elsewhere."
        )
    else:
        waited, high = every.select(pl.col("avoidable", "avoidable_high").sum()).row(0)
        cost = waited - held
        which = "that they may use " if not stayed and not held else ""
        text = (
            f"{several(every.height, 'selected thread')} waited {interval(waited, high)} in total"
            f" while other CPUs {which}were idle."
        )
    worst = facts.ask(work_conservation, by="comm")
    if worst.height and worst["avoidable"][0]:
        name, *times = worst.select("comm", "avoidable", "avoidable_high").row(0)
        text += f" Threads named {printable(name or '?')} waited most: {interval(*times)}."
    if stayed:
        text += (
            f" But {listed(stayed)} ran on one CPU only: if they were pinned there"
            " after their mask was recorded, or by a mask that was not recorded, no other"
            " CPU could have run them."
        )
    if cost > 0:
        worst_one = _idle_longest(facts)
        place = (cost, text + quota, "work-conservation", *worst_one)
        yield Finding("avoidable idle time", *place, cost_high=high)


def _idle_longest(facts: Facts) -> tuple[Any, ...]:
    """When, which thread and where while CPUs idled: `ts`, `dur`, `utid`, `cpu`."""
    if facts.where is None:
        found = once(idle_episodes, facts.trace, longer_than=0, top=STRETCHES)
    else:
        # All episodes, since the worst ones may be about other threads.
        found = idle_episodes(facts.trace, top=None, waiters=1, where=facts.where)
        found = found.filter(pl.col("utid").is_not_null())
        found = found.sort("waited", "ts", descending=[True, False])
    return found.select("ts", "dur", "utid", "cpu").row(0) if found.height else ()


def _stayed(facts: Facts, threads: pl.DataFrame) -> list[str]:
    """Names of threads that may well be pinned, if they are most of the avoidable waiting."""
    if threads.is_empty():
        return []
    asked = pl.col("utid").is_in(threads["utid"].to_list())
    kept = affinity(facts.trace, by="utid", where=asked).filter(
        (pl.col("top_frac") >= _STAYED) & (pl.col("n") >= 10)
    )
    these = threads.join(kept.select("utid"), on="utid", how="semi", maintain_order="left")
    if 2 * int(these["avoidable"].sum()) < int(threads["avoidable"].sum()):
        return []
    return list(dict.fromkeys(printable(name or "?") for name in these["comm"]))


def _held(facts: Facts, threads: pl.DataFrame) -> tuple[int, str]:
    """How much of these threads' avoidable waiting a quota may explain, and a sentence on it."""
    both = held_back(facts.trace, threads)
    held = int(both["held"].sum())
    if not held:
        return 0, ""
    quotas = quotas_named(facts, both["utid"].to_list())
    return held, (
        f" But up to {duration(held)} of the waiting may be due to the CPU quota of {quotas}: while"
        " it is used up, no CPU may run these threads, and the trace does not show when that was."
        " The cost leaves that out."
    )
