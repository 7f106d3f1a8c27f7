"""Which kinds of fault are looked for."""

from __future__ import annotations

from collections.abc import Iterator

from schedscope.analysis.asking.needs import has
from schedscope.analysis.findings.avoidable_idle import wasted
from schedscope.analysis.findings.cold_caches import wakeup_migrations
from schedscope.analysis.findings.disks import disks
from schedscope.analysis.findings.dispatched import (
    dispatched_late,
    near_watchdog,
    scheduler_ended,
)
from schedscope.analysis.findings.facts import Facts
from schedscope.analysis.findings.finding import Finding
from schedscope.analysis.findings.interrupts import interrupts
from schedscope.analysis.findings.inversion import priority_inversion
from schedscope.analysis.findings.locks import lock_convoys
from schedscope.analysis.findings.lower_weight import lower_weight
from schedscope.analysis.findings.masks import crowded, leaks, masked, outside
from schedscope.analysis.findings.moves import bounced, moved
from schedscope.analysis.findings.outranked import outranked
from schedscope.analysis.findings.overload import overload
from schedscope.analysis.findings.quotas import throttled, unread_quotas
from schedscope.analysis.findings.starved import starved
from schedscope.analysis.findings.steal import stolen
from schedscope.analysis.findings.triggered import triggered
from schedscope.analysis.findings.trust import trust
from schedscope.analysis.findings.unfair import unfair


def found(facts: Facts) -> Iterator[Finding]:
    """All findings, in no order."""
    yield from triggered(facts)
    yield from scheduler_ended(facts)
    yield from trust(facts)
    if not has(facts.trace, "wakeups"):
        return  # all others are about waits
    yield from starved(facts)
    yield from near_watchdog(facts)
    yield from dispatched_late(facts)
    yield from wasted(facts)
    yield from masked(facts)
    yield from crowded(facts)
    yield from lower_weight(facts.trace, facts.throttling.quota_of, facts.where)
    yield from outranked(facts)
    yield from priority_inversion(facts.trace, facts.where)
    yield from unfair(facts)
    yield from moved(facts)
    yield from bounced(facts)
    if not facts.overloaded and not facts.phantoms:
        yield from wakeup_migrations(facts.trace, facts.where)
    yield from outside(facts)
    yield from leaks(facts)
    yield from throttled(facts)
    yield from unread_quotas(facts)
    yield from stolen(facts)
    yield from lock_convoys(facts)
    yield from interrupts(facts.trace)
    yield from disks(facts.trace, facts.where)
    yield from overload(facts)
