"""Sums over a damaged recording are bounds, and what the whole one says lies within them.

Captures of 1, 2 and 4 CPUs, damaged in ways that the recording reports, the same in every run.
Every column that has a `NAME_high` is compared with the same question of the whole recording.
"""

from __future__ import annotations

import itertools
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from faults import mutations, recording, truth
from faults.mutations import KINDS, Draw
from faults.recording import Recording
from faults.summaries import depths

import schedscope as ss
from schedscope.analysis.threads.restrict_to_threads import restrict_to_threads

FIXTURES = Path(__file__).parents[2] / "fixtures"
CAPTURES = {
    "1 CPU": "lab/amd64-6.12-hogs.tar.xz",
    "2 CPUs": "lab/amd64-6.12-sleepers.tar.xz",
    "4 CPUs": "lab/amd64-6.12-rt-server.tar.xz",
}
DAMAGE = (
    "hole, marked",
    "many holes, marked",
    "hole on all CPUs, marked",
    "CPU absent",
    "start of a CPU missing, counted in stats",
    "1% of waking and wakeup dropped",
)
SEED = 45

THREADS = 2
"""Those that ran and waited longest are compared one by one, from when the damaged recording first
saw them: of what came before it says nothing."""

QUESTIONS: dict[str, Callable[[ss.Trace, pl.Expr], pl.DataFrame]] = {
    "latency": lambda t, who: ss.latency(t, where=who),
    "slowdown": lambda t, who: ss.slowdown(t, by="tid", where=who),
    "wait_breakdown": lambda t, who: ss.wait_breakdown(t, by="tid", where=who),
    "fairness": lambda t, who: ss.fairness(t, where=who),
    "interference": lambda t, who: ss.interference(t, where=who),
    "starvation": lambda t, who: ss.starvation_summary(t, by="all", threshold=STARVED, where=who),
}
KEYS = {
    "slowdown": ["tid"],
    "wait_breakdown": ["tid"],
    "fairness": ["tid", "sharing"],
    "interference": ["kind", "tid"],
}


STARVED = 2_000_000


@pytest.fixture(scope="module")
def captures(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Recording]:
    work = tmp_path_factory.mktemp("captures")
    found = {}
    for name, path in CAPTURES.items():
        shutil.unpack_archive(FIXTURES / path, work / name)
        found[name], true = truth.complete(recording.read(work / name / "lab.capture"))
        assert not true.flaws
        mutations.recount(found[name])
    return found


def opened(made: Recording, folder: Path) -> ss.Trace:
    return ss.open(recording.write(made, folder / "x.capture"), cache=folder / "cache")


def outside(damaged: pl.DataFrame, whole: pl.DataFrame, keys: list[str]) -> list[str]:
    """Figures of the whole recording that are not within the bounds of the damaged one."""
    bounded = [name for name in damaged.columns if f"{name}_high" in damaged.columns]
    wrong = []
    for true in whole.iter_rows(named=True):
        key = [true[name] for name in keys]
        rows = [row for row in damaged.iter_rows(named=True) if [row[k] for k in keys] == key]
        if key and key[0] in ("unknown", "no_queue", "others"):
            continue  # It is not known who these are.
        for name in bounded:
            low, high = bounds_of(rows[0] if rows else None, name, damaged)
            least, most = true[name], true[f"{name}_high"]
            if least is None or low is None:
                continue
            # A wait that is open at the end has no upper bound in the whole recording either.
            most = math.inf if most is None else most
            off = 1e-9 * abs(least) + 1e-6
            if low > most + off or least > high + off:
                wrong.append(f"{name} of {key}: {low} to {high}, and truly {least}")
    return wrong


def bounds_of(
    row: dict[str, Any] | None, name: str, damaged: pl.DataFrame
) -> tuple[float | None, float]:
    """Those of a figure; a thread that is in no row ran for as long as is unknown at most."""
    if row is not None:
        high = row[f"{name}_high"]
        return row[name], math.inf if high is None else high
    if name == "time" and "kind" in damaged.columns:
        unknown = damaged.filter(pl.col("kind").cast(pl.String).is_in(["unknown", "no_queue"]))
        return 0, unknown["time_high"].sum()
    return None, math.inf


@pytest.fixture(scope="module")
def wholes(
    captures: dict[str, Recording], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, ss.Trace]:
    return {name: opened(made, tmp_path_factory.mktemp(name[0])) for name, made in captures.items()}


@pytest.mark.parametrize(
    ("name", "kind"),
    # Of one CPU nothing is left without it.
    [pair for pair in itertools.product(CAPTURES, DAMAGE) if pair != ("1 CPU", "CPU absent")],
)
def test_bounds_for_a_damaged_recording_contain_the_truth(
    name: str,
    kind: str,
    captures: dict[str, Recording],
    wholes: dict[str, ss.Trace],
    tmp_path: Path,
) -> None:
    mutant = KINDS[kind](captures[name], Draw(f"{SEED}/{name}/{kind}"))
    damaged = opened(mutant.recording, tmp_path)
    wrong = []
    for tid, begin in seen(damaged, wholes[name]):
        window = begin, min(damaged.window[1], wholes[name].window[1])
        both = [part(trace, *window) for trace in (damaged, wholes[name])]
        who = pl.col("tid") == tid
        answers = {
            question: [ask(trace, who) for trace in both] for question, ask in QUESTIONS.items()
        }
        answers["queue_depth"] = depths(*(restrict_to_threads(one, who) for one in both))
        for question, (said, true) in answers.items():
            found = outside(said, true, KEYS.get(question, []))
            wrong += [f"{question} of {tid}: {one}" for one in found]
    assert not wrong, "\n".join([mutant.what, *wrong])


def part(trace: ss.Trace, begin: int, end: int) -> ss.Trace:
    """Between two instants of the recorder's clock."""
    return trace.between(f"{begin - trace.origin}ns", f"{end - trace.origin}ns")


def seen(damaged: ss.Trace, whole: ss.Trace) -> list[tuple[int, int]]:
    """The threads that ran and waited longest, and when the damaged recording first saw each."""
    busy = pl.col("state").is_in(["running", "runnable"]) & (pl.col("utid") >= whole.ncpu)
    most = (
        whole.states.filter(busy)
        .group_by("utid")
        .agg(pl.col("dur").sum())
        .sort("dur", "utid", descending=[True, False])
        .join(whole.threads.select("utid", "tid"), on="utid", maintain_order="left")
        .collect()
    )
    first = (
        damaged.states.group_by("utid")
        .agg(pl.col("ts").min())
        .join(damaged.threads.select("utid", "tid"), on="utid")
        .select("tid", "ts")
        .collect()
    )
    known = most.join(first, on="tid", maintain_order="left").unique("tid", maintain_order=True)
    return known.head(THREADS).select("tid", "ts").rows()
