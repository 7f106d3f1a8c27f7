"""When threads changed their own masks, as far as a recording of Linux shows it.

A recorder knows the masks of the threads that it found, when it found them. A thread that sets its
mask later and is on a CPU that the new one excludes wakes that CPU's thread `migration/N`, and is
on another CPU when it runs again (`affine_move_task` of kernel/sched/core.c). It does the same in
`execve` (`sched_exec`), where it soon has another name. What wakes `migration/N` to balance loads
is another thread, or an interrupt.

The new mask is not recorded. It is taken to be the only CPU on which the thread ran from then on,
up to the next such change; if those were several, all CPUs but the one that it left. A thread that
came back to that CPU had only changed its place. One that had another name afterwards, as all have
that `taskset` starts, changed its mask if it waited for its only CPU while another one idled
(`inferred_affinity`).
"""

from __future__ import annotations

import polars as pl

from schedscope.analysis.cpus.topology import cpu_text
from schedscope.store.trace import Trace

TOGETHER = 10_000_000
"""Siblings that begin no further apart do the same work, ns."""

ENOUGH = 20_000_000
"""A thread that is bound like its parent or siblings waited at least so long for that CPU, ns."""

SCHEMA = pl.Schema(
    {"ts": pl.Int64(), "utid": pl.UInt32(), "cpus": pl.String(), "first": pl.Boolean()}
)


def changed_masks(
    trace: Trace, switches: pl.DataFrame, wakeups: pl.DataFrame, known: pl.DataFrame
) -> tuple[pl.DataFrame, dict[int, int]]:
    """One row per change of a thread's own mask: the time, the thread, and the CPUs allowed from
    then on.

    `known`: the table of threads. `first`: it is the thread's mask from its beginning. The second
    value has, by utid, the only CPU of those that may have set theirs before they began another
    program.
    """
    named = pl.col("comm").str.starts_with("migration/")
    stoppers = {
        utid: comm.removeprefix("migration/")
        for utid, comm in known.filter(named, "kernel").select("utid", "comm").iter_rows()
    }
    steps = wakeups.filter(pl.col("utid").is_in(list(stoppers))).select(
        "ts", "cpu", "utid", "waker_utid", "kind"
    )
    moves = [
        (ts, cpu, waker, kind)
        for ts, cpu, utid, waker, kind in steps.iter_rows()
        if waker is not None and waker >= trace.ncpu and str(cpu) == stoppers[utid]
    ]
    # The first step of a wake, where both were recorded.
    first = "waking" if any(kind == "waking" for *_, kind in moves) else "enqueued"
    moves = [move for move in moves if move[-1] == first]
    if not moves or trace.ncpu < 2:
        return pl.DataFrame(schema=SCHEMA), {}
    mine = pl.col("utid").is_in({utid for *_, utid, _ in moves})
    names: dict[int, list[int]] = {}
    for utid, ts in trace.renames.filter(mine).select("utid", "ts").collect().iter_rows():
        names.setdefault(utid, []).append(ts)
    runs: dict[int, list[tuple[int, int]]] = {}
    ran = switches.select("ts", "cpu", utid="next_utid").filter(mine)
    for ts, cpu, utid in ran.iter_rows():
        runs.setdefault(utid, []).append((ts, cpu))
    began = set(known.filter(mine, pl.col("start_ts").is_not_null())["utid"])
    rows, perhaps = [], {}
    ends: dict[int, int] = {}
    for ts, left, utid, _ in reversed(moves):
        last, end = utid not in ends, ends.get(utid, trace.window[1])
        ends[utid] = ts
        on = {cpu for at, cpu in runs.get(utid, []) if ts < at <= end}
        if not on or left in on:
            continue
        if not any(ts <= at <= end for at in names.get(utid, [])):
            rest = on if len(on) == 1 else set(range(trace.ncpu)) - {left}
            rows.append((ts, utid, cpu_text(rest), False))
        elif len(on) == 1 and utid in began and last:
            perhaps[utid] = min(on)
    changes = pl.DataFrame(rows, schema=SCHEMA, orient="row").sort("ts")
    if changes.is_empty():
        return changes, perhaps
    return pl.concat([changes, _followed(trace, changes, switches, known)]).sort("ts"), perhaps


def _followed(
    trace: Trace, changes: pl.DataFrame, switches: pl.DataFrame, known: pl.DataFrame
) -> pl.DataFrame:
    """Threads that began with a mask because of `changes`, or at once set the same.

    They never ran elsewhere and waited there for `ENOUGH`: children of a thread with that mask, and
    those that began together with siblings that bound themselves to that CPU. Such a thread was
    already on that CPU when it set its mask.
    """
    alone = changes.filter(pl.col("cpus").str.contains(r"^\d+$"))
    runs = switches.select("cpu", utid="next_utid")
    on = runs.group_by("utid").agg(pl.col("cpu").first(), n=pl.col("cpu").n_unique())
    homes: dict[int, int] = dict(on.filter(pl.col("n") == 1).select("utid", "cpu").iter_rows())
    family = known.select("utid", "parent_utid", "start_ts").drop_nulls()
    waits = (
        trace.states.filter(pl.col("state") == "runnable", pl.col("utid").is_in(list(homes)))
        .group_by(pl.col("utid").cast(pl.UInt32))
        .agg(pl.col("dur").sum())
        .filter(pl.col("dur") >= ENOUGH)
        .collect()
    )
    waited = set(waits["utid"])
    began: dict[int, str] = {}
    own = changes.partition_by("utid", as_dict=True)
    for utid, parent, ts in family.sort("start_ts").iter_rows():
        mask = began.get(parent)
        if (parent,) in own:
            before = own[(parent,)].filter(pl.col("ts") < ts)["cpus"]
            mask = mask if before.is_empty() else before[-1]
        if mask is not None and mask == str(homes.get(utid)) and utid in waited:
            began[utid] = mask
    siblings: dict[tuple[int, str], list[int]] = {}
    bound = family.join(alone.unique("utid", keep="last"), on="utid")
    for parent, cpus, ts in bound.select("parent_utid", "cpus", "start_ts").iter_rows():
        siblings.setdefault((parent, cpus), []).append(ts)
    for utid, parent, start in family.filter(pl.col("utid").is_in(waited)).iter_rows():
        others = siblings.get((parent, str(homes[utid])), [])
        if any(abs(start - other) <= TOGETHER for other in others):
            began[utid] = str(homes[utid])
    starts = family.filter(pl.col("utid").is_in(list(began)))
    cpus = pl.col("utid").replace_strict(began, default=None, return_dtype=pl.String)
    return starts.select(ts=pl.col("start_ts") + 1, utid="utid", cpus=cpus, first=pl.lit(True))
