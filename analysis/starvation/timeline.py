"""What did the CPUs do while one thread waited?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from schedscope.analysis.asking.needs import needs
from schedscope.analysis.cpus.allowed_cpus import changed_masks
from schedscope.analysis.starvation.episode_interference import EPISODE_COLUMNS, KIND, allowed
from schedscope.errors import UsageError

if TYPE_CHECKING:
    from schedscope.store.trace import Trace

LANE = pl.Enum(["thread", "queue", "other"])
"""The waiting thread itself; a CPU on whose queue it waited; another CPU that it may run on."""


@needs("switches")
def starvation_timeline(
    trace: Trace, episodes: pl.DataFrame, episode: int = 0, *, margin: float = 0.1
) -> pl.DataFrame:
    """One row per interval of the waiting thread, or of a CPU, around one episode of starvation.

    `episodes` is what `starvation` returned, `episode` a number in it; `margin` the part of the
    episode's length that is shown before and after it.

    * `lane`: "thread" (the rows of the waiting thread), "queue" (of a CPU on whose queue it
      waited) or "other" (of other CPUs that it may run on); `cpu`: which;
    * `ts`, `dur`: the interval, cut to what is shown (ns);
    * `state`: of the thread; `kind`: "thread" or "idle", of a CPU. Where a CPU has no row, the
      trace does not show it;
    * `utid`, `comm`, `tid`, `prio`, `sched_class`: who;
    * `waited`: the waiting thread was on this CPU's queue meanwhile, for a part of it at least.

    Raises `UsageError` if there is no such episode, or `margin` is negative.
    """
    missing = [name for name in EPISODE_COLUMNS if name not in episodes.columns]
    if missing or episode not in episodes["episode"]:
        raise UsageError(
            f"no episode {episode}", "a number in the frame that schedscope.starvation returned"
        )
    if margin < 0:
        raise UsageError(f"margin={margin}", "0 or more")
    row = episodes.filter(pl.col("episode") == episode)
    utid, ts, dur = row.select("utid", "ts", "dur").row(0)
    begin, end = trace.window
    since, until = max(begin, ts - int(margin * dur)), min(end, ts + dur + int(margin * dur))
    near = trace.states.filter(
        pl.col("ts") < until,
        pl.col("ts") + pl.col("dur") > since,
        (pl.col("utid") == utid) | (pl.col("state") == "running"),
    ).collect()
    waited = (
        near.filter(pl.col("utid") == utid, pl.col("state") == "runnable")
        .select(
            "cpu",
            ts=pl.col("ts").clip(lower_bound=ts),
            until=(pl.col("ts") + pl.col("dur")).clip(upper_bound=ts + dur),
        )
        .filter(pl.col("ts") < pl.col("until"))
    )
    queues = set(waited["cpu"].drop_nulls().to_list())
    threads = trace.threads.select("utid", "comm", "tid", "sched_class", "affinity").collect()
    cpus = sorted({int(cpu["cpu"]) for cpu in trace.info.get("per_cpu") or []})
    mask = threads.filter(pl.col("utid") == utid)["affinity"]
    known = len(mask) and utid not in changed_masks(trace)
    others = set(allowed(mask[0] if known else None, cpus or list(range(trace.ncpu))))
    if not queues:  # a queue of all CPUs
        queues, others = others, set()
    running = pl.col("state") == "running"
    mine = near.filter(pl.col("utid") == utid).with_columns(lane=pl.lit("thread"))
    on_cpu = near.filter(running, pl.col("cpu").is_in(sorted(queues | others))).with_columns(
        lane=pl.when(pl.col("cpu").is_in(sorted(queues)))
        .then(pl.lit("queue"))
        .otherwise(pl.lit("other"))
    )
    shown_end = pl.col("ts") + pl.col("dur")
    frame = (
        pl.concat([mine, on_cpu])
        .with_columns(
            ts=pl.col("ts").clip(lower_bound=since),
            dur=shown_end.clip(upper_bound=until) - pl.col("ts").clip(lower_bound=since),
            kind=pl.when(pl.col("lane") != "thread")
            .then(
                pl.when(pl.col("utid") < trace.ncpu)
                .then(pl.lit("idle"))
                .otherwise(pl.lit("thread"))
            )
            .cast(KIND),
            lane=pl.col("lane").cast(LANE),
        )
        .join(threads.drop("affinity"), on="utid", how="left")
    )
    behind = pl.lit(False)
    for cpu, a, b in waited.select("cpu", "ts", "until").iter_rows():
        there = pl.lit(True) if cpu is None else pl.col("cpu") == cpu
        behind = behind | (there & (pl.col("ts") < b) & (pl.col("ts") + pl.col("dur") > a))
    return (
        frame.with_columns(waited=(behind & (pl.col("lane") == "queue")).fill_null(False))
        .select(
            "lane",
            "cpu",
            "ts",
            "dur",
            "state",
            "kind",
            "utid",
            "comm",
            "tid",
            "prio",
            "sched_class",
            "waited",
        )
        .sort("lane", "cpu", "ts")
    )
