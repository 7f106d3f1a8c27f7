"""How far predictions are from what happened: the figures of the prediction bench.

A row is one figure of one role of a workload, under one model. Its `factor` is how many times too
large or too small the model's median over the repeats is beside the median of what really happened.
Times below 20 us, and counts below 1, are not worth distinguishing: so that amount is added to both
sides.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import polars as pl

import schedscope as ss
from research.lab.policies import OWN
from schedscope.analysis.shares.group_weights import AUTOGROUP
from schedscope.simulator.changes.change import change
from schedscope.simulator.changes.groups import without_sessions
from schedscope.simulator.runs.repeated import repeated
from schedscope.simulator.runs.replay import Replay, replay
from schedscope.simulator.workloads.groups import knows_groups
from schedscope.simulator.workloads.machine import Machine
from schedscope.simulator.workloads.workload import Workload

NO_CHANGE = "no change"
"""The model that expects what was recorded."""
REPEATS = "repeats"
"""No model: the largest of the real repeats over the smallest."""
NULLS = ("fifo", "rr")
PHASES = 5
"""Replays of each recording under the model asked about, their ticks at other instants: the figures
of one such replay are off by chance. Nulls are far off anyway, and replayed once."""
PHASES_OF_MANY = 25
"""The same where threads have several CPUs: the median of 5 replays of each of 5 recordings is then
off by up to 16 % by chance (of three hogs on two CPUs, 5 to 95 % of resamples of 125 replays)."""
LONGER = 3
"""What ended in the recording may take so many times as long to end in a replay."""

FEW = 10
"""Roles that waited less often are left out: their quantiles are one wait or another, by chance."""

TIMES = ("total", "p50", "p90", "p99")
"""Figures in ns, of the waits of a role; the others are counts."""
COUNTS = ("waits", "preemptions", "migrations")
SCHEMA = pl.Schema(
    {
        "role": pl.String(),
        "figure": pl.String(),
        "model": pl.String(),
        "value": pl.Float64(),
        "low": pl.Float64(),
        "high": pl.Float64(),
        "real": pl.Float64(),
        "real_low": pl.Float64(),
        "real_high": pl.Float64(),
        "factor": pl.Float64(),
    }
)
RUNS = ("run_p50", "run_p90")
_LEAST = {**dict.fromkeys((*TIMES, *RUNS), 20_000.0), **dict.fromkeys((*COUNTS, "runs"), 1.0)}
_PROGRAMS = (
    *("hog", "sleeper", "worker", "dispatcher", "writer", "reader", "job", "part"),
    *("locker", "periodic", "limited"),
)
"""Names of the threads of guest/work.c, before their numbers."""

Figures = dict[str, dict[str, float]]
"""By role and figure, of one trace."""


def roles(trace: ss.Trace, *, levels: bool = True) -> pl.DataFrame:
    """The role of each thread of the workload, its kind and nice level, and when it ended.

    Without `levels` the kind alone: where the level is what changes.
    """
    kind = pl.col("comm").str.extract(rf"^({'|'.join(_PROGRAMS)})[0-9]*")
    nice = pl.col("prio") - 120
    level = pl.when(nice == 0).then(pl.lit("")).otherwise(pl.format(" nice {}", nice))
    return (
        trace.threads.filter(kind.is_not_null())
        .select("utid", "exit_ts", role=pl.concat_str(kind, level) if levels else kind)
        .collect()
    )


def figures(trace: ss.Trace, *, levels: bool = True) -> Figures:
    """The figures of each role."""
    of = roles(trace, levels=levels)
    waits = (
        trace.waits.filter(pl.col("censored") == "none")
        .select("utid", "wait", "cause")
        .collect()
        .join(of, on="utid")
    )
    moves = trace.migrations.select("utid").collect().join(of, on="utid")
    found: Figures = {}
    for (role,), rows in waits.group_by("role"):
        sorted_waits = rows["wait"].drop_nulls().sort().to_list()
        if not sorted_waits:
            continue
        found[str(role)] = {
            "total": sum(sorted_waits),
            **{
                f"p{part}": sorted_waits[math.ceil(part / 100 * len(sorted_waits)) - 1]
                for part in (50, 90, 99)
            },
            "waits": len(sorted_waits),
            "preemptions": rows.filter(pl.col("cause") == "preempt").height,
            "migrations": moves.filter(pl.col("role") == role).height,
        }
    return found


def factor(figure: str, value: float, real: float) -> float:
    """How many times too large or too small `value` is: 1 if it is right.

    >>> factor("waits", 1, 3), factor("waits", 3, 1), factor("total", 0, 0)
    (2.0, 2.0, 1.0)
    """
    least = _LEAST[figure]
    a, b = value + least, real + least
    return max(a / b, b / a)


def replays(trace: ss.Trace, policy: str, target: Replay) -> Iterable[tuple[str, Figures]]:
    """Predictions of `policy` and the null models for a trace, with the tunables recorded in
    `target`.

    Where autogroup is off there, threads do not compete by session.
    """
    way = replay(trace)
    tunables = target.trace.metadata("scheduler", "tunables") or {}
    off = tunables.get(AUTOGROUP) == "0"
    workload = without_sessions(way.workload) if off else way.workload
    for name in (policy, *NULLS):
        own = OWN.get(name)
        given = {} if own else target.settings(name)
        for replayed in ran(
            way, own() if own else name, _phases(trace, name == policy), given, workload
        ):
            yield name, figures(replayed)


def changed(trace: ss.Trace, whatif: Mapping[str, Any]) -> Iterable[tuple[str, Figures]]:
    """Predictions of the kernel's own model and the null models for a trace with a change of
    `whatif`.

    Null models without control groups are not used for quotas.
    """
    way = replay(trace)
    asked = change(way, **whatif)
    assert isinstance(asked.policy, str)
    for name in (asked.policy, *NULLS):
        if "quota" in whatif and not knows_groups(name):
            continue
        own = name == asked.policy
        given = asked.set if own else way.settings(name)
        for replayed in ran(way, name, _phases(trace, own), given, asked.workload, asked.machine):
            yield name, figures(replayed, levels=False)


def _phases(trace: ss.Trace, asked: bool) -> int:
    if not asked:
        return 1
    return PHASES if trace.ncpu == 1 else PHASES_OF_MANY


def ran(
    way: Replay,
    policy: str | ss.Policy,
    phases: int,
    settings: Mapping[str, Any],
    workload: Workload | None = None,
    machine: Machine | None = None,
) -> Iterator[ss.Trace]:
    """Replays as of `simulate` and `whatif`, their ticks at so many `phases`; as in the latter
    they go on to the end of the workload, if that ended in the recording.
    """
    ended = roles(way.trace)["exit_ts"].is_not_null().all()
    return repeated(
        way,
        policy=policy,
        set=settings,
        replays=phases,
        until=f"{way.trace.duration * LONGER}ns" if ended else None,
        workload=workload,
        machine=machine,
    )


def compare(
    before: Sequence[ss.Trace],
    after: Sequence[ss.Trace],
    policy: str = "",
    *,
    target: Replay | None = None,
    whatif: Mapping[str, Any] | None = None,
) -> pl.DataFrame:
    """One row per role, figure and model.

    The prediction is for `policy` with the tunables recorded in `target`; without one source and
    target are the same, and each recording has its own. Or `whatif` is the change.
    """
    levels = not whatif
    real = [figures(trace, levels=levels) for trace in after]
    models: dict[str, list[Figures]] = {}
    if whatif or target:
        models[NO_CHANGE] = [figures(trace, levels=levels) for trace in before]
    for trace in before:
        asked = (
            changed(trace, whatif) if whatif else replays(trace, policy, target or replay(trace))
        )
        for name, said in asked:
            models.setdefault(name, []).append(said)
    rows = []
    for role in sorted({role for found in real for role in found}):
        for figure in (*TIMES, *COUNTS):
            truth = _values(real, role, figure)
            low, middle, high = min(truth), statistics.median(truth), max(truth)
            about = {"role": role, "figure": figure, "real": middle}
            about |= {"real_low": low, "real_high": high}
            apart = factor(figure, high, low)
            rows.append({**about, "model": REPEATS, "factor": apart, **_span(truth)})
            for model, found in models.items():
                values = _values(found, role, figure)
                off = factor(figure, statistics.median(values), middle)
                rows.append({**about, "model": model, "factor": off, **_span(values)})
    return pl.DataFrame(rows, schema=SCHEMA)


def of_enough_waits(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows of roles that really waited `FEW` times or more, in the median of the repeats."""
    few = rows.filter(pl.col("figure") == "waits", pl.col("real") < FEW)["role"].unique()
    return rows.filter(~pl.col("role").is_in(few.implode()))


def _values(found: Sequence[Figures], role: str, figure: str) -> list[float]:
    """One for each repeat; 0 of a role that never waited."""
    none: Mapping[str, float] = {}
    return [float(one.get(role, none).get(figure, 0)) for one in found]


def _span(values: Sequence[float]) -> dict[str, float]:
    return {"value": statistics.median(values), "low": min(values), "high": max(values)}
