"""Which threads waited behind threads that always run first: real-time and deadline threads?"""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from schedscope.analysis.asking.memo import once
from schedscope.analysis.findings.facts import Facts
from schedscope.analysis.findings.finding import Finding, option
from schedscope.analysis.interference import interference, summed
from schedscope.analysis.threads.levels import FAIR_PRIOS, linux_priorities
from schedscope.analysis.threads.same_names import SameNames
from schedscope.units import interval, percent, printable, several

_WAITED = 0.1
"""Of the window: real-time threads are meant to run first, and most of them do so for little."""
_VICTIMS = 50
"""Threads that are looked at: those that waited longest."""
_STRICT = 0.9
"""Of its running time: a thread that is real-time for less is lent a priority, or changes often."""
_PRIO = pl.col("prio")


def outranked(facts: Facts) -> Iterator[Finding]:
    """The thread that waited longest behind real-time threads, and which of them it was."""
    trace = facts.trace
    if not linux_priorities(trace):
        return
    states = trace.states.select(
        pl.col("utid").cast(pl.UInt32), "state", "dur", pl.col("cpu").cast(pl.Int64), "prio"
    ).filter(pl.col("utid") >= trace.ncpu)
    running = states.filter(pl.col("state") == "running")
    first = (
        running.filter(pl.col("prio") < FAIR_PRIOS[0])
        .group_by("utid")
        .agg(pl.col("dur").sum())
        .collect()
    )
    if first["dur"].sum() < _WAITED * trace.duration:
        return  # too little to explain a long wait
    # A thread that is lent a priority does not count, but one that starts as a fair thread does, as
    # all do that `chrt` starts.
    strict = (
        running.filter(pl.col("utid").is_in(first["utid"].implode()))
        .group_by("utid", "prio")
        .agg(pl.col("dur").sum())
        .with_columns(all=pl.col("dur").sum().over("utid"))
        .filter(pl.col("prio") < FAIR_PRIOS[0])
        .group_by("utid")
        .agg(
            ranked=pl.col("dur").sum() / pl.col("all").first(),
            worst=_PRIO.sort_by("dur", "prio").last(),
        )
        .filter(pl.col("ranked") >= _STRICT)
        .drop("ranked")
        .collect()
    )
    waited = (
        states.filter(pl.col("state") == "runnable")
        .group_by("utid")
        .agg(own=_PRIO.min(), wait=pl.col("dur").sum())
        .filter(pl.col("wait") >= _WAITED * trace.duration, pl.col("own").is_not_null())
        .collect()
    )
    waited = facts.mine(waited).sort("wait", "utid", descending=[True, False]).head(_VICTIMS)
    if waited.is_empty():
        return
    every = interference(
        trace, by="thread", where=pl.col("utid").is_in(waited["utid"].implode())
    ).with_columns(pl.col("utid", "victim_utid").cast(pl.UInt32))
    pairs = (
        every.filter(pl.col("kind") == "thread")
        .join(strict, on="utid")
        .join(waited.rename({"utid": "victim_utid"}).drop("wait"), on="victim_utid")
        .filter(pl.col("worst") < pl.col("own"))
        .with_columns(behind=pl.col("time").sum().over("victim_utid"))
        .filter(pl.col("behind") >= _WAITED * trace.duration)
        .sort(["behind", "victim_utid", "time", "utid"], descending=[True, False, True, False])
    )
    if pairs.is_empty():
        return
    pair = pairs.row(0, named=True)
    on = (
        running.filter(pl.col("utid") == pair["utid"])
        .group_by("cpu")
        .agg(pl.col("dur").sum())
        .sort("dur", "cpu", descending=[True, False])
        .collect()
        .row(0, named=True)
    )
    names = once(SameNames, trace)
    victims = summed(every, pairs)
    behind = victims.filter(victim_utid=pair["victim_utid"])["time", "time_high"].row(0)
    cost, high = victims.select(pl.col("time", "time_high").sum()).row(0)
    name = printable(pair["comm"] or "?")
    most = interval(pair["time"], min(pair["time_high"], behind[1]))
    if most == interval(*behind):
        most = "All" if pair["time"] == pair["behind"] else "Nearly all"
    text = (
        f"{printable(pair['victim_comm'] or '?')} ({pair['victim_tid']})"
        f"{names.whose([pair['victim_utid']])} waited"
        f" {interval(*behind)} behind real-time threads, which run before all others"
        f" whatever their weights. {most} of it was behind {name} ({pair['tid']})"
        f"{names.whose([pair['utid']])},"
        f" {_level(pair['worst'])}, which took {percent(on['dur'] / trace.duration)} of the time"
        f" of CPU {on['cpu']}."
    )
    if victims.height > 1:
        text += f" So did {several(victims.height - 1, 'other thread')}."
    whatif = option("set-class", str(pair["tid"]), "fair") if pair["tid"] else None
    yield Finding(
        "real-time", cost, text, f"interference --tid {pair['victim_tid']}",
        utid=pair["victim_utid"], cost_high=high, whatif=whatif,
    )  # fmt: skip


def _level(prio: int) -> str:
    """What `chrt` calls a priority: 99 is the best real-time one."""
    return "of class deadline" if prio < 0 else f"of priority {99 - prio}"
