"""Which threads waited behind threads of a larger weight, by nice level or by control group?"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any

import polars as pl

from schedscope.analysis.asking.memo import once
from schedscope.analysis.findings.finding import Finding, option
from schedscope.analysis.interference import interference, summed
from schedscope.analysis.shares.group_weights import Deciding, GroupWeights
from schedscope.analysis.threads.memberships import unsettled
from schedscope.analysis.weights import weights
from schedscope.units import interval, printable, several

if TYPE_CHECKING:
    from schedscope.store.trace import Trace

_STEP = 1.2
"""One nice level is a factor of 1.25: less is the same weight."""
_WAITED = 0.1
"""Of the window: who waited less behind larger weights got what was to be expected."""
_VICTIMS = 50
"""Threads that are looked at: those that waited longest."""


def lower_weight(
    trace: Trace, quotas: Collection[int], where: pl.Expr | None = None
) -> Iterator[Finding]:
    """The thread that waited longest behind larger weights; `quotas`: whose quota explains it;
    `where`: by `utid`, of which threads."""
    known = once(weights, trace).filter(pl.col("basis").cast(pl.String) == "kernel table")
    if known.is_empty():
        return
    cgroups = trace.threads.select(pl.col("utid").cast(pl.UInt32), "cgroup").collect()
    # For threads that changed their group meanwhile it is unknown whose weight counted when.
    cgroups = cgroups.filter(~pl.col("utid").is_in(unsettled(trace).implode()))
    known = known.select(pl.col("utid").cast(pl.UInt32), "prio", "weight", "sharing").join(
        cgroups, on="utid", how="left"
    )
    groups = GroupWeights(trace)
    victims = _lighter(trace, known, groups, quotas, where)
    if not victims:
        return
    of_victim = known.rename(lambda name: f"victim_{name}")
    every = interference(trace, by="thread", where=pl.col("utid").is_in(victims)).with_columns(
        pl.col("utid", "victim_utid").cast(pl.UInt32)
    )
    pairs = (
        every.filter(pl.col("kind") == "thread")
        .join(known, on="utid")
        .join(of_victim, on="victim_utid")
        .filter(pl.col("sharing") == pl.col("victim_sharing"))
    )
    rows = []
    for pair in pairs.iter_rows(named=True):
        own = pair["victim_weight"], pair["weight"]
        both = pair["victim_utid"], pair["utid"]
        found = groups.compare(pair["victim_cgroup"], pair["cgroup"], own, both)
        if found is not None and found.other >= _STEP * found.one:
            rows.append((pair, found))
    heavier = pl.DataFrame([pair for pair, _ in rows], schema=pairs.schema)
    behind = summed(every, heavier).filter(pl.col("time") >= _WAITED * trace.duration)
    if behind.is_empty():
        return
    behind = behind.sort("time", "victim_utid", descending=[True, False])
    worst, *times = behind.row(0)
    pair, found = max(
        (row for row in rows if row[0]["victim_utid"] == worst), key=lambda row: row[0]["time"]
    )
    cost, most = behind.select(pl.col("time", "time_high").sum()).row(0)
    text = (
        f"{printable(pair['victim_comm'] or '?')} ({pair['victim_tid']}) waited"
        f" {interval(*times)} behind threads of larger weight,"
        f" {interval(pair['time'], min(pair['time_high'], times[1]))} of it behind"
        f" {printable(pair['comm'] or '?')} ({pair['tid']}): {_whose(pair, found)}."
    )
    if len(behind) > 1:
        text += f" So did {several(len(behind) - 1, 'other thread')}."
    text += " Threads of larger weight are due a larger part of the CPU."
    comm = shlex.quote(pair["victim_comm"] or "?")
    options = None
    if found.group is None:
        options = option("set-nice", pair["victim_comm"], _nice(pair["prio"]))
    elif found.group.startswith("/"):
        # A session's only setting is its nice level, which `whatif` does not change.
        options = option("set-weight", found.group, found.other)
    yield Finding(
        "weight", cost, text, f"interference --comm {comm}", level="note",
        utid=worst, cost_high=most, whatif=options,
    )  # fmt: skip


def _lighter(
    trace: Trace,
    known: pl.DataFrame,
    groups: GroupWeights,
    quotas: Collection[int],
    where: pl.Expr | None,
) -> list[int]:
    """The threads that waited longest among those that waited enough and may have less weight than
    another: the rest of the work is expensive.
    """
    may = known.filter(~pl.col("utid").is_in(list(quotas)))
    if not groups.known:
        most = pl.col("weight").max().over("sharing")
        may = may.filter(most >= _STEP * pl.col("weight"))
    if where is not None:
        may = may.filter(where)
    if may.is_empty():
        return []
    waited = (
        trace.states.filter(pl.col("state") == "runnable")
        .group_by(pl.col("utid").cast(pl.UInt32))
        .agg(pl.col("dur").sum())
        .filter(pl.col("dur") >= _WAITED * trace.duration)
        .collect()
        .join(may, on="utid", how="semi")
        .sort("dur", "utid", descending=[True, False])
    )
    return waited["utid"].head(_VICTIMS).to_list()


def _nice(prio: int) -> int:
    return prio - 120


def _whose(pair: dict[str, Any], found: Deciding) -> str:
    """Which weights decide: those of the threads, of sessions, or of the control groups in which
    their paths first differ, which may lie above the threads' own."""
    one, other = found.group, found.other_group
    if one is None or other is None:
        levels = _nice(int(pair["victim_prio"])), _nice(int(pair["prio"]))
        return (
            f"its nice level is {levels[0]} (weight {found.one}), the other's {levels[1]}"
            f" (weight {found.other})"
        )
    if one.startswith("/") and other.startswith("/"):
        return (
            f"its control group {printable(one)} has weight {found.one},"
            f" {printable(other)} has {found.other}"
        )
    if not one.startswith("/") and not other.startswith("/"):
        return f"its session has weight {found.one}, the other's {found.other}"
    # Beside a group competes the session of a thread outside of all groups.
    return (
        f"it competes with weight {found.one}{_from(one)}, the other with"
        f" {found.other}{_from(other)}"
    )


def _from(group: str) -> str:
    return f", that of its control group {printable(group)}" if group.startswith("/") else ""
