"""What does each command cost on a cell's recording? `python -m research.lab.commands CELL`."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import schedscope as ss
from research import results
from research.lab.__main__ import default_cache, matrix
from research.lab.boots import Run, earlier
from research.lab.page import date
from schedscope.analysis.asking.needs import QUESTIONS, has
from schedscope.cli import by_group

_ASKED = (
    "inspect the recording",
    "who waited, and why?",
    "how well was the machine used?",
    "where did threads run?",
)
"""The groups of commands that answer a question about one recording."""

MORE = {
    "critical-path": ["--worst", "1"],
    "wake-chain": ["--worst", "1"],
    "report": ["-o", "{out}/report.html"],
    "timeline": ["-o", "{out}/timeline.html"],
    "export": ["--to", "perfetto", "-o", "{out}/trace.pftrace"],
}
"""What a command cannot do without."""


@dataclass(frozen=True)
class Cost:
    """One command: how it ended, what it took (not how long: that is the host's load as well)."""

    command: str
    code: int
    cpu: float
    """Seconds."""
    peak: int
    """The most memory that it held, in bytes."""


def questions() -> list[str]:
    """Commands that take a recording and no more, and those that write a file of it."""
    known = by_group()
    return [one.name for group in _ASKED for one in known[group]] + ["report", "timeline", "export"]


def _is_answered(name: str, trace: ss.Trace) -> bool:
    """Does the trace have what the question of this command is declared to need?"""
    question = name.replace("-", "_")
    getattr(ss, question, None)  # loads its module, with the declaration
    return all(has(trace, need) for need in QUESTIONS.get(question, ()))


def measure(capture: Path, out: Path) -> list[Cost]:
    """Decode the recording, then ask all that it can answer; each in a process of its own."""
    cache = ["--cache", str(out / "cache")]
    first = ["info", str(capture), *cache]
    costs = [_run("decoding, then info", first)]
    trace = ss.open(capture, cache=out / "cache")
    for name in questions():
        if not _is_answered(name, trace):
            continue
        words = [name, str(capture), *cache]
        words += [word.format(out=out) for word in MORE.get(name, [])]
        costs.append(_run(name, words))
    return costs


def _run(name: str, words: list[str]) -> Cost:
    with tempfile.TemporaryFile() as said:
        ran = subprocess.Popen(
            [sys.executable, "-m", "schedscope", *words], stdout=subprocess.DEVNULL, stderr=said
        )
        _, status, used = os.wait4(ran.pid, 0)
        ran.returncode = os.waitstatus_to_exitcode(status)
        if ran.returncode:
            said.seek(0)
            print(f"{' '.join(words)}: {said.read().decode(errors='replace').strip()}")
    return Cost(name, ran.returncode, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024)


def about(run: Run) -> str:
    """The machine that was recorded."""
    trace = ss.open(run.capture, cache=run.folder / "cache")
    return f"{trace.info['release']}, {trace.ncpu} CPUs"


def lines(run: Run, costs: list[Cost]) -> list[str]:
    """The paragraph and the table."""
    trace = ss.open(run.capture, cache=run.folder / "cache")
    console = (run.folder / "console.log").read_text(errors="replace").splitlines()
    up = next(line for line in console if "LAB: up " in line).rsplit(",", 1)[1].strip()
    head = (
        f"{date(run)}, {about(run)}: the first process began {up} "
        f"of the machine's time after the kernel; the whole run took {run.cpu:.0f} CPU seconds "
        f"and {run.wall:.0f} s of the host, busy with other work. "
        f"{trace.events:,} events in {trace.duration / 1e9:.2f} s; "
        f"{len(costs)} commands, {sum(cost.code != 0 for cost in costs)} failed."
    )
    rows = [f"| {cost.command} | {cost.cpu:.2f} | {cost.peak / 2**20:.0f} |" for cost in costs]
    table = ["| command | CPU seconds | memory, MiB |", "|---|--:|--:|", *rows]
    return [head, "", *table]


def main() -> int:
    """Measure, and write the table; exit code 1 if a command failed."""
    parser = argparse.ArgumentParser(prog="python -m research.lab.commands", description=__doc__)
    parser.add_argument("cell", help="a cell that ran: python -m research.lab CELL")
    parser.add_argument("--cache", type=Path, default=default_cache(), help="default: %(default)s")
    parser.add_argument("--write", action="store_true", help="keep the table in research/data")
    given = parser.parse_args()
    cell = next((cell for cell in matrix()[1] if cell.name == given.cell), None)
    run = earlier(given.cache, cell) if cell else None
    if run is None:
        parser.error(f"no run of {given.cell}: python -m research.lab {given.cell}")
    out = Path(tempfile.mkdtemp(prefix="schedscope-commands-"))
    try:
        costs = measure(run.capture, out)
    finally:
        shutil.rmtree(out)
    text = lines(run, costs)
    print("\n".join(text))
    if given.write:
        machine = f"QEMU, {about(run)}"
        results.keep(
            "lab-commands", results.parse(text), measured_on=date(run), commit="", machine=machine
        )
    return int(any(cost.code for cost in costs))


if __name__ == "__main__":
    sys.exit(main())
