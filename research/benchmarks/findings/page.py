"""The table of docs/findings.md."""

from __future__ import annotations

import datetime
import json
import platform
import subprocess
from collections.abc import Sequence
from pathlib import Path

from findings.cases import Case
from findings.places import ROOT, Recorded

Results = Sequence[tuple[Recorded, str | None]]
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"
_PLACES = {"host": "host", "plain": "machine", "isolated": "machine, isolcpus=1"}


def table(results: Results) -> list[str]:
    """A row for each case."""
    lines = [
        "| finding | load | found | what looks alike | found wrongly | where |",
        "|---|---|---|---|---|---|",
    ]
    for case in dict.fromkeys(one.case for one, _ in results):
        hits, rounds = _count(results, case, "fault")
        wrong, others = _count(results, case, "alike")
        lines.append(
            f"| {case.topic} | {case.fault.told} | {hits} of {rounds} | {case.alike.told}"
            f" | {wrong} of {others} | {_PLACES[case.where]} |"
        )
    return lines


def _count(results: Results, case: Case, kind: str) -> tuple[int, int]:
    texts = [text for one, text in results if one.case == case and one.kind == kind]
    judged = [text for text in texts if text != "?"]
    return sum(text is not None for text in judged), len(judged)


def write(path: Path, results: Results, work: Path) -> None:
    """Replace what was measured before."""
    releases = {}
    for one, _ in results:
        about = work / one.name / "capture.json"
        if about.exists():
            place = "the machines" if one.case.where != "host" else "the host"
            releases[place] = json.loads(about.read_text())["release"]
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    kernels = ", ".join(f"Linux {release} on {place}" for place, release in releases.items())
    head = (
        f"Measured {datetime.datetime.now(datetime.UTC).date()} at commit {commit}:"
        f" {kernels}; 2 CPUs, {platform.machine()}."
    )
    before, rest = path.read_text().split(BEGIN)
    after = rest.split(END)[1]
    path.write_text("\n".join([before + BEGIN, head, "", *table(results), END + after]))
