"""One failure in full: what repeats it, and the events around it, those taken out included."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from faults.recording import Record, Recording

if TYPE_CHECKING:
    from faults.campaign import Case
    from faults.mutations import Mutant

_AROUND = 3
_MOST = 16


def failure(result: dict[str, Any]) -> str:
    """A failed input in a few lines."""
    again = shlex.join([result["capture"], result["kind"], str(result["number"])])
    lines = [f"--seed {result['seed']} --again {again}", f"    {result['what'][:300]}"]
    if result["crashed"]:
        lines.append(f"    crashed: {result['crashed']}")
        return "\n".join(lines) + "\n"
    for wait in result["examples"]["waits"]:
        lines.append("    wait " + json.dumps(wait))
    for bound in result["examples"]["bounds"]:
        lines.append("    bound " + json.dumps(bound))
    for ns, tid, begin, end, said, true in result["examples"]["states"][:2]:
        lines.append(f"    state of tid {tid} {begin}..{end} ({ns} ns): {said}, was {true}")
    lines += [f"    figure {one}" for one in result["examples"]["figures"]]
    return "\n".join(lines) + "\n"


def again(cases: list[Case], which: tuple[str, str, str], seed: int, work: Path) -> str:
    """Judge one input (capture, kind, number) once more; show each failure with its events."""
    from faults import campaign

    name, kind, number = which
    case = next(case for case in cases if case.name == name)
    result = campaign.judge(case, kind, int(number), seed, work)
    mutant = campaign.draw(case, kind, int(number), seed)
    parts = [failure(result)]
    for wait in result.get("examples", {}).get("waits", []):
        ready = min(wait["ts_ready"], wait["true_ready"] or wait["ts_ready"])
        parts.append(f"wait of tid {wait['tid']}: said {wait['wait']} ns, true {wait['true']}")
        parts.append(events(case.recording, mutant, wait["tid"], ready, wait["ts_run"]))
    for ns, tid, begin, end, said, true in result.get("examples", {}).get("states", []):
        parts.append(f"state of tid {tid} for {ns} ns: said {said}, was {true}")
        parts.append(events(case.recording, mutant, tid, begin, end))
    return "\n".join(parts)


def events(whole: Recording, mutant: Mutant, tid: int, begin: int, end: int) -> str:
    """What the undamaged recording has of a thread around an interval; `-`: taken out."""
    kept = {(cpu, r.ts, r.data) for cpu, rs in mutant.recording.cpus.items() for r in rs}
    rows = [(cpu, record) for cpu, record in whole.merged() if _concerns(whole, record, tid)]
    first = next((at for at, (_, r) in enumerate(rows) if r.ts >= begin), len(rows))
    last = next((at for at, (_, r) in enumerate(rows) if r.ts > end), len(rows))
    rows = rows[max(0, first - _AROUND) : last + 1]
    lines = []
    for at, (cpu, record) in enumerate(rows):
        if _MOST // 2 <= at < len(rows) - _MOST // 2:
            continue
        # Events with moved stamps are not found again, but are not losses.
        gone = mutant.clock_off is None and (cpu, record.ts, record.data) not in kept
        lines.append(f"  {'-' if gone else ' '} {record.ts} cpu{cpu} {_words(whole, record)}")
    return "\n".join(lines)


def _concerns(whole: Recording, record: Record, tid: int) -> bool:
    layout = whole.formats[record.event_id]
    names = ("prev_pid", "next_pid", "pid")
    return any(n in layout.fields and layout.get(record.data, n) == tid for n in names)


def _words(whole: Recording, record: Record) -> str:
    layout = whole.formats[record.event_id]
    skip = {"common_type", "common_flags", "common_preempt_count", "comm", "parent_comm"}
    skip |= {"prev_prio", "next_prio", "prio"}
    fields = {name: place for name, place in layout.fields.items() if place[1] <= 8}
    said = [f"{n}={layout.get(record.data, n)}" for n in fields if n not in skip]
    return f"{layout.name} {' '.join(said)}"
