"""Run the mutations: one result for each (capture, kind, number), kept as it is found."""

from __future__ import annotations

import json
import random
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

import schedscope as ss
from faults import (
    caution,
    comparison,
    formats,
    mutations,
    mutations_clocks,
    mutations_filters,
    mutations_hosts,
    mutations_pages,
    summaries,
    truth,
)
from faults.caution import Caution
from faults.mutations import KINDS, Draw, Mutant, can_be, in_pages
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
    work: Path
    known: dict[str, Undamaged] = field(default_factory=dict)

    def undamaged(self, form: str) -> Undamaged:
        """In this format: the window of a file is that of its events."""
        if form not in self.known:
            mutant = Mutant(self.recording, "nothing")
            trace = opened(mutant, self.work / f"{self.name}-{form}", form)
            self.known[form] = Undamaged(trace, caution.caution(trace))
        return self.known[form]


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
        whole = formats.read(path)
    except (OSError, ValueError, KeyError) as error:
        raise NotComplete(f"{path}: {error}") from error
    if not whole.cpus or not all(whole.cpus.values()):
        raise NotComplete(f"{path} has a CPU without events")
    whole, true = truth.complete(whole)
    linux = mutations.of_linux(whole)
    if linux and (true.flaws or true.waits.height < _LEAST):
        what = Counter(flaw.what for flaw in true.flaws)
        raise NotComplete(f"{path}: no complete stretch of {_LEAST} waits ({dict(what)})")
    mutations.recount(whole)
    return Case(name, whole, true, work)


def opened(mutant: Mutant, work: Path, form: str = "") -> ss.Trace:
    """The trace that schedscope makes of a damaged input, in this format or its own."""
    work.mkdir(parents=True, exist_ok=True)
    writers = formats.formats_of(mutant.recording)
    if mutant.file is not None:
        source = work / "mutant.dat"
        source.write_bytes(mutant.file)
    else:
        source = writers.get(form, next(iter(writers.values())))(mutant.recording, work)
    shutil.rmtree(work / "cache", ignore_errors=True)
    return ss.open(source, cache=work / "cache", options=mutant.recording.about.get("options"))


def draw(case: Case, kind: str, number: int, seed: int) -> Mutant:
    """The mutant of this name: the same for the same seed, on any machine."""
    return KINDS[kind](case.recording, Draw(f"{seed}/{case.name}/{kind}/{number}", number))


def judge(
    case: Case,
    kind: str,
    number: int,
    seed: int,
    work: Path,
    part: summaries.Part = (0, 1),
    form: str = "",
) -> Result:
    """One damaged input, and what is wrong in the answers about it."""
    mutant = draw(case, kind, number, seed)
    own = next(iter(formats.formats_of(case.recording)))
    in_file = mutant.file is not None
    written = "trace.dat" if in_file else own if mutant.recording.raw else form or own
    result: Result = {
        "capture": case.name,
        "release": case.recording.about.get("release", ""),
        "cpus": len(case.recording.cpus),
        "format": written,
        "asked": form,
        "kind": kind,
        "number": number,
        "seed": seed,
        "what": mutant.what,
        "refused": None,
        "crashed": None,
    }
    try:
        trace = opened(mutant, work, written)
        true = _truth(case, mutant)
        doubt = comparison.doubt(trace, mutant)
        found = comparison.Verdict()
        if mutations.of_linux(case.recording):
            found = comparison.judge(trace, true, mutant, doubt)
        spoken = caution.caution(trace)
        whole = case.undamaged(written)
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
    *,
    every_format: bool = False,
) -> list[Result]:
    """Every (capture, kind, number), or a `share` of them; those in the journal are not run again.

    With several `parts`, each kind of damage is asked one part of the questions. With
    `every_format`, each input is written in all formats that it can be in.

    The journal gets a line for each result at once, so that an interrupted campaign goes on
    where it was.
    """
    work.mkdir(parents=True, exist_ok=True)
    for case in cases:
        case.recording.others = [o.recording for o in cases if o is not case]
    results = list(_kept(journal, seed))
    done = {(r["capture"], r["kind"], r["number"], r["asked"]) for r in results}
    wanted = [
        (number, kind, case, form)
        for number in range(numbers)
        for kind in kinds
        for case in cases
        if can_be(kind, case.recording)
        for form in _forms(case, kind, every=every_format)
        if random.Random(f"{seed}/{case.name}/{kind}/{number}/share{form}").random() < share
    ]
    for n, (number, kind, case, form) in enumerate(wanted, 1):
        if (case.name, kind, number, form) in done:
            continue
        started = time.monotonic()
        result = judge(case, kind, number, seed, work, (list(KINDS).index(kind), parts), form)
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


def _forms(case: Case, kind: str, *, every: bool) -> list[str]:
    """The formats to write an input in; none: its own."""
    return list(formats.formats_of(case.recording)) if every and not in_pages(kind) else [""]


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
