"""How far behind or ahead would EEVDF or CFS see each thread?

The recorded runs, waits and sleeps of each thread, under whatever scheduler they were
recorded, are used to compute the virtual times of EEVDF or CFS. From these follows each
thread's lag: the CPU time due to it minus the time received. A thread that existed when
the recording started is followed from an empty history; the column `settled` shows from
when that no longer matters.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import polars as pl

from schedscope import units
from schedscope.analysis.asking.command import Command
from schedscope.analysis.asking.needs import needs
from schedscope.analysis.asking.policies import rule, rules
from schedscope.analysis.cpus.occupancy import coded_states
from schedscope.analysis.interactivity import setting_text
from schedscope.analysis.recording.unknown_time import with_unknown_time
from schedscope.analysis.threads.levels import BASIS, Levels
from schedscope.analysis.threads.of_threads import threads_with

if TYPE_CHECKING:
    from schedscope.store.trace import Trace

TURN = pl.Enum(["joined", "began", "stopped", "left", "moved", "end"])
"""What happened to a thread when its lag is recorded; see `virtual_lag_series`."""

# Threads outside the class that shares by weight.
_FIXED = ("stop", "deadline", "realtime", "idle", "interrupt")


COMMAND = Command(
    heading="how well was the machine used?",
    help="how far behind each thread is by the rules of EEVDF or CFS",
    example="""\
  schedscope virtual-lag web.capture --comm 'nginx*'
  schedscope virtual-lag web.capture --model cfs --sort picks
  schedscope virtual-lag web.capture --tid 712 --series --format csv
""",
    page="docs/definitions/virtual-lag.md",
)


@needs("switches", "competitors")
def virtual_lag(
    trace: Trace,
    scheduler: str = "eevdf",
    *,
    set: Mapping[str, Any] | None = None,
    where: pl.Expr | None = None,
    tick_phase: int = 0,
) -> pl.DataFrame:
    """One row per thread: its lag by the rules of `scheduler`.

    The trace may be of any scheduler. It shows which threads were on which CPU's queue and which
    ran. From that and the weights follow the virtual times `v` that EEVDF or CFS would have kept,
    and each thread's lag as CPU time: `weight * (V - v)`, where `V` is the average over its queue.
    Above zero the thread is behind, and EEVDF calls it eligible. The lags of a queue sum to zero.
    Unlike `lag`, this is computed for each queue, and forgets as the kernel does.

    * `scheduler`; `utid`, `comm`, `pid`, `tid`;
    * `weight`: as last known (1024 is nice 0), null for threads that never competed in
      the fair class; `basis`: where it is from, see `weights`;
    * `lag`, `ts_lag`: the last lag known, at the end or when the thread last left a queue, and when
      that was (ns); `lag_max`, `ts_lag_max`, `lag_min`, `ts_lag_min`: the same for the largest and
      the smallest lag;
    * `picks`: how often it began to run; `picks_eligible`: how often with a lag not below zero;
    * `competed`: time on a queue, running or not (ns); `unplaced`: time runnable on no known queue
      (ns);
    * `ts_settled`: from when its lag no longer depends on anything before the trace. Null if never:
      then the lag that it had at the start, which is taken to be 0, may still be included;
    * `n`: times that it joined a queue; `n_censored`: those for which the lag was then not known or
      the end was not seen; `n_excluded`: waits on no known queue, and gaps;
    * `unknown`: time for which the trace does not show what it did (ns); a thread that shared a
      queue with it then may be less far behind than stated here.

    The lag is computed whenever the thread joins a queue, starts or stops running, moves or leaves.
    Before another thread that comes or goes shifts the average, it is also compared with `lag_max`
    if the thread waits, and with `lag_min` if it runs.

    `where` selects threads by the columns of `threads`; their competitors stay the same. `set`
    gives values to the policy's tunables as in `simulate`; `tick_phase` is an instant at which the
    kernel's clock ticked. `weight_notes` says where the weights come from.

    Definition: docs/definitions/virtual-lag.md. Raises `UsageError` for another scheduler
    or a tunable it does not have, `FormatError` for states that contradict themselves.

    >>> from schedscope import Trace
    >>> states = pl.DataFrame({
    ...     "ts": [0, 0, 6, 6], "dur": [6, 6, 4, 4], "utid": [1, 2, 2, 1], "cpu": [0] * 4,
    ...     "state": ["running", "runnable", "running", "runnable"], "prio": [120] * 4,
    ...     "end": ["preempted", "switched", "window", "window"],
    ... })
    >>> threads = pl.DataFrame({"utid": [0, 1, 2], "comm": ["", "a", "b"], "pid": [0, 7, 8],
    ...     "tid": [0, 7, 8], "prio": [None, 120, 120], "sched_class": ["idle", "fair", "fair"],
    ...     "start_ts": [None] * 3, "parent_utid": [None] * 3})
    >>> trace = Trace.from_tables({"states": states, "threads": threads},
    ...     {"ncpu": 1, "window": [0, 10], "os": "Linux"})
    >>> virtual_lag(trace).select("comm", "weight", "lag", "lag_max", "ts_lag_max", "picks")
    shape: (2, 6)
    ┌──────┬────────┬─────┬─────────┬────────────┬───────┐
    │ comm ┆ weight ┆ lag ┆ lag_max ┆ ts_lag_max ┆ picks │
    │ ---  ┆ ---    ┆ --- ┆ ---     ┆ ---        ┆ ---   │
    │ str  ┆ i64    ┆ i64 ┆ i64     ┆ i64        ┆ u32   │
    ╞══════╪════════╪═════╪═════════╪════════════╪═══════╡
    │ a    ┆ 1024   ┆ -1  ┆ 0       ┆ 0          ┆ 1     │
    │ b    ┆ 1024   ┆ 1   ┆ 3       ┆ 6          ┆ 1     │
    └──────┴────────┴─────┴─────────┴────────────┴───────┘
    """
    rows, _, basis = _replayed(trace, scheduler, set, where, tick_phase, series=False)
    return (
        with_unknown_time(trace, _named(trace, rows, "comm", "pid", "tid"))
        .with_columns(scheduler=pl.lit(scheduler))
        .join(basis, on="utid", how="left")
        .select(
            "scheduler",
            "utid",
            "comm",
            "pid",
            "tid",
            "weight",
            "basis",
            *rows.columns[2:],
            "unknown",
        )
        .sort("utid")
    )


@needs("switches", "competitors")
def virtual_lag_series(
    trace: Trace,
    scheduler: str = "eevdf",
    *,
    set: Mapping[str, Any] | None = None,
    where: pl.Expr | None = None,
    tick_phase: int = 0,
) -> pl.DataFrame:
    """One row per turn of a thread: its lag when it joined, ran, stopped, moved or left.

    * `ts`, `utid`, `comm`, `tid`, `cpu`: when, which thread, which queue;
    * `turn`: "joined" a queue, "began" to run, "stopped" running but stays, "left" (with the lag
      just before), "moved" to this queue, or the "end" of the window;
    * `weight`; `lag`: CPU time due minus received, `vlag`: the same in virtual time (ns);
    * `eligible`: whether EEVDF would let it run; `settled`: whether the lag depends on nothing
      before the trace.

    In order of `utid` and `ts`. For the arguments and errors see `virtual_lag`.
    """
    _, points, _ = _replayed(trace, scheduler, set, where, tick_phase, series=True)
    turns = pl.Series(TURN.categories, dtype=TURN)
    return (
        _named(trace, points, "comm", "tid")
        .with_columns(turn=pl.lit(turns).gather(pl.col("turn")))
        .sort("utid", "ts", maintain_order=True)
        .select("ts", "utid", "comm", "tid", *points.columns[2:])
    )


def virtual_lag_sentences(frame: pl.DataFrame, *, origin: int = 0) -> list[str]:
    """One sentence for each row of `virtual_lag`, its times in s after `origin`.

    >>> frame = pl.DataFrame({
    ...     "scheduler": "eevdf", "comm": "cc1", "tid": 812, "weight": 1024, "lag": -1_500_000,
    ...     "lag_max": 2_100_000, "ts_lag_max": 3_200_000_000, "picks": 40, "picks_eligible": 39,
    ... })
    >>> print(*virtual_lag_sentences(frame))
    for EEVDF, cc1 812 is 2.10 ms behind at most, at 3.200000 s; 1 of its 40 runs began when it \
was not eligible; at the end it is 1.50 ms ahead
    """
    return [_sentence(row, origin) for row in frame.iter_rows(named=True)]


def _sentence(row: Mapping[str, Any], origin: int) -> str:
    who = " ".join(str(part) for part in (row["comm"] or "a thread", row["tid"]) if part)
    name = str(row["scheduler"]).upper()
    if row["weight"] is None or row["lag_max"] is None:
        return f"{name} has no lag for {who}: it never competed in the fair class"
    if row["lag_max"] > 0:
        at = units.instant(row["ts_lag_max"], origin)
        parts = [f"for {name}, {who} is {units.duration(row['lag_max'])} behind at most, at {at}"]
    else:
        parts = [f"for {name}, {who} is never behind"]
    early = row["picks"] - row["picks_eligible"]
    # CFS has no such rule: it picks the thread with the least virtual time, or a buddy.
    known = rules("keeps_virtual_time").get(str(row["scheduler"]))
    if early and known is not None and known["has_eligibility"]:
        parts.append(
            f"{units.count(early)} of its {units.several(row['picks'], 'run')} began when it was"
            " not eligible"
        )
    if row["lag"]:
        side = "behind" if row["lag"] > 0 else "ahead"
        parts.append(f"at the end it is {units.duration(abs(row['lag']))} {side}")
    return "; ".join(parts)


def _replayed(
    trace: Trace,
    scheduler: str,
    given: Mapping[str, Any] | None,
    where: pl.Expr | None,
    tick_phase: int,
    *,
    series: bool,
) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    from schedscope import _native

    policy = rule(scheduler, "keeps_virtual_time", "one that keeps virtual times")
    settings = [(name, setting_text(value)) for name, value in (given or {}).items()]
    wanted = pl.lit(True) if where is None else where.fill_null(False)
    threads = (
        threads_with(trace, (), where)
        .filter(pl.col("utid") >= trace.ncpu)
        .select(
            pl.col("utid").cast(pl.UInt32),
            pl.col("start_ts").cast(pl.Int64),
            pl.col("parent_utid").cast(pl.UInt32),
            wanted=wanted.cast(pl.UInt8),
        )
    )
    frames = {
        "states": coded_states(trace, prio=True, end=True),
        "threads": threads.collect(),
    }
    levels = Levels(trace)
    fair = [name not in _FIXED for name in levels.classes]
    rows, points, equal = _native.virtual_lag(
        policy["name"],
        settings,
        frames,
        (levels.to_native(), fair),
        trace.window,
        trace.ncpu,
        tick_phase,
        series,
    )
    return pl.DataFrame(rows), pl.DataFrame(points), _basis(equal)


def _basis(equal: list[tuple[int, bool]]) -> pl.DataFrame:
    """One row per thread: were its weights ever only an assumption?"""
    known = pl.DataFrame(equal, schema={"utid": pl.UInt32, "equal": pl.Boolean}, orient="row")
    name = pl.when("equal").then(pl.lit("equal")).otherwise(pl.lit("kernel table"))
    return known.select("utid", basis=name.cast(BASIS))


def _named(trace: Trace, frame: pl.DataFrame, *names: str) -> pl.DataFrame:
    threads = trace.threads.select(pl.col("utid").cast(pl.UInt32), *names).collect()
    return frame.join(threads, on="utid", how="left", maintain_order="left")
