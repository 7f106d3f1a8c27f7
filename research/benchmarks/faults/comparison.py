"""Compare the waits and states of a trace with the truth."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from faults.mutations import Mutant
from faults.truth import STATES, Truth, stretches
from schedscope.analysis.recording.clock_doubt import clock_doubt

if TYPE_CHECKING:
    import schedscope as ss

TOLERANCE = 1_000
"""A wait is right if its end and its length are within 1 us of the truth."""

_UNKNOWN = STATES.index("unknown")


@dataclass
class Verdict:
    """What is right, wrong and missing for one damaged input."""

    true_waits: int = 0
    true_wait_time: int = 0
    measured_waits: int = 0
    right_wait_time: int = 0
    wrong_waits: list[dict[str, Any]] = field(default_factory=list)
    doubted_waits: int = 0
    """Waits that are off by no more than `check` says that clocks may differ unnoticed."""
    wrong_bounds: list[dict[str, Any]] = field(default_factory=list)
    true_state_time: int = 0
    right_state_time: int = 0
    wrong_state_time: int = 0
    # Longest first: (ns, tid, from, to, said, true).
    wrong_states: list[tuple[int, int, int, int, str, str]] = field(default_factory=list)


def judge(trace: ss.Trace, truth: Truth, mutant: Mutant, doubt: Doubt) -> Verdict:
    """Every measured wait, and every known state at every instant."""
    verdict = Verdict()
    clocks = _clocks(trace, truth) if mutant.clock_off is not None else None
    _waits(verdict, trace, truth, clocks, doubt)
    _bounds(verdict, trace, truth, mutant.clock_off is not None, doubt)
    if mutant.states_judged:
        _states(verdict, trace, truth, clocks)
    return verdict


@dataclass(frozen=True)
class Doubt:
    """How far clocks may differ according to `check`.

    Up to `ns` (None: nothing shows whether they agree), and without limit from `since`, if none
    was off by more already: a difference that begins later lasts too short a time to show.
    """

    ns: int | None = 0
    since: int | None = None

    def covers(self) -> pl.Expr:
        """Whether such clocks explain a wait that is off: `wait`, `true`, `ts_run`."""
        known = pl.col("true").is_not_null()
        if self.ns is None:
            return known
        little = (pl.col("wait") - pl.col("true")).abs() <= self.ns + TOLERANCE
        late = pl.col("said_run") > self.since if self.since is not None else pl.lit(value=False)
        return known & (little | late)


def doubt(trace: ss.Trace, mutant: Mutant) -> Doubt:
    """What the row `rests on` of `check` reports about the clocks of this trace."""
    if mutant.clock_off is None or trace.ncpu < 2 or trace.info.get("clock_offsets"):
        return Doubt()
    found = clock_doubt(trace)
    if not found.pairs:
        return Doubt(ns=None)
    since = trace.window[1] - found.longest
    shown = abs(mutant.clock_off(since)) > found.furthest
    return Doubt(found.furthest, None if shown else since)


Clocks = dict[int, tuple[np.ndarray, np.ndarray]]


def _clocks(trace: ss.Trace, truth: Truth) -> Clocks:
    """Per CPU: the stamps of its switches in the trace and in truth; none of them was dropped.

    Whatever was done to the stamps since, also by a reader that mends them, the n-th switch of
    a CPU is the n-th switch.
    """
    said = trace.switches.select("cpu", "ts").collect()
    found = {}
    for (cpu,), part in truth.switches.group_by("cpu"):
        ours = said.filter(pl.col("cpu") == cpu)["ts"].sort().to_numpy()
        theirs = part["ts"].sort().to_numpy()
        n = min(len(ours), len(theirs))
        found[int(str(cpu))] = (ours[:n], theirs[:n])
    return found


def _true_time(clocks: Clocks, cpu: np.ndarray, ts: np.ndarray) -> np.ndarray:
    """Stamps of the trace on the true clock: linear between a CPU's switches."""
    out = ts.copy()
    for number, (said, true) in clocks.items():
        here = cpu == number
        if len(said):
            out[here] += np.rint(np.interp(ts[here], said, true - said)).astype(np.int64)
    return out


def measured(trace: ss.Trace) -> pl.DataFrame:
    """The waits that the ledger gives as measured: tid, times, CPUs."""
    tids = trace.threads.select("utid", pl.col("tid").cast(pl.Int64))
    waits = trace.waits.filter(pl.col("censored") == "none", pl.col("wait").is_not_null())
    return (
        waits.join(tids, on="utid")
        .select(
            "tid",
            "ts_ready",
            "ts_enqueued",
            "ts_run",
            "wait",
            "cause",
            pl.col("cpu", "queue_cpu", "waker_cpu").cast(pl.Int64),
        )
        .collect()
    )


def _waits(
    verdict: Verdict, trace: ss.Trace, truth: Truth, clocks: Clocks | None, doubt: Doubt
) -> None:
    true = truth.waits
    said = measured(trace).filter(~pl.col("tid").is_in(truth.doubtful))
    said = said.with_columns(said_run="ts_run")
    if clocks is not None:
        cpu = said["cpu"].to_numpy()
        run = _true_time(clocks, cpu, said["ts_run"].to_numpy())
        # A wait timed by a single clock has the length on that clock.
        ready = _true_time(clocks, cpu, said["ts_ready"].to_numpy())
        one = pl.coalesce("waker_cpu", "queue_cpu") == pl.col("cpu")
        own = pl.when(one).then(pl.Series(run - ready)).otherwise("wait")
        said = said.with_columns(ts_run=pl.Series(run), own=own)
    else:
        said = said.with_columns(own="wait")
    # A stamp may be off by the tolerance, as a length may.
    both = said.sort("ts_run").join_asof(
        true.select("tid", "ts_run", true="wait", true_ready="ts_ready").sort("ts_run"),
        on="ts_run",
        by="tid",
        strategy="nearest",
        tolerance=TOLERANCE,
        check_sortedness=False,
    )
    error = pl.min_horizontal((pl.col(said) - pl.col("true")).abs() for said in ("wait", "own"))
    off = pl.col("true").is_null() | (error > TOLERANCE)
    wrong = both.filter(off, ~doubt.covers()).sort("wait", descending=True)
    verdict.true_waits = true.height
    verdict.true_wait_time = int(true["wait"].sum())
    verdict.measured_waits = said.height
    verdict.right_wait_time = int(both.filter(~off)["true"].sum())
    verdict.wrong_waits = wrong.to_dicts()
    verdict.doubted_waits = both.filter(off).height - wrong.height


def _bounds(
    verdict: Verdict, trace: ss.Trace, truth: Truth, clocks_moved: bool, doubt: Doubt
) -> None:
    """Waits of which only a lower bound is given, and which were shorter than that."""
    tids = trace.threads.select("utid", pl.col("tid").cast(pl.Int64))
    # The truth is known until the last event; a window may end later.
    until = pl.lit(truth.window[1]) - pl.col("ts_ready")
    said = (
        trace.waits.filter(pl.col("censored") == "right", pl.col("wait") > TOLERANCE)
        .join(tids, on="utid")
        .select("tid", "ts_ready", bound=pl.min_horizontal("wait", until))
        .collect()
        .filter(~pl.col("tid").is_in(truth.doubtful))
    )
    # A state for each queue that a waiting thread was on; together they are its wait.
    begins = pl.col("ts") != pl.col("end").shift(1).over("tid")
    true = (
        truth.states.filter(pl.col("state") == "runnable")
        .sort("tid", "ts")
        .with_columns(number=begins.fill_null(value=True).cum_sum())
        .group_by("tid", "number")
        .agg(pl.col("ts").min(), pl.col("end").max())
    )
    both = said.with_row_index().join(true, on="tid", how="left")
    begun = (pl.col("ts") <= pl.col("ts_ready") + TOLERANCE) & (pl.col("end") > pl.col("ts_ready"))
    most = pl.col("end") - pl.col("ts_ready")
    if clocks_moved:
        # It cannot be matched with a true wait: it may not exceed the longest of them.
        begun, most = pl.lit(value=True), pl.col("end") - pl.col("ts")
        if doubt.ns is None:
            return
    longest = both.group_by("index").agg(
        pl.col("tid", "ts_ready", "bound").first(),
        true=pl.when(begun).then(most).max().fill_null(0),
    )
    slack = TOLERANCE + (doubt.ns or 0 if clocks_moved else 0)
    wrong = longest.filter(pl.col("bound") > pl.col("true") + slack)
    verdict.wrong_bounds = wrong.drop("index").sort("bound", descending=True).to_dicts()


def _states(verdict: Verdict, trace: ss.Trace, truth: Truth, clocks: Clocks | None) -> None:
    tids = trace.threads.filter(pl.col("utid") >= trace.ncpu).select(
        "utid", pl.col("tid").cast(pl.Int64)
    )
    said = (
        trace.states.join(tids, on="utid")
        .filter(pl.col("state") != "unknown")
        .select(
            "tid",
            "ts",
            pl.col("state").cast(pl.String).cast(pl.Enum(STATES)),
            pl.col("cpu").cast(pl.Int64),
            end=pl.col("ts") + pl.col("dur"),
        )
        .collect()
    )
    said = said.filter(~pl.col("tid").is_in(truth.doubtful))
    true = truth.states
    if clocks is not None:
        # Other states begin and end on different CPUs' clocks: only runs can be placed.
        said = said.filter(pl.col("state") == "running")
        true = true.filter(pl.col("state") == "running")
        cpu = said["cpu"].to_numpy()
        said = said.with_columns(
            ts=pl.Series(_true_time(clocks, cpu, said["ts"].to_numpy())),
            end=pl.Series(_true_time(clocks, cpu, said["end"].to_numpy())),
        )
    verdict.true_state_time = int((true["end"] - true["ts"]).sum())
    theirs = stretches(true)
    for tid, ours in stretches(said).items():
        if tid in theirs:
            _one_thread(verdict, tid, ours, theirs[tid])
    verdict.wrong_states.sort(reverse=True)
    del verdict.wrong_states[20:]


Stretches = tuple[np.ndarray, np.ndarray, np.ndarray]


def _one_thread(verdict: Verdict, tid: int, ours: Stretches, theirs: Stretches) -> None:
    edges = np.unique(np.concatenate([ours[0], ours[1], theirs[0], theirs[1]]))
    begin, spans = edges[:-1], np.diff(edges)
    said, true = (_at(begin, *one) for one in (ours, theirs))
    # Before a thread's first event and after its last the truth is unknown, too.
    known = (said != _UNKNOWN) & (true != _UNKNOWN)
    right = known & (said == true)
    wrong = known & (said != true)
    verdict.right_state_time += int(spans[right].sum())
    # Stamps may be rounded by the tolerance of waits; sums of rounding are not findings.
    wrong &= spans > TOLERANCE
    verdict.wrong_state_time += int(spans[wrong].sum())
    for at in np.flatnonzero(wrong):
        verdict.wrong_states.append(
            (
                int(spans[at]),
                tid,
                int(begin[at]),
                int(begin[at] + spans[at]),
                STATES[said[at]],
                STATES[true[at]],
            )
        )


def _at(instants: np.ndarray, begin: np.ndarray, end: np.ndarray, code: np.ndarray) -> np.ndarray:
    at = np.searchsorted(begin, instants, side="right") - 1
    inside = (at >= 0) & (instants < end[np.clip(at, 0, len(end) - 1)])
    return np.where(inside, code[np.clip(at, 0, len(code) - 1)], _UNKNOWN)
