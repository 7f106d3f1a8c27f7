"""What did threads wait for when they gave up the CPU, and for how long?

FreeBSD's traces name the wait message of a sleep and the lock that a thread blocked on.
Linux's traces name the system call, if they were recorded with `capture --with syscalls`;
otherwise they show only whether a signal could have ended the sleep. Waiting for a CPU is
not included: see `schedscope latency`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from schedscope.analysis.asking.arguments import THREAD_COLUMNS
from schedscope.analysis.asking.batches import in_batches
from schedscope.analysis.asking.by import By, keys_of
from schedscope.analysis.asking.command import THREAD_ROWS, Command
from schedscope.analysis.asking.needs import has, needs, require_also
from schedscope.analysis.causes.lock_waits import lock_waits, worded
from schedscope.analysis.causes.sleep_causes import EVIDENCE, SLEEP_CAUSE, causes
from schedscope.analysis.sums.grouped import sums_by_code
from schedscope.analysis.sums.quantiles import column_name, shares_of
from schedscope.analysis.threads.of_threads import threads_with
from schedscope.parsers.schema import END, SLEEP_KIND, STATE

if TYPE_CHECKING:
    import numpy.typing as npt

    from schedscope.store.trace import Trace

OFF = ("sleeping", "blocked", "stopped", "parked")
"""States in which a thread has left its CPU and does not want one."""

QUANTILES = (0.5, 0.99)


COMMAND = Command(
    heading="who waited, and why?",
    help="what threads slept or blocked on, and for how long",
    example="""\
  schedscope off-cpu world.capture
  schedscope off-cpu world.capture --by comm --top 10
  schedscope off-cpu world.capture --by cause --tree 4711
""",
    page="docs/definitions/off-cpu.md",
    by=("all", *THREAD_ROWS, "cause"),
    by_default="all",
    by_help="reasons for all threads together, or for each thread, name, process, control group or"
    " service; or causes alone, if system calls or requests to disks were recorded"
    " (default: all)",
    top="the first N rows",
    top_default=20,
    selects="these threads",
    no_cpu="off-CPU time has no CPU",
    columns="*by cause? reason? evidence? state n total mean p50 p99 max lock? lock_time?"
    " released_by? n_censored? n_excluded?",
    narrow="n_excluded n_censored mean p50 p99 lock_time evidence max",
    rest=("more row", ", of less time"),
    nothing="no off-CPU time for this selection",
)


@needs("switches")
def off_cpu(
    trace: Trace,
    *,
    by: By = "all",
    where: pl.Expr | None = None,
    quantiles: Sequence[float] = QUANTILES,
) -> pl.DataFrame:
    """One row per reason for which threads slept or were blocked.

    * the columns of `threads` named in `by`, as in `comm`: a row for each of their values and each
      reason. With `cause` in `by`, a row for each of their values and each cause, without the other
      columns of the reason;
    * `state`: `sleeping` (a signal can end it), `blocked` (none can), `stopped`, `parked`;
    * `kind`: `sleep`, `lock`, `interrupt` (an interrupt thread with nothing to do), `suspended`;
      and `reason`: the wait message of a sleep or the name of a lock. Null where the source does
      not say; FreeBSD's DTrace and KTR traces do. On Linux `kind` is null, and `reason` is the
      system call in which the thread slept, if calls were recorded;
    * `cause`: what a sleep on Linux was for, by that call (`futex`, `read`, `write`, `socket`,
      `poll`, `timer`, `child`, `signal`, `sync`, `file`, `memory`, `process`, `other call`); or
      `disk` (the thread had made a request to a disk, and its completion woke it), `io` (for I/O,
      as the kernel itself says), `fault` (blocked outside any call: a page fault or a disk),
      `stop`, `kernel` (of a kernel thread) or `unknown`;
    * `evidence`: how the cause is known, or why it is not. Like `cause` it is null without recorded
      calls, requests to disks or reasons reported by the kernel;
    * `n`, `total`, `mean`, `p50` ..., `max`: the times from leaving the CPU to being woken that
      were seen from start to end: their number, sum, mean, exact quantiles (nearest rank) and
      longest (ns; null without such a time). `total_high`, `max_high`: upper bounds, where it is
      unknown what the threads did, or when a sleep ended;
    * `lock`: the lock for which threads slept longest in these sleeps (`futex ADDRESS (pid)`, or a
      lock of the kernel); `lock_time`: how long (ns); `released_by`: who released it at the end of
      most of that time, `timeout` or `signal` if no thread did, `unknown` if none of these is
      proved. All three are null without recorded locks, or calls with their arguments;
    * `n_censored`: those still open when last observed; `n_excluded`: those whose start was not
      recorded.

    Longest sum first. `where`: expression over the columns of `threads`. Idle threads are left
    out. Definition: docs/definitions/off-cpu.md. Raises `UsageError` for an unknown `by` or a
    quantile outside (0, 1].

    >>> from schedscope import Trace
    >>> states = pl.DataFrame({
    ...     "ts": [0, 10, 50, 60], "dur": [10, 40, 10, 5], "utid": [1] * 4, "cpu": [0, None] * 2,
    ...     "state": ["running", "sleeping", "running", "blocked"],
    ...     "end": ["switched", "woken", "switched", "woken"],
    ... })
    >>> sleeps = pl.DataFrame({"ts": [10, 60], "utid": [1, 1], "cpu": [0, 0],
    ...                        "kind": ["sleep", "lock"], "reason": ["piperd", "vm page free"]})
    >>> threads = pl.DataFrame({"utid": [0, 1], "comm": ["idle", "cat"]})
    >>> tables = {"states": states, "sleeps": sleeps, "threads": threads}
    >>> trace = Trace.from_tables(tables, {"ncpu": 1, "window": [0, 65]})
    >>> off_cpu(trace).select("state", "kind", "reason", "n", "total")
    shape: (2, 5)
    ┌──────────┬───────┬──────────────┬─────┬───────┐
    │ state    ┆ kind  ┆ reason       ┆ n   ┆ total │
    │ ---      ┆ ---   ┆ ---          ┆ --- ┆ ---   │
    │ enum     ┆ enum  ┆ str          ┆ u32 ┆ i64   │
    ╞══════════╪═══════╪══════════════╪═════╪═══════╡
    │ sleeping ┆ sleep ┆ piperd       ┆ 1   ┆ 40    │
    │ blocked  ┆ lock  ┆ vm page free ┆ 1   ┆ 5     │
    └──────────┴───────┴──────────────┴─────┴───────┘
    """
    names = keys_of(by, (*THREAD_COLUMNS, "utid", "cause"))
    told = any(has(trace, table) for table in ("system_calls", "disk_requests", "sleep_reasons"))
    if "cause" in names and not told:
        require_also(trace, "system_calls", "by='cause'")
    shares = shares_of(quantiles)
    of_thread = [name for name in names if name != "cause"]
    keys = [*names, *(["state", *_REASON] if of_thread == names else [])]
    used = {*of_thread, *(where.meta.root_names() if where is not None else ())}
    threads = threads_with(trace, used)
    threads = threads if where is None else threads.filter(where)
    threads = threads.select(*dict.fromkeys(["utid", *of_thread]))
    locks = None
    if told or _locks_recorded(trace) or trace.sleeps.select(pl.len()).collect().item():
        times = _explained(trace, told)
        if _locks_recorded(trace):
            locks = worded(trace, lock_waits(trace, times))
        times = times.join(threads, on="utid", how="left" if where is None else "inner")
        found = _sums_of_held(times.collect(), keys, shares)
        found = _with_upper(trace, found, times, threads, of_thread, keys)
    else:
        chosen = where is not None
        found = _sums(trace, threads.collect(), of_thread, shares, chosen=chosen)
        times = _times(trace, trace.states).join(
            threads, on="utid", how="inner" if chosen else "left"
        )
        found = _with_upper(trace, found, times, threads, of_thread, [*of_thread, "state"])
        found = found.with_columns(pl.lit(None, dtype).alias(n) for n, dtype in _REASON.items())
    if locks is None or locks.is_empty():
        found = found.with_columns(
            lock=pl.lit(None, pl.String),
            lock_time=pl.lit(None, pl.Int64),
            released_by=pl.lit(None, pl.String),
        )
    else:
        slept_for = locks.select("utid", "ts", "lock", "released_by").lazy()
        slept = times.join(slept_for, on=["utid", "ts"]).filter(~pl.col("excluded"))
        found = found.join(_most(slept, keys).collect(), on=keys, how="left", nulls_equal=True)
    return found.select(
        *keys,
        *("n", "total", "total_high", "mean", *map(column_name, shares), "max", "max_high"),
        *("lock", "lock_time", "released_by", "n_censored", "n_excluded"),
    ).sort("total", *keys, descending=[True, *(False for _ in keys)], nulls_last=True)


_REASON: dict[str, pl.DataType | type[pl.DataType]] = {
    "kind": SLEEP_KIND,
    "reason": pl.String,
    "cause": SLEEP_CAUSE,
    "evidence": EVIDENCE,
}
"""What some traces say of a sleep."""


def _times(trace: Trace, states: pl.LazyFrame) -> pl.LazyFrame:
    """The intervals off the CPU among `states`."""
    begin, _ = trace.window
    # A sleep cut at its start has lost its reason as well as its length.
    cut = pl.col("ts") == begin if begin > trace.origin else pl.lit(value=False)
    return (
        states.filter(pl.col("state").is_in(OFF) & (pl.col("utid") >= trace.ncpu))
        .with_columns(pl.col("state").cast(STATE), excluded=cut)
        .with_columns(censored=~cut & (pl.col("end").cast(END) != "woken"))
        .select("utid", "ts", "dur", "state", "censored", "excluded")
    )


def _with_upper(
    trace: Trace,
    found: pl.DataFrame,
    times: pl.LazyFrame,
    threads: pl.LazyFrame,
    of_thread: list[str],
    keys: list[str],
) -> pl.DataFrame:
    """With `total_high` and `max_high`: as if the threads slept wherever it is not known.

    Any row of a group of threads may have all of their unknown time. A sleep that goes on when the
    window ends did not end in it, and is in no figure.
    """
    dur = pl.col("dur").cast(pl.Int64)
    hidden = (
        trace.states.filter(pl.col("state").cast(STATE) == "unknown", pl.col("utid") >= trace.ncpu)
        .group_by("utid")
        .agg(hidden=dur.sum(), span=dur.max())
        .join(threads, on="utid", how="inner")
    )
    sums = [pl.col("hidden").sum(), pl.col("span").max()]
    if of_thread:
        of_group = hidden.group_by(of_thread).agg(sums).collect()
        found = found.join(of_group, on=of_thread, how="left", nulls_equal=True)
    else:
        found = found.join(hidden.select(sums).collect(), how="cross")
    lost = {"lost": pl.lit(0, pl.Int64), "longest": pl.lit(0, pl.Int64)}
    if found["n_censored"].sum():
        within = pl.col("ts") + dur < trace.window[1]
        rows = times.filter(pl.col("censored"), within)
        of_row = rows.group_by(keys).agg(lost=dur.sum(), longest=dur.max()).collect()
        found = found.join(of_row, on=keys, how="left", nulls_equal=True)
        lost = {name: pl.col(name).fill_null(0) for name in lost}
    span = pl.col("span").fill_null(0) + lost["longest"]
    return found.with_columns(
        total_high=pl.col("total") + pl.col("hidden").fill_null(0) + lost["lost"],
        max_high=pl.when(span > 0).then(pl.max_horizontal("max", span)).otherwise("max"),
    )


def longest_open(trace: Trace, *, where: pl.Expr | None = None) -> int | None:
    """How long the longest of those that `n_censored` counts was seen, ns."""
    used = where.meta.root_names() if where is not None else ()
    threads = threads_with(trace, {"utid", *used})
    chosen = (threads if where is None else threads.filter(where)).select("utid")
    times = _times(trace, trace.states).filter("censored").join(chosen, on="utid", how="semi")
    longest = times.select(pl.col("dur").cast(pl.Int64).max()).collect().item()
    return None if longest is None else int(longest)


def _sums(
    trace: Trace, threads: pl.DataFrame, names: list[str], shares: list[Fraction], *, chosen: bool
) -> pl.DataFrame:
    """By `names` and state, some rows at a time; `chosen`: of these threads only."""
    # The last row is for threads that the table does not have.
    threads = pl.concat([threads, threads.clear(1)])
    if names:
        distinct = threads.select(names).unique(maintain_order=True)
        numbered = threads.join(
            distinct.with_row_index("#"),
            on=names,
            how="left",
            nulls_equal=True,
            maintain_order="left",
        )
        number = numbered["#"].to_numpy().astype(np.int64)
    else:
        distinct = pl.DataFrame(height=1)
        number = np.zeros(threads.height, dtype=np.int64)
    utid = threads["utid"][:-1].to_numpy()
    lookup = np.full(int(utid.max(initial=0)) + 2, -1 if chosen else number[-1])
    lookup[utid] = number[:-1]

    def batches() -> Iterator[pl.DataFrame]:
        for some in in_batches(trace.states):
            times = _times(trace, some).collect()
            whose = lookup[np.minimum(times["utid"].to_numpy(), len(lookup) - 1)]
            code = whose * len(STATE.categories) + times["state"].to_physical().to_numpy()
            yield _coded(times.filter(whose >= 0), code[whose >= 0])

    sums = sums_by_code(batches, shares, _MARKS)
    codes = sums["group"].to_numpy()
    state = pl.Series("state", STATE.categories, dtype=STATE)
    return pl.concat(
        [
            distinct[codes // len(state)],
            state[codes % len(state)].to_frame(),
            sums,
        ],
        how="horizontal",
    )


def _sums_of_held(times: pl.DataFrame, keys: list[str], shares: list[Fraction]) -> pl.DataFrame:
    distinct = times.select(keys).unique(maintain_order=True)
    numbered = times.select(keys).join(
        distinct.with_row_index("#"), on=keys, how="left", nulls_equal=True, maintain_order="left"
    )
    coded = _coded(times, numbered["#"].to_numpy().astype(np.int64))
    sums = sums_by_code(lambda: [coded], shares, _MARKS)
    return pl.concat([distinct[sums["group"]], sums], how="horizontal")


_MARKS = ("n_censored", "n_excluded")


def _coded(times: pl.DataFrame, code: npt.NDArray[np.int64]) -> pl.DataFrame:
    whole = ~pl.col("censored") & ~pl.col("excluded")
    return times.select(
        group=pl.Series(code),
        time=pl.when(whole).then(pl.col("dur").cast(pl.Int64)),
        n_censored="censored",
        n_excluded="excluded",
    )


def _explained(trace: Trace, told: bool) -> pl.LazyFrame:
    """All times off the CPU with their known reasons, held at once."""
    kind = pl.col("kind").cast(SLEEP_KIND)
    reasons = trace.sleeps.select("utid", "ts", kind, pl.col("reason").replace("", None))
    times = _times(trace, trace.states)
    times = times.join(reasons.unique(["utid", "ts"]), on=["utid", "ts"], how="left")
    if told:
        times = causes(trace, times.drop("reason"))
    else:
        times = times.with_columns(
            pl.lit(None, _REASON[name]).alias(name) for name in ("cause", "evidence")
        )
    return times.collect().lazy()


def _locks_recorded(trace: Trace) -> bool:
    return has(trace, "locks") or has(trace, "system_calls")


def _most(times: pl.LazyFrame, keys: list[str]) -> pl.LazyFrame:
    """For each of `keys` the lock with most time, and which thread most often released it, by
    time.
    """
    times = times.filter(~pl.col("censored")).with_columns(
        pl.col("released_by").fill_null("unknown")
    )
    of_releaser = times.group_by(*keys, "lock", "released_by").agg(part=pl.col("dur").sum())
    order = ["part", "lock", "released_by"]
    return (
        of_releaser.sort(order, descending=[True, False, False])
        .group_by(*keys, "lock", maintain_order=True)
        .agg(pl.col("released_by").first(), lock_time=pl.col("part").sum())
        .sort("lock_time", "lock", descending=[True, False])
        .unique(keys, keep="first", maintain_order=True)
    )
