"""What a recording says beside what the kernel says, of the same seconds.

* Its text: every event of the recording is, CPU by CPU and in order, one of the text that a second
  trace instance printed.
* Its accounts: each thread of the workload wrote at its end how long the kernel made it wait
  (`run_delay`), how often it was switched in, moved, and left the CPU of its own will or not.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

import schedscope as ss
from lab.quota import Quota, quota

_LINE = re.compile(r"^\s*(.+)-(\d+)\s+\[(\d+)\]\s+(?:\S+\s+)?(\d+)\.(\d+): (\w+): (.*)$")
_PAIR = re.compile(r"(\w+)=(.*?)(?=\s+\w+=|\s+==>|$)")
_STATES = {
    "S": "sleeping", "D": "blocked", "T": "stopped", "t": "stopped", "X": "dead", "Z": "dead",
    "P": "parked", "I": "parked", "R": "runnable",
}  # fmt: skip
_KINDS = {"sched_waking": "waking", "sched_wakeup": "enqueued", "sched_wakeup_new": "new"}


@dataclass
class Verdict:
    """One cell's figures. Differences count; times are ns."""

    events: int = 0
    differing: int = 0
    """Events of the recording that the kernel's text does not have at that place."""
    threads: int = 0
    delay: int = 0
    queued: int = 0
    """Sum of the queue times that schedscope reconstructed; `delay` is the kernel's."""
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
    examples: list[str] = field(default_factory=list)

    @property
    def queue_error(self) -> float:
        """Reconstructed over reported queue time, less one."""
        return self.queued / self.delay - 1 if self.delay else 0.0


def judge(folder: Path) -> Verdict:
    """Compare the recording in a run's folder with what the kernel said there."""
    trace = ss.open(folder / "lab.capture", cache=folder / "cache")
    verdict = Verdict(data=_sound(trace))
    _text(trace, folder / "trace.txt", verdict)
    _accounts(trace, folder / "truth.tsv", verdict)
    if (folder / "quota.txt").exists():
        verdict.quota = quota(trace, folder / "quota.txt")
    return verdict


def _sound(trace: ss.Trace) -> str:
    found = ss.check(trace)
    bad = found.filter(pl.col("level").is_in(["warning", "violated"]))["check"].to_list()
    return ", ".join(bad) if bad else "sound"


def _text(trace: ss.Trace, path: Path, verdict: Verdict) -> None:
    told = _told(path)
    recorded = _recorded(trace)
    for key, events in recorded.items():
        verdict.events += len(events)
        found, differing = told.get(key, []), len(events)
        # The text began earlier, and ended later: the recording is a part of it.
        for skip in range(len(found) - len(events) + 1):
            part = found[skip : skip + len(events)]
            differing = min(differing, sum(a != b for a, b in zip(part, events, strict=True)))
            if differing == 0:
                break
        verdict.differing += differing
        if differing:
            verdict.examples.append(f"{key}: {differing} of {len(events)} differ")


def _told(path: Path) -> dict[tuple[str, int], list[tuple[Any, ...]]]:
    told: dict[tuple[str, int], list[tuple[Any, ...]]] = defaultdict(list)
    with path.open(errors="replace") as lines:
        for line in lines:
            match = _LINE.match(line)
            if match is None:
                continue
            cpu, name = int(match[3]), match[6]
            said = dict(_PAIR.findall(match[7].replace(" ==> ", " ")))
            if name == "sched_switch":
                state = _STATES.get(said["prev_state"][0], "?")
                row = ("prev_pid", "next_pid", "prev_prio", "next_prio")
                told["switch", cpu].append((*(int(said[key]) for key in row), state))
            elif name in _KINDS:
                who = ("pid", "prio", "target_cpu")
                told["wakeup", cpu].append((_KINDS[name], *(int(said[key]) for key in who)))
            elif name == "sched_migrate_task":
                move = ("pid", "orig_cpu", "dest_cpu")
                told["migrate", cpu].append(tuple(int(said[key]) for key in move))
    return told


def _recorded(trace: ss.Trace) -> dict[tuple[str, int], list[tuple[Any, ...]]]:
    tids = dict(trace.threads.select("utid", "tid").collect().iter_rows())
    found: dict[tuple[str, int], list[tuple[Any, ...]]] = defaultdict(list)
    switches = trace.switches.select(
        "cpu", "prev_utid", "next_utid", "prev_prio", "next_prio", "prev_state"
    )
    for cpu, before, after, *rest in switches.collect().iter_rows():
        found["switch", cpu].append((tids[before], tids[after], *rest))
    for cpu, kind, utid, *rest in (
        trace.wakeups.select("cpu", "kind", "utid", "prio", "target_cpu").collect().iter_rows()
    ):
        found["wakeup", cpu].append((kind, tids[utid], *rest))
    for cpu, utid, *rest in (
        trace.migrations.select("cpu", "utid", "from_cpu", "to_cpu").collect().iter_rows()
    ):
        found["migrate", cpu].append((tids[utid], *rest))
    return found


def _accounts(trace: ss.Trace, path: Path, verdict: Verdict) -> None:
    threads = trace.threads.collect()
    waits, moves, switches = pl.collect_all([trace.waits, trace.migrations, trace.switches])
    for line in path.read_text().splitlines():
        tid, _, comm, ts, _, delay, ins, *kernels = line.split("\t")
        end = int(ts)
        utid = _incarnation(threads, int(tid), end)
        if utid is None:
            verdict.examples.append(f"{comm} {tid}: no one thread of the trace")
            continue
        waited = waits.filter((pl.col("utid") == utid) & (pl.col("ts_run") <= end))
        off = switches.filter((pl.col("prev_utid") == utid) & (pl.col("ts") <= end))
        moved = moves.filter((pl.col("utid") == utid) & (pl.col("ts") <= end)).height
        forced = off.filter(
            pl.col("preempted") | pl.col("prev_state").is_in(["running", "runnable"])
        ).height
        queued = int(waited["queue"].sum())
        verdict.threads += 1
        verdict.delay += int(delay)
        verdict.queued += queued
        if int(delay) >= 1_000_000:
            verdict.worst = max(verdict.worst, abs(queued - int(delay)) / int(delay))
        ours = [str(moved), str(off.height - forced), str(forced)]
        wrong = [int(ins) != waited.height]
        wrong += [said not in ("-", own) for own, said in zip(ours, kernels, strict=True)]
        verdict.switch_ins += wrong[0]
        verdict.migrations += wrong[1]
        verdict.left += wrong[2] or wrong[3]
        if any(wrong):
            both = f"{[str(waited.height), *ours]}, kernel {[ins, *kernels]}"
            verdict.examples.append(f"{comm} {tid}: {both}")


def _incarnation(threads: pl.DataFrame, tid: int, ts: int) -> int | None:
    """The thread of that tid which lived then."""
    begun = pl.col("start_ts").is_null() | (pl.col("start_ts") <= ts)
    ended = pl.coalesce("exit_ts", "end_ts")
    found = threads.filter((pl.col("tid") == tid) & begun & (ended.is_null() | (ended >= ts)))
    return int(found["utid"].item()) if found.height == 1 else None
