"""The table of docs/lab.md."""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from pathlib import Path

from lab.boots import Cell, Run
from lab.judges import Verdict

BEGIN, END = "<!-- table: python -m lab --write docs/lab.md -->", "<!-- end of the table -->"

_HEAD = (
    "| cell | kernel | CPUs | workload | events | differing | queue time less run_delay "
    "| worst thread | switch-ins, migrations, switches off | check |"
)


def write(path: Path, results: Iterable[tuple[Cell, Run, Verdict | None]]) -> None:
    """Put the results between the two marks of the page at `path`."""
    text = path.read_text()
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    rows = [_row(cell, run, verdict) for cell, run, verdict in results]
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    lines = [BEGIN, "", f"Run on {today}.", "", _HEAD, "|" + "---|" * 10, *rows, "", END]
    path.write_text(before + "\n".join(lines) + after)


def _row(cell: Cell, run: Run, verdict: Verdict | None) -> str:
    asked = cell.work + (f"; {cell.append}" if cell.append else "")
    asked += f" ({cell.note})" if cell.note else ""
    head = f"| {cell.name} | {_release(run)} | {cell.smp.split(',')[0]} | {asked} |"
    if verdict is None:
        return f"{head} failed: {run.failed} | | | | | |"
    counts = f"{verdict.switch_ins}, {verdict.migrations}, {verdict.left} of {verdict.threads}"
    return (
        f"{head} {verdict.events:,} | {verdict.differing} | {verdict.queue_error:+.2%} "
        f"| {verdict.worst:.2%} | {counts} | {verdict.data} |"
    )


def _release(run: Run) -> str:
    """What the machine said of itself."""
    try:
        lines = (run.folder / "console.log").read_text(errors="replace").splitlines()
    except OSError:
        return ""
    said = [line.split("LAB: up ")[1] for line in lines if "LAB: up " in line]
    return said[0].split(",")[0] if said else ""
