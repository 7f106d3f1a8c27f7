"""Which threads would ULE or O(1) call interactive?

The recorded runs and sleeps of each thread, under whatever scheduler they were recorded,
are fed to the arithmetic of another one. FreeBSD's ULE gives threads a score from 0
(asleep) to 100 (running), and calls those below 30 interactive. Linux 2.6.10 gives them a
bonus from 0 to 10, and calls those from 7 on interactive. A thread that existed when the
recording started is followed from an empty history; the column `settled` shows from when
that no longer matters.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import polars as pl

from schedscope import units
from schedscope.analysis.asking.command import Command
from schedscope.analysis.asking.needs import needs
from schedscope.analysis.asking.policies import rule
from schedscope.analysis.threads.of_threads import threads_with
from schedscope.store.native_tables import coded

if TYPE_CHECKING:
    from schedscope._native import StoredTable
    from schedscope.store.trace import Trace

# Classes to which the rules do not apply: those threads have a fixed priority.
_FIXED = ("stop", "deadline", "realtime", "idle", "interrupt")
_SCORED, _WANTED = 1, 2
_COLUMNS = (
    "scheduler",
    "utid",
    "comm",
    "pid",
    "tid",
    "score",
    "score_min",
    "score_max",
    "is_interactive",
    "ts_interactive",
    "interactive",
    "interactive_frac",
    "observed",
    "unknown",
    "transitions",
    "ts_settled",
    "by_kernel",
    "n",
    "n_censored",
    "n_excluded",
)


_SCORES = "scores", "one that scores threads"


COMMAND = Command(
    heading="how well was the machine used?",
    help="which threads ULE or O(1) would call interactive",
    example="""\
  schedscope interactivity web.capture --model ule-14
  schedscope interactivity web.capture --tid 712 --series --format csv
""",
    page="docs/definitions/interactivity.md",
)


@needs("switches")
def interactivity(
    trace: Trace,
    scheduler: str = "ule",
    *,
    set: Mapping[str, Any] | None = None,
    where: pl.Expr | None = None,
    tick_phase: int | None = None,
) -> pl.DataFrame:
    """One row per thread: how `scheduler` would have scored its sleeping and running.

    The trace may be of any scheduler. Each thread's recorded runs and sleeps are fed to the rule of
    the named scheduler, and its score is followed over time:

    * `"ule"` (the same as `"ule-14"`), `"ule-2011"` and `"ule-2003"` are FreeBSD's rules. The score
      runs from 0 (asleep) to 100 (running); below 30 a thread is interactive, unless `set` (values
      of the policy's tunables, as in `simulate`) says otherwise;
    * `"o1"` is Linux 2.6.10's rule. The score is the bonus for sleep, from 0 to 10; 7 or more is
      interactive at nice 0.

    EEVDF and CFS do not score threads: see `virtual_lag`. The columns:

    * `score`: at the thread's last known instant; `score_min`, `score_max`; null for threads of a
      real-time, idle or interrupt class, to which the rule does not apply;
    * `is_interactive`: whether it is interactive at the end; `ts_interactive`: when it first was,
      null if never; `transitions`: how often that changed;
    * `interactive`: time in which it was interactive (ns); `interactive_frac`: the share that this
      is of `observed`, the time in which the score is known; `unknown`: the rest of the time in
      which the thread was seen;
    * `ts_settled`: from when the score rests on as much history as the rule keeps (5 s of run and
      sleep). Before that, the true score of a thread that existed when the trace began may differ;
    * `n`: sleeps credited; `n_censored`: sleeps still open at the end of the window, and therefore
      not credited yet; `n_excluded`: those whose end was not seen, and gaps.

    A FreeBSD recording `--with inter` holds the kernel's own sums of each thread at each of its
    switches. Where `scheduler` is `"ule"` or `"ule-14"` and `set` is not given, the columns of
    those threads are the kernel's (`by_kernel`), and `n` counts its values.

    `where` selects threads by the columns of `threads`. The kernels charge run time, or end slices,
    at the ticks of a clock that traces do not show. Here one tick is charged for every 1/127 s
    (O(1): 1 ms) of run instead. `tick_phase`, an instant (ns) at which the clocks of all CPUs
    ticked, makes this exact; for simulated traces it is 0.

    Definition: docs/definitions/interactivity.md. Raises `UsageError` for
    another scheduler or a tunable it does not have, `FormatError` for states out of order.

    >>> from schedscope import simulate
    >>> from schedscope.simulator.workloads.generators import periodic
    >>> trace = simulate(periodic(1, run="10ms", sleep="90ms", times=20), policy="rr")
    >>> interactivity(trace).select("comm", "score", "score_max", "ts_interactive")
    shape: (1, 4)
    ┌────────────┬───────┬───────────┬────────────────┐
    │ comm       ┆ score ┆ score_max ┆ ts_interactive │
    │ ---        ┆ ---   ┆ ---       ┆ ---            │
    │ str        ┆ i64   ┆ i64       ┆ i64            │
    ╞════════════╪═══════╪═══════════╪════════════════╡
    │ periodic-0 ┆ 5     ┆ 50        ┆ 100000000      │
    └────────────┴───────┴───────────┴────────────────┘
    """
    frame, _ = _reconstructed(trace, scheduler, set, where, tick_phase, series=False)
    if rule(scheduler, *_SCORES)["name"] == rule("ule", *_SCORES)["name"] and not set:
        frame = _by_kernel(trace, frame)
    else:
        frame = frame.with_columns(by_kernel=False)
    threads = trace.threads.select("utid", "comm", "pid", "tid").collect()
    share = pl.when(pl.col("observed") > 0).then(pl.col("interactive") / pl.col("observed"))
    return (
        frame.join(threads, on="utid", how="left")
        .with_columns(scheduler=pl.lit(scheduler), interactive_frac=share)
        .select(_COLUMNS)
        .sort("utid")
    )


def _by_kernel(trace: Trace, frame: pl.DataFrame) -> pl.DataFrame:
    """`frame` with FreeBSD's own scores of threads (inter.d) in place of estimates."""
    rows = trace.info.get("kernel_scores")
    if not rows:
        return frame.with_columns(by_kernel=False)
    own = trace.threads.select("utid", pl.col("tid").cast(pl.Int64)).collect()
    # A tid that several threads had cannot be assigned to one of them.
    own = own.filter(pl.col("tid").is_unique())
    told = own.join(pl.DataFrame(rows, infer_schema_length=None), on="tid").drop("tid")
    schema = frame.schema
    names = [name for name in told.columns if name != "utid" and name in schema]
    told = told.select("utid", *(pl.col(name).cast(schema[name]) for name in names), by_kernel=True)
    joined = frame.join(told, on="utid", how="left", suffix="_told")
    known = pl.col("by_kernel").fill_null(value=False)
    return joined.select(
        *(
            pl.when(known).then(f"{name}_told").otherwise(name).alias(name)
            if name in names
            else name
            for name in frame.columns
        ),
        by_kernel=known,
    )


@needs("switches")
def interactivity_series(
    trace: Trace,
    scheduler: str = "ule",
    *,
    set: Mapping[str, Any] | None = None,
    where: pl.Expr | None = None,
    tick_phase: int | None = None,
) -> pl.DataFrame:
    """One row per change of a thread's score.

    Columns: `ts, utid, tid, comm, score, interactive`, and `scheduler`, the name that was asked
    for.

    In order of `utid` and `ts` (ns). A score holds until the thread's next row; it is null from the
    point at which the trace stops showing what the thread did, and from its exit on. For the
    arguments and errors see `interactivity`.
    """
    _, points = _reconstructed(trace, scheduler, set, where, tick_phase, series=True)
    threads = trace.threads.select("utid", "tid", "comm").collect()
    return (
        # Of several scores at one instant only the last one held; an end comes after it.
        points.group_by("utid", "ts", pl.col("score").is_null().alias("ends"), maintain_order=True)
        .last()
        .join(threads, on="utid", how="left", maintain_order="left")
        .sort("utid", "ts", maintain_order=True)
        .select(*("ts", "utid", "tid", "comm", "score", "interactive"), scheduler=pl.lit(scheduler))
    )


def interactivity_sentences(frame: pl.DataFrame, *, origin: int = 0) -> list[str]:
    """One sentence for each row of `interactivity`, its times in s after `origin`.

    >>> frame = pl.DataFrame({
    ...     "scheduler": "ule", "comm": "sshd", "tid": 712, "score": 3, "is_interactive": True,
    ...     "ts_interactive": 12_300_000_000, "interactive_frac": 0.9, "transitions": 1,
    ... })
    >>> interactivity_sentences(frame)
    ['ULE would call sshd 712 interactive from 12.300000 s on (score 3)']
    """
    return [_sentence(row, origin) for row in frame.iter_rows(named=True)]


def _sentence(row: Mapping[str, Any], origin: int) -> str:
    who = " ".join(str(part) for part in (row["comm"] or "a thread", row["tid"]) if part)
    scheduler = str(row["scheduler"]).upper()
    calls = "calls" if row.get("by_kernel") else "would call"
    if row["score"] is None:
        return f"{scheduler} would not score {who}: its class does not share time"
    score = f"score {row['score']}"
    if row["ts_interactive"] is None:
        return f"{scheduler} would never call {who} interactive ({score})"
    since = units.instant(row["ts_interactive"], origin)
    if row["is_interactive"] and row["transitions"] <= 1:
        return f"{scheduler} {calls} {who} interactive from {since} on ({score})"
    share = units.percent(row["interactive_frac"])
    changes = row["transitions"]
    times = "once" if changes == 1 else f"{units.count(changes)} times"
    end = "is" if row["is_interactive"] else "is not"
    return (
        f"{scheduler} {calls} {who} interactive {share} of the time, first at {since},"
        f" changing {times}; it {end} at the end ({score})"
    )


def _reconstructed(
    trace: Trace,
    scheduler: str,
    given: Mapping[str, Any] | None,
    where: pl.Expr | None,
    tick_phase: int | None,
    *,
    series: bool,
) -> tuple[pl.DataFrame, pl.DataFrame]:
    from schedscope import _native

    policy = rule(scheduler, *_SCORES)
    settings = [(name, setting_text(value)) for name, value in (given or {}).items()]
    frames = {
        "states": _states(trace, wakers=policy["asks_for_wakers"]),
        "threads": _threads(trace, where),
        "locks": _locks(trace),
    }
    rows, points = _native.interactivity(
        policy["name"], settings, frames, trace.window, tick_phase, series, trace.ncpu
    )
    return pl.DataFrame(rows), pl.DataFrame(points)


def setting_text(value: Any) -> str:
    """A tunable's value as the native engine reads it."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value)


def _states(trace: Trace, *, wakers: bool) -> StoredTable | pl.DataFrame:
    """States in the order of the table, with codes for words; with `wakers` who began a wait."""
    more = ["waker_utid"] if wakers and "waker_utid" in trace.states.collect_schema() else []
    return coded(trace, "states", "utid", "ts", "dur", "state", "end", *more)


def _threads(trace: Trace, where: pl.Expr | None) -> pl.DataFrame:
    """Each thread's parent and nice value, and whether it is selected."""
    tids = {row["tid"]: row["nice"] for row in trace.info.get("nice") or []}
    nice = pl.col("tid").cast(pl.Int64).replace_strict(tids, default=0) if tids else pl.lit(0)
    if trace.info.get("os") == "Linux":
        # On Linux the priority gives the nice value; on FreeBSD it depends on more than that.
        prio = pl.col("prio").cast(pl.Int64)
        nice = pl.when(prio.is_between(100, 139)).then(prio - 120).otherwise(0)
    fixed = pl.col("sched_class").cast(pl.String).is_in(_FIXED).fill_null(False)
    wanted = pl.lit(True) if where is None else where.fill_null(False)
    return (
        threads_with(trace, (), where)
        .filter(pl.col("utid") >= trace.ncpu)
        .select(
            pl.col("utid").cast(pl.UInt32),
            pl.col("start_ts", "exit_ts").cast(pl.Int64),
            pl.col("parent_utid").cast(pl.UInt32),
            nice=nice.cast(pl.Int64),
            flags=((~fixed).cast(pl.UInt8) * _SCORED + wanted.cast(pl.UInt8) * _WANTED),
        )
        .collect()
    )


def _locks(trace: Trace) -> pl.DataFrame:
    """Waits for locks, which FreeBSD does not count as sleep."""
    return (
        trace.sleeps.filter(pl.col("kind").cast(pl.String) == "lock")
        .select(pl.col("utid").cast(pl.UInt32), pl.col("ts").cast(pl.Int64))
        .collect()
    )
