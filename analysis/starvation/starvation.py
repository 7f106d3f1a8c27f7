"""Which threads waited too long for a CPU, behind which others, and did a CPU idle meanwhile?

An episode of starvation is a single wait over a threshold, or a window in which a thread
received less than was due to it by weight (--lag). The threshold is a time, or a multiple
of the wait that a fair scheduler would impose (--share). Each episode has a sentence and
a row in the table. The time in which others had the CPU, the time in which it was idle
and the time in which the trace does not show what happened add up to the wait, to the
nanosecond.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from numbers import Real
from typing import TYPE_CHECKING, Literal

import polars as pl

from schedscope.analysis.asking.arguments import count
from schedscope.analysis.asking.by import THREADS, check
from schedscope.analysis.asking.command import Command
from schedscope.analysis.asking.memo import once
from schedscope.analysis.asking.needs import needs
from schedscope.analysis.causes.throttled_waits import throttled_in
from schedscope.analysis.causes.throttling import throttling
from schedscope.analysis.cpus.allowed_cpus import changed_masks
from schedscope.analysis.cpus.occupancy import reading_once
from schedscope.analysis.fairness import selected
from schedscope.analysis.shares.due_in_waits import due_in_waits
from schedscope.analysis.shares.sharing_groups import Per, competitors, sharing
from schedscope.analysis.starvation.episode_interference import Account, account
from schedscope.analysis.starvation.possible import most_episodes
from schedscope.analysis.starvation.sentences import starvation_sentences
from schedscope.analysis.sums.folded import Fold
from schedscope.analysis.threads.levels import Levels
from schedscope.analysis.threads.of_threads import with_threads
from schedscope.analysis.threads.same_names import SameNames
from schedscope.analysis.waits.waits import waits_in_batches
from schedscope.errors import UsageError
from schedscope.parsers.schema import CENSORED
from schedscope.units import nanoseconds

if TYPE_CHECKING:
    from schedscope._native import CpuHistory
    from schedscope.store.trace import Trace

CRITERION = pl.Enum(["wait", "share", "wait, share", "lag"])
"""The threshold that makes an episode one."""

_CORE: dict[str, type[pl.DataType] | pl.DataType] = {
    "utid": pl.UInt32,
    "ts": pl.Int64,
    "dur": pl.Int64,
    "wait": pl.Int64,
    "censored": CENSORED,
    "criterion": CRITERION,
    "due": pl.Float64,
    "received": pl.Int64,
}
_KEYS = {**THREADS, "thread": ("utid", "comm", "tid")}
_TURN = "3ms"
_RAN = 1 << 20
"""Rows of who ran meanwhile that one sweep finds, about: 170 bytes for each, copies included."""


COMMAND = Command(
    heading="who waited, and why?",
    help="threads that waited too long, and what ran meanwhile",
    example="""\
  schedscope starvation web.capture
  schedscope starvation web.capture --threshold 20ms --comm nginx --culprits
  schedscope starvation web.capture --share 5 --by comm
  schedscope starvation web.capture --lag 50ms --format json
""",
    page="docs/definitions/starvation.md",
)


@needs("switches", "wakeups")
def starvation(
    trace: Trace,
    *,
    threshold: str | int | None = "100ms",
    share: float | None = None,
    lag: str | int | None = None,
    turn: str | int = _TURN,
    where: pl.Expr | None = None,
    top: int | None = None,
) -> pl.DataFrame:
    """One row per episode of starvation, the longest waiting first.

    There are three criteria for an episode:

    * a wait of at least `threshold` (None: no such limit);
    * a wait in which `share` turns of `turn` each were due to the thread, by its weight among the
      threads of its class that wanted the CPU: `share` times as long as a fair scheduler lets it
      wait;
    * a window in which the thread got less service than was due to it, by at least `lag`, however
      many waits it consists of.

    Episodes that are still open at the end count with the length that was seen. Columns:

    * `episode`: its number; `utid`, `comm`, `tid`, `pid`, `prio`, `sched_class`: the thread;
    * `criterion`: the threshold it is over: "wait", "share", "wait, share", or "lag";
    * `ts`, `dur`: start and length; `wait`: time waited in it, all of it except for "lag" (ns);
    * `censored`: "right" if it was still going on when last observed;
    * `cpu`: on whose queue it waited longest; `cpus`: all of them ("" where none is known);
    * `culprit`: the name whose threads had the CPU longest meanwhile, `culprit_threads` how many
      of them, `culprit_time` (ns), `culprit_frac` of the wait; `others`: time of all other threads;
    * `idle`: time in which that CPU idled; `unknown`: the trace does not show. `culprit_time`,
      `others`, `idle` and `unknown` sum up to `wait`;
    * `throttled`: the part of `wait` in which the CPU quota of its control group was used up,
      whatever ran meanwhile, at least, and `throttled_high` at most; null if nothing is known about
      quotas;
    * `idle_allowed`: time that other CPUs on which it may run idled, `idle_cpu` and
      `idle_cpu_time`: the one that idled longest; `affinity`: where it may run (null: not known,
      all count);
    * `behind_worse`: time waited behind a worse priority; `inversion`: the part of it in which
      priority decides and not weight: all of it, except for Linux's nice levels (ns);
    * `due`, `received`: service due by weight and service received in it (ns), with `share` or
      `lag` only;
    * `story`: the row in a sentence.

    `where`: which threads, by columns of `threads` and `cpu`. `top`: only that many, the longest.
    Waits whose start was not recorded are in no row; `starvation_summary` counts them.
    Definition: docs/definitions/starvation.md. Raises `UsageError` if no threshold is given, or
    one that is not positive.

    >>> from schedscope import Trace
    >>> ms = 1_000_000
    >>> states = pl.DataFrame({
    ...     "ts": [0, 0, 300 * ms], "dur": [300 * ms, 300 * ms, 10 * ms], "utid": [1, 2, 2],
    ...     "state": ["running", "runnable", "running"], "cpu": [0] * 3, "prio": [49, 120, 120],
    ... })
    >>> waits = pl.DataFrame({"utid": [2], "cause": ["wake"], "ts_ready": [0], "ts_run": [300 * ms],
    ...     "wait": [300 * ms], "cpu": [0], "queue_cpu": [0], "prio": [120], "censored": ["none"]})
    >>> threads = pl.DataFrame({"utid": [0, 1, 2], "comm": ["", "bully", "clerk"], "tid": [0, 7, 8],
    ...     "pid": [0, 7, 8], "kernel": [None] * 3, "sched_class": ["idle", "realtime", "fair"],
    ...     "prio": [None, 49, 120], "affinity": [None, None, "0"], "recorder": [False] * 3})
    >>> trace = Trace.from_tables({"states": states, "waits": waits, "threads": threads},
    ...     {"ncpu": 1, "window": [0, 310 * ms], "os": "Linux"})
    >>> starvation(trace)["story"][0]
    'clerk (prio 120) waited 300 ms on CPU 0 behind bully (100 %)'
    """
    limits = Limits.of(threshold, share, lag, turn)
    if top is not None:
        count("top", top, "episodes")
    # Both the time due and the threads that ran meanwhile are computed from `states`.
    with reading_once(trace) if limits.asks_what_was_due else nullcontext():
        found = Fold(partial(_longest, top))
        found.add(pl.DataFrame(schema=_CORE))
        _find(trace, limits, where, found.add)
        episodes = found.result().with_row_index("episode")
        with reading_once(trace):
            parts = _in_parts(trace, episodes)
            return pl.concat(_result(trace, part, account(trace, part)) for part in parts)


@needs("switches", "wakeups")
def starvation_summary(
    trace: Trace,
    *,
    by: Literal["comm", "thread", "process", "cgroup", "service", "all"] = "comm",
    threshold: str | int | None = "100ms",
    share: float | None = None,
    lag: str | int | None = None,
    turn: str | int = _TURN,
    where: pl.Expr | None = None,
) -> pl.DataFrame:
    """One row per thread name (or as `by` says): how often it starved, most waiting first.

    * whose: `comm`; with `by="thread"` `utid`, `comm`, `tid`; with "process" `process_name`, `pid`;
      `cgroup`; `service`; none of them with `by="all"`;
    * `threads`: how many starved; `n`: episodes; `n_censored`: those still open when last observed;
    * `n_excluded`: waits whose start was not recorded, so their length is unknown;
    * `total`: time waited in the episodes (ns), those of `lag` overlap others; `longest`, and
      `ts_longest` when it began;
    * `n_high`, `total_high`, `longest_high`: at most so many, and so long: waits that may have
      reached `threshold` count as well. Null with `share` or `lag`, where no bound is known.

    Options as for `starvation`, which has the episodes themselves and the culprits.
    """
    check(by, [*_KEYS, "all"])
    limits = Limits.of(threshold, share, lag, turn)
    keys = list(_KEYS.get(by, ()))
    # A row for each thread of each part, so that few are held.
    everything = Fold(_per_thread_again)
    for ledger in waits_in_batches(trace, ["utid", "wait", "cpu"], where):
        unseen = ledger.filter(pl.col("wait").is_null())
        unseen = unseen.select(pl.col("utid").cast(pl.UInt32), seen=pl.lit(False))
        everything.add(_per_thread(unseen.collect()))

    def add(episodes: pl.DataFrame) -> None:
        everything.add(_per_thread(episodes.with_columns(seen=pl.lit(True))))

    _find(trace, limits, where, add)
    bounds: list[pl.Expr] = [pl.lit(None, pl.Int64).alias(name) for name in _BOUNDS]
    starved = everything.result()
    if limits.threshold is not None and not limits.asks_what_was_due:
        most = most_episodes(trace, limits.threshold, where)
        starved = starved.join(most, on="utid", how="full", coalesce=True)
        # A thread whose waits are all too short has nothing to bound.
        starved = starved.with_columns(
            pl.col("n", "n_censored", "n_excluded", "total", "n_high", "total_high").fill_null(0)
        )
        bounds = [pl.col("n_high", "total_high").sum(), pl.col("longest_high").max()]
    threads = with_threads(trace, starved, keys)
    sums = [
        pl.col("utid").filter(pl.col("n") > 0).n_unique().cast(pl.UInt32).alias("threads"),
        pl.col("n", "n_censored", "n_excluded").sum().cast(pl.UInt32),
        pl.col("total").sum(),
        pl.col("longest").max(),
        _FIRST_LONGEST,
        *bounds,
    ]
    if not keys:
        return threads.select(sums)
    rows = threads.group_by(keys).agg(sums)
    return rows.sort("total", *keys, descending=[True] + [False] * len(keys))


def _per_thread(rows: pl.DataFrame) -> pl.DataFrame:
    """Sums of some episodes, and of waits that were not `seen` in full."""
    seen = pl.col("seen")
    rows = pl.concat([pl.DataFrame(schema={**_CORE, "seen": pl.Boolean}), rows], how="diagonal")
    return rows.group_by("utid").agg(
        n=seen.sum(),
        n_censored=(seen & (pl.col("censored") != "none")).sum(),
        n_excluded=(~seen).sum(),
        total=pl.col("wait").sum(),
        longest=pl.col("wait").max(),
        ts_longest=pl.col("ts")
        .sort_by("wait", "ts", descending=[True, False], nulls_last=True)
        .first(),
    )


_BOUNDS = ("n_high", "total_high", "longest_high")
_FIRST_LONGEST = (
    pl.col("ts_longest")
    .sort_by("longest", "ts_longest", descending=[True, False], nulls_last=True)
    .first()
)


def _per_thread_again(sums: pl.DataFrame) -> pl.DataFrame:
    """The summary's rows from such sums."""
    return sums.group_by("utid").agg(
        pl.col("n", "n_censored", "n_excluded", "total").sum(),
        pl.col("longest").max(),
        _FIRST_LONGEST,
    )


@dataclass(frozen=True)
class Limits:
    """The thresholds, checked, in ns."""

    threshold: int | None
    share: float | None
    lag: int | None
    turn: int

    @classmethod
    def of(
        cls,
        threshold: str | int | None,
        share: float | None,
        lag: str | int | None,
        turn: str | int,
    ) -> Limits:
        """Read and check them."""
        wait = None if threshold is None else nanoseconds(threshold)
        bound = None if lag is None else nanoseconds(lag)
        length = nanoseconds(turn)
        if wait is None and share is None and bound is None:
            raise UsageError(
                "no threshold", "a threshold, a share or a lag", "as in threshold='100ms'"
            )
        for name, value in (
            ("threshold", wait),
            ("share", share),
            ("lag", bound),
            ("turn", length),
        ):
            if value is not None and (not isinstance(value, Real) or not value > 0):
                raise UsageError(f"{name}={value!r}", "more than 0")
        return cls(wait, share, bound, length)

    @property
    def asks_what_was_due(self) -> bool:
        """Whether the criteria need the time due, besides the waits themselves."""
        return self.share is not None or self.lag is not None


def _longest(top: int | None, episodes: pl.DataFrame) -> pl.DataFrame:
    """The `top` of these episodes, or all, the longest waiting first."""
    rows = episodes.sort("wait", "ts", "utid", descending=[True, False, False])
    return rows if top is None else rows.head(top)


def _find(
    trace: Trace,
    limits: Limits,
    where: pl.Expr | None,
    take: Callable[[pl.DataFrame], None],
) -> None:
    """Hands `take` the episodes, some at a time and in no order."""
    waited = _waited(trace, limits, where)
    if limits.share is not None:
        read, capacity, how = _shared(trace)
        shares = sharing(trace, how, capacity=capacity)
        due_in_waits(read, shares, waited, lambda rows: take(_long_waits(limits, rows)))
    elif limits.threshold is not None:
        no_due = pl.lit(None, pl.Float64).alias("due")
        for rows in waited:
            take(_long_waits(limits, rows.with_columns(no_due)))
    if limits.lag is not None:
        take(_core(_shortfalls(trace, limits.lag, where)))


def _core(episodes: pl.DataFrame) -> pl.DataFrame:
    return episodes.select(pl.col(name).cast(dtype) for name, dtype in _CORE.items())


def _waited(trace: Trace, limits: Limits, where: pl.Expr | None) -> Iterator[pl.DataFrame]:
    """Waits that may be over a threshold."""
    # No thread is due more than the time that passes: the share cannot be exceeded sooner.
    shortest = None if limits.share is None else int(limits.share * limits.turn)
    least = min(limit for limit in (limits.threshold, shortest) if limit is not None)
    for rows in waits_in_batches(trace, ["utid", "ts_ready", "wait", "censored", "cpu"], where):
        yield (
            rows.filter(pl.col("wait") >= max(least, 1))
            .select(
                "utid",
                "wait",
                pl.col("censored").cast(pl.String).cast(CENSORED),
                ts="ts_ready",
            )
            .collect()
        )


def _long_waits(limits: Limits, rows: pl.DataFrame) -> pl.DataFrame:
    """The waits over the threshold, over the share, or over both."""
    long = pl.lit(False) if limits.threshold is None else pl.col("wait") >= limits.threshold
    over = pl.lit(False) if limits.share is None else pl.col("due") >= limits.share * limits.turn
    # Few of millions of waits remain.
    few = rows.filter(long | over)
    episodes = few.select(
        "utid",
        "ts",
        "wait",
        "censored",
        "due",
        dur="wait",
        criterion=pl.when(long & over)
        .then(pl.lit("wait, share"))
        .when(over)
        .then(pl.lit("share"))
        .otherwise(pl.lit("wait"))
        .cast(CRITERION),
        received=pl.lit(0 if limits.share is not None else None, pl.Int64),
    )
    return _core(episodes)


def _shared(trace: Trace) -> tuple[CpuHistory, int, Per]:
    """Which threads compete, and for how many CPUs."""
    read, how = competitors(trace, Levels(trace), None)
    return read, trace.ncpu if how == "machine" else 1, how


def _shortfalls(trace: Trace, bound: int, where: pl.Expr | None) -> pl.DataFrame:
    """Windows in which service fell short of what was due.

    A thread's shortfall at some time is how much its lag has risen above the
    lowest it ever had before (Page's cumulative sum). From a lowest point to the next
    is one excursion; the window is from its start to where the shortfall is largest.
    """
    threads = trace.threads.select(pl.col("utid").cast(pl.UInt32)).collect()
    if where is not None:
        on_cpu = "cpu" in where.meta.root_names()
        source = trace.waits.select("utid", pl.coalesce("cpu", "queue_cpu").alias("cpu")).unique()
        threads = selected(trace, source.collect() if on_cpu else threads, where)
    read, capacity, how = _shared(trace)
    chosen = [where is None] * read.threads
    for utid in threads["utid"]:
        if utid < len(chosen):
            chosen[utid] = True
    shared = sharing(trace, how, capacity=capacity)
    frame = pl.DataFrame(read.shortfalls(shared, chosen, bound))
    over = pl.col("ts") + pl.col("dur") >= trace.window[1]
    return frame.with_columns(
        censored=pl.when(over).then(pl.lit("right")).otherwise(pl.lit("none")).cast(CENSORED),
        criterion=pl.lit("lag").cast(CRITERION),
    )


def _in_parts(trace: Trace, episodes: pl.DataFrame) -> list[pl.DataFrame]:
    """Some at a time: each has a row for every thread that ran on its queue meanwhile.

    There are at most as many rows as threads, and, if all CPUs switch alike, as switches on that
    CPU.
    """
    read, _, how = _shared(trace)
    switches = trace.switches.select(pl.len()).collect().item()
    rate = switches / max(trace.duration, 1) / (1 if how == "machine" else trace.ncpu)
    rows = (episodes["wait"] * rate).clip(1, read.threads)
    part = (rows.cum_sum() / _RAN).cast(pl.UInt32)
    parts = episodes.with_columns(part=part).partition_by(
        "part", maintain_order=True, include_key=False
    )
    return parts or [episodes]


def _result(trace: Trace, episodes: pl.DataFrame, found: Account) -> pl.DataFrame:
    """The columns of `starvation`."""
    names = trace.threads.select(
        *("utid", "comm", "tid", "pid", "sched_class"),
        affinity=pl.when(~pl.col("utid").is_in(list(changed_masks(trace)))).then("affinity"),
        own="prio",
    ).collect()
    queues = (
        found.waited.drop_nulls("cpu")
        .sort("episode", "time", "cpu", descending=[False, True, False])
        .group_by("episode", maintain_order=True)
        .agg(pl.col("cpu").first(), cpus=pl.col("cpu").sort().cast(pl.String).str.join(","))
    )
    culprits = found.culprits
    of_thread = pl.col("kind") == "thread"
    by_name = (
        culprits.filter(of_thread)
        .group_by("episode", "comm")
        .agg(culprit_time=pl.col("time").sum(), culprit_threads=pl.len().cast(pl.UInt32))
        .sort("episode", "culprit_time", "comm", descending=[False, True, False])
        .group_by("episode", maintain_order=True)
        .agg(
            pl.col("comm").first().alias("culprit"),
            pl.col("culprit_time", "culprit_threads").first(),
            others=pl.col("culprit_time").sum() - pl.col("culprit_time").first(),
        )
    )
    time = pl.col("time")
    sums = culprits.group_by("episode").agg(
        idle=time.filter(pl.col("kind") == "idle").sum(),
        unknown=time.filter(pl.col("kind") == "unknown").sum(),
        behind_worse=pl.col("worse").sum(),
        inversion=pl.col("strict").sum(),
    )
    elsewhere = found.idle.group_by("episode", maintain_order=True).agg(
        idle_allowed=time.sum(),
        idle_cpu=pl.col("cpu").first().cast(pl.UInt16),
        idle_cpu_time=time.first(),
    )
    frame = episodes
    for part in (queues, found.prios, by_name, sums, elsewhere):
        frame = frame.join(part, on="episode", how="left", maintain_order="left")
    zero = (
        "culprit_time",
        "others",
        "idle",
        "unknown",
        "behind_worse",
        "inversion",
        "idle_allowed",
        "idle_cpu_time",
    )
    frame = frame.join(names, on="utid", how="left", maintain_order="left").with_columns(
        pl.col(zero).fill_null(0),
        pl.col("culprit_threads").fill_null(0),
        pl.col("cpus").fill_null(""),
        prio=pl.coalesce("prio", "own"),
        culprit_frac=pl.col("culprit_time") / pl.when(pl.col("wait") > 0).then(pl.col("wait")),
    )
    held = once(throttling, trace)
    frame = frame.hstack(throttled_in(trace, held, frame))
    sentences = starvation_sentences(frame, culprits, held.quota_of, once(SameNames, trace))
    frame = frame.with_columns(story=pl.Series(sentences, dtype=pl.String))
    return frame.select(
        "episode",
        "comm",
        "tid",
        "pid",
        "utid",
        "prio",
        "sched_class",
        "criterion",
        "ts",
        "dur",
        "wait",
        "censored",
        "cpu",
        "cpus",
        "culprit",
        "culprit_threads",
        "culprit_time",
        "culprit_frac",
        "others",
        "idle",
        "unknown",
        "throttled",
        "throttled_high",
        "idle_allowed",
        "idle_cpu",
        "idle_cpu_time",
        "affinity",
        "behind_worse",
        "inversion",
        "due",
        "received",
        "story",
    )
