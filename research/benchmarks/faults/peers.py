"""What trace-cmd and perf report for damaged files, compared with the undamaged one.

A wait that a tool prints for a damaged file is wrong if the tool itself printed no such wait, of
the same switch, for the undamaged one.
"""

from __future__ import annotations

import random
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

import schedscope as ss
from faults import campaign, caution, perfdata, tracedat
from faults.campaign import Case
from faults.mutations import KINDS
from faults.page import table
from faults.words import length

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT / "tests"))

from tools import tool  # noqa: E402

PERF_FILE = ROOT / "fixtures" / "perf-sched.data"
_CAPTURES = 1
"""So many of the captures, the first ones, are given to other tools: they take their time."""
_TOLERANCE = 1_500
"""perf and trace-cmd round to 1 us."""

_SWITCH = re.compile(
    r"\[(\d+)\]\S*\s+\S*\s*(\d+\.\d{9}): sched_switch:.*==> .*:\d+ \[-?\d+\](?: Latency: ([\d.]+))?"
)
_TIMEHIST = re.compile(
    r"^\s*(\d+\.\d{6}) \[(\d+)\]\s+\S.*?\[\d+(?:/\d+)?\]\s+[\d.]+\s+([\d.]+)\s+[\d.]+", re.MULTILINE
)
_WARNS = re.compile(r"DROPPED|\blost\b|\bLOST\b|bugs|[Ww]arning|unordered|corrupt", re.MULTILINE)

Wait = tuple[Any, int]


@dataclass
class Said:
    """A tool's answer: waits as (which switch, ns), whether it warned, whether it refused."""

    waits: list[Wait] = field(default_factory=list)
    # The same by (CPU, number of the switch there), for stamps that were moved.
    by_order: list[Wait] = field(default_factory=list)
    warnings: frozenset[str] = frozenset()
    refused: bool = False

    def wrong(self, whole: Said, by_order: bool) -> list[int]:
        """Waits that were not reported for the undamaged file, longest first."""
        ours, theirs = (self.by_order, whole.by_order) if by_order else (self.waits, whole.waits)
        known = dict(theirs)
        return sorted(
            (ns for which, ns in ours if abs(known.get(which, -(10**18)) - ns) > _TOLERANCE),
            reverse=True,
        )


def _said(rows: list[tuple[int, str | int, int | None]], text: str, status: int) -> Said:
    lines = {re.sub(r"[\d.]+", "N", line) for line in text.splitlines() if _WARNS.search(line)}
    if status:
        lines.add("failed")
    said = Said(warnings=frozenset(lines), refused=status != 0 and not rows)
    order: dict[int, int] = defaultdict(int)
    for cpu, ts, ns in rows:
        order[cpu] += 1
        if ns is not None:
            said.waits.append(((cpu, ts), ns))
            said.by_order.append(((cpu, order[cpu]), ns))
    return said


def _run(command: tuple[str, ...]) -> tuple[str, int]:
    try:
        done = subprocess.run(
            command, capture_output=True, timeout=60, check=False, stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired:
        return "Warning: no answer within a minute", 124
    return (done.stdout + done.stderr).decode(errors="replace"), done.returncode


def trace_cmd(path: Path) -> Said:
    """`trace-cmd report -w -t`: the latency of each wakeup, beside the switch that ended it."""
    command = tool("trace-cmd")
    assert command
    text, status = _run((*command, "report", "-w", "-t", str(path)))
    rows = [
        (int(cpu), ts, None if ns is None else round(float(ns) * 1000))
        for cpu, ts, ns in (m.groups() for m in _SWITCH.finditer(text))
    ]
    return _said(rows, text, status)


def perf(path: Path) -> Said:
    """`perf sched timehist`: the delay before each run; warnings of `perf sched latency`, too."""
    command = tool("perf")
    assert command
    text, status = _run((*command, "sched", "timehist", "-f", "-i", str(path)))
    rows = [
        # It also prints 0.000 where there is no wakeup.
        (int(cpu), ts, round(float(ms) * 1e6) or None)
        for ts, cpu, ms in (m.groups() for m in _TIMEHIST.finditer(text))
    ]
    more, _ = _run((*command, "sched", "latency", "-f", "-i", str(path)))
    return _said(rows, text + more, status)


def ours(path: Path, cache: Path) -> Said:
    """schedscope's measured waits; a warning is one of `check`."""
    try:
        trace = ss.open(path, cache=cache, refresh=True)
        warnings = frozenset(caution.caution(trace).warnings)
    except Exception:
        # A refusal, or a crash, which the table of the campaign counts.
        return Said(refused=True)
    waits = (
        trace.waits.filter(pl.col("ts_run").is_not_null())
        .sort("ts_run")
        .select("cpu", "ts_run", measured=pl.when(pl.col("censored") == "none").then("wait"))
        .collect()
    )
    found = _said(list(waits.iter_rows()), "", 0)
    found.warnings = warnings
    return found


class NoReference(Exception):
    """A tool gave no answer, or two answers, for the undamaged file: nothing can be compared."""


def reference(name: str, ask: Ask, path: Path) -> Said:
    """A tool's answer for the undamaged file. Without it every other wait would look wrong."""
    first, second = ask(path), ask(path)
    if first.refused or not first.waits:
        why = ", ".join(sorted(first.warnings)) or "no waits in its output"
        raise NoReference(f"{name} gave no waits for the undamaged file ({why})")
    if first.waits != second.waits:
        raise NoReference(f"{name} gave two different answers for the undamaged file")
    return first


Ask = Callable[[Path], Said]
_HEADINGS = ("damage", "inputs")
_EACH = ("refused or failed", "warned", "wrong waits", "of them without a warning", "longest wrong")


def _rows(
    files: list[tuple[str, int, bytes]], asks: dict[str, Ask], whole: dict[int, bytes], path: Path
) -> list[list[str]]:
    """One line for each kind; `files`: (kind, capture, content), `whole`: undamaged, by capture."""
    references: dict[tuple[str, int], Said] = {}
    for capture, content in whole.items():
        path.write_bytes(content)
        for name, ask in asks.items():
            references[name, capture] = reference(name, ask, path)
    counts: dict[str, dict[str, list[int]]] = {}
    inputs: dict[str, int] = defaultdict(int)
    for kind, capture, content in files:
        path.write_bytes(content)
        inputs[kind] += 1
        for name, ask in asks.items():
            said, whole_said = ask(path), references[name, capture]
            wrong = said.wrong(whole_said, by_order="clock" in kind)
            if kind == "nothing" and said.waits != whole_said.waits:
                raise NoReference(f"{name} says otherwise of the undamaged file when asked again")
            # Warnings that it also gives for the undamaged file do not count.
            warned = bool(said.warnings - whole_said.warnings)
            sums = counts.setdefault(kind, {}).setdefault(name, [0] * 5)
            sums[0] += said.refused
            sums[1] += warned and not said.refused
            sums[2] += len(wrong)
            sums[3] += 0 if warned else len(wrong)
            sums[4] = max(sums[4], wrong[0] if wrong else 0)
    return [
        [kind, str(inputs[kind]), *(cell for name in asks for cell in _cells(by_name[name]))]
        for kind, by_name in counts.items()
    ]


def _cells(sums: list[int]) -> list[str]:
    refused, warned, wrong, silent, longest = sums
    return [
        str(refused),
        str(warned),
        f"{wrong:,}",
        f"{silent:,}",
        length(longest) if wrong else "-",
    ]


def _table(asks: dict[str, Ask], rows: list[list[str]]) -> str:
    headings = (*_HEADINGS, *(f"{name}: {what}" for name in asks for what in _EACH))
    return table(headings, rows)


def tables(cases: list[Case], numbers: int, seed: int, work: Path) -> dict[str, str]:
    """Answers of other tools about the same inputs: a table for each that is installed."""
    asked: dict[str, Callable[[], str]] = {
        "trace-cmd": lambda: _trace_cmd_part(cases, numbers, seed, work),
        "perf": lambda: _perf_part(numbers, seed, work),
    }
    found = {}
    for name, part in asked.items():
        if not numbers or not tool(name):
            print(f"{name} was not asked", file=sys.stderr)
            continue
        try:
            found[f"faults-{name}"] = part()
        except NoReference as error:
            print(f"{name} is left out: {error}", file=sys.stderr)
    return found


def _trace_cmd_part(cases: list[Case], numbers: int, seed: int, work: Path) -> str:
    files, whole = [], {}
    for at, case in enumerate(cases[:_CAPTURES]):
        whole[at] = tracedat.encode(case.recording)
        for name in KINDS:
            for number in range(numbers):
                mutant = campaign.draw(case, name, number, seed)
                files.append((name, at, mutant.file or tracedat.encode(mutant.recording)))
    files.sort(key=lambda file: list(KINDS).index(file[0]))
    cache = work / "peers-cache"
    asks: dict[str, Ask] = {"trace-cmd": trace_cmd, "schedscope": lambda p: ours(p, cache)}
    rows = _rows(files, asks, whole, work / "peer.dat")
    return _table(asks, rows)


def _perf_part(numbers: int, seed: int, work: Path) -> str:
    content = PERF_FILE.read_bytes()
    file = perfdata.read(content)
    files = [
        (name, 0, edit(file, random.Random(f"{seed}/perf/{name}/{number}")))
        for name, edit in perfdata.EDITS.items()
        for number in range(max(1, 3 * numbers))
    ]
    cache = work / "peers-cache"
    asks: dict[str, Ask] = {"perf": perf, "schedscope": lambda p: ours(p, cache)}
    rows = _rows(files, asks, {0: content}, work / "peer.data")
    return _table(asks, rows)
