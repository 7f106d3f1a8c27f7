"""Which CPUs did a scheduler of sched_ext kick, and how soon did they switch threads?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from schedscope.analysis.asking.needs import needs
from schedscope.analysis.recording.lost_events import losses_of_any_event
from schedscope.analysis.sums.quantiles import nearest_rank

if TYPE_CHECKING:
    from schedscope.store.trace import Trace

_IDLE, _PREEMPT, _WAIT = 1, 2, 4
"""SCX_KICK_ of kernel/sched/ext_internal.h (6.18), ext.c (6.12)."""


@needs("switches", "kicks")
def kicks(trace: Trace) -> pl.DataFrame:
    """One row per kind of kick: a scheduler asked a CPU to look for a thread to run.

    * `kick`: `idle`, which the kernel ignores unless the CPU idles; `preempt`, which ends the slice
      of who runs there; `wait`, which waits for the CPU to have looked; `plain`;
    * `n`: kicks; of these `n_to_idle` are of CPUs that idled, `n_to_busy` of others;
      `n_unknown`: events of that CPU may be missing, or none came before;
    * `n_again`: of the kicks that the kernel did not ignore, those of a CPU that had been kicked
      since its last switch; `n_switched`: the others that a switch of that CPU followed;
    * `p50`, `p99`, `max`: time from there to that switch, and `ts_max`, when the longest began
      (ns). A CPU that finds nothing else to run does not switch: then a later switch counts.

    Most kicks first. Definition: docs/definitions/dispatch-queues.md.
    """
    flags = pl.col("flags")
    told = trace.kicks.select(
        "ts",
        cpu="target",
        kick=pl.when(flags & _PREEMPT != 0)
        .then(pl.lit("preempt"))
        .when(flags & _IDLE != 0)
        .then(pl.lit("idle"))
        .when(flags & _WAIT != 0)
        .then(pl.lit("wait"))
        .otherwise(pl.lit("plain")),
    ).collect()
    switches = trace.switches.select(
        "ts", "cpu", switched="ts", idle=pl.col("next_utid") < trace.ncpu
    ).collect()
    before = told.sort("ts").join_asof(
        switches, on="ts", by="cpu", check_sortedness=False, allow_exact_matches=False
    )
    after = before.join_asof(
        switches.select("ts", "cpu", next="switched"),
        on="ts", by="cpu", strategy="forward", check_sortedness=False,
    )  # fmt: skip
    holes = _holes(trace)
    missing = after.with_columns(
        pl.col("next").fill_null(trace.window[1]), came=pl.col("next").is_not_null()
    ).sort("next").join_asof(
        holes, left_on="next", right_on="ts_begin", by="cpu", check_sortedness=False
    )  # fmt: skip
    known = pl.col("switched").is_not_null() & (pl.col("reaches") < pl.col("switched")).fill_null(
        True
    )
    heeded = known & (pl.col("idle") | (pl.col("kick") != "idle"))
    again = heeded & (pl.int_range(pl.len()).over("cpu", "switched", heeded) > 0)
    works = heeded & ~again & pl.col("came")
    rows = missing.sort("ts").select(
        "ts",
        "kick",
        n_to_idle=known & pl.col("idle"),
        n_to_busy=known & ~pl.col("idle"),
        n_unknown=~known,
        n_again=again,
        delay=pl.when(works).then(pl.col("next") - pl.col("ts")),
    )
    delay = pl.col("delay")
    counts = ["n_to_idle", "n_to_busy", "n_unknown", "n_again"]
    found = rows.group_by("kick").agg(
        pl.col(counts).sum().cast(pl.Int64),
        n=pl.len().cast(pl.Int64),
        n_switched=delay.count().cast(pl.Int64),
        p50=nearest_rank(delay, 0.5),
        p99=nearest_rank(delay, 0.99),
        max=delay.max(),
        ts_max=pl.col("ts").sort_by(delay, descending=True, nulls_last=True).first(),
    )
    # Without a switch there is none that took longest.
    longest = pl.when(pl.col("max").is_not_null()).then("ts_max").alias("ts_max")
    return found.select(
        "kick", "n", *counts, "n_switched", "p50", "p99", "max", longest
    ).sort("n", "kick", descending=[True, False])  # fmt: skip


def _holes(trace: Trace) -> pl.DataFrame:
    """When events of each CPU may be missing: the latest end of what began until then."""
    lost = losses_of_any_event(trace).select("cpu", "ts_begin", "ts_end").collect()
    every = pl.DataFrame({"cpu": range(trace.ncpu)}, {"cpu": pl.UInt16})
    of_all = lost.filter(pl.col("cpu").is_null()).drop("cpu").join(every, how="cross")
    both = pl.concat([lost.drop_nulls("cpu"), of_all.select(lost.columns)])
    return both.sort("ts_begin").select(
        "cpu", "ts_begin", reaches=pl.col("ts_end").cum_max().over("cpu")
    )
