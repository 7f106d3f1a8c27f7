"""How long was a CPU idle while a thread that may use it waited for another one?

At any instant, idle CPUs could run some of the threads that wait for other CPUs. The time
in which they did not is avoidable idle time. A CPU that is idle with a thread on its own
queue is about to run it: that is dispatch delay, not avoidable idle time. Threads that
may use only one CPU could not have run elsewhere; they are counted separately. --episodes
lists when it happened: which CPUs were idle, which thread waited where, and why.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import polars as pl

from schedscope.analysis.asking.arguments import count
from schedscope.analysis.asking.by import THREADS, check
from schedscope.analysis.asking.command import Command
from schedscope.analysis.asking.memo import once
from schedscope.analysis.asking.needs import needs
from schedscope.analysis.causes.throttling import throttling
from schedscope.analysis.cpus.allowed_cpus import Masks, masks
from schedscope.analysis.cpus.occupancy import coded_waits, occupancy, reading_once
from schedscope.analysis.cpus.topology import cpu_text, recorded_cpus
from schedscope.analysis.threads.of_threads import threads_with
from schedscope.analysis.waits.observed import COUNTS
from schedscope.errors import UsageError
from schedscope.units import nanoseconds

if TYPE_CHECKING:
    from schedscope._native import CpuHistory
    from schedscope.store.trace import Trace

By = Literal["all", "cpu", "thread", "process", "comm", "cgroup", "service"]
_WASTED = ("available", "waited", "avoidable")
"""What there may be more of where quotas held fewer threads back than they may have."""
LEAST = "1ms"
"""Of the episodes that are listed unless others are asked for: how long at least."""
CAUSE = pl.Enum(["placed", "preempted", "not_pulled", "unknown"])
"""Why a thread waited although a CPU idled: see `idle_episodes`."""


COMMAND = Command(
    heading="how well was the machine used?",
    help="idle CPU time while threads waited elsewhere",
    example="""\
  schedscope work-conservation web.capture
  schedscope work-conservation web.capture --by comm --top 10
  schedscope work-conservation web.capture --episodes --longer-than 500us --comm nginx
""",
    page="docs/definitions/work-conservation.md",
)


@needs("switches", "wakeups")
def work_conservation(
    trace: Trace, *, by: By = "all", where: pl.Expr | None = None
) -> pl.DataFrame:
    """One row for the machine, or per CPU or thread: CPU time that idled while threads waited.

    At every instant, idle CPUs could run some of the threads that wait for other CPUs. `wasted` is
    the integral of the largest number that could run at once: where every thread may run
    everywhere, `min(spare CPUs, waiting threads)`; where masks differ, the largest matching. A CPU
    is spare while it is known to idle and no thread is on its queue; one that idles with a thread
    on its queue, or with one that may be there since nothing is known of it until the CPU runs it,
    is about to run it, which is `dispatch` and not wasted. Unknown time of a CPU never counts as
    idle, so `wasted` is a lower bound there.

    A thread whose control group has used up its CPU quota may run nowhere, and does not count as
    waiting for that time, `throttled`, as far as the trace shows when it was: see `wait_breakdown`.
    It may not do so either while the quota may have been used up; with a `NAME_high` the upper
    bounds count it there. They are the same where nothing is a guess.

    `by="all"`, one row, all times in ns:

    * `capacity`: the window times the number of CPUs; `idle`, `unknown`: time in which CPUs are
      known to idle, and time in which that is not known;
    * `dispatch`: time in which CPUs idled with a thread on their own queue, known or possible;
    * `wasted`; `wasted_frac`, its share of the time that is known; `wasted_idle_frac`, of `idle`;
      each with its `NAME_high`;
    * `wasted_any`: wall time in which anything was wasted; `longest`: the longest stretch
      of it, which began at `ts_longest` (null if nothing was);
    * `unplaced`: the part of `wasted` that is due only to threads on no known queue;
    * `waiting`: all threads' time in state runnable; `throttled`, the part of it that is known to
      be due to quotas, null where the kernel's counters of them were not recorded, and
      `throttled_high`, the part that may be;
    * `pinned`: such time of threads with one allowed CPU, or whose mask had changed, while another
      CPU was spare, not included elsewhere; `n_pinned`: how many such threads waited at all;
    * `n`: waits seen from start to end; `n_censored`: waits whose end was not seen, counted for as
      long as the threads were certainly waiting; `n_excluded`: waits whose start was not seen,
      which cannot be included.

    `by="cpu"`, a row per CPU; a last one with a null `cpu` for no known queue:

    * `idle`, `unknown`, `dispatch`: as above; `spare`: the rest of `idle`;
    * `available`: the part of `spare` in which a thread that may run here waited elsewhere;
    * `waiting`, `throttled`: as above, on the queue of this CPU; `waited`: time that threads waited
      here while this CPU was busy and one that they may use was spare;
    * `available_high`, `throttled_high`, `waited_high`.

    `by="thread"`, `"comm"`, `"process"`, `"cgroup"`, `"service"`: a row for each, most `avoidable`
    first:

    * `waiting`, `throttled`: as above; `avoidable`: the part of `waiting` in which the thread's CPU
      was busy, or about to run one that may run nowhere else, and one that it may use was spare;
      `avoidable_frac`, its share; `throttled_high`, `avoidable_high`, `avoidable_frac_high`;
    * `n`: stretches of waiting on one queue that were avoidable in part.

    Only `wasted` adds up: time with several spare CPUs and one waiting thread counts once in it but
    several times in `available`, and time with several waiting threads and one spare CPU several
    times in `waited` and `avoidable`.

    `where`: expression over the columns of `threads`, only for rows about threads. Definition:
    docs/definitions/work-conservation.md. Raises `UsageError` for another `by`, or `where` without
    rows about threads.

    >>> from schedscope import Trace
    >>> states = pl.DataFrame({
    ...     "ts": [0, 0, 10, 40],
    ...     "dur": [100, 40, 50, 60],
    ...     "utid": [2, 1, 3, 4],
    ...     "state": ["running", "running", "runnable", "running"],
    ...     "cpu": [0, 1, 0, 1],
    ... }, schema_overrides={"state": pl.Enum(["running", "runnable"])})
    >>> trace = Trace.from_tables({"states": states}, {"ncpu": 2, "window": [0, 100]})
    >>> work_conservation(trace).select("idle", "waiting", "wasted", "wasted_idle_frac")
    shape: (1, 4)
    ┌──────┬─────────┬────────┬──────────────────┐
    │ idle ┆ waiting ┆ wasted ┆ wasted_idle_frac │
    │ ---  ┆ ---     ┆ ---    ┆ ---              │
    │ i64  ┆ i64     ┆ i64    ┆ f64              │
    ╞══════╪═════════╪════════╪══════════════════╡
    │ 40   ┆ 50      ┆ 30     ┆ 0.75             │
    └──────┴─────────┴────────┴──────────────────┘
    """
    check(by, ["all", "cpu", *THREADS])
    if where is not None and by not in THREADS:
        raise UsageError(
            f"where with by={by!r}", "rows about threads", "choose by=" + " or ".join(THREADS)
        )
    swept = once(_swept, trace)
    if by == "all":
        return _machine(trace, swept)
    if by == "cpu":
        return _by_cpu(swept)
    return _by_thread(trace, swept, list(THREADS[by]), where)


@needs("switches", "wakeups")
def idle_episodes(
    trace: Trace,
    *,
    longer_than: str | int = LEAST,
    top: int | None = None,
    waiters: int | None = 100,
    where: pl.Expr | None = None,
) -> pl.DataFrame:
    """One row per episode of continuously wasted CPU time and thread that waited in it.

    An episode is a maximal stretch of time in which, at every instant, a CPU was spare that a
    waiting thread may use (`work_conservation` says exactly what that means). Listed are episodes
    of at least `longer_than`, or the `top` of them with the most wasted time. Each has rows for
    the `waiters` threads that waited longest, in that order (None: all).

    * `episode`: its rank, from 1; `ts`, `dur`: the stretch; `wasted`: CPU time in it (ns);
    * `idle_cpus`: CPUs that this thread may use and that were spare at some time in it, as in
      "0-2,5"; `idle`: how long they were spare, added up (ns);
    * `comm`, `tid`, `utid`; `cpu`: on whose queue it waited, null for no known queue; `waited`: how
      long it did so within the episode while that CPU was busy and another one spare (ns);
    * `cause`: `placed`: a wakeup or fork put it on a busy CPU while one that it may use was spare;
      `preempted`: it left its CPU while it still wanted it, and one was spare; `not_pulled`: no CPU
      was spare when its wait began, and one that became spare did not take it; `unknown`: the start
      of the wait was not recorded.

    If more threads waited, a last row shows how long all the others `waited` together: its `comm`
    to `cpu` and `cause` are null, and its `idle_cpus` are all CPUs that were spare.

    If all of them were on queues of CPUs that idled, too, each about to run one of its own threads,
    it is not known which threads could have run elsewhere. The episode then has one row, null from
    `comm` to `cause`.

    `where`: whose rows are shown, an expression over the columns of `threads` and `cpu`; it does
    not change the episodes. Raises `UsageError` for a `longer_than` that is negative or not a
    duration, and a `top` or `waiters` below 1.
    """
    threshold = nanoseconds(longer_than)
    if threshold < 0:
        raise UsageError(f"longer_than={longer_than!r}", "a duration of 0 ns or more", "as in 1ms")
    if top is not None:
        count("top", top, "episodes")
    if waiters is not None:
        count("waiters", waiters, "threads")
    with reading_once(trace, weighed=False):
        if (threshold, top) == (nanoseconds(LEAST), None):
            swept = once(_swept, trace)
        else:
            swept = _swept(trace, least=threshold, top=top)
        read, allowed = _read(trace)
        # An episode as long as the trace has a row for each thread on each CPU. All are needed only
        # where some are left out.
        most = waiters if where is None else None
        waiting = read.episodes(_allowed(trace, allowed), swept.stretches, coded_waits(trace), most)
    found, rows, others, spare = map(pl.DataFrame, waiting)
    threads = threads_with(trace, (), where).drop("prio").collect()
    if where is not None:
        rows = rows.join(threads, on="utid", how="left", maintain_order="left")
        rows = rows.filter(where).select("episode", "utid", "class", "cpu", "waited", "cause")
        rows, others = _longest(rows, waiters)
    others = others.with_columns(rank=pl.lit(waiters, pl.Int64))
    rows = pl.concat([_ranked(rows), others], how="diagonal")
    causes = pl.lit(pl.Series(CAUSE.categories, dtype=CAUSE))
    frame = (
        rows.with_columns(causes.gather("cause").alias("cause"))
        .join(_idle_cpus(spare, allowed), on=["episode", "class"], how="left")
        .join(found, on="episode", how="right" if where is None else "inner")
        .join(threads, on="utid", how="left")
        .join(_all_idle(spare), on="episode", how="left")
        .with_columns(
            pl.coalesce(name, f"any_{name}").alias(name) for name in ("idle_cpus", "idle")
        )
    )
    return frame.sort("episode", "rank", maintain_order=True).select(
        "episode", "ts", "dur", "wasted", "idle_cpus", "idle", "comm", "tid", "utid",
        "cpu", "waited", "cause",
    )  # fmt: skip


def _ranked(rows: pl.DataFrame) -> pl.DataFrame:
    """Adds the place of each row in its episode."""
    return rows.with_columns(rank=pl.int_range(pl.len()).over("episode"))


def _longest(rows: pl.DataFrame, most: int | None) -> tuple[pl.DataFrame, pl.DataFrame]:
    """At most so many rows per episode, and the total waiting of the others, if any."""
    if most is None:
        return rows, rows.select("episode", "waited").clear()
    beyond = _ranked(rows)["rank"] >= most
    return rows.filter(~beyond), (
        rows.filter(beyond).group_by("episode").agg(pl.col("waited").sum())
    )


@dataclass(frozen=True)
class _Swept:
    """The result of one sweep: sums over the machine, and a row per CPU, per thread and per stretch
    of continuously wasted CPU time.
    """

    machine: dict[str, int]
    cpus: pl.DataFrame
    threads: pl.DataFrame
    stretches: pl.DataFrame
    """Of them `ts`, `dur` and `wasted`, in order of time."""
    ncpu: int
    quotas_known: bool


def _read(trace: Trace) -> tuple[CpuHistory, Masks]:
    read = occupancy(trace)
    return read, masks(trace, frozenset({*recorded_cpus(trace), *read.cpus}))


def _swept(trace: Trace, *, least: str | int = LEAST, top: int | None = None) -> _Swept:
    """Keeps the stretches of at least `least`, or the `top` that wasted most."""
    read, allowed = _read(trace)
    known = once(throttling, trace).known

    def sweep(reading: int) -> _Swept:
        asked = _allowed(trace, allowed, reading)
        machine, *found = read.idle(asked, nanoseconds(least), top)
        cpus, threads, throttled, stretches = map(pl.DataFrame, found)
        cpus, threads = (
            _with_throttled(rows, throttled, key, known=known)
            for rows, key in ((cpus, "cpu"), (threads, "utid"))
        )
        return _Swept(machine, cpus, threads, stretches, len(allowed.atom), known)

    fewest = sweep(-1)
    return _bounded(fewest, sweep(0) if once(throttling, trace).guessed else fewest)


def _allowed(trace: Trace, allowed: Masks, reading: int = -1) -> dict[str, Any]:
    """Which threads may run where and when, as a native sweep takes it: with the most that quotas
    may have held back, or (0) with the least.
    """
    return {**allowed.to_native(), "quotas": once(throttling, trace).bounds_to_native()[reading]}


def _bounded(fewest: _Swept, most: _Swept) -> _Swept:
    """The sums with upper bounds, of two readings: of the most throttled time and of the least."""
    cpus, threads = (
        _with_high(getattr(fewest, table), getattr(most, table), key)
        for table, key in (("cpus", "cpu"), ("threads", "utid"))
    )
    wasted = max(fewest.machine["wasted"], most.machine["wasted"])
    machine = {**fewest.machine, "wasted_high": wasted}
    return replace(fewest, machine=machine, cpus=cpus, threads=threads)


def _with_high(fewest: pl.DataFrame, most: pl.DataFrame, key: str) -> pl.DataFrame:
    names = [one for one in ("throttled", *_WASTED) if one in fewest.columns]
    both = fewest.join(
        most.select(key, *names), on=key, how="left", nulls_equal=True, maintain_order="left"
    )
    # With fewer threads throttled, more could have run.
    return both.with_columns(
        pl.when(pl.col("throttled").is_not_null())
        .then(pl.col("throttled_right").fill_null(0))
        .alias("throttled"),
        throttled_high="throttled",
        **{
            f"{name}_high": pl.max_horizontal(name, f"{name}_right")
            for name in names
            if name in _WASTED
        },
    )


def _with_throttled(
    rows: pl.DataFrame, throttled: pl.DataFrame, key: str, *, known: bool
) -> pl.DataFrame:
    """With the time in which quotas held threads back, which the sweep leaves out of `waiting`."""
    sums = throttled.group_by(key).agg(pl.col("throttled").sum())
    # Threads that only waited while throttled have no row yet; every CPU has one, and one row has
    # no number.
    both = rows.join(sums, on=key, how="full" if key == "utid" else "left", coalesce=True)
    both = both.with_columns(pl.all().exclude(key).fill_null(0))
    return both.sort(key, nulls_last=True).with_columns(
        waiting=pl.col("waiting") + pl.col("throttled"),
        throttled=pl.when(pl.lit(known)).then("throttled"),
    )


def _machine(trace: Trace, swept: _Swept) -> pl.DataFrame:
    sums = swept.machine
    idle, unknown, spare, waiting = (
        int(swept.cpus[name].sum()) for name in ("idle", "unknown", "spare", "waiting")
    )
    capacity = trace.duration * swept.ncpu
    counts = trace.waits.select(**COUNTS).collect()
    row: dict[str, Any] = {
        "capacity": capacity,
        "idle": idle,
        "unknown": unknown,
        "dispatch": idle - spare,
    }
    for high in ("", "_high"):
        wasted = sums[f"wasted{high}"]
        row |= {
            f"wasted{high}": wasted,
            f"wasted_frac{high}": wasted / (capacity - unknown) if capacity > unknown else None,
            f"wasted_idle_frac{high}": wasted / idle if idle else None,
        }
    throttled = {
        name: swept.cpus[name].sum() if swept.quotas_known else None
        for name in ("throttled", "throttled_high")
    }
    row |= {
        "wasted_any": sums["wasted_any"],
        "longest": sums["longest"],
        "ts_longest": sums.get("ts_longest"),
        "unplaced": sums["unplaced"],
        "waiting": waiting,
        **throttled,
        "pinned": sums["pinned"],
    }
    types = {name: pl.Float64 if "_frac" in name else pl.Int64 for name in row}
    return pl.DataFrame([row], schema=types).with_columns(
        n_pinned=pl.lit(sums["n_pinned"], pl.UInt32),
        **{name: pl.lit(counts[name].item(), pl.UInt32) for name in counts.columns},
    )


def _by_cpu(swept: _Swept) -> pl.DataFrame:
    idle, spare = pl.col("idle"), pl.col("spare")
    of_cpu = pl.col("cpu").is_not_null()
    nowhere = {
        name: pl.when(of_cpu).then(pl.col(name))
        for name in ("idle", "unknown", "spare", "available", "available_high")
    }
    return swept.cpus.select(
        "cpu",
        nowhere["idle"],
        nowhere["unknown"],
        pl.when(of_cpu).then(idle - spare).alias("dispatch"),
        nowhere["spare"],
        nowhere["available"],
        nowhere["available_high"],
        "waiting",
        *("throttled", "throttled_high"),
        *("waited", "waited_high"),
    )


def _by_thread(trace: Trace, swept: _Swept, keys: list[str], where: pl.Expr | None) -> pl.DataFrame:
    known = threads_with(trace, keys, where).with_columns(pl.col("utid").cast(pl.UInt32)).collect()
    threads = swept.threads.join(known, on="utid", how="left", maintain_order="left")
    if where is not None:
        threads = threads.filter(where)
    return (
        threads.group_by(keys, maintain_order=True)
        .agg(
            pl.col("waiting", "avoidable", "avoidable_high").sum(),
            # If no value is known, neither is the sum.
            *(
                pl.when(pl.col(name).count() > 0).then(pl.col(name).sum()).alias(name)
                for name in ("throttled", "throttled_high")
            ),
            n=pl.col("n").sum(),
        )
        .with_columns(
            avoidable_frac=pl.col("avoidable") / pl.col("waiting"),
            avoidable_frac_high=pl.col("avoidable_high") / pl.col("waiting"),
        )
        .select(
            *(*keys, "waiting", "throttled", "throttled_high", "avoidable", "avoidable_high"),
            *("avoidable_frac", "avoidable_frac_high", "n"),
        )
        .sort(["avoidable", "waiting"], descending=True, maintain_order=True)
    )


def _all_idle(spare: pl.DataFrame) -> pl.DataFrame:
    """By episode, all CPUs that were spare, and how long."""
    grouped = spare.group_by("episode").agg("cpu", any_idle=pl.col("idle").sum())
    texts = [cpu_text(numbers) for numbers in grouped["cpu"].to_list()]
    return grouped.select("episode", "any_idle", any_idle_cpus=pl.Series(texts, dtype=pl.String))


def _idle_cpus(spare: pl.DataFrame, allowed: Masks) -> pl.DataFrame:
    """By episode and class of threads, the CPUs that were spare and may be used, and how long."""
    usable = pl.DataFrame(
        [(number, cpu) for number, mask in enumerate(allowed.classes) for cpu in sorted(mask)],
        schema={"class": pl.UInt32, "cpu": pl.UInt16},
        orient="row",
    )
    grouped = (
        spare.join(usable, on="cpu").group_by("episode", "class").agg("cpu", pl.col("idle").sum())
    )
    texts = [cpu_text(numbers) for numbers in grouped["cpu"].to_list()]
    return grouped.select("episode", "class", "idle", idle_cpus=pl.Series(texts, dtype=pl.String))
