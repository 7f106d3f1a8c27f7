"""When threads changed their own masks, as far as a recording of Linux shows it.

A recorder knows the masks of the threads that it found, when it found them. A thread that sets its
mask later and is on a CPU that the new one excludes wakes that CPU's thread `migration/N`, and is
on another CPU when it runs again (`affine_move_task` of kernel/sched/core.c). It does the same in
`execve` (`sched_exec`), where it soon has another name. What wakes `migration/N` to balance loads
is another thread, or an interrupt.

The new mask is not recorded. It is taken to be the only CPU on which the thread ran from then on,
up to the next such change; if those were several, all CPUs but the one that it left. A thread that
came back to that CPU had only changed its place. One that had another name soon afterwards, as all
have that `taskset` starts, changed its mask if it waited for its only CPU while another one idled
(`inferred_affinity`).
"""

from __future__ import annotations

import polars as pl

from schedscope.analysis._base.topology import cpu_text
from schedscope.simulator.inferred_affinity import bound_by_waiting
from schedscope.trace import Trace

RENAMED = 10_000_000
"""A thread that has another name so soon afterwards began another program, ns."""

ENOUGH = 20_000_000
"""A sibling of bound threads waited at least so long for the CPU on which they are, ns."""

SCHEMA = pl.Schema(
    {"ts": pl.Int64(), "utid": pl.UInt32(), "cpus": pl.String(), "first": pl.Boolean()}
)


def changed_masks(trace: Trace, switches: pl.DataFrame, wakeups: pl.DataFrame) -> pl.DataFrame:
    """One row per change of a thread's own mask: when, whose, and the CPUs allowed from then on.

    `first`: it is the thread's mask from its beginning.
    """
    known = trace.threads.filter(pl.col("kernel").fill_null(False)).select("utid", "comm").collect()
    stoppers = known.with_columns(
        left=pl.col("comm").str.extract(r"^migration/(\d+)$").cast(pl.Int64, strict=False)
    ).drop_nulls("left")
    if stoppers.is_empty() or trace.ncpu < 2:
        return pl.DataFrame(schema=SCHEMA)
    first = "waking" if (wakeups["kind"] == "waking").any() else "enqueued"
    moves = (
        wakeups.filter(pl.col("kind") == first, pl.col("waker_utid") >= trace.ncpu)
        .join(stoppers.select("utid", "left"), on="utid")
        .filter(pl.col("cpu") == pl.col("left"))
        .select("ts", "left", utid="waker_utid")
    )
    if moves.is_empty():
        return pl.DataFrame(schema=SCHEMA)
    renamed = trace.renames.select("ts", "utid").collect()
    runs = switches.select("ts", "cpu", utid="next_utid")
    rows, perhaps = [], []
    for (utid,), own in moves.sort("ts").partition_by("utid", as_dict=True).items():
        ran = runs.filter(pl.col("utid") == utid)
        named = renamed.filter(pl.col("utid") == utid)["ts"]
        ends = [*own["ts"][1:], trace.window[1] + 1]
        for ts, left, end in zip(own["ts"], own["left"], ends, strict=True):
            on = ran.filter(pl.col("ts").is_between(ts, end, closed="none"))["cpu"].unique()
            if on.is_empty() or left in on:
                continue
            if not named.is_between(ts, ts + RENAMED).any():
                rest = [cpu for cpu in range(trace.ncpu) if cpu != left]
                rows.append((ts, utid, cpu_text(on.to_list() if len(on) == 1 else rest), False))
            elif len(on) == 1:
                perhaps.append((ts, utid, on[0]))
    waited = bound_by_waiting(trace, {utid: cpu for _, utid, cpu in perhaps})
    rows += [(ts, utid, str(cpu), False) for ts, utid, cpu in perhaps if waited.get(utid) == cpu]
    changes = pl.DataFrame(rows, schema=SCHEMA, orient="row").sort("ts")
    if changes.is_empty():
        return changes
    return pl.concat([changes, _followed(trace, changes, runs)]).sort("ts")


def _followed(trace: Trace, changes: pl.DataFrame, runs: pl.DataFrame) -> pl.DataFrame:
    """Threads that began with a mask because of `changes`, or at once set the same.

    A thread has the mask of its parent, if it only ran on that CPU. Where siblings bound
    themselves to one CPU, one that never ran elsewhere and waited for it did, too: where it set
    its mask it was there already.
    """
    alone = changes.filter(pl.col("cpus").str.contains(r"^\d+$"))
    on = runs.group_by("utid").agg(pl.col("cpu").first(), n=pl.col("cpu").n_unique())
    homes = dict(on.filter(pl.col("n") == 1).select("utid", "cpu").iter_rows())
    family = trace.threads.select("utid", "parent_utid", "start_ts").drop_nulls().collect()
    began: dict[int, str] = {}
    own = changes.partition_by("utid", as_dict=True)
    for utid, parent, ts in family.sort("start_ts").iter_rows():
        mask = began.get(parent)
        if (parent,) in own:
            before = own[(parent,)].filter(pl.col("ts") < ts)["cpus"]
            mask = mask if before.is_empty() else before[-1]
        if mask is not None and mask == str(homes.get(utid)):
            began[utid] = mask
    siblings = family.join(alone.unique("utid", keep="last"), on="utid")
    places = set(siblings.select("parent_utid", "cpus").iter_rows())
    waited = (
        trace.states.filter(pl.col("state") == "runnable", pl.col("utid").is_in(list(homes)))
        .group_by(pl.col("utid").cast(pl.UInt32))
        .agg(pl.col("dur").sum())
        .filter(pl.col("dur") >= ENOUGH)
        .collect()
    )
    for utid, parent in family.join(waited, on="utid").select("utid", "parent_utid").iter_rows():
        if (parent, str(homes[utid])) in places:
            began[utid] = str(homes[utid])
    starts = family.filter(pl.col("utid").is_in(list(began)))
    cpus = pl.col("utid").replace_strict(began, default=None, return_dtype=pl.String)
    return starts.select(ts=pl.col("start_ts") + 1, utid="utid", cpus=cpus, first=pl.lit(True))
