"""What did waits for a CPU consist of?

The time that threads waited is divided by what the CPU on whose queue they were did
meanwhile: it ran threads of better, equal or worse priority, handled interrupts, could
not run the thread because its group's CPU quota was used up, or idled. The parts add up
to the wait exactly. `--by wait` shows the longest waits one by one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from schedscope.analysis.asking.arguments import THREAD_COLUMNS, count
from schedscope.analysis.asking.by import By, check_where, keys_of
from schedscope.analysis.asking.command import THREAD_GROUPS, Command
from schedscope.analysis.asking.memo import once
from schedscope.analysis.asking.needs import needs
from schedscope.analysis.causes.throttling import Throttling, throttling
from schedscope.analysis.cpus.occupancy import occupancy, read_states
from schedscope.analysis.recording.unknown_time import unknown_of
from schedscope.analysis.threads.levels import Levels
from schedscope.analysis.threads.of_threads import threads_with
from schedscope.analysis.waits.victims import victims
from schedscope.analysis.waits.wait_bounds import COLUMNS, rests, with_bounds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from schedscope._native import CpuHistory
    from schedscope.store.trace import Trace

BEHIND = ("behind_better", "behind_same", "behind_worse")
PARTS = (*BEHIND, "interrupted", "throttled", "cpu_idle", "unknown")
"""The parts of a wait; they sum up to it."""
_EVERY = 2**31
"""More waits than a trace has."""


COMMAND = Command(
    heading="who waited, and why?",
    help="what the waits for a CPU consisted of",
    example="""\
  schedscope wait-breakdown web.capture --by comm
  schedscope wait-breakdown web.capture --cgroup '/system.slice/web*' --by cgroup
  schedscope wait-breakdown web.capture --by wait --top 20 --comm nginx
""",
    page="docs/definitions/wait-breakdown.md",
    by=("thread", "process", "all", "wait", *THREAD_GROUPS),
    by_default="thread",
    each="wait",
    top="the N rows that waited longest",
    top_default=20,
    columns="*by wait behind_better behind_same behind_worse interrupted throttled cpu_idle"
    " unknown",
    narrow="utid pid n cpu",
    rest=("more row", " that waited less"),
    nothing="no waits for this selection",
)


@needs("switches")
def wait_breakdown(
    trace: Trace, *, by: By = "thread", where: pl.Expr | None = None, top: int | None = None
) -> pl.DataFrame:
    """One row per group of threads: the time that they waited for CPUs, and what it consisted of.

    Every instant in state runnable belongs to one part, according to what the CPU on whose queue
    the thread was did at that instant. The parts add up to `wait` exactly (all in ns):

    * `behind_better`, `behind_same`, `behind_worse`: another thread ran there, whose priority was
      better than that of the waiting thread, the same, or worse;
    * `interrupted`: the CPU handled interrupts or softirqs; null if none were recorded;
    * `throttled`: the quota of the thread's control group was used up on that CPU; null if nothing
      is known about quotas, and for threads of control groups that were gone when the recorder read
      the kernel's counts at the end. `evidence` says how it is known: "recorded": the trace shows
      when the kernel throttled the group; "idle CPU": the CPU idled for more than 1 ms although a
      thread of the group was runnable on it, and the kernel counted the group as throttled, but no
      event says when. In the latter case, time in which other threads ran cannot be distinguished
      from ordinary waiting, and `throttled` is a lower bound;
    * `cpu_idle`: the CPU idled and could have run the thread: it was waking up, or an event is
      missing;
    * `unknown`: the trace does not show what the CPU did, on which queue the thread was, or at
      which priority.

    `wait_high` and a `NAME_high` of each part are upper bounds: each part may also have what is
    `unknown`, and the time in which it is unknown whether the threads waited at all.
    `coverage`: `wait` over `wait_high`. Where no event says when a quota was used up, it may have
    been in all of the other parts, too.

    Priorities are those of the moment, where the source has them; SCHED_IDLE is worse than all.
    In a class that shares CPU time by weight a "worse" priority is a smaller weight: such
    a thread gets its share all the same.

    * the columns of `by`: those of `threads`, or `thread`, `process`, `all`; the longest `wait`
      first;
    * `n`: waits; with queues selected by `cpu`, parts of waits for a thread that changed queues.

    `by="wait"`: a row for each wait instead, or for the `top` longest, with `ts` (its start),
    `comm`, `tid`, `utid` and `cpu` (the queue where it ended). `where` selects threads by columns
    of `threads`, and queues by `cpu`.

    Definition: docs/definitions/wait-breakdown.md. Raises `UsageError` for an unknown column, or
    `top` below 1.

    >>> from schedscope import Trace
    >>> states = pl.DataFrame({
    ...     "ts": [0, 10, 40, 20],
    ...     "dur": [40, 50, 20, 40],
    ...     "utid": [1, 2, 0, 3],
    ...     "state": ["running", "runnable", "running", "sleeping"],
    ...     "cpu": [0, 0, 0, None], "prio": [110, 120, None, None],
    ... })
    >>> threads = pl.DataFrame({"utid": [0, 1, 2, 3], "comm": ["idle", "hog", "web", "db"],
    ...     "prio": None, "sched_class": ["idle", "fair", "fair", "fair"]})
    >>> about = {"ncpu": 1, "window": [0, 60], "os": "Linux"}
    >>> trace = Trace.from_tables({"states": states, "threads": threads}, about)
    >>> wait_breakdown(trace, by="comm").select("comm", "wait", "behind_better", "cpu_idle").rows()
    [('web', 50, 30, 20)]
    """
    per_wait = isinstance(by, str) and by == "wait"
    if top is not None:
        count("top", top, "waits")
    keys = ["utid"] if per_wait else keys_of(by, ("utid", *THREAD_COLUMNS))
    check_where(where, ("utid", "cpu"))
    threads = _threads(trace, keys, where)
    held = once(throttling, trace)
    asked = victims(trace, threads, where)
    read = occupancy(trace, weights=Levels(trace))
    most = (top or _EVERY) if per_wait else 0
    sums, longest = _parts(trace, read, asked, threads.height, held, most)
    evidence = _evidence(threads, held)
    gone = [utid for utids in held.gone.values() for utid in utids]
    if per_wait:
        names = trace.threads.select(pl.col("utid").cast(pl.UInt32), "comm", "tid").collect()
        found = longest.join(names, on="utid", how="left", maintain_order="left")
        found = found.join(threads.select("utid", "victim"), on="utid", maintain_order="left")
        found = _with_length(trace, found)
        columns = ["ts", "comm", "tid", "utid", "cpu", "wait"]
    else:
        distinct = threads.unique("victim", maintain_order=True).select("victim", *keys)
        doubt = unknown_of(trace, asked, "victim").select("victim", doubt="unknown")
        # Some threads may never have waited.
        found = sums.join(doubt.filter(pl.col("doubt") > 0), on="victim", how="full", coalesce=True)
        found = found.with_columns(pl.exclude("victim").fill_null(0))
        found = found.join(distinct, on="victim", how="left", maintain_order="left")
        found = found.sort("wait", *keys, descending=[True, *[False] * len(keys)])
        columns = [*keys, "n", "wait"]
    found = found.join(evidence, on="victim", how="left", maintain_order="left")
    unread = threads.filter(pl.col("utid").is_in(gone))["victim"].unique()
    counted = pl.when(~pl.col("victim").is_in(unread.implode()) | (pl.col("throttled") > 0))
    has_irqs = trace.irqs.head(1).collect().height > 0
    found = _bounded(found, threads, held)
    throttles = ("throttled", "throttled_high")
    return found.select(
        *columns,
        "wait_high",
        *(name for part in BEHIND for name in (part, f"{part}_high")),
        *(_if(has_irqs, name) for name in ("interrupted", "interrupted_high")),
        *(counted.then(name).alias(name) if held.known else _if(False, name) for name in throttles),
        *("cpu_idle", "cpu_idle_high", "unknown"),
        coverage=pl.when(pl.col("wait_high") > 0).then(pl.col("wait") / pl.col("wait_high")),
        evidence=pl.when(pl.col("throttled") > 0).then("evidence"),
    )


def _with_length(trace: Trace, waits: pl.DataFrame) -> pl.DataFrame:
    """Waits with `doubt`, how much longer each may have been; null if it was not over."""
    cut = trace.waits.filter(pl.col("censored") != "none").select(COLUMNS).collect()
    known = with_bounds(cut, rests(trace), trace.window[1]).drop_nulls("ts_ready")
    more = pl.when(~pl.col("open")).then(pl.col("high") - pl.col("low"))
    known = known.select(
        pl.col("utid").cast(pl.UInt32), ts=pl.col("ts_ready"), doubt=more, cut=pl.lit(True)
    ).unique(["utid", "ts"])
    found = waits.join(known, on=["utid", "ts"], how="left", maintain_order="left")
    return found.with_columns(doubt=pl.when("cut").then("doubt").otherwise(0))


def _bounded(found: pl.DataFrame, threads: pl.DataFrame, held: Throttling) -> pl.DataFrame:
    """`found`, in which `doubt` may have been waiting, with an upper bound of each part."""
    doubt, slack = pl.col("doubt"), pl.col("doubt") + pl.col("unknown")
    limited = [utid for utids in held.gone.values() for utid in utids] + list(held.quota_of)
    of = threads.filter(pl.col("utid").is_in(limited))["victim"].unique()
    unrecorded = [utid for utid, when in enumerate(held.held) if when]
    untimed = threads.filter(pl.col("utid").is_in(unrecorded))["victim"].unique()
    rest = pl.sum_horizontal(*BEHIND, "interrupted", "cpu_idle")
    throttled = (
        pl.when(~pl.col("victim").is_in(of.implode()))
        .then(pl.col("throttled"))
        .when(pl.col("victim").is_in(untimed.implode()))
        .then(pl.col("throttled") + slack + rest)
        .otherwise(pl.col("throttled") + slack)
    )
    parts = (*BEHIND, "interrupted", "cpu_idle")
    return found.with_columns(
        wait_high=pl.col("wait") + doubt,
        throttled_high=throttled,
        **{f"{part}_high": pl.col(part) + slack for part in parts},
    )


def every_wait(trace: Trace, states: pl.LazyFrame) -> pl.DataFrame:
    """A row for each wait in some rows of `states`: `utid`, `wait`, and its parts."""
    rows = states.select(pl.col("utid").cast(pl.UInt32), "state").collect()
    asked = rows.select("utid").unique().filter(pl.col("utid") >= trace.ncpu).sort("utid")
    asked = asked.with_row_index("victim").select("utid", pl.col("victim").cast(pl.UInt32))
    most = rows.filter(pl.col("state") == "runnable").height
    read = read_states(trace, Levels(trace), states)
    held = once(throttling, trace)
    _, waits = _parts(trace, read, asked, asked.height, held, max(most, 1))
    return waits.select("utid", "wait", *PARTS)


def _parts(
    trace: Trace, read: CpuHistory, asked: pl.DataFrame, groups: int, held: Throttling, most: int
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The least that each part can have been, by group of threads and of the `most` longest waits.

    Time in which a quota may have been used up, or not, is `unknown`.
    """
    obstacles = {
        "interrupts": _interrupts(trace),
        "held": held.held,
        "dispatch": held.dispatch,
    }
    found = [
        tuple(
            map(pl.DataFrame, read.wait_breakdown(asked, groups, obstacles | {"quotas": one}, most))
        )
        for one in held.bounds_to_native()
    ]
    sums, longest = zip(*found, strict=True)
    return _least(sums, ["victim"]), _least(longest, ["utid", "ts", "cpu"])


def _least(readings: Sequence[pl.DataFrame], keys: list[str]) -> pl.DataFrame:
    """One frame of two that differ in when quotas were used up."""
    first, *others = readings
    if not others or first.is_empty():
        return first
    parts = [name for name in PARTS if name != "unknown"]
    both = first.join(others[0].select(*keys, *parts), on=keys, how="left", maintain_order="left")
    both = both.with_columns(
        pl.min_horizontal(name, pl.col(f"{name}_right").fill_null(0)) for name in parts
    )
    rest = pl.col("wait") - pl.sum_horizontal(parts)
    return both.with_columns(unknown=rest).select(first.columns)


def _if(known: bool, part: str) -> pl.Expr:
    return pl.col(part) if known else pl.lit(None, pl.Int64).alias(part)


def _threads(trace: Trace, keys: list[str], where: pl.Expr | None) -> pl.DataFrame:
    """Every thread with the columns needed and the number of its group."""
    used = where.meta.root_names() if where is not None else ()
    columns = dict.fromkeys(["utid", *keys, *(name for name in used if name != "cpu")])
    group = (pl.struct(keys).rank("dense") - 1) if keys else pl.lit(0)
    return (
        threads_with(trace, columns)
        .select(*columns)
        .with_columns(pl.col("utid").cast(pl.UInt32), victim=group.cast(pl.UInt32))
        .collect()
    )


def _evidence(threads: pl.DataFrame, held: Throttling) -> pl.DataFrame:
    """For each group of threads, how it is known that they were throttled, if they were."""
    told = pl.Series("evidence", [held.evidence(utid) for utid in threads["utid"]], pl.String)
    return (
        threads.with_columns(told)
        .group_by("victim")
        .agg(pl.col("evidence").drop_nulls().unique().sort().str.join(" and "))
    )


def _interrupts(trace: Trace) -> pl.DataFrame:
    return trace.irqs.select("ts", "dur", pl.col("cpu").cast(pl.UInt16)).collect()


def throttled_times(trace: Trace) -> pl.DataFrame:
    """`utid` of each thread that a quota held back, and for how long as far as known, ns."""
    held = list(once(throttling, trace).quotas_of)
    if not held:
        return pl.DataFrame(schema={"utid": pl.UInt32, "throttled": pl.Int64})
    found = once(wait_breakdown, trace, by="utid").filter(pl.col("utid").is_in(held))
    return found.select(pl.col("utid").cast(pl.UInt32), "throttled").drop_nulls()
