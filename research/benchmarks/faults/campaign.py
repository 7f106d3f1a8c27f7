"""Run the mutations: one result for each (capture, kind, number), kept as it is found."""

from __future__ import annotations

import json
import random
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

import schedscope as ss
from faults import (
    caution,
    comparison,
    mutations,
    mutations_clocks,
    mutations_filters,
    mutations_hosts,
    mutations_pages,
    recording,
    summaries,
    tracedat,
    truth,
)
from faults.caution import Caution
from faults.mutations import KINDS, Draw, Mutant, can_be
from faults.recording import Recording
from faults.truth import Truth

# Importing them registers their kinds.
MODULES = (mutations_clocks, mutations_filters, mutations_hosts, mutations_pages)

Result = dict[str, Any]
_EXAMPLES = 10
_LEAST = 100
"""Waits that a capture must have to be worth the while."""


@dataclass(frozen=True)
class Undamaged:
    """The undamaged recording, as its damaged copies are opened."""

    trace: ss.Trace
    caution: Caution


@dataclass
class Case:
    """A capture of the campaign with its truth and the expected figures."""

    name: str
    recording: Recording
    truth: Truth
    folder: Undamaged
    # The window of a trace.dat is that of its events.
    file: Undamaged


class NotComplete(Exception):
    """A capture whose truth is not known well enough."""


def name_of(path: Path) -> str:
    """What a capture is called."""
    return path.name.removesuffix(".tar.xz").removesuffix(".capture")


def load(path: Path, work: Path) -> Case:
    """Read a capture, or the longest stretch of it in which nothing is missing.

    `path` is a folder, or an archive of the laboratory, which holds one.
    """
    name = name_of(path)
    try:
        if path.name.endswith(".tar.xz"):
            shutil.unpack_archive(path, work / name)
            path = work / name / "lab.capture"
        whole = recording.read(path)
    except (OSError, ValueError, KeyError) as error:
        raise NotComplete(f"{path}: {error}") from error
    if not whole.cpus or not all(whole.cpus.values()):
        raise NotComplete(f"{path} has a CPU without events")
    whole, true = truth.complete(whole)
    if true.flaws or true.waits.height < _LEAST:
        what = Counter(flaw.what for flaw in true.flaws)
        raise NotComplete(f"{path}: no complete stretch of {_LEAST} waits ({dict(what)})")
    mutations.recount(whole)
    said = []
    for how, file in (("folder", None), ("file", tracedat.encode(whole))):
        trace = opened(Mutant(whole, "nothing", file=file), work / f"{name}-{how}")
        said.append(Undamaged(trace, caution.caution(trace)))
    return Case(name, whole, true, *said)


def opened(mutant: Mutant, work: Path) -> ss.Trace:
    """The trace that schedscope makes of a damaged input."""
    work.mkdir(parents=True, exist_ok=True)
    if mutant.file is not None:
        source = work / "mutant.dat"
        source.write_bytes(mutant.file)
    else:
        source = recording.write(mutant.recording, work / "mutant.capture")
    shutil.rmtree(work / "cache", ignore_errors=True)
    return ss.open(source, cache=work / "cache")


def draw(case: Case, kind: str, number: int, seed: int) -> Mutant:
    """The mutant of this name: the same for the same seed, on any machine."""
    return KINDS[kind](case.recording, Draw(f"{seed}/{case.name}/{kind}/{number}", number))


def judge(
    case: Case, kind: str, number: int, seed: int, work: Path, part: summaries.Part = (0, 1)
) -> Result:
    """One damaged input, and what is wrong in the answers about it."""
    mutant = draw(case, kind, number, seed)
    result: Result = {
        "capture": case.name,
        "kind": kind,
        "number": number,
        "seed": seed,
        "what": mutant.what,
        "refused": None,
        "crashed": None,
    }
    try:
        trace = opened(mutant, work)
        true = _truth(case, mutant)
        doubt = comparison.doubt(trace, mutant)
        found = comparison.judge(trace, true, mutant, doubt)
        spoken = caution.caution(trace)
        whole = case.file if mutant.file is not None else case.folder
        sums = summaries.Counts()
        if not mutant.truth_of:
            moved = mutant.clock_off is not None
            sums = summaries.compare(
                trace, whole.trace, true, spoken, whole.caution, doubt,
                clocks_moved=moved, part=part,
            )  # fmt: skip
    except ss.SchedscopeError as error:
        # Refusing a broken input is a correct answer.
        return result | {"refused": str(error).splitlines()[0]}
    except Exception as error:
        return result | {"crashed": f"{type(error).__name__}: {error}".splitlines()[0]}
    statuses = sum(sums.statuses.values(), Counter())
    return result | {
        "warnings": caution.news(spoken, whole.caution),
        "trusted": caution.trusted(spoken, whole.caution),
        "admits": caution.admits(spoken, whole.caution),
        "true_waits": found.true_waits,
        "true_wait_time": found.true_wait_time,
        "measured_waits": found.measured_waits,
        "right_wait_time": found.right_wait_time,
        "wrong_waits": len(found.wrong_waits),
        "wrong_bounds": len(found.wrong_bounds),
        "doubted_waits": found.doubted_waits,
        "true_state_time": found.true_state_time if mutant.states_judged else 0,
        "right_state_time": found.right_state_time,
        "wrong_state_time": found.wrong_state_time,
        "figures": statuses.total(),
        "statuses": dict(statuses),
        "wrong_figures": {name: n["wrong"] for name, n in sums.statuses.items() if n["wrong"]},
        "by_figure": {name: dict(n) for name, n in sums.statuses.items()},
        "widths": {way: dict(n) for way, n in sums.widths.items()},
        "longest_wrong_wait": max((wait["wait"] for wait in found.wrong_waits), default=0),
        "examples": {
            "waits": found.wrong_waits[:_EXAMPLES],
            "bounds": found.wrong_bounds[:_EXAMPLES],
            "states": [list(state) for state in found.wrong_states[:_EXAMPLES]],
            "figures": sums.wrong[:_EXAMPLES],
        },
    }


def _truth(case: Case, mutant: Mutant) -> Truth:
    if not mutant.truth_of:
        return case.truth
    if len(mutant.truth_of) == 1:
        return truth.of(mutant.truth_of[0])
    # A wait is true if it is one of either capture.
    first, *rest = map(truth.of, mutant.truth_of)
    for other in rest:
        first.waits = pl.concat([first.waits, other.waits]).unique(["tid", "ts_run"])
        first.doubtful |= other.doubtful
    return first


def run(
    cases: list[Case],
    kinds: list[str],
    numbers: int,
    seed: int,
    work: Path,
    journal: Path | None = None,
    progress: Callable[[int, int, Result], None] | None = None,
    share: float = 1,
    parts: int = 1,
) -> list[Result]:
    """Every (capture, kind, number), or a `share` of them; those in the journal are not run again.

    With several `parts`, each kind of damage is asked one part of the questions.

    The journal gets a line for each result at once, so that an interrupted campaign goes on
    where it was.
    """
    work.mkdir(parents=True, exist_ok=True)
    for case in cases:
        case.recording.others = [o.recording for o in cases if o is not case]
    results = list(_kept(journal, seed))
    done = {(r["capture"], r["kind"], r["number"]) for r in results}
    wanted = [
        (number, kind, case)
        for number in range(numbers)
        for kind in kinds
        for case in cases
        if can_be(kind, case.recording)
        and random.Random(f"{seed}/{case.name}/{kind}/{number}/share").random() < share
    ]
    for n, (number, kind, case) in enumerate(wanted, 1):
        if (case.name, kind, number) in done:
            continue
        started = time.monotonic()
        result = judge(case, kind, number, seed, work, (list(KINDS).index(kind), parts))
        result["seconds"] = round(time.monotonic() - started, 3)
        results.append(result)
        if journal is not None:
            with journal.open("a") as out:
                out.write(json.dumps(result) + "\n")
        if progress is not None:
            progress(n, len(wanted), result)
    names, allowed = {case.name for case in cases}, set(kinds)
    return [
        r
        for r in results
        if r["capture"] in names and r["kind"] in allowed and r["number"] < numbers
    ]


def _kept(journal: Path | None, seed: int) -> Iterator[Result]:
    if journal is None or not journal.exists():
        return
    for line in journal.read_text().splitlines():
        try:
            result = json.loads(line)
        except ValueError:
            # The campaign was ended while it wrote this line.
            continue
        if result["seed"] == seed:
            yield result
