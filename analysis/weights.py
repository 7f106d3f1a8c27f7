"""Which share of a CPU is due to each thread, and how well is that known?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from schedscope.analysis.asking.memo import once
from schedscope.analysis.asking.needs import needs
from schedscope.analysis.causes.throttling import throttling
from schedscope.analysis.shares.group_weights import GroupWeights
from schedscope.analysis.threads.levels import BASIS, EQUAL_LEVEL, TABLE, Levels, linux_priorities
from schedscope.analysis.wait_breakdown import wait_breakdown
from schedscope.units import duration

if TYPE_CHECKING:
    from schedscope.store.trace import Trace


@needs()
def weights(trace: Trace) -> pl.DataFrame:
    """One row per thread except idle ones: its weight in sharing a CPU, and where that is from.

    Threads of one `sharing` compete with one another by weight: Linux's fair, batch
    and idle classes are one such set, every other class is one of its own.

    * `utid`, `comm`, `tid`, `sched_class`, `prio`: the thread, as last known;
    * `sharing`: the class whose CPU time it shares;
    * `weight`: 1024 is a thread of nice 0;
    * `basis`: "kernel table" for Linux's nice levels; "equal" where the source does not report
      weights, or where priority and not weight decides within the class.

    Analyses follow a thread's priority through the trace; this table has the last one.
    `weight_notes` says what is assumed. Definition: docs/definitions/fairness.md.

    >>> from schedscope import Trace
    >>> threads = pl.DataFrame({"utid": [0, 1, 2], "comm": ["", "make", "cc1"], "tid": [0, 7, 8],
    ...     "prio": [None, 120, 125], "sched_class": ["idle", "fair", "fair"]})
    >>> about = {"ncpu": 1, "window": [0, 20], "os": "Linux"}
    >>> trace = Trace.from_tables({"threads": threads}, about)
    >>> weights(trace).select("comm", "prio", "weight", "basis")
    shape: (2, 4)
    ┌──────┬──────┬────────┬──────────────┐
    │ comm ┆ prio ┆ weight ┆ basis        │
    │ ---  ┆ ---  ┆ ---    ┆ ---          │
    │ str  ┆ i64  ┆ i64    ┆ enum         │
    ╞══════╪══════╪════════╪══════════════╡
    │ make ┆ 120  ┆ 1024   ┆ kernel table │
    │ cc1  ┆ 125  ┆ 335    ┆ kernel table │
    └──────┴──────┴────────┴──────────────┘
    """
    threads = (
        trace.threads.filter(pl.col("utid") >= trace.ncpu)
        .select("utid", "comm", "tid", "sched_class", "prio")
        .collect()
    )
    from schedscope import _native

    levels = Levels(trace)
    asked = threads.select(pl.col("utid").cast(pl.UInt32), pl.col("prio").cast(pl.Int16))
    found = pl.DataFrame(_native.levels_of(levels.to_native(), asked))
    basis = pl.when(pl.col("level") == EQUAL_LEVEL).then(pl.lit("equal"))
    return pl.concat([threads, found], how="horizontal").select(
        *threads.columns,
        sharing=pl.col("class").replace_strict(
            range(len(levels.classes)), levels.classes, return_dtype=pl.String
        ),
        weight=pl.col("level").replace_strict(range(len(TABLE)), TABLE, return_dtype=pl.Int64),
        basis=basis.otherwise(pl.lit("kernel table")).cast(BASIS),
    )


@needs()
def weight_notes(trace: Trace, *, groups: bool = True) -> list[str]:
    """What the weights of this trace are: what is known, then what is assumed.

    `groups`: the weights of control groups and sessions are taken into account where they are
    known, as `fairness`, `lag` and `starvation` do where the threads of each CPU compete.
    """
    if not linux_priorities(trace):
        system = trace.info.get("os") or trace.metadata("scheduler", "name") or "this source"
        return [f"none are known for {system}: all threads of a class count the same"]
    notes = ["those of Linux's nice levels, by each thread's priority at the time"]
    policies = trace.threads.filter(pl.col("utid") >= trace.ncpu).select(
        told=(pl.col("sched_class").cast(pl.String).is_in(["batch", "idle"])).any()
    )
    if not policies.collect().item():
        notes.append("no thread is known to be SCHED_IDLE; one that is counts by its nice level")
    if once(throttling, trace).guessed:
        held = once(wait_breakdown, trace, by="all").row(0, named=True)
        notes.append(
            "nothing is due while a quota holds a thread back, for"
            f" {duration(held['throttled'])} to {duration(held['throttled_high'])} of all waiting:"
            " which time that was is partly a guess"
        )
    if trace.metadata("source", "format") == "simulation":
        return notes
    known = GroupWeights(trace)
    sharing = known.sharing()
    if sharing == "groups" and groups:
        notes.append(
            "control groups and sessions share a CPU first, by the weights that the recorder found"
        )
    elif sharing == "groups":
        notes.append(
            "control groups and sessions are not counted here, although CPU time is shared among"
            " them first"
        )
    elif sharing == "doubtful":
        notes.append(
            "groups are unknown for too many threads, and CPU time is shared among groups first"
        )
    elif sharing == "unknown" and known.autogroup:
        notes.append(
            "groups are unknown: autogroup was on, and CPU time is shared among groups first"
        )
    elif sharing == "unknown":
        notes.append("groups are unknown: CPU time is shared among cgroups with weights first")
    return notes
