"""How much of their slices did threads of sched_ext use, and how near did its watchdog come?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from schedscope.analysis.asking.by import By, keys_of
from schedscope.analysis.asking.needs import needs
from schedscope.analysis.recording.lost_events import losses_of_any_event, reach
from schedscope.analysis.threads.levels import FAIR_PRIOS, LINUX_WEIGHTS
from schedscope.analysis.threads.of_threads import chosen_threads, threads_with
from schedscope.analysis.waits.waits import waits

if TYPE_CHECKING:
    from schedscope.store.trace import Trace

BY = ("comm", "tid", "pid", "utid", "process_name", "cgroup", "service")
_ENDLESS = 1 << 36
"""From here on, 69 s, a slice has no end: SCX_SLICE_INF, or beyond the watchdog's 30 s."""


@needs("switches", "dispatch_queues")
def dispatch_slices(trace: Trace, *, by: By = "comm", where: pl.Expr | None = None) -> pl.DataFrame:
    """One row per group of threads: slices given by a scheduler of sched_ext, and used.

    * `n`: runs that were seen from start to end, of threads that came from a dispatch queue;
    * `given`, `ran`: sum of the slices with which they were put into their last queue, and how
      long they ran (ns); runs whose slice is longer than any watchdog's limit are in neither;
    * `ran_frac`: `ran` as a share of `given`; above 1 where the kernel let a thread without
      competitors run on;
    * `n_whole`: runs as long as their slice;
    * `vtime`: how far their virtual times advanced from one insertion to the next, as far as both
      and all events in between were recorded; `vtime_due`: their CPU time meanwhile, by weight as
      sched_ext has it (ns; 100 is nice 0); `vtime_ratio`: the former over the latter. It is 1 where
      virtual time is service by weight, more where a thread is brought forward (after a sleep),
      and means nothing where the scheduler has other virtual times, or none;
    * `wait_max`: longest wait for a CPU, unfinished ones as far as they were observed (ns);
    * `limit`: how long the scheduler's watchdog lets a thread wait (ns), null where not recorded;
      `limit_frac`: the longest wait as a share of it.

    Most slices given first. Raises `UsageError` for another column.
    """
    keys = keys_of(by, BY)
    threads = threads_with(trace, keys)
    if where is not None:
        threads = threads.filter(pl.col("utid").is_in(chosen_threads(trace, where).implode()))
    chosen = threads.select("utid", *(key for key in keys if key != "utid")).collect()
    steps = trace.dispatch_queues.filter(pl.col("step") == "insert")
    puts = steps.select(
        "utid",
        "ts",
        "vtime",
        slice=pl.when(pl.col("slice") < _ENDLESS).then(pl.col("slice")).cast(pl.Int64),
    ).collect()
    runs = (
        trace.states.filter(
            pl.col("state") == "running",
            pl.col("end").is_in(["switched", "preempted", "exited"]),
            pl.col("utid") >= trace.ncpu,
        )
        .select("utid", "ts", "prio", ran="dur")
        .collect()
        .sort("ts")
        .join_asof(
            puts.with_columns(put=pl.col("ts")).sort("ts"),
            on="ts",
            by="utid",
            check_sortedness=False,
        )
        .filter(pl.col("put").is_not_null())
        .join(chosen, on="utid")
    )
    finite = pl.col("slice").is_not_null()
    turns = runs.group_by(keys or pl.lit(0).alias("")).agg(
        n=pl.len().cast(pl.Int64),
        given=pl.col("slice").sum(),
        ran=pl.col("ran").filter(finite).sum(),
        n_whole=(pl.col("ran") >= pl.col("slice")).sum().cast(pl.Int64),
    )
    advances = _advances(trace, puts, runs).join(chosen, on="utid")
    virtual = advances.group_by(keys or pl.lit(0).alias("")).agg(
        pl.col("vtime").sum(), vtime_due=pl.col("due").sum().round().cast(pl.Int64)
    )
    under = puts.select("utid").unique()
    longest = (
        waits(trace, ["utid", "wait"])
        .collect()
        .join(under, on="utid", how="semi")
        .join(chosen, on="utid")
        .group_by(keys or pl.lit(0).alias(""))
        .agg(wait_max=pl.col("wait").max())
    )
    # The lowest limit, if another scheduler was loaded meanwhile.
    told = steps.filter(pl.col("limit") > 0).select(pl.col("limit").min())
    both = (
        turns.join(virtual, on=keys or "", how="left", nulls_equal=True)
        .join(longest, on=keys or "", how="left", nulls_equal=True)
        .with_columns(limit=pl.lit(told.collect().item(), pl.Int64))
    )
    return both.select(
        *keys,
        "n",
        "given",
        "ran",
        ran_frac=pl.when(pl.col("given") > 0).then(pl.col("ran") / pl.col("given")),
        n_whole="n_whole",
        vtime="vtime",
        vtime_due="vtime_due",
        vtime_ratio=pl.when(pl.col("vtime_due") > 0).then(pl.col("vtime") / pl.col("vtime_due")),
        wait_max="wait_max",
        limit="limit",
        limit_frac=pl.col("wait_max") / pl.col("limit"),
    ).sort("given", *keys, descending=[True, *([False] * len(keys))])


def _advances(trace: Trace, puts: pl.DataFrame, runs: pl.DataFrame) -> pl.DataFrame:
    """By thread and insertion, until its next one: `vtime`, how far its virtual time went, and
    `due`, its CPU time by weight. Spans of time with lost events are left out.
    """
    spans = (
        puts.sort("ts")
        .with_columns(
            next=pl.col("ts").shift(-1).over("utid"),
            # Virtual times are compared by their difference: they may pass 2^64.
            vtime=(pl.col("vtime").shift(-1) - pl.col("vtime"))
            .over("utid")
            .reinterpret(signed=True),
        )
        .drop_nulls("next")
        .sort("next")
    )
    holes = reach(losses_of_any_event(trace))
    known = spans.join_asof(
        holes, left_on="next", right_on="ts_begin", check_sortedness=False
    ).filter((pl.col("reaches") < pl.col("ts")).fill_null(True))
    first, last = FAIR_PRIOS
    # sched_weight_to_cgroup of kernel/sched/sched.h: 100 where the kernel's weight is 1024.
    shares = [min(max((weight * 100 + 512) // 1024, 1), 10_000) for weight in LINUX_WEIGHTS]
    share = pl.col("prio").replace_strict(
        range(first, last + 1), shares, default=None, return_dtype=pl.Int64
    )
    due = runs.group_by("utid", ts="put").agg(due=(pl.col("ran") * 100 / share).sum())
    return known.join(due, on=["utid", "ts"], how="left").select(
        "utid", "vtime", pl.col("due").fill_null(0.0)
    )
