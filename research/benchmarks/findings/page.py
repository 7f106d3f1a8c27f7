"""The table `findings` of research/data."""

from __future__ import annotations

import datetime
import json
import platform
import subprocess
from collections.abc import Sequence
from pathlib import Path

from findings.cases import Case
from findings.places import ROOT, Recorded
from research import results

Found = Sequence[tuple[Recorded, str | None]]
_PLACES = {"host": "host", "plain": "machine", "isolated": "machine, isolcpus=1"}


def table(found: Found) -> list[str]:
    """A row for each case."""
    lines = [
        "| finding | load | found | what looks alike | found wrongly | where |",
        "|---|---|---|---|---|---|",
    ]
    for case in dict.fromkeys(one.case for one, _ in found):
        hits, rounds = _count(found, case, "fault")
        wrong, others = _count(found, case, "alike")
        lines.append(
            f"| {case.topic} | {case.fault.told} | {hits} of {rounds} | {case.alike.told}"
            f" | {wrong} of {others} | {_PLACES[case.where]} |"
        )
    return lines


def _count(found: Found, case: Case, kind: str) -> tuple[int, int]:
    texts = [text for one, text in found if one.case == case and one.kind == kind]
    judged = [text for text in texts if text != "?"]
    return sum(text is not None for text in judged), len(judged)


def keep(found: Found, work: Path) -> Path:
    """Replace what was measured before."""
    releases = {}
    for one, _ in found:
        about = work / one.name / "capture.json"
        if about.exists():
            place = "machines" if one.case.where != "host" else "host"
            releases[place] = json.loads(about.read_text())["release"]
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    kernels = "; ".join(f"{place}: Linux {release}" for place, release in releases.items())
    return results.keep(
        "findings",
        results.parse(table(found)),
        measured_on=f"{datetime.datetime.now(datetime.UTC).date()}",
        commit=commit,
        machine=f"{kernels}; 2 CPUs, {platform.machine()}",
    )
