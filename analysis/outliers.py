"""Which parts of a trace stand out: where to look first in a long one?

The trace is cut into parts of equal length. Each is compared with all others: its waits,
queues, busy CPUs, context switches, threads blocked, quotas and interrupts. A part stands
out if one of these lies more than three interquartile ranges beyond the nearer quartile
of all parts. Each row ends with the options that select that part in any other command.
With a selection all of this is about the selected threads: when was this service slower
than usual?
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from schedscope.analysis.asking.batches import in_batches
from schedscope.analysis.asking.command import Command
from schedscope.analysis.asking.needs import needs
from schedscope.analysis.causes.throttling import throttling
from schedscope.analysis.cpus.occupancy import coded_states, occupancy
from schedscope.analysis.cpus.topology import recorded_cpus
from schedscope.analysis.sums.grouped import sums_by_code
from schedscope.analysis.sums.quantiles import at_share, shares_of
from schedscope.analysis.threads.of_threads import chosen_threads
from schedscope.analysis.waits.observed import MEASURED
from schedscope.errors import UsageError
from schedscope.parsers.schema import STATE
from schedscope.store.native_tables import coded
from schedscope.units import duration, nanoseconds, percent

if TYPE_CHECKING:
    import numpy.typing as npt

    from schedscope.store.trace import Trace

    Ints = npt.NDArray[np.int64]

FENCE = 3.0
"""Interquartile ranges beyond the nearer quartile from which on a part is an outlier (Tukey's
"far out")."""

LEAST_PARTS = 20
"""Of fewer, quartiles say little."""
MOST_PARTS = 100_000
_PARTS = 120
"""At most so many, if their length is not given."""
# In less than 10 ms, every single event stands out.
_LENGTHS = (
    *(step * 1_000_000 for step in (10, 20, 50, 100, 200, 500)),
    *(step * 1_000_000_000 for step in (1, 2, 5, 10, 30)),
    *(step * 60_000_000_000 for step in (1, 2, 5, 10, 30, 60, 180, 360, 720, 1440)),
)
_WAITS = 100
"""Of fewer waits, a 99th percentile is their maximum."""
_KNOWN = 0.5
"""A part of which less is known is not judged."""


@dataclass(frozen=True)
class Measure:
    """One number of each part, and how it is judged."""

    name: str
    told: str
    """What it is, in a sentence about the part."""
    shown: Callable[[float], str]
    small: float | None
    """Judged are logarithms of what is this much more: what is smaller makes no difference. None:
    shares, which are judged as they are."""
    narrow: float
    """The least interquartile range: of logarithms, or of the share."""


def _threads(number: float) -> str:
    return f"{number:.3g}"


# A factor of 1.2; three of these multiply to 1.7.
_RATIO = float(np.log(1.2))
MEASURES = (
    Measure("wait_p99", "99th percentile of the waits", lambda ns: duration(int(ns)), 1e5, _RATIO),
    Measure("waiting", "threads waiting for a CPU", _threads, 1.0, _RATIO),
    Measure("busy_frac", "busy share of the CPUs", percent, None, 0.05),
    Measure("switches_hz", "context switches a second", lambda n: f"{n:,.0f}", 20.0, _RATIO),
    Measure("blocked", "threads blocked (disks, locks)", _threads, 1.0, _RATIO),
    Measure("throttled_frac", "CPU time closed to groups by quotas", percent, None, 0.05),
    Measure("irq_frac", "CPU time in interrupts", percent, None, 0.02),
)

SCHEMA = {
    "ts": pl.Int64,
    "dur": pl.Int64,
    "outlier": pl.Boolean,
    "deviation": pl.Float64,
    "measure": pl.String,
    "story": pl.String,
    "select": pl.String,
    "n": pl.UInt32,
    "n_censored": pl.UInt32,
    **{
        measure.name: pl.Int64 if measure.name == "wait_p99" else pl.Float64 for measure in MEASURES
    },
    "throttled_frac_high": pl.Float64,
    "unknown": pl.Int64,
}


COMMAND = Command(
    heading="who waited, and why?",
    help="where to look first: parts of a trace that stand out",
    example="""\
  schedscope outliers night.capture
  schedscope outliers night.capture --every 1m
  schedscope outliers night.capture --service nginx.service
  schedscope findings night.capture --since 5040 --until 5100
""",
    page="docs/definitions/outliers.md",
    top="the N parts that stand out most",
    top_default=10,
    selects="what these threads did and waited for",
    no_cpu="a part is not about a single CPU",
    columns="ts dur deviation story select",
    narrow="dur deviation select",
    rest=("more part", ""),
)


@needs("switches")
def outliers(
    trace: Trace, *, every: str | int | None = None, where: pl.Expr | None = None
) -> pl.DataFrame:
    """One row per part of the trace, the one that stands out most first.

    The trace is cut into parts of equal length `every`, as in "1m". By default there are at most
    120 parts of 10 ms to a day. Each measure of a part is compared with the same measure of all
    parts.

    * `ts`, `dur`: start and length of the part (ns);
    * `outlier`: whether a measure lies more than three interquartile ranges beyond the nearer
      quartile of all parts; `deviation`: how many interquartile ranges it is for the measure that
      lies farthest; `measure`: the name of that measure. Null where nothing can be judged;
    * `story`: in words, every measure of the part that is an outlier (else the farthest one), with
      the median and quartiles of all parts; `select`: options that select the part in any command;
    * `n`: waits that began in the part and were seen to their end; `n_censored`: waits that began
      in it and were not;
    * `wait_p99`: 99th percentile of those `n` (nearest rank, ns; null for fewer than 100);
    * `waiting`, `blocked`: threads that waited for a CPU, or slept uninterruptibly, on average;
    * `busy_frac`: share of the known CPU time in which a thread ran; `switches_hz`: context
      switches a second; `throttled_frac`: share of the CPU time in which a quota kept a control
      group off a CPU (null if it is not known when), at least, and `throttled_frac_high` at most;
      `irq_frac`: share of the CPU time in
      interrupts (null if not recorded);
    * `unknown`: CPU time that the trace does not show (ns). A part is not judged if less than half
      of it is known; nor is a last part shorter than half of `every`.

    `where`: expression over the columns of `threads`. All measures are then of these threads alone:
    their waits, runs and sleeps, the switches to them, and the CPU time that quotas closed to their
    groups; `irq_frac` is null.

    With fewer than 20 parts that can be judged, none is judged. Raises `UsageError` for an `every`
    that is not a duration above 0 ns or gives more than 100,000 parts. Definition:
    docs/definitions/outliers.md.
    """
    step = _default(trace.duration) if every is None else nanoseconds(every)
    if step <= 0:
        raise UsageError(f"every={every!r}", "a duration longer than 0 ns", "as in 1s")
    if trace.duration // step > MOST_PARTS:
        raise UsageError(
            f"every={every!r} gives {trace.duration // step:,} parts", f"at most {MOST_PARTS:,}"
        )
    if not trace.duration:
        return pl.DataFrame(schema=SCHEMA)
    mine = None if where is None else chosen_threads(trace, where)
    parts = _measured(trace, step, mine)
    judged = _judged(parts, step, len(recorded_cpus(trace)))
    rows = [
        {
            **row,
            **_verdict(row, judged),
            "select": selecting(trace, row["ts"], row["ts"] + row["dur"]),
        }
        for row in parts.iter_rows(named=True)
    ]
    frame = pl.DataFrame(rows, schema=SCHEMA)
    return frame.sort("deviation", "ts", descending=[True, False], nulls_last=True)


def _default(length: int) -> int:
    """The shortest of `_LENGTHS` that makes at most `_PARTS` parts; of years, the longest."""
    return next((step for step in _LENGTHS if length <= _PARTS * step), _LENGTHS[-1])


def _measured(trace: Trace, step: int, mine: pl.Series | None) -> pl.DataFrame:
    """A row per part with every measure, of the threads `mine` (all: None)."""
    from schedscope import _native

    window = trace.window
    if mine is not None and mine.is_empty():
        raise UsageError("no thread is selected", "a thread of this trace")
    cpus = recorded_cpus(trace)
    depth = pl.DataFrame(occupancy(trace).parts(cpus, False, step))
    known = pl.col("dur") - pl.col("unknown")
    on_cpu = pl.col("cpu").is_not_null()
    parts = (
        depth.group_by("ts")
        .agg(
            pl.col("dur").max(),
            ran=pl.col("running").filter(on_cpu).sum(),
            known=known.filter(on_cpu).sum(),
            held=(pl.col("waiting") + pl.col("waiting_unknown")).sum(),
        )
        .sort("ts")
    )
    irqs = mine is None and bool(trace.irqs.select(pl.len()).collect().item())
    in_irqs = _native.time_in_parts(coded(trace, "irqs", "ts", "dur"), window, step)
    held = throttling(trace)
    stretches = [held.certain, held.possible]
    if mine is None:
        blocked = _native.time_in_parts(
            coded_states(trace),
            window,
            step,
            (STATE.categories.to_list().index("blocked"), trace.ncpu),
        )
        switches = _native.rows_in_parts(coded(trace, "switches", "ts"), window, step)
    else:
        times = _times(trace, step, parts.height, mine)
        parts = parts.with_columns(
            ran=pl.Series(times["running"]), held=pl.Series(times["runnable"])
        )
        blocked = times["blocked"].tolist()
        switches = _switches(trace, step, parts.height, mine).tolist()
        groups = {held.group[utid] for utid in mine}
        stretches = [one.filter(pl.col("group").is_in(list(groups - {None}))) for one in stretches]
    closed, closed_high = (
        _native.time_in_parts(one.select("ts", "dur"), window, step) for one in stretches
    )
    cpu_time = pl.col("dur") * max(len(cpus), 1)
    return parts.with_columns(
        *_waits(trace, step, parts.height, mine),
        switches=pl.Series(switches),
        blocked=pl.Series(blocked, dtype=pl.Int64),
        closed=pl.Series(closed, dtype=pl.Int64),
        closed_high=pl.Series(closed_high, dtype=pl.Int64),
        irqs=pl.Series(in_irqs, dtype=pl.Int64),
    ).select(
        "ts",
        "dur",
        *("n", "n_censored", "wait_p99"),
        waiting=pl.col("held") / pl.col("dur"),
        busy_frac=pl.when(pl.col("known") > 0).then(pl.col("ran") / pl.col("known")),
        switches_hz=pl.col("switches") * 1e9 / pl.col("dur"),
        blocked=pl.col("blocked") / pl.col("dur"),
        throttled_frac=pl.when(held.known).then(pl.col("closed") / cpu_time),
        throttled_frac_high=pl.when(held.known).then(pl.col("closed_high") / cpu_time),
        irq_frac=pl.when(irqs).then(pl.col("irqs") / cpu_time),
        unknown=pl.col("dur") * len(cpus) - pl.col("known"),
    )


def _times(trace: Trace, step: int, parts: int, mine: pl.Series) -> dict[str, Ints]:
    """By state, the time that these threads were in it in each part."""
    from schedscope import _native

    sums = {name: np.zeros(parts, dtype=np.int64) for name in ("running", "runnable", "blocked")}
    for rows in in_batches(trace.states):
        own = rows.filter(pl.col("utid").is_in(mine.implode())).select(
            "ts", "dur", state=pl.col("state").cast(pl.String)
        )
        for (state,), some in own.collect().group_by("state"):
            if (total := sums.get(str(state))) is not None:
                total += np.asarray(
                    _native.time_in_parts(some.select("ts", "dur"), trace.window, step)
                )
    return sums


def _switches(trace: Trace, step: int, parts: int, mine: pl.Series) -> Ints:
    """How often these threads came onto a CPU in each part."""
    begin, end = trace.window
    found = np.zeros(parts, dtype=np.int64)
    for rows in in_batches(trace.switches):
        own = rows.filter(
            pl.col("next_utid").is_in(mine.implode()),
            pl.col("ts").is_between(begin, end, closed="left"),
        )
        at = own.select((pl.col("ts") - begin) // step).collect().to_series()
        found += np.bincount(at, minlength=parts)
    return found


def _waits(trace: Trace, step: int, parts: int, mine: pl.Series | None) -> list[pl.Series]:
    """Statistics of waits by the part in which they began: how many, and the 99th percentile."""
    begin, end = trace.window

    def begun() -> Iterator[pl.DataFrame]:
        for rows in in_batches(trace.waits):
            inside = rows.filter(pl.col("ts_ready").is_between(begin, end, closed="left"))
            if mine is not None:
                inside = inside.filter(pl.col("utid").is_in(mine.implode()))
            yield inside.select(
                group=(pl.col("ts_ready") - begin) // step,
                time=pl.when(MEASURED).then("wait"),
                n_censored=~MEASURED,
            ).collect()

    found = sums_by_code(begun, shares_of([0.99]), ["n_censored"])
    every = pl.DataFrame({"group": range(parts)}, schema={"group": pl.Int64})
    found = every.join(found, on="group", how="left", maintain_order="left")
    n = found["n"].fill_null(0)
    return [
        n,
        found["n_censored"].fill_null(0),
        found["p99"].alias("wait_p99").set(n < _WAITS, None),
    ]


@dataclass(frozen=True)
class _Usual:
    """One measure of all parts."""

    measure: Measure
    quartiles: tuple[float, float, float]
    """As judged."""
    plain: tuple[float, float, float]
    enough: dict[int, float]
    """What is judged, by the start of the part."""

    def beyond(self, ts: int) -> float | None:
        """Interquartile ranges beyond the nearer quartile; negative between them."""
        if ts not in self.enough:
            return None
        low, _, high = self.quartiles
        value = self.enough[ts]
        return max(value - high, low - value) / max(high - low, self.measure.narrow)


def _judged(parts: pl.DataFrame, step: int, ncpu: int) -> list[_Usual]:
    """The usual values of each measure that enough parts have."""
    whole = (pl.col("dur") >= step / 2) & (
        pl.col("unknown") <= (1 - _KNOWN) * pl.col("dur") * max(ncpu, 1)
    )
    found = []
    for measure in MEASURES:
        rows = parts.filter(whole & pl.col(measure.name).is_not_null())
        if rows.height < LEAST_PARTS:
            continue
        plain = rows[measure.name].cast(pl.Float64).to_numpy()
        value = plain if measure.small is None else np.log(plain + measure.small)
        found.append(
            _Usual(
                measure,
                _quartiles(value),
                _quartiles(plain),
                dict(zip(rows["ts"].to_list(), value.tolist(), strict=True)),
            )
        )
    return found


def _quartiles(values: npt.NDArray[np.float64]) -> tuple[float, float, float]:
    # Values that occurred, so that the sentence is true of a part.
    ordered = np.sort(values)
    low, middle, high = (float(at_share(ordered, share)) for share in (0.25, 0.5, 0.75))
    return low, middle, high


def _verdict(row: dict[str, Any], judged: list[_Usual]) -> dict[str, Any]:
    beyond = [(usual.beyond(row["ts"]), usual) for usual in judged]
    known = [(deviation, usual) for deviation, usual in beyond if deviation is not None]
    if not known:
        return {"outlier": None, "deviation": None, "measure": None, "story": None}
    known.sort(key=lambda pair: -pair[0])
    out = [pair for pair in known if pair[0] > FENCE]
    sentences = []
    for _, usual in out or known[:1]:
        measure, (low, middle, high) = usual.measure, usual.plain
        sentences.append(
            f"{measure.told} {measure.shown(row[measure.name])} ({measure.shown(middle)} in the"
            f" median part, {measure.shown(low)} to {measure.shown(high)} in half of them)"
        )
    deviation, first = known[0]
    return {
        "outlier": bool(out),
        "deviation": deviation,
        "measure": first.measure.name,
        "story": "; ".join(sentences),
    }


def selecting(trace: Trace, since: int, until: int) -> str:
    """Options of every command that select this part of the trace.

    >>> from schedscope import Trace
    >>> trace = Trace.from_tables({}, {"ncpu": 1, "window": [1_000_000_000, 9_000_000_000]})
    >>> selecting(trace, 1_000_000_000, 3_500_000_000)
    '--since 0 --until 2.5'
    """
    return f"--since {_seconds(since - trace.origin)} --until {_seconds(until - trace.origin)}"


def _seconds(ns: int) -> str:
    # Every digit: a part begins where the one before it ends.
    text = f"{ns // 10**9}.{ns % 10**9:09}".rstrip("0").rstrip(".")
    return text or "0"
