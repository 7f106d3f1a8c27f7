"""The table of docs/lab.md: the last run of each cell."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterable
from pathlib import Path

from research.lab.boots import Cell, Run
from research.lab.judges import Verdict
from research.lab.marks import between

BEGIN, END = (
    "<!-- table: python -m research.lab --write docs/lab.md -->",
    "<!-- end of the table -->",
)

_HEAD = (
    "| cell | kernel | CPUs | workload | events | differing | queue time less run_delay "
    "| worst thread | switch-ins, migrations, switches off | check | run on |"
)


def write(path: Path, results: Iterable[tuple[Cell, Run, Verdict | None]]) -> None:
    """Put the results between the two marks of the page at `path`; other cells keep their rows."""
    text = path.read_text()
    table = text.partition(BEGIN)[2].partition(END)[0]
    rows = {line.split(" | ")[0]: line for line in table.splitlines() if line.startswith("| ")}
    rows.pop(_HEAD.split(" | ")[0], None)
    rows |= {f"| {cell.name}": f"{_row(cell, run, v)} {date(run)} |" for cell, run, v in results}
    lines = ["", _HEAD, "|" + "---|" * _HEAD.count(" | ") + "---|", *rows.values()]
    path.write_text(between(text, BEGIN, END, lines))


def _row(cell: Cell, run: Run, verdict: Verdict | None) -> str:
    asked = cell.work + (f"; {cell.append}" if cell.append else "")
    asked += f"; {cell.options}" if cell.options else ""
    asked += f" ({cell.note})" if cell.note else ""
    release = _release(run) + (f", {_preemption(run)}" if "preempt=" in cell.append else "")
    head = f"| {cell.name} | {release} | {cell.smp.split(',')[0]} | {asked} |"
    if verdict is None:
        return f"{head} failed: {run.failed} | | | | | |"
    missing = f" ({verdict.missing} missing)" if verdict.missing else ""
    counts = f"{verdict.switch_ins}, {verdict.migrations}, {verdict.left} of {verdict.threads}"
    return (
        f"{head} {verdict.events:,} | {verdict.differing}{missing} | {verdict.queue_error:+.2%} "
        f"| {verdict.worst:.2%} | {counts} | {verdict.data} |"
    )


def date(run: Run) -> str:
    """When it ran; today, if nothing is left of it."""
    about = run.folder / "run.json"
    zone = datetime.UTC
    when = (
        datetime.datetime.fromtimestamp(about.stat().st_mtime, zone)
        if about.exists()
        else datetime.datetime.now(zone)
    )
    return when.date().isoformat()


def _release(run: Run) -> str:
    """What the machine said of itself."""
    try:
        lines = (run.folder / "console.log").read_text(errors="replace").splitlines()
    except OSError:
        return ""
    said = [line.split("LAB: up ")[1] for line in lines if "LAB: up " in line]
    return said[0].split(",")[0] if said else ""


def _preemption(run: Run) -> str:
    """The model that the kernel really used, as the recording has it."""
    try:
        about = json.loads((run.capture / "capture.json").read_text())
    except (OSError, ValueError):
        return "?"
    return f"preemption {about.get('preempt') or '?'}"
