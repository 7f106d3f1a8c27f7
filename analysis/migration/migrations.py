"""Which threads moved to another CPU, how far, why, and did it help?

A migration is a run on another CPU than the thread's last one. It is counted where the
thread runs: a thread that is moved twice before it runs counts as one migration. The
cause says what chose the CPU: the wakeup, a balancing decision while the thread was
runnable, fork, exec, or a mask that forbids the CPU it left. "waited anyway" counts
migrations after which the thread still waited on the new CPU's queue for longer than
--waited.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import polars as pl

from schedscope.analysis.asking.arguments import THREAD_COLUMNS
from schedscope.analysis.asking.by import By, keys_of
from schedscope.analysis.asking.command import Command
from schedscope.analysis.asking.memo import once
from schedscope.analysis.asking.needs import needs
from schedscope.analysis.cpus.time_since_run import since_last_run
from schedscope.analysis.cpus.topology import DISTANCE, cpus_of, distances
from schedscope.analysis.migration.causes import CAUSE, causes
from schedscope.analysis.sums.folded import folded
from schedscope.analysis.sums.quantiles import nearest_rank
from schedscope.analysis.threads.of_threads import threads_with
from schedscope.analysis.waits.waits import waits_in_batches
from schedscope.errors import UsageError
from schedscope.units import nanoseconds

if TYPE_CHECKING:
    from schedscope.store.trace import Trace

GROUPS = ("utid", *THREAD_COLUMNS, "cause", "distance", "from_cpu", "to_cpu")
"""What migrations may be grouped by."""

WAITED = "100us"
# Migrations whose cause is looked for at a time: some 300 MB.
_MOVES = 1 << 19
# Migrations that are kept for the next question, 45 bytes each; of more it looks for them again.
_KEPT = 1 << 21
# With more CPUs, a row for each pair would be too many to read, or to hold in memory.
_SQUARE = 1024
# How many moved and waited anyway.
_QUEUED = pl.col("queued").filter("waited").sum().cast(pl.Int64)
_ROWS: dict[str, Any] = {
    "ts": pl.Int64,
    "utid": pl.UInt32,
    "tid": pl.UInt32,
    "pid": pl.UInt32,
    "comm": pl.String,
    "from_cpu": pl.UInt16,
    "to_cpu": pl.UInt16,
    "cause": CAUSE,
    "distance": DISTANCE,
    "since": pl.Int64,
    "wait": pl.Int64,
    "queued": pl.Int64,
    "waited": pl.Boolean,
}


COMMAND = Command(
    heading="where did threads run?",
    help="which threads moved to another CPU, how far, and why",
    example="""\
  schedscope migrations web.capture --by tid,comm --top 20
  schedscope migrations web.capture --by cause,distance
  schedscope migrations web.capture --every 100ms --by cause --format csv
  schedscope migrations web.capture --ping-pong 5ms
""",
    page="docs/definitions/migrations.md",
)


@needs("switches")
def migrations(
    trace: Trace, *, where: pl.Expr | None = None, waited: str | int = WAITED
) -> pl.DataFrame:
    """One row per migration: a thread came onto another CPU than it last ran on.

    Counted where the thread runs, not where the kernel moves it: a thread that is moved twice
    before it runs counts as one migration, and one that is moved back as none. What the kernel
    reported is in `trace.migrations`; `migration_agreement` compares the two.

    * `ts`: when it began to run on `to_cpu`, ns; `utid`, `tid`, `pid`, `comm`: the thread;
    * `from_cpu`: where it ran before; for the first run of a new thread, where its parent created
      it;
    * `cause`: what chose `to_cpu`: the `wake`up; a `balance` decision while the thread was
      runnable; `fork`; `exec`; `affinity`: it had to leave a CPU outside its recorded mask;
      `unknown`: the trace does not show;
    * `distance`: `smt`, `llc`, `package` or `numa`, null without topology;
    * `since`: time since it last ran, ns; null for a new thread, and where its last run's end was
      not seen;
    * `wait`: how long it waited for the CPU in total, ns; null if the start was not recorded;
    * `queued`: the part of `wait` after the thread had reached the queue of `to_cpu`, ns; null
      where that is not known; `waited`: whether `queued` is longer than the argument `waited`, so
      that the thread moved and waited anyway.

    `where` selects by columns of the thread, and by `cpu`, the CPU that it went to. In order of
    `ts`.

    Definition: docs/definitions/migrations.md. Raises `UsageError` for an unknown column in
    `where`, and for a `waited` that is not a duration.

    >>> from schedscope import Trace
    >>> waits = pl.DataFrame({
    ...     "utid": [2, 2, 2], "cause": ["wake", "wake", "preempt"],
    ...     "ts_waking": [0, 20, None], "ts_ready": [0, 20, 40],
    ...     "ts_enqueued": [1, 21, 40], "ts_run": [5, 25, 70], "prev_cpu": [0, 0, 1],
    ...     "queue_cpu": [0, 1, 0], "cpu": [0, 1, 0], "wait": [5, 5, 30], "censored": ["none"] * 3,
    ...     "waker_utid": [3, 3, None], "waker_cpu": [1, 1, None],
    ... })
    >>> states = pl.DataFrame({
    ...     "ts": [10], "dur": [10], "utid": [2], "state": ["sleeping"], "cpu": [None],
    ...     "end": ["woken"],
    ... })
    >>> tables = {"waits": waits, "states": states}
    >>> trace = Trace.from_tables(tables, {"ncpu": 2, "window": [0, 100]})
    >>> migrations(trace).select("ts", "from_cpu", "to_cpu", "cause", "since", "wait")
    shape: (2, 6)
    ┌─────┬──────────┬────────┬─────────┬───────┬──────┐
    │ ts  ┆ from_cpu ┆ to_cpu ┆ cause   ┆ since ┆ wait │
    │ --- ┆ ---      ┆ ---    ┆ ---     ┆ ---   ┆ ---  │
    │ i64 ┆ u16      ┆ u16    ┆ enum    ┆ i64   ┆ i64  │
    ╞═════╪══════════╪════════╪═════════╪═══════╪══════╡
    │ 25  ┆ 0        ┆ 1      ┆ wake    ┆ 15    ┆ 5    │
    │ 70  ┆ 1        ┆ 0      ┆ balance ┆ 30    ┆ 30   │
    └─────┴──────────┴────────┴─────────┴───────┴──────┘
    """
    moved = pl.concat(moves(trace, where, waited))
    moved = moved.with_columns(since=since_last_run(trace, moved))
    threads = trace.threads.select("utid", "tid", "pid", "comm").collect()
    return (
        moved.join(threads, on="utid", how="left")
        .select(pl.col(name).cast(dtype) for name, dtype in _ROWS.items())
        .sort("ts", "utid")
    )


@needs("switches")
def migration_summary(
    trace: Trace,
    by: By = "comm",
    *,
    every: str | int | None = None,
    where: pl.Expr | None = None,
    waited: str | int = WAITED,
) -> pl.DataFrame:
    """One row per group of threads: how often they moved; most migrations first.

    `by` is one or more of `GROUPS` ("utid" ranks threads), or nothing for one row about all
    threads; `every` groups by time buckets, too, and `ts` is their start.

    * `n`: migrations as `migrations` defines them; `rate_hz`: per second of the window, or bucket;
    * `runs`: times that the threads came onto a CPU; `moved_frac`: `n` as a share of `runs`. With a
      column of the migration in `by`, `runs` are all those of the group that the other columns
      name;
    * `n_waited`, `queued`: migrations after which the thread waited anyway, and for how long (ns);
    * `n_censored`: threads still waiting on another CPU's queue when last observed;
    * `n_excluded`: runs for which the trace does not show whether they were migrations.

    Groups that ran and never moved have a row with `n` 0, unless grouped by a column of the
    migration. Empty buckets have none.

    Raises `UsageError` for another `by`, a column twice, or a bucket of 0 ns.

    >>> from schedscope import Trace
    >>> waits = pl.DataFrame({
    ...     "utid": [2, 2, 2], "cause": ["wake", "wake", "preempt"],
    ...     "ts_waking": [0, 20, None], "ts_ready": [0, 20, 40],
    ...     "ts_enqueued": [1, 21, 40], "ts_run": [5, 25, 70], "prev_cpu": [0, 0, 1],
    ...     "queue_cpu": [0, 1, 0], "cpu": [0, 1, 0], "wait": [5, 5, 30], "censored": ["none"] * 3,
    ...     "waker_utid": [3, 3, None], "waker_cpu": [1, 1, None],
    ... })
    >>> trace = Trace.from_tables({"waits": waits}, {"ncpu": 2, "window": [0, 100]})
    >>> migration_summary(trace, by="cause").select("cause", "n", "runs", "moved_frac")
    shape: (2, 4)
    ┌─────────┬─────┬──────┬────────────┐
    │ cause   ┆ n   ┆ runs ┆ moved_frac │
    │ ---     ┆ --- ┆ ---  ┆ ---        │
    │ enum    ┆ u32 ┆ u32  ┆ f64        │
    ╞═════════╪═════╪══════╪════════════╡
    │ wake    ┆ 1   ┆ 3    ┆ 0.333333   │
    │ balance ┆ 1   ┆ 3    ┆ 0.333333   │
    └─────────┴─────┴──────┴────────────┘
    """
    keys = keys_of(by, GROUPS)
    bucket = None if every is None else nanoseconds(every)
    if bucket is not None and bucket <= 0:
        raise UsageError(f"every={every!r}", "a time bucket longer than 0 ns", "as in 100ms")
    of_thread = [name for name in keys if name in THREAD_COLUMNS]
    of_runs = [name for name in keys if name == "utid" or name in THREAD_COLUMNS]
    time = [] if bucket is None else ["ts"]
    threads = threads_with(trace, of_thread).select("utid", *of_thread).collect()
    runs = once(_counts, trace, bucket=bucket) if where is None else _counts(trace, where, bucket)
    counts = runs.join(threads, on="utid", how="left")
    groups = [*time, *keys] or ["_"]
    # Only the columns needed: the join copies them.
    used = list(dict.fromkeys(["utid", "queued", "waited", *time, *keys]))
    sums = folded(
        (
            part.select(name for name in used if name in part.columns)
            .join(threads, on="utid", how="left")
            .with_columns(
                _=0, **({} if bucket is None else {"ts": _bucket(pl.col("ts"), trace, bucket)})
            )
            .group_by(groups)
            .agg(n=pl.len(), n_waited=pl.col("waited").sum(), queued=_QUEUED)
            for part in moves(trace, where, waited)
        ),
        lambda rows: rows.group_by(groups).sum(),
    )
    numbers = pl.col("runs", "n_censored", "n_excluded").sum()
    if time or of_runs:
        base = counts.group_by(*time, *of_runs).agg(numbers)
    else:
        base = counts.select(numbers)
    if len(of_runs) == len(keys) and (time or keys):
        frame = base.join(sums, on=[*time, *keys], how="left", nulls_equal=True)
    elif time or of_runs:
        frame = sums.join(base, on=[*time, *of_runs], how="left", nulls_equal=True)
    else:
        sums = sums if keys or sums.height else pl.DataFrame({"n": [0]})
        frame = sums.join(base, how="cross")
    count = pl.col("n").fill_null(0).cast(pl.UInt32)
    length: Any = trace.duration if bucket is None else _length(trace, bucket)
    order = [*time, "n", *keys]
    return (
        frame.with_columns(count)
        .select(
            *time,
            *keys,
            "n",
            rate_hz=pl.when(length > 0).then(pl.col("n") * 1e9 / length)
            if bucket is not None
            else pl.col("n") * (1e9 / length if length else None),
            runs=pl.col("runs").cast(pl.UInt32),
            moved_frac=pl.when(pl.col("runs") > 0).then(pl.col("n") / pl.col("runs")),
            n_waited=_or_zero(frame, "n_waited").cast(pl.UInt32),
            queued=_or_zero(frame, "queued").cast(pl.Int64),
            n_censored=pl.col("n_censored").cast(pl.UInt32),
            n_excluded=pl.col("n_excluded").cast(pl.UInt32),
        )
        .sort(order, descending=[name == "n" for name in order], nulls_last=True)
    )


@needs("switches")
def migration_matrix(
    trace: Trace, *, where: pl.Expr | None = None, waited: str | int = WAITED
) -> pl.DataFrame:
    """One row per ordered pair of CPUs: how many migrations went from one to the other.

    Every pair of the trace's CPUs has a row, with `n` 0 if there was no migration; beyond 1,024
    CPUs only pairs with a migration have one. `n` adds up to the number of migrations.

    * `from_cpu`, `to_cpu`, `distance`: as in `migrations`;
    * `n`, and how many of them by each cause: `wake`, `balance`, `fork`, `exec`, `affinity`,
      `unknown`;
    * `n_waited`, `queued`: after how many of them the thread waited anyway, and for how long (ns).
    """
    pair = ["from_cpu", "to_cpu"]
    sums = folded(
        (
            part.group_by(pair).agg(
                n=pl.len(),
                **{word: (pl.col("cause") == word).sum() for word in CAUSE.categories},
                n_waited=pl.col("waited").sum(),
                queued=_QUEUED,
            )
            for part in moves(trace, where, waited)
        ),
        lambda rows: rows.group_by(pair).sum(),
    )
    numbers = pl.col("n", *CAUSE.categories, "n_waited").cast(pl.UInt32)
    # A full join: a migration may name a CPU that the trace lists nowhere.
    few = len(cpus_of(trace)) <= _SQUARE
    return (
        distances(trace, None if few else sums.select(pair))
        .join(sums, on=pair, how="full", coalesce=True)
        .with_columns(numbers.fill_null(0), pl.col("queued").fill_null(0))
        .sort(pair)
    )


@needs("switches")
def ping_pong(
    trace: Trace, within: str | int = "10ms", *, where: pl.Expr | None = None
) -> pl.DataFrame:
    """One row per thread and pair of CPUs between which it moved back and forth.

    A bounce is a migration from A to B if the thread's next migration is from B to A and comes no
    more than `within` later; A to B to A to B is two bounces.

    * `utid`, `tid`, `pid`, `comm`; `cpu_a`, `cpu_b`: the pair, the lower number first; `distance`;
    * `n`: bounces; `n_migrations`: all migrations of the thread, between whichever CPUs;
    * `away_p50`, `away_min`: time from the start of the run on B to the start of the run back on A,
      ns;
    * `wait`: what the thread waited for CPUs in all of the migrations that brought it back, ns.

    Most bounces first. A placement at fork is not part of a bounce, and neither is a
    migration with cause `unknown`: the thread may have been elsewhere in between.

    Raises `UsageError` if `within` is not a duration, or is negative.
    """
    limit = nanoseconds(within)
    if limit < 0:
        raise UsageError(f"within={within!r}", "a duration of 0 ns or more", "as in 10ms")
    bounces, numbers = [], []
    last: pl.DataFrame | None = None
    for part in moves(trace, where):
        found, last = _bounces(part, last)
        bounces.append(found.filter(pl.col("away") <= limit))
        numbers.append(part.group_by("utid").agg(n_migrations=pl.len().cast(pl.UInt32)))
    frame = (
        pl.concat(bounces)
        .group_by("utid", "cpu_a", "cpu_b", "distance")
        .agg(
            n=pl.len().cast(pl.UInt32),
            away_p50=nearest_rank(pl.col("away"), 0.5).cast(pl.Int64),
            away_min=pl.col("away").min(),
            wait=pl.col("wait").sum(),
        )
    )
    in_all = folded(numbers, lambda rows: rows.group_by("utid").sum())
    threads = trace.threads.select("utid", "tid", "pid", "comm").collect()
    return (
        frame.join(in_all, on="utid")
        .join(threads, on="utid", how="left")
        .select(
            *("utid", "tid", "pid", "comm", "cpu_a", "cpu_b", "distance", "n"),
            *("n_migrations", "away_p50", "away_min", "wait"),
        )
        .sort("n", "utid", "cpu_a", "cpu_b", descending=[True, False, False, False])
    )


def _bounces(part: pl.DataFrame, last: pl.DataFrame | None) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The migrations that undo the one before, and each thread's last migration so far.

    `last`: each thread's last one before these. A thread's migrations come in order of time.
    """
    used = ("utid", "ts", "ts_ready", "from_cpu", "to_cpu", "cause", "distance", "wait")
    moved = part.select(used)
    # Earlier rows come first, also where times are equal.
    moved = moved if last is None else pl.concat([last, moved])
    moved = moved.sort("utid", "ts", "ts_ready", maintain_order=True)
    before = [pl.col(name).shift().over("utid") for name in ("from_cpu", "to_cpu", "cause", "ts")]
    legs = moved.with_columns(
        came_from=before[0], came_to=before[1], came_by=before[2], away=pl.col("ts") - before[3]
    )
    sure = ~pl.col("cause").is_in(["fork", "unknown"]) & ~pl.col("came_by").is_in(
        ["fork", "unknown"]
    )
    a, b = pl.col("from_cpu"), pl.col("to_cpu")
    found = legs.filter(pl.col("came_from") == b, pl.col("came_to") == a, sure)
    return (
        found.select(
            *("utid", "distance", "away", "wait"),
            cpu_a=pl.min_horizontal(a, b),
            cpu_b=pl.max_horizontal(a, b),
        ),
        moved.unique("utid", keep="last", maintain_order=True),
    )


def moves(
    trace: Trace, where: pl.Expr | None, waited: str | int = WAITED
) -> Iterator[pl.DataFrame]:
    """Migrations with what the ledger has beside them, some at a time; one frame at least."""
    limit = nanoseconds(waited)
    if limit < 0:
        raise UsageError(f"waited={waited!r}", "a duration of 0 ns or more", "as in 100us")
    # Most questions are about all threads, and several tables of a report ask them.
    held = once(_held, trace) if where is None else None
    queued = pl.col("ts") - pl.col("arrived")
    for part in _causes(trace, where) if held is None else held:
        yield part.with_columns(queued=queued, waited=queued > limit)


def _held(trace: Trace) -> list[pl.DataFrame] | None:
    """All of them if they are few enough to keep, as in most traces."""
    parts: list[pl.DataFrame] = []
    for part in _causes(trace):
        parts.append(part)
        if sum(frame.height for frame in parts) > _KEPT:
            return None
    return parts


def _causes(trace: Trace, where: pl.Expr | None = None) -> Iterator[pl.DataFrame]:
    if trace.whole is not None:
        yield from _within(trace, trace.whole, where)
        return
    columns = (
        *("utid", "cause", "ts_waking", "ts_ready", "ts_enqueued", "ts_run", "waker_utid"),
        *("waker_cpu", "prev_cpu", "queue_cpu", "cpu", "wait"),
    )
    held: list[pl.DataFrame] = []
    some = False
    for rows in waits_in_batches(trace, columns, where):
        held.append(_moved(rows))
        if sum(frame.height for frame in held) >= _MOVES:
            yield _judged(trace, pl.concat(held))
            held, some = [], True
    if held or not some:
        yield _judged(trace, pl.concat(held))


def _within(trace: Trace, whole: Trace, where: pl.Expr | None) -> Iterator[pl.DataFrame]:
    """The migrations in a part of a recording: what chose the CPU may have come before it."""
    begin, end = trace.window
    closed = end == whole.window[1]
    known = pl.col("ts_ready") >= begin
    for part in _causes(whole, where):
        yield part.filter(pl.col("ts") >= begin, pl.col("ts") < end + closed).with_columns(
            pl.when(known).then(pl.col("ts_ready", "wait")),
            pl.when(pl.col("arrived") >= begin).then("arrived"),
        )


def _moved(begun: pl.LazyFrame) -> pl.DataFrame:
    """The waits after which a thread ran on another CPU."""
    return (
        begun.filter(pl.col("ts_run").is_not_null() & _MOVED)
        .with_columns(
            from_cpu=pl.when(_FORKED).then("waker_cpu").otherwise("prev_cpu"),
            new=_FORKED,
        )
        .rename({"ts_run": "ts", "cpu": "to_cpu", "cause": "waiting"})
        .drop("waker_utid", "prev_cpu")
        .with_columns(
            pl.col("from_cpu", "to_cpu", "queue_cpu", "waker_cpu").cast(pl.UInt16),
            pl.col("utid").cast(pl.UInt32),
        )
        .collect()
    )


def _judged(trace: Trace, found: pl.DataFrame) -> pl.DataFrame:
    return (
        causes(trace, found)
        .join(
            distances(trace, found.select("from_cpu", "to_cpu").drop_nulls().unique()),
            on=["from_cpu", "to_cpu"],
            how="left",
        )
        .select(
            *("utid", "waiting", "ts", "ts_ready", "wait", "arrived"),
            *("from_cpu", "to_cpu", "cause", "distance"),
        )
    )


# A new thread's first run: its parent and the parent's CPU are the waker columns of the wakeup.
_FORKED = (
    (pl.col("cause") == "new") & pl.col("prev_cpu").is_null() & pl.col("waker_utid").is_not_null()
)
_BEFORE = pl.when(_FORKED).then("waker_cpu").otherwise("prev_cpu")
_MOVED = (pl.col("cpu") != _BEFORE).fill_null(False)


def _counts(trace: Trace, where: pl.Expr | None = None, bucket: int | None = None) -> pl.DataFrame:
    """Each thread's runs, whether or not they were migrations."""
    columns = ["utid", "cause", "ts_ready", "ts_enqueued", "ts_run", "waker_utid", "waker_cpu"]
    columns.append("prev_cpu")
    ran = pl.col("ts_run").is_not_null()
    # Unknown in between, and then on the same CPU: it may have moved away and back.
    unseen = (pl.col("cause") == "unknown") & ~_MOVED
    keys: list[Any] = ["utid"]
    if bucket is not None:
        keys.append(_bucket(pl.coalesce("ts_run", "ts_ready", "ts_enqueued"), trace, bucket))
    parts = (
        rows.with_columns(pl.col("utid").cast(pl.UInt32))
        .group_by(keys)
        .agg(
            runs=ran.sum(),
            n_excluded=(ran & (_BEFORE.is_null() | unseen)).sum(),
            n_censored=(~ran & (pl.col("queue_cpu") != pl.col("prev_cpu"))).sum(),
        )
        .collect()
        for rows in waits_in_batches(trace, [*columns, "queue_cpu", "cpu"], where)
    )
    named = ["utid"] if bucket is None else ["utid", "ts"]
    return folded(parts, lambda rows: rows.group_by(named).agg(pl.exclude(named).sum()))


def _bucket(ts: pl.Expr, trace: Trace, every: int) -> pl.Expr:
    begin = trace.window[0]
    return ((ts - begin) // every * every + begin).alias("ts")


def _length(trace: Trace, every: int) -> pl.Expr:
    """The last bucket ends with the window."""
    return pl.min_horizontal(pl.lit(every), pl.lit(trace.window[1]) - pl.col("ts"))


def _or_zero(frame: pl.DataFrame, name: str) -> pl.Expr:
    return pl.col(name).fill_null(0) if name in frame.columns else pl.lit(0)
