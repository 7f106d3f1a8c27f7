"""Whether a replay lies where recordings of its workload lie, and how much closer than others.

Several recordings of one workload, at best five, show how much reality itself varies. Each is
replayed a few times under each policy, with clock ticks at other instants, as in `whatif`. A replay
is as good as it can be if its figures lie between the smallest and the largest that were recorded,
and if its waits are no further from another recording than recordings are from each other. Policies
that know nothing of the host's scheduler show how much that proves.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations, permutations
from typing import Any

import polars as pl

from schedscope.analysis.asking.arguments import check_traces
from schedscope.analysis.asking.policies import declaration, names, resolve, rules
from schedscope.analysis.threads.of_threads import Where, where_in
from schedscope.errors import UsageError
from schedscope.simulator.closeness.fidelity import Policies, asked_policies
from schedscope.simulator.closeness.figures import Figures, time_error, wasserstein
from schedscope.simulator.policies.policy import Policy, called
from schedscope.simulator.runs.nearest_way import nearest_ways
from schedscope.simulator.runs.repeated import REPLAYS, check_repeated, repeated
from schedscope.simulator.runs.replay import Replay
from schedscope.simulator.runs.run import Progress
from schedscope.simulator.workloads.machine import Costs
from schedscope.store.trace import Trace

MEASURES = {
    "waits": "count",
    "wait_p50": "ns",
    "wait_p99": "ns",
    "preemptions": "count",
    "switches": "count",
    "migrations": "count",
    "depth": "threads",
    "elapsed": "ns",
    "wait_distance": "ns",
    "cpu_time_err": "share",
}
"""What is compared, and its unit."""

DISTANCES = ("wait_distance", "cpu_time_err")
"""Figures of two traces: of a replay and each other recording, and of two recordings."""

FEWEST = 3
"""Fewer recordings show no range."""

SCHEMA = pl.Schema(
    {
        "against": pl.String(),
        "measure": pl.Enum(list(MEASURES)),
        "unit": pl.Enum(sorted(set(MEASURES.values()))),
        "real": pl.Float64(),
        "real_low": pl.Float64(),
        "real_high": pl.Float64(),
        "replay": pl.Float64(),
        "replay_low": pl.Float64(),
        "replay_high": pl.Float64(),
        "ratio": pl.Float64(),
        "inside": pl.Boolean(),
        "runs": pl.UInt32(),
    }
)


def fidelity_of_runs(
    traces: Sequence[Trace],
    *,
    policies: Policies | None = None,
    set: Mapping[str, Mapping[str, Any]] | None = None,
    costs: Costs | None = None,
    where: Where = None,
    others: str | None = None,
    external: str = "relative",
    replays: int = REPLAYS,
    seed: int = 1,
    progress: Progress | None = None,
) -> pl.DataFrame:
    """A row per policy and measure: as recorded, as replayed, and whether the one is in the other.

    `traces` are three or more recordings of one workload on one machine, at best five. Each is
    replayed `replays` times under each of the `policies`: by default the model of the recorded
    scheduler, then those that know nothing of it (`null_models`).

    * `measure`, `unit`: `waits`, `preemptions`, `switches` and `migrations` are numbers; `wait_p50`
      and `wait_p99` are quantiles of the waits (ns), `depth` is the mean number of threads waiting
      for a CPU, and `elapsed` the time from the first run to the last block or end (ns).
      `wait_distance` is the Wasserstein distance of two sets of waits (ns), and `cpu_time_err` half
      the sum, over names of threads, of the differences of their shares of the CPU time: of each
      two recordings, and of a replay and each recording but its own;
    * `real`, `real_low`, `real_high`: median and extremes over the recordings, or each two of them;
    * `replay`, `replay_low`, `replay_high`: the same of the replays, of which the median over those
      of one recording is taken first;
    * `ratio`: `replay` divided by `real`; null where that is 0;
    * `inside`: `replay` lies between `real_low` and `real_high`, to three digits; a distance may be
      smaller. Null if either is unknown;
    * `runs`: the number of recordings.

    `set`, `costs`, `where`, `others` and `external` are those of `fidelity`.

    Raises `UsageError` for fewer than three recordings, for those of machines of different sizes,
    for an unknown policy and for `set` of one that is not replayed, and `MissingEventsError` for a
    trace without wakeups.
    """
    check_traces(traces, "fidelity")
    _check_number(len(traces))
    rest: dict[str, Any] = {"external": external, "costs": costs}
    ways = nearest_ways(traces, [where_in(one, where) for one in traces], others, **rest)
    return of_ways(
        ways,
        policies=policies,
        set=set,
        replays=replays,
        seed=seed,
        progress=progress,
    )


def of_ways(
    ways: Sequence[Replay],
    *,
    policies: Policies | None = None,
    set: Mapping[str, Mapping[str, Any]] | None = None,
    mine: Sequence[pl.Series] | None = None,
    replays: int = REPLAYS,
    seed: int = 1,
    progress: Progress | None = None,
) -> pl.DataFrame:
    """The same of recordings whose replay is prepared; `mine`: the utids that count, of each.

    Without them all threads count that are replayed.
    """
    _check_number(len(ways))
    check_repeated(ways, replays, "fidelity")
    if policies is None:
        policies = [ways[0].policy, *null_models(ways[0].policy)]
    chosen, given = asked_policies(ways[0].trace, policies, set)
    counted: list[pl.Series | None] = [way.selected for way in ways]
    if mine is not None:
        counted = list(mine)
    both = list(zip(ways, counted, strict=True))
    real = [Figures(way.trace, own) for way, own in both]
    recorded = {name: [_value(one, name) for one in real] for name in MEASURES}
    for name in DISTANCES:
        recorded[name] = [_apart(name, a, b) for a, b in combinations(real, 2)]
    rows = []
    for policy in chosen:
        replayed = [
            _replays(way, own, policy, given.get(called(policy)), replays, seed, progress)
            for way, own in both
        ]
        said = {
            name: [_median(_value(run, name) for run in runs) for runs in replayed]
            for name in MEASURES
            if name not in DISTANCES
        }
        for name in DISTANCES:
            said[name] = [
                _median(_apart(name, run, real[j]) for run in replayed[i])
                for i, j in permutations(range(len(ways)), 2)
            ]
        rows += [
            _row(called(policy), name, recorded[name], said[name], len(ways)) for name in MEASURES
        ]
    return pl.DataFrame(rows, schema=SCHEMA)


def _check_number(runs: int) -> None:
    if runs < FEWEST:
        raise UsageError(
            f"{runs} recording{'s' * (runs != 1)}",
            f"{FEWEST} or more of one workload",
            "two are compared by `fidelity` with `again`",
        )


def null_models(own: str) -> list[str]:
    """The policies that the model of a recorded scheduler must beat: they know nothing of it.

    Those that never let a CPU idle while a thread waits, as an ideal would not, and the newest one
    of each other family that keeps virtual times, as Linux does.
    """
    ideal = names(lambda row: row["work_conserving"])
    virtual = dict.fromkeys(row["family"] for row in rules("keeps_virtual_time").values())
    known = [*ideal, *(resolve(family) for family in virtual)]
    mine = declaration(own)["family"]
    return [name for name in known if declaration(name)["family"] != mine]


def _replays(
    way: Replay,
    mine: pl.Series | None,
    policy: str | Policy,
    given: Mapping[str, Any] | None,
    replays: int,
    seed: int,
    progress: Progress | None,
) -> list[Figures]:
    # Threads of a workload are numbered after the idle ones.
    there = None if mine is None else way.utids.is_in(mine.implode()).arg_true() + way.trace.ncpu
    runs = repeated(
        way,
        policy=policy,
        set=way.settings(policy, given),
        replays=replays,
        seed=seed,
        progress=progress,
    )
    return [Figures(run, there) for run in runs]


def _value(of: Figures, name: str) -> float | None:
    if name in DISTANCES:
        return None
    absolute = {**of.absolute(), "waits": len(of.waits)}
    found = absolute[name] if name in absolute else getattr(of, name)
    return None if found is None else float(found)


def _apart(name: str, one: Figures, other: Figures) -> float | None:
    if name == "wait_distance":
        return wasserstein(one.waits, other.waits)
    return time_error(one.cpu_time, other.cpu_time, ["comm"])


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def _row(
    policy: str,
    measure: str,
    recorded: Sequence[float | None],
    replayed: Sequence[float | None],
    runs: int,
) -> dict[str, Any]:
    row: dict[str, Any] = {
        "against": policy,
        "measure": measure,
        "unit": MEASURES[measure],
        "runs": runs,
    }
    for name, values in (("real", recorded), ("replay", replayed)):
        known = [value for value in values if value is not None]
        row[name] = _median(known)
        row[f"{name}_low"] = min(known, default=None)
        row[f"{name}_high"] = max(known, default=None)
    middle, real = row["replay"], row["real"]
    if middle is not None and real is not None:
        row["ratio"] = middle / real if real else None
        low = 0.0 if measure in DISTANCES else _three_digits(row["real_low"])
        row["inside"] = low <= _three_digits(middle) <= _three_digits(row["real_high"])
    return row


def _three_digits(value: float) -> float:
    """Smaller differences do not count: waits end at clock ticks, a few us later or earlier."""
    return float(f"{value:.3g}")
