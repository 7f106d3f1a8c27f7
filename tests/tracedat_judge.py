"""Output of `trace-cmd report -R` for a file, as rows to compare ours with."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

# trace-cmd 3.4 puts the flags in hexadecimal before the time, and nothing between them if the time
# is a bare number: only its number of digits shows where it begins.
_LINE = (
    r"^\s*(?:\S+:\s+)?.+?-+\d+\s+\[(\d+)\](?:-0x[0-9a-f]+?)?"
    r"\s*(\d{{{digits}}}|\d+\.\d{{9}}): (\w+):\s*(.*)$"
)
_PAIR = re.compile(r"(\w+)=(.*?)(?= \w+=|$)")
_STATES = {
    0: "runnable",
    1: "sleeping",
    2: "blocked",
    4: "stopped",
    8: "stopped",
    0x10: "dead",
    0x20: "dead",
    0x40: "parked",
    0x80: "parked",
    0x100: "runnable",
}
_KINDS = {"sched_waking": "waking", "sched_wakeup": "enqueued", "sched_wakeup_new": "new"}

Row = tuple[object, ...]


@dataclass
class Judged:
    """Counts by (event, CPU); rows sorted, threads by tid."""

    counts: Counter[tuple[str, int]] = field(default_factory=Counter)
    switches: list[Row] = field(default_factory=list)
    wakeups: list[Row] = field(default_factory=list)
    migrations: list[Row] = field(default_factory=list)


def report(command: tuple[str, ...], path: Path, digits: int) -> Judged:
    """Run `trace-cmd report` without its plug-ins: plain fields, full time stamps.

    `digits`: how many a time stamp of this trace has, in nanoseconds.
    """
    pattern = re.compile(_LINE.format(digits=digits))
    done = subprocess.run(
        [*command, "report", "-t", "-R", "-N", str(path)], capture_output=True, check=True
    )
    judged = Judged()
    for line in done.stdout.decode(errors="replace").splitlines():
        if match := pattern.match(line):
            cpu, ts, name, rest = match.groups()
            _take(judged, int(cpu), int(ts.replace(".", "")), name, dict(_PAIR.findall(rest)))
    judged.switches.sort()
    judged.wakeups.sort()
    judged.migrations.sort()
    return judged


def _take(judged: Judged, cpu: int, ts: int, name: str, fields: dict[str, str]) -> None:
    judged.counts[(name, cpu)] += 1

    def number(key: str) -> int:
        return int(fields[key], 16 if fields[key].startswith("0x") else 10)

    if name == "sched_switch":
        state = _STATES[number("prev_state")]
        prev = (number("prev_pid"), number("prev_prio"), state)
        following = (number("next_pid"), number("next_prio"))
        judged.switches.append((ts, cpu, *prev, *following))
    elif name in _KINDS:
        who = (number("pid"), number("prio"), number("target_cpu"))
        judged.wakeups.append((ts, cpu, *who, _KINDS[name]))
    elif name == "sched_migrate_task":
        where = (number("pid"), number("orig_cpu"), number("dest_cpu"))
        judged.migrations.append((ts, cpu, *where))
