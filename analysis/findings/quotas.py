"""Which threads did a quota hold back?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import polars as pl

from schedscope.analysis.asking.memo import once
from schedscope.analysis.causes.quota_periods import period_timers
from schedscope.analysis.causes.throttled_waits import throttled_by
from schedscope.analysis.findings.facts import Facts
from schedscope.analysis.findings.finding import Finding, listed, option
from schedscope.analysis.threads.memberships import BLIND_TO_MOVES
from schedscope.analysis.wait_breakdown import throttled_times, wait_breakdown
from schedscope.units import count, duration, interval, printable, several


def throttled(facts: Facts) -> Iterator[Finding]:
    """The kernel's counts of throttling, and the waits that they explain."""
    held = [group for group in facts.trace.info.get("groups") or [] if group.get("throttled")]
    for group in sorted(held, key=lambda group: -group["throttled"]):
        entered = _known_to_enter(facts, group)
        if facts.where is not None and entered and not _held_by(facts, group):
            continue
        name = printable(group["cgroup"])
        quota, period = group.get("quota"), group.get("period")
        limit = f" of {duration(quota)} per {duration(period)}" if quota and period else ""
        of_whole = "" if facts.trace.whole is None else " of the whole recording"
        often = ""
        if group.get("n_throttled") and group.get("n_periods"):
            periods = several(group["n_periods"], "period")
            often = f" in {count(group['n_throttled'])} of {periods}"
        text = (
            f"The CPU quota{limit} of control group {name} held its threads back for"
            f" {duration(group['throttled'])}{often}, by the kernel's count{of_whole}."
            f"{_throttled_waits(facts, group) if entered else _nobody(facts)}"
        )
        command = "info"
        whatif = None
        if entered:
            command = f"wait-breakdown --cgroup '{name.rstrip('/')}*' --by comm"
            whatif = option("quota", group["cgroup"], "none")
        place = _held_longest(facts, group)
        cost = _throttled_cost(facts, group)
        yield Finding("quota", cost, text, command, *place, whatif=whatif)


_NOBODY = " The trace does not show which threads were in it; their waits include that time."
_RECORD = " The ftrace recorder sees threads enter a group."


def _nobody(facts: Facts) -> str:
    other = facts.trace.metadata("recorder", "name") in BLIND_TO_MOVES
    return _NOBODY + (_RECORD if other else "")


def _known_to_enter(facts: Facts, group: dict[str, Any]) -> bool:
    """Whether any thread of the trace is known to have been in the group."""
    return any(group["cgroup"] in quotas for quotas in facts.throttling.quotas_of.values())


def throttled_of(facts: Facts, utids: list[int]) -> int:
    """For how long these threads waited while a quota was used up, as far as that is known, ns."""
    times = throttled_times(facts.trace)
    return int(times.filter(pl.col("utid").is_in(utids))["throttled"].sum())


def quotas_named(facts: Facts, utids: list[int]) -> str:
    """The control groups whose quotas held these threads back longest."""
    quotas = facts.throttling.quota_of
    names = dict.fromkeys(printable(quotas[utid]) for utid in utids if utid in quotas)
    return listed(list(names)) if names else "their control groups"


_SAME = 0.05
"""A figure that may be larger by less than this part is given as it is."""


def _throttled_waits(facts: Facts, group: dict[str, Any]) -> str:
    """How much of its threads' waiting that was."""
    own = _held_by(facts, group)
    found = once(wait_breakdown, facts.trace, by="utid").filter(pl.col("utid").is_in(own))
    waited = interval(*found.select(pl.col("wait", "wait_high").sum()).row(0))
    seen, most = _seen(facts, group, own, found)
    untimed = facts.throttling.held[own[0]]
    if not (seen or (most and not untimed)):
        return " This trace does not show when; the waits of these threads include it."
    sure = not untimed and most <= seen * (1 + _SAME)
    if sure:
        how_much = duration(seen)
    else:
        how_much = f"at least {duration(seen)}" if seen else f"at most {duration(most)}"
    return (
        f" Throttling accounts for {how_much} of the {waited} that they"
        " waited for a CPU, whatever ran meanwhile."
    )


def _throttled_cost(facts: Facts, group: dict[str, Any]) -> int:
    """The kernel's count of throttled time; for a part of the group's threads, or of the recording,
    at most their waiting.
    """
    counted, own = int(group["throttled"]), _held_by(facts, group)
    every = [
        utid for utid, quotas in facts.throttling.quotas_of.items() if group["cgroup"] in quotas
    ]
    if len(own) == len(every) and facts.trace.whole is None:
        return counted
    found = once(wait_breakdown, facts.trace, by="utid").filter(pl.col("utid").is_in(own))
    least, _ = _seen(facts, group, own, found)
    return min(counted, least or int(found["wait"].sum()))


def _seen(
    facts: Facts, group: dict[str, Any], own: list[int], found: pl.DataFrame
) -> tuple[int, int]:
    """How much of their waiting this group's quota explains, at least and at most, as far as the
    trace shows it.
    """
    held = facts.throttling
    if all(len(held.quotas_of[utid]) == 1 for utid in own):
        return int(found["throttled"].sum()), int(found["throttled_high"].sum())
    counted = int(group["throttled"]) * len(own)
    least, most = throttled_by(facts.trace, held, str(group["cgroup"]), own)
    return min(least, counted), min(most, counted)


def _held_by(facts: Facts, group: dict[str, Any]) -> list[int]:
    """The affected threads that this group's quota held back."""
    kept = None if facts.affected is None else set(facts.affected)
    return [
        utid
        for utid, quotas in facts.throttling.quotas_of.items()
        if group["cgroup"] in quotas and (kept is None or utid in kept)
    ]


def _held_longest(
    facts: Facts, group: dict[str, Any]
) -> tuple[int | None, int | None, int | None, int | None]:
    """When and where the quota held the group back longest, and who of it waited longest."""
    own = _held_by(facts, group)
    if not own:
        return None, None, None, None
    found = once(wait_breakdown, facts.trace, by="utid").filter(pl.col("utid").is_in(own))
    utid = found.sort("wait")["utid"][-1] if found.height else None
    numbers = {facts.throttling.group[utid] for utid in own} - {None}
    every = facts.throttling.by_quota[str(group["cgroup"])]
    stretches = every.filter(pl.col("group").is_in(list(numbers)), "likely")
    if stretches.is_empty():
        return None, None, utid, None
    ts, dur, cpu = stretches.top_k(1, by="dur").select("ts", "dur", "cpu").row(0)
    return ts, dur, utid, cpu


_LONG = 0.1
"""Of the period: waits of this length count, and end this soon after a refill."""
_FEW = 3
"""Fewer such waits may be chance."""


def unread_quotas(facts: Facts) -> Iterator[Finding]:
    """Groups that were gone before their counters were read, whose waits end with refills.

    A thread that waits for a CPU, and no quota, gets it at any time: a tenth of such waits end in
    the tenth of a period that follows a refill.
    """
    gone = facts.throttling.gone
    if not gone:
        return
    timers = period_timers(facts.trace)
    for path, utids in gone.items():
        waits = facts.mine(
            facts.trace.waits.filter(
                pl.col("utid").is_in(utids), pl.col("ts_run").is_not_null(), pl.col("wait") > 0
            )
            .select(pl.col("utid").cast(pl.UInt32), "wait", "cpu", "ts_ready", ts="ts_run")
            .sort("ts")
            .collect()
        )
        known = [found for fired in timers.values() if (found := _after(waits, fired))]
        if not known:
            continue
        period, n, rows = max(known, key=lambda found: int(found[2]["wait"].sum()))
        cost = int(rows["wait"].sum())
        name, soon = printable(path), duration(period * _LONG)
        text = (
            f"Control group {name} was gone when the recording ended: its CPU quota, that of a"
            " group around it, and what the kernel counted are unknown. But of"
            f" {several(n, 'wait')} of {soon} or more of its"
            f" threads, {count(rows.height)} ended within {soon} after a timer that refills a quota"
            f" every {duration(period)}: {duration(cost)} in total, in which it was probably used"
            " up."
        )
        worst = rows.sort("wait", "ts", descending=[True, False]).row(0, named=True)
        place = (worst["ts_ready"], worst["wait"], worst["utid"], worst["cpu"])
        command = f"wait-breakdown --cgroup '{name.rstrip('/')}' --by comm"
        yield Finding("quota", cost, text, command, *place, level="note", advice=_UNREAD)


_UNREAD = (
    "Record again so that the group still exists when the recording ends, or read cpu.max and"
    " cpu.stat in it meanwhile. If nr_throttled grows, raise cpu.max, or run fewer threads at a"
    " time."
)


def _after(waits: pl.DataFrame, fired: pl.Series) -> tuple[int, int, pl.DataFrame] | None:
    """A timer's period, how many waits are long, and those of them that end soon after it fired;
    None if these are not most of the time waited."""
    period = int(fired.diff().median() or 0)  # type: ignore[arg-type]
    long = waits.filter(pl.col("wait") >= _LONG * period)
    edges = pl.DataFrame({"ts": fired, "fired": fired})
    soon = long.join_asof(edges, on="ts", strategy="backward").filter(
        pl.col("ts") - pl.col("fired") <= _LONG * period
    )
    if soon.height < _FEW or 2 * soon["wait"].sum() < long["wait"].sum():
        return None
    return period, long.height, soon
