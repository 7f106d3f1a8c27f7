"""The table `lab-cells` of research/data: the last run of each cell."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterable
from pathlib import Path

from research import results
from research.lab.boots import Cell, Run
from research.lab.judges import Verdict

TABLE = "lab-cells"
COLUMNS = (
    *("cell", "kernel", "CPUs", "workload", "events", "differing", "queue time less run_delay"),
    *("worst thread", "switch-ins, migrations, switches off", "check", "run on"),
)


def keep(found: Iterable[tuple[Cell, Run, Verdict | None]], folder: Path = results.FOLDER) -> Path:
    """Write the results; other cells keep their rows."""
    rows = [dict(zip(COLUMNS, _row(cell, run, v), strict=True)) for cell, run, v in found]
    return results.keep(TABLE, rows, key="cell", folder=folder, commit="", machine="QEMU")


def _row(cell: Cell, run: Run, verdict: Verdict | None) -> list[str]:
    asked = cell.work + (f"; {cell.append}" if cell.append else "")
    asked += f"; {cell.options}" if cell.options else ""
    asked += f" ({cell.note})" if cell.note else ""
    release = _release(run) + (f", {_preemption(run)}" if "preempt=" in cell.append else "")
    head = [cell.name, release, cell.smp.split(",")[0], asked]
    if verdict is None:
        return [*head, f"failed: {run.failed}", *[""] * 5, date(run)]
    missing = f" ({verdict.missing} missing)" if verdict.missing else ""
    return [
        *head,
        str(verdict.events),
        f"{verdict.differing}{missing}",
        f"{verdict.queue_error:+.2%}",
        f"{verdict.worst:.2%}",
        f"{verdict.switch_ins}, {verdict.migrations}, {verdict.left} of {verdict.threads}",
        str(verdict.data),
        date(run),
    ]


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
    """The machine's own description."""
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
