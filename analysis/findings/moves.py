"""Did migrations and returns cost more than they brought?"""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from schedscope.analysis.asking.memo import once
from schedscope.analysis.findings.cold_caches import kept_in_place
from schedscope.analysis.findings.facts import Facts
from schedscope.analysis.findings.finding import Finding, option
from schedscope.analysis.migration.migrations import moves, ping_pong
from schedscope.analysis.recording.of_recorder import of_recorder
from schedscope.units import count, duration, printable, several

_MUCH = 0.2
"""Names that have this part of a cost are named."""
_BOUNCES = 10
"""Fewer returns to a CPU are no ping-pong."""


def moved(facts: Facts) -> Iterator[Finding]:
    """Not on an overloaded machine: its threads wait wherever they go."""
    if facts.overloaded or facts.phantoms:
        return
    # The recorder's threads are absent when nothing is recorded.
    others = _movable(facts).join(once(of_recorder, facts.trace), on="utid", how="anti")
    number, held = 0, []
    for part in moves(facts.trace, None):
        mine = facts.mine(part).join(others, on="utid")
        number += mine.height
        held.append(mine.filter("waited"))
    waited = _behind_others(facts, pl.concat(held))
    if waited.is_empty():
        return
    cost = int(waited["queued"].sum())
    worst = (
        waited.group_by("comm")
        .agg(pl.col("queued").sum())
        .sort("queued", "comm", descending=[True, False])
    )
    text = (
        f"{count(waited.height)} of {several(number, 'migration')} led to another"
        f" queue: the threads moved and then waited anyway, {duration(cost)} in total."
    )
    names = [
        f"{printable(name or '?')} {duration(time)}"
        for name, time in worst.filter(pl.col("queued") >= _MUCH * cost).iter_rows()
    ]
    if names:
        text += f" Most of it: {', '.join(names)}."
    longest = waited.sort("queued", "utid", descending=[True, False]).row(0, named=True)
    most = waited.filter(pl.col("comm").eq_missing(pl.lit(worst["comm"][0], pl.String)))
    utid = most.sort("queued", "utid", descending=[True, False])["utid"][0]
    whatif = kept_in_place(facts.trace, utid, worst["comm"][0]) if worst["comm"][0] else None
    place = (longest["arrived"], longest["queued"], longest["utid"], longest["to_cpu"])
    yield Finding("migration", cost, text, "migrations", *place, whatif=whatif)


def _movable(facts: Facts) -> pl.DataFrame:
    """Threads, but those of class deadline: they wait for their next period wherever they are, and
    the kernel refuses to pin them (EBUSY or EPERM of `sched_setaffinity`)."""
    deadline = (pl.col("sched_class").cast(pl.String) == "deadline").fill_null(value=False)
    return (
        facts.trace.threads.filter(~deadline)
        .select(pl.col("utid").cast(pl.UInt32), "comm")
        .collect()
    )


def _behind_others(facts: Facts, waited: pl.DataFrame) -> pl.DataFrame:
    """Those moves after which another thread ran on the CPU when the thread came to its queue.

    A CPU that idled was only slow to wake up, and the recorder's threads are absent when nothing is
    recorded.
    """
    recorders = once(of_recorder, facts.trace)["utid"].implode()
    ran = facts.trace.switches.select(
        pl.col("ts").alias("since"), to_cpu="cpu", runs="next_utid"
    ).sort("since", maintain_order=True)
    return (
        waited.lazy()
        .sort("arrived", maintain_order=True)
        .join_asof(
            ran,
            left_on="arrived",
            right_on="since",
            by="to_cpu",
            strategy="backward",
            check_sortedness=False,
        )
        .filter(pl.col("runs") >= facts.trace.ncpu, ~pl.col("runs").is_in(recorders))
        .collect()
    )


def bounced(facts: Facts) -> Iterator[Finding]:
    """Threads that go back and forth between two CPUs."""
    frame = facts.mine(once(ping_pong, facts.trace)).filter(pl.col("n") >= _BOUNCES)
    frame = frame.join(_movable(facts), on="utid", how="semi", maintain_order="left")
    if frame.is_empty():
        return
    worst = frame.row(0, named=True)
    who = f"{printable(worst['comm'] or '?')}, {count(worst['n'])} times"
    where = f"between CPU {worst['cpu_a']} and CPU {worst['cpu_b']}"
    n = frame["utid"].n_unique()
    text = (
        f"{several(n, 'thread')} moved back and forth between two CPUs"
        f" {several(int(frame['n'].sum()), 'time')}; most of all {who} {where}."
        f" They waited {duration(int(frame['wait'].sum()))} when moving back."
    )
    cost = int(frame["wait"].sum())
    whatif = option("pin", worst["comm"], worst["cpu_a"])
    utid, command = worst["utid"], "migrations --ping-pong"
    yield Finding("ping-pong", cost, text, command, utid=utid, whatif=whatif)
