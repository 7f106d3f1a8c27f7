"""For how long is it unknown what each thread did?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from schedscope.analysis.asking.memo import once
from schedscope.store.losses import IS_BREAK

if TYPE_CHECKING:
    from schedscope.store.trace import Trace


def unknown_time(trace: Trace) -> pl.DataFrame:
    """One row per thread with unknown time within the window: `utid`, `unknown` (ns).

    Any sum over a thread's known states may lack up to that much.
    """
    length = pl.col("until") - pl.col("since")
    return unknown_spans(trace).group_by("utid").agg(unknown=length.sum()).collect()


def possible_waiting(trace: Trace) -> pl.DataFrame:
    """One row per thread: how long in all it may have waited unrecorded, `unknown` (ns)."""
    length = pl.col("until") - pl.col("since")
    return possible_waits(trace).group_by("utid").agg(unknown=length.sum()).collect()


_KEPT = 1 << 20
"""Stretches of time that are kept for the next question: 20 MB."""


def possible_waits(trace: Trace) -> pl.LazyFrame:
    """The `unknown_spans` in which the thread may have waited.

    A thread that left its CPU by one missing switch, and was then known to sleep, ran and slept
    (docs/trace-model.md, Habit): the unknown interval is that broken chain, and ends `lost`. One
    that stops a CPU goes offline with it (Taken down).
    """
    kept = once(_first_waits, trace)
    return kept.lazy() if kept.height <= _KEPT else _possible_waits(trace)


def _first_waits(trace: Trace) -> pl.DataFrame:
    return _possible_waits(trace).head(_KEPT + 1).collect()


def _possible_waits(trace: Trace) -> pl.LazyFrame:
    spans = unknown_spans(trace)
    if "end" not in trace.states.collect_schema() or spans.head(1).collect().is_empty():
        return spans
    utid, until = pl.col("utid").cast(pl.UInt32), (pl.col("ts") + pl.col("dur")).cast(pl.Int64)
    left = trace.states.filter(pl.col("state") == "unknown", pl.col("end") == "lost")
    breaks = trace.losses.filter(IS_BREAK).select(since="ts_begin", until="ts_end").unique()
    slept = left.select(utid, since=pl.col("ts").cast(pl.Int64), until=until)
    spans = spans.join(slept.join(breaks, on=["since", "until"], how="semi"),
                       on=["utid", "until"], how="anti")  # fmt: skip
    # A stopper (class `stop`) never waits: after its run it stopped its CPU, or runs on.
    if "sched_class" not in trace.threads.collect_schema():
        return spans
    stoppers = trace.threads.filter(pl.col("sched_class").cast(pl.String) == "stop")
    its = pl.col("utid").is_in(stoppers.select("utid").collect()["utid"].implode())
    came = (pl.col("state") == "runnable") & (pl.col("end") == "switched")
    ran = trace.states.filter(its, (pl.col("state") == "running") | came)
    return spans.join(ran.select(utid, since=until), on=["utid", "since"], how="anti")


def unseen_births(trace: Trace) -> pl.DataFrame:
    """Threads that were seen to be made, and ran without a first wakeup: `since`, `until`.

    Until it ran, such a thread may have waited.
    """
    born = trace.threads.filter(pl.col("start_ts").is_not_null()).select(
        pl.col("utid").cast(pl.UInt32), since="start_ts"
    )
    first = (
        trace.waits.select(pl.col("utid").cast(pl.UInt32), "censored", "ts_ready", until="ts_run")
        .group_by("utid")
        .agg(pl.all().sort_by(pl.coalesce("ts_ready", "until")).first())
    )
    left = (pl.col("censored") == "left") & (pl.col("until") > pl.col("since"))
    return born.join(first, on="utid").filter(left).select("since", "until").collect()


def unknown_of(trace: Trace, members: pl.DataFrame, group: str) -> pl.DataFrame:
    """For each `group` of threads (a column of `members` beside `utid`), the total time in which
    they may have waited, `unknown`.
    """
    distinct = members.select("utid", group).unique()
    return (
        distinct.join(possible_waiting(trace), on="utid", how="left")
        .group_by(group)
        .agg(pl.col("unknown").sum().cast(pl.Int64), threads=pl.len().cast(pl.Int64))
    )


def with_unknown_time(trace: Trace, frame: pl.DataFrame) -> pl.DataFrame:
    """`frame`, which has a `utid`, with the column `unknown`."""
    known = pl.col("unknown").fill_null(0)
    return frame.join(
        unknown_time(trace), on="utid", how="left", maintain_order="left"
    ).with_columns(known)


def with_unknown_time_until(trace: Trace, frame: pl.DataFrame) -> pl.DataFrame:
    """`frame`, in order of `utid` and `ts`, with `unknown`: that of the window before `ts` (ns)."""
    since, until = pl.col("since"), pl.col("until")
    length = until - since
    spans = (
        unknown_spans(trace)
        .sort("utid", "since")
        .with_columns(before=length.cum_sum().over("utid") - length)
    )
    unknown = pl.col("before") + pl.min_horizontal("ts", "until") - since
    return (
        frame.lazy()
        .join_asof(spans, left_on="ts", right_on="since", by="utid", check_sortedness=False)
        .with_columns(unknown=unknown.fill_null(0))
        .select(*frame.columns, "unknown")
        .collect()
    )


def unknown_spans(trace: Trace) -> pl.LazyFrame:
    """Where within the window it is unknown what a thread did: `utid`, `since`, `until` (ns)."""
    begin, end = trace.window
    since, until = pl.col("ts").cast(pl.Int64), (pl.col("ts") + pl.col("dur")).cast(pl.Int64)
    return (
        trace.states.filter(pl.col("state") == "unknown")
        .select(
            pl.col("utid").cast(pl.UInt32),
            since=since.clip(lower_bound=begin),
            until=until.clip(upper_bound=end),
        )
        .filter(pl.col("until") > pl.col("since"))
    )


@dataclass(frozen=True)
class Anywhere:
    """Threads whose place is unknown: their summed time `threads` and the `time` in which there was
    at least one (ns); the `most` at once.
    """

    threads: int
    time: int
    most: int


def anywhere(trace: Trace, *, queues: bool) -> Anywhere:
    """Threads that may be on any queue, because it is unknown what they did.

    With `queues` also those on a queue that is not known, unless most of the waiting is (FreeBSD's
    4BSD has one queue for all CPUs).
    """
    spans = possible_waits(trace).select("since", "until")
    if queues:
        spans = pl.concat([spans, unplaced_spans(trace)])
    steps = pl.concat(
        [spans.select(ts="since", step=pl.lit(1)), spans.select(ts="until", step=pl.lit(-1))]
    )
    count = (
        steps.group_by("ts")
        .agg(pl.col("step").sum())
        .sort("ts")
        .select(
            n=pl.col("step").cum_sum(),
            dur=(pl.col("ts").shift(-1) - pl.col("ts")).fill_null(0),
        )
        .collect()
    )
    return Anywhere(
        int((count["n"] * count["dur"]).sum()),
        int(count.filter(pl.col("n") > 0)["dur"].sum()),
        int(count["n"].max() or 0),  # type: ignore[arg-type]
    )


def unplaced_spans(trace: Trace) -> pl.LazyFrame:
    """Where within the window a thread waited on a queue that is not known: `since`, `until` (ns).

    Nowhere if that is most of the waiting.
    """
    begin, end = trace.window
    since, until = pl.col("ts").cast(pl.Int64), (pl.col("ts") + pl.col("dur")).cast(pl.Int64)
    waiting = trace.states.filter(pl.col("state") == "runnable")
    placed, nowhere = (
        waiting.select(
            placed=pl.col("dur").filter(pl.col("cpu").is_not_null()).sum(),
            nowhere=pl.col("dur").filter(pl.col("cpu").is_null()).sum(),
        )
        .collect()
        .row(0)
    )
    return (
        waiting.filter(pl.col("cpu").is_null(), pl.lit(nowhere <= placed))
        .select(since=since.clip(begin, end), until=until.clip(begin, end))
        .filter(pl.col("until") > pl.col("since"))
    )
