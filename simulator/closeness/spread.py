"""How far recordings of one workload lie apart, estimated from a single one.

Three things differ from one recording to the next, and one recording shows something of each:

* *Chance.* A recording is divided into parts of equal length. How much a figure differs from one
  part to the next shows how much of it is chance: a sum over all parts differs by so much between
  recordings even if nothing else does. Slow changes, such as the phases of a build, are in every
  recording and count little, because each part is compared with the next only. For the 99th
  percentile, parts are drawn with replacement.
* *A few waits* that make up most of the waiting: another recording has others, or none (`FEW`).
* *What others do.* Programs outside of the workload took a share u of the CPU time. In another
  recording they take more or less, by a factor of up to `OTHERS`. A thread that gets 1 - u of the
  CPU waits in proportion to (u + `OWN`) / (1 - u), and what it does in a second is in proportion to
  1 - u: `from_others`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from schedscope.errors import UsageError
from schedscope.processes import of_processes
from schedscope.store.trace import Trace

if TYPE_CHECKING:
    from schedscope.simulator.runs.replay import Replay

PARTS = 16
"""Into which a recording is divided."""

FEW = {"cpu_time": 0.15, "waiting": 0.6, "wait_p99": 0.6}
"""The standard deviation of logarithms where one wait is all of the waiting. This and all below was
set on half of the kinds of change of `research/benchmarks/campaign/kinds.py`, and proved on the
others (research/notes/kinds.md)."""

OTHERS, MOST = 10.0, 0.85
"""Others take at most so many times the CPU time in another recording, and no larger share; at
least that part of it."""

ALIKE = 0.1
"""Others take as much in another recording if their share is at most so far from the one here."""

OWN = 0.2
"""What the workload's own threads count for in how long each of them waits."""

SHIFTS = {"cpu_time": 0.2, "waiting": 1.0, "wait_p50": 0.6, "wait_p99": 0.8}
"""How much a figure follows from what others do."""

BESIDE = {
    **{"cpu_time": 0.15, "waiting": 0.2, "wait_p50": 0.45, "wait_p99": 0.1},
    "throughput": 0.4,
}
"""What is left where others take `BUSY` of the CPU time or more: which of them, and when."""

BUSY = 0.1

_AS = {"throughput": "cpu_time"}
"""A figure that differs by chance as another one does."""

UNKNOWN = math.log(2)
"""Of a 99th percentile if all waits are in one part."""

DRAWS = 100
"""How often parts are drawn for the 99th percentile."""


def spreads(way: Replay, named: pl.DataFrame) -> dict[str, dict[str, float]]:
    """For each service, how far its figures in one recording lie from those in the next.

    `outside` is the share of others. Empty for a simulated trace, which would be the same again.
    """
    if way.trace.metadata("source", "format") == "simulation":
        return {}
    outside = outside_share(way.trace, way.selected)
    beside = min(1.0, outside / BUSY)
    return {
        service: {
            # Chance affects both recordings.
            **{
                key: math.hypot(math.sqrt(2) * own.get(_AS.get(key, key), 0.0), most * beside)
                for key, most in BESIDE.items()
            },
            "outside": outside,
        }
        for service, own in own_spreads(way.trace, named).items()
    }


def from_others(key: str, outside: float, near: float | None = None) -> tuple[float, float]:
    """By how much a figure may be lower and higher, as logarithms, if others do not take the same
    share of the CPU time again, or one that is so `near`.

    >>> [round(math.exp(x), 2) for x in from_others("waiting", 0.5)]
    [5.32, 5.0]
    >>> [round(math.exp(x), 2) for x in from_others("waiting", 0.5, near=0.1)]
    [1.4, 1.43]
    >>> from_others("waiting", 0.0)
    (0.0, 0.0)
    """
    # The little time of kernel threads and a recorder on a quiet host is the same again.
    times = 1 + (OTHERS - 1) * min(1.0, outside / BUSY)
    least, most = outside / times, max(outside, min(MOST, times * outside))
    if near is not None:
        least, most = max(least, outside - near), min(most, outside + near)
    ends = [moved(key, outside, share) for share in (least, most)]
    return max(0.0, *(-end for end in ends)), max(0.0, *ends)


def moved(key: str, outside: float, then: float) -> float:
    """By how much a figure changes, as a logarithm, if others take `then` instead of `outside`."""
    if key == "throughput":
        here, there = (math.log(1 - min(share, 0.97)) for share in (outside, then))
        return there - here
    return SHIFTS.get(key, 0.0) * (_crowding(then) - _crowding(outside))


def _crowding(outside: float) -> float:
    return math.log((outside + OWN) / (1 - min(outside, 0.97)))


def outside_share(
    trace: Trace, selected: pl.Series | None = None, besides: pl.Series | None = None
) -> float:
    """The share of CPU time that is not the recorded command's; where no command was recorded, not
    that of the selected threads; 0 if neither is known. The time of threads `besides` is left out.
    """
    mine = _of_command(trace)
    if mine is None:
        mine = selected
    if mine is None:
        return 0.0
    inside = pl.col("utid").is_in(mine.implode())
    ran = trace.states.filter(pl.col("state") == "running", pl.col("utid") >= trace.ncpu)
    if besides is not None:
        ran = ran.filter(~pl.col("utid").is_in(besides.implode()))
    sums = ran.select(own=pl.col("dur").filter(inside).sum(), total=pl.col("dur").sum()).collect()
    own, total = sums.row(0)
    return 1 - own / total if total else 0.0


def _of_command(trace: Trace) -> pl.Series | None:
    """The threads of the recorded command and its descendants; None if the trace shows none."""
    try:
        mine = of_processes(trace, workload=True)
    except UsageError:
        return None
    return trace.threads.filter(mine).select("utid").collect()["utid"]


def own_spreads(trace: Trace, named: pl.DataFrame) -> dict[str, dict[str, float]]:
    """For each service, how far its figures differ by chance: a standard deviation of logarithms.

    `cpu_time`, `waiting` and `wait_p99`; `named` has the `service` of each `utid`.
    """
    lazy = named.drop_nulls().lazy()
    active = (
        trace.states.filter(pl.col("state").is_in(["running", "runnable"]))
        .join(lazy, on="utid")
        .select("service", "state", "dur", begin="ts", end=pl.col("ts") + pl.col("dur"))
    )
    # The life of each service, from its first to its last activity.
    lives = active.group_by("service").agg(
        since=pl.col("begin").min(),
        length=((pl.col("end").max() - pl.col("begin").min()) // PARTS + 1).cast(pl.Int64),
    )
    first, length = pl.col("since") + pl.col("part") * pl.col("length"), pl.col("length")
    states = (
        active.join(lives, on="service")
        .with_columns(
            part=pl.int_ranges(
                (pl.col("begin") - pl.col("since")) // length,
                (pl.col("end") - 1 - pl.col("since")) // length + 1,
            )
        )
        .explode("part")
        .drop_nulls("part")
        .with_columns(
            dur=pl.min_horizontal("end", first + length) - pl.max_horizontal("begin", first)
        )
        .group_by("service", "part")
        .agg(
            cpu_time=pl.col("dur").filter(pl.col("state") == "running").sum(),
            waiting=pl.col("dur").filter(pl.col("state") == "runnable").sum(),
        )
    )
    waits = (
        trace.waits.filter((pl.col("censored") == "none") & pl.col("wait").is_not_null())
        .join(lazy, on="utid")
        .join(lives, on="service")
        .select("service", "wait", part=(pl.col("ts_run") - pl.col("since")) // length)
        .sort("service", "part", "wait")
    )
    sums, each = pl.collect_all([states, waits])
    found: dict[str, dict[str, float]] = {}
    for (service,), rows in sums.group_by("service"):
        numbers = rows["part"].to_numpy()
        kept = found.setdefault(str(service), {})
        for key in ("cpu_time", "waiting"):
            parts = np.zeros(PARTS)
            np.add.at(parts, np.minimum(numbers, PARTS - 1), rows[key].to_numpy())
            kept[key] = _of_sum(parts)
    for (service,), rows in each.group_by("service"):
        by_part = [part["wait"].to_numpy() for part in rows.partition_by("part")]
        found.setdefault(str(service), {})["wait_p99"] = _of_p99(by_part)
    return found


def _of_sum(parts: np.ndarray[Any, Any]) -> float:
    total = parts.sum()
    if not total:
        return 0.0
    between = float(np.mean(np.diff(parts) ** 2)) / 2
    return math.log1p(math.sqrt(len(parts) * between) / float(total))


def _of_p99(parts: list[np.ndarray[Any, Any]]) -> float:
    if len(parts) < 2:
        return UNKNOWN
    drawn = np.random.default_rng(1).integers(len(parts), size=(DRAWS, len(parts)))
    logs = []
    for row in drawn:
        lengths = np.sort(np.concatenate([parts[i] for i in row]))
        logs.append(math.log(max(1.0, float(lengths[math.ceil(0.99 * len(lengths)) - 1]))))
    return float(np.std(logs))
