"""A recording compared with the kernel's own reports of the same seconds.

* Its text: every event of the recording is, CPU by CPU and in order, one of the text that a second
  trace instance printed.
* Its accounts: each thread of the workload wrote at its end how long the kernel made it wait
  (`run_delay`), how often it was switched in, moved, and left the CPU of its own will or not.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

import polars as pl

import schedscope as ss
from research.lab.queues import Queues, queues
from research.lab.quota import Quota, quota
from research.lab.steal import Steal, steal

_LINE = re.compile(r"^\s*(.+)-(\d+)\s+\[(\d+)\]\s+(?:\S+\s+)?(\d+)\.(\d+): (\w+): (.*)$")
_PAIR = re.compile(r"(\w+)=(.*?)(?=\s+\w+=|\s+==>|$)")
_STATES = {
    "S": "sleeping", "D": "blocked", "T": "stopped", "t": "stopped", "X": "dead", "Z": "dead",
    "P": "parked", "I": "parked", "R": "runnable",
}  # fmt: skip
Row = tuple[Any, ...]
Events = dict[tuple[str, int], list[tuple[int, Row]]]
"""By kind and CPU, in order, each with its time."""

_KINDS = {"sched_waking": "waking", "sched_wakeup": "enqueued", "sched_wakeup_new": "new"}


@dataclass
class Verdict:
    """One cell's figures. Differences count; times are ns."""

    events: int = 0
    differing: int = 0
    """Events of the recording that the kernel's text does not have at that place."""
    missing: int = 0
    """Events of the text, between two of the recording, that the recording does not have."""
    threads: int = 0
    delay: int = 0
    asleep: int = 0
    """The part of `delay` in which threads slept: Linux 6.12 counts it from when a thread that
    is asleep, but not yet off its queue (delayed dequeue), is moved to another one."""
    queued: int = 0
    """Sum of the queue times that schedscope reconstructed; `delay` is the kernel's."""
    possible: int = 0
    """The same, if threads waited whenever it is unknown what they did."""
    worst: float = 0.0
    """Largest difference of one thread that waited 1 ms or more, as a share of its delay."""
    switch_ins: int = 0
    migrations: int = 0
    left: int = 0
    """Threads whose count of switch-ins, migrations, or voluntary and involuntary switches
    is not the kernel's."""
    data: str = ""
    """The verdict of `schedscope check`."""
    quota: Quota | None = None
    """Of a cell whose kernel told when it throttled."""
    queues: Queues | None = None
    """Of a cell whose scheduler of sched_ext told its decisions."""
    steal: Steal | None = None
    """Of a cell below a hypervisor, if the one to compare it with has run."""
    examples: list[str] = field(default_factory=list)

    @property
    def queue_error(self) -> float:
        """Reconstructed over reported queue time, less one."""
        waited = self.delay - self.asleep
        return self.queued / waited - 1 if waited else 0.0


def judge(folder: Path) -> Verdict:
    """Compare the recording in a run's folder with what the kernel said there."""
    trace = ss.open(folder / "lab.capture", cache=folder / "cache")
    verdict = Verdict(data=_sound(trace))
    _text(trace, folder / "trace.txt", verdict)
    _accounts(trace, folder / "truth.tsv", verdict)
    if (folder / "quota.txt").exists():
        verdict.quota = quota(trace, folder / "quota.txt")
    if (folder / "decisions.txt").exists():
        verdict.queues = queues(trace, folder / "decisions.txt")
    alone = json.loads((folder / "run.json").read_text()).get("alone")
    if alone and (folder.parent / alone / "truth.tsv").exists():
        verdict.steal = steal(trace, folder, folder.parent / alone)
    return verdict


def _sound(trace: ss.Trace) -> str:
    found = ss.check(trace)
    bad = found.filter(pl.col("level").is_in(["warning", "violated"]))["check"].to_list()
    return ", ".join(bad) if bad else "sound"


def _text(trace: ss.Trace, path: Path, verdict: Verdict) -> None:
    told, recorded = _told(path), _recorded(trace)
    if trace.info.get("recorder", {}).get("name") in _LEAVE_THEMSELVES_OUT:
        own = set(trace.threads.filter("recorder").select("tid").collect()["tid"])
        told, recorded = _without(told, own), _without(recorded, own)
    for key, events in recorded.items():
        verdict.events += len(events)
        differing, missing = _compare(told.get(key, []), events)
        verdict.differing += differing
        verdict.missing += missing
        if differing or missing:
            said = f"{key}: {differing} of {len(events)} differ, {missing} are missing"
            verdict.examples.append(said)


_LEAVE_THEMSELVES_OUT = ("bpftrace", "dtrace")
"""Recorders whose scripts leave out wakeups and moves of their own threads, and priorities."""


def _without(events: Events, own: set[int]) -> Events:
    """The events except those of its own threads that such a recorder leaves out."""

    def told(kind: str, row: Row) -> Row | None:
        if kind != "switch":
            return None if row[1 if kind == "wakeup" else 0] in own else row
        before, after, *prios, state = row
        known = (None if tid in own else prio for tid, prio in zip(row[:2], prios, strict=True))
        return (before, after, *known, state)

    kept: Events = {}
    for (kind, cpu), rows in events.items():
        both = ((ts, told(kind, row)) for ts, row in rows)
        kept[kind, cpu] = [(ts, row) for ts, row in both if row is not None]
    return kept


def _compare(told: list[tuple[int, Row]], events: list[tuple[int, Row]]) -> tuple[int, int]:
    """How many events the text does not have there, and how many of its own are missing.

    The text began earlier, and ended later: the recording is a part of it.
    """
    theirs, ours = [row for _, row in told], [row for _, row in events]
    for skip in range(len(theirs) - len(ours) + 1):
        if theirs[skip : skip + len(ours)] == ours:
            return 0, 0
    begin, end = events[0][0] - _STAMPED, events[-1][0] + _STAMPED
    theirs = [row for ts, row in told if begin <= ts <= end]
    same = SequenceMatcher(None, theirs, ours, autojunk=False).get_matching_blocks()[:-1]
    if not same:
        return len(ours), 0
    matched = sum(block.size for block in same)
    span = same[-1].a + same[-1].size - same[0].a
    return len(ours) - matched, span - matched


_STAMPED = 1_000_000
"""No two recorders stamp one event as far apart, in ns."""


def _told(path: Path) -> Events:
    told: Events = defaultdict(list)
    with path.open(errors="replace") as lines:
        for line in lines:
            match = _LINE.match(line)
            if match is None:
                continue
            cpu, name = int(match[3]), match[6]
            ts = int(match[4]) * 1_000_000_000 + int(match[5].ljust(9, "0"))
            said = dict(_PAIR.findall(match[7].replace(" ==> ", " ")))
            if name == "sched_switch":
                state = _STATES.get(said["prev_state"][0], "?")
                row = ("prev_pid", "next_pid", "prev_prio", "next_prio")
                told["switch", cpu].append((ts, (*(int(said[key]) for key in row), state)))
            elif name in _KINDS:
                who = ("pid", "prio", "target_cpu")
                told["wakeup", cpu].append((ts, (_KINDS[name], *(int(said[key]) for key in who))))
            elif name == "sched_migrate_task":
                move = ("pid", "orig_cpu", "dest_cpu")
                told["migrate", cpu].append((ts, tuple(int(said[key]) for key in move)))
    return told


def _recorded(trace: ss.Trace) -> Events:
    tids = dict(trace.threads.select("utid", "tid").collect().iter_rows())
    found: Events = defaultdict(list)
    switches = trace.switches.select(
        "ts", "cpu", "prev_utid", "next_utid", "prev_prio", "next_prio", "prev_state"
    )
    for ts, cpu, before, after, *rest in switches.collect().iter_rows():
        found["switch", cpu].append((ts, (tids[before], tids[after], *rest)))
    wakeups = trace.wakeups.select("ts", "cpu", "kind", "utid", "prio", "target_cpu")
    for ts, cpu, kind, utid, *rest in wakeups.collect().iter_rows():
        found["wakeup", cpu].append((ts, (kind, tids[utid], *rest)))
    moves = trace.migrations.select("ts", "cpu", "utid", "from_cpu", "to_cpu")
    for ts, cpu, utid, *rest in moves.collect().iter_rows():
        found["migrate", cpu].append((ts, (tids[utid], *rest)))
    return found


def _accounts(trace: ss.Trace, path: Path, verdict: Verdict) -> None:
    threads = trace.threads.collect()
    tables = [trace.waits, trace.migrations, trace.switches, trace.states]
    waits, moves, switches, states = pl.collect_all(tables)
    bounds = ss.latency(trace, by="utid").select("utid", slack=pl.col("total_high") - "total")
    slack = dict(bounds.iter_rows())
    placed = pl.col("wait") - pl.col("placement").fill_null(0)
    certain = pl.coalesce("queue", placed).clip(lower_bound=0)
    for line in path.read_text().splitlines():
        tid, _, comm, ts, _, delay, ins, *kernels = line.split("\t")
        end = int(ts)
        utid = _incarnation(threads, int(tid), end)
        if utid is None:
            verdict.examples.append(f"{comm} {tid}: no one thread of the trace")
            continue
        waited = waits.filter((pl.col("utid") == utid) & (pl.col("ts_run") <= end))
        off = switches.filter((pl.col("prev_utid") == utid) & (pl.col("ts") <= end))
        forced = off.filter(
            pl.col("preempted") | pl.col("prev_state").is_in(["running", "runnable"])
        ).height
        over = pl.coalesce("ts_run", pl.col("ts_ready") + pl.col("wait")) <= end
        queued = int(waits.filter(over, utid=utid).select(certain.sum()).item() or 0)
        moves_then = moves.filter((pl.col("utid") == utid) & (pl.col("ts") <= end))
        asleep = min(_asleep_on_a_queue(states.filter(utid=utid), moves_then), int(delay))
        verdict.threads += 1
        verdict.delay += int(delay)
        verdict.asleep += asleep
        verdict.queued += queued
        verdict.possible += queued + int(slack.get(utid, 0))
        if (waiting := int(delay) - asleep) >= 1_000_000:
            verdict.worst = max(verdict.worst, abs(queued - waiting) / waiting)
        ours = [str(moves_then.height), str(off.height - forced), str(forced)]
        wrong = [int(ins) != waited.height]
        wrong += [said not in ("-", own) for own, said in zip(ours, kernels, strict=True)]
        verdict.switch_ins += wrong[0]
        verdict.migrations += wrong[1]
        verdict.left += wrong[2] or wrong[3]
        if any(wrong):
            both = f"{[str(waited.height), *ours]}, kernel {[ins, *kernels]}"
            verdict.examples.append(f"{comm} {tid}: {both}")


def _asleep_on_a_queue(states: pl.DataFrame, moves: pl.DataFrame) -> int:
    """How long a thread slept after it was moved in its sleep."""
    rest = states.filter(pl.col("state").is_in(["sleeping", "blocked", "stopped"]))
    found = 0
    for ts, dur in rest.select("ts", "dur").iter_rows():
        inside = moves.filter((pl.col("ts") >= ts) & (pl.col("ts") < ts + dur))["ts"].min()
        if isinstance(inside, int):
            found += ts + dur - inside
    return found


def _incarnation(threads: pl.DataFrame, tid: int, ts: int) -> int | None:
    """The thread of that tid which lived then."""
    begun = pl.col("start_ts").is_null() | (pl.col("start_ts") <= ts)
    ended = pl.coalesce("exit_ts", "end_ts")
    found = threads.filter((pl.col("tid") == tid) & begun & (ended.is_null() | (ended >= ts)))
    return int(found["utid"].item()) if found.height == 1 else None
