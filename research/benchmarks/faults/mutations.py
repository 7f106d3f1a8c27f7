"""The kinds of damage, and how each is done to a recording, drawn by a seeded generator."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from faults.recording import Record, Recording, stamp

Keep = Callable[[int, Record], bool]


@dataclass
class Mutant:
    """A damaged recording and a description of the damage, enough to repeat it."""

    recording: Recording
    what: str
    # (CPU, first instant, last instant) of what was taken out, both inside the gap.
    holes: list[tuple[int, int, int]] = field(default_factory=list)
    # By how many ns a CPU's clock is off at an instant; None if no clock is. If one is, times are
    # compared through the switches of each CPU.
    clock_off: Callable[[int], int] | None = None
    # The source of the truth, if not the undamaged recording.
    truth_of: list[Recording] = field(default_factory=list)
    # Are the states of every thread at every instant those of the truth?
    states_judged: bool = True
    # A trace.dat to read instead of a capture folder.
    file: bytes | None = None


class Draw(random.Random):
    """Random numbers seeded by the name of the input, and its number within its kind."""

    def __init__(self, seed: str, number: int = 0) -> None:
        """Seed by a text: the same on any machine."""
        super().__init__(seed)
        self.number = number

    def spread(self, n: int) -> int:
        """One of `n` places: successive numbers come to all of them, far from each other."""
        step = next(k for k in range(max(1, round(n * 0.618)), 2 * n + 2) if math.gcd(k, n) == 1)
        return (self.number * step + n // 3) % n


Mutation = Callable[[Recording, Draw], Mutant]

KINDS: dict[str, Mutation] = {}
"""Every kind of damage by name."""

_CAN_BE: dict[str, Callable[[Recording], bool]] = {}


def of_several_cpus(recording: Recording) -> bool:
    """No clock differs from another, and no CPU goes offline, where there is one CPU."""
    return len(recording.cpus) > 1


def of_all_that_was_counted(recording: Recording) -> bool:
    """A ring's file has the last events: the kernel's counts do not say how many these are."""
    return "ring" not in recording.about


def of_linux(recording: Recording) -> bool:
    """Whether the fields of its events are those of Linux's trace events."""
    return any(layout.name == "sched_switch" for layout in recording.formats.values())


_BY_TIME = ("nothing", "hole", "many holes", "start", "end", "CPU", "one CPU", "clock")
"""Kinds that need no more of an event than its time and CPU."""

_IN_PAGES = ("page", "a CPU truncated", "bits flipped", "trace.dat")


def in_pages(name: str) -> bool:
    """Whether this kind of damage is done to sub-buffers, which no other format has."""
    return name.startswith(_IN_PAGES)


def can_be(name: str, recording: Recording) -> bool:
    """Whether a recording like this one can be damaged so."""
    if not of_linux(recording) and not name.startswith(_BY_TIME):
        return False
    if in_pages(name) and "ftrace" not in recording.about:
        return False
    return name not in _CAN_BE or _CAN_BE[name](recording)


def kind(
    name: str, of: Callable[[Recording], bool] | None = None
) -> Callable[[Mutation], Mutation]:
    """Enter a function into KINDS; `of`: which recordings can be damaged so."""

    def enter(function: Mutation) -> Mutation:
        assert name not in KINDS
        KINDS[name] = function
        if of is not None:
            _CAN_BE[name] = of
        return function

    return enter


def cut(recording: Recording, cpu: int, begin: int, end: int) -> int:
    """Take out the records of `[begin, end]`; returns how many there were."""
    records = recording.cpus[cpu]
    recording.cpus[cpu] = [r for r in records if not begin <= r.ts <= end]
    return len(records) - len(recording.cpus[cpu])


def mark(recording: Recording, cpu: int, begin: int, lost: int, counted: bool) -> None:
    """Say that `lost` events are missing before the first record after `begin`.

    As the kernel does: a flag in the next sub-buffer read, and `overrun` in the CPU's stats,
    which the collector copies into `capture.json`.
    """
    records = recording.cpus[cpu]
    for at, record in enumerate(records):
        if record.ts >= begin:
            records[at] = replace(record, missed=lost if counted else 0)
            break
    book(recording, cpu, lost)


def book(recording: Recording, cpu: int, lost: int) -> None:
    """Record a loss of the ring buffer in the stats and into `capture.json`."""
    stats = recording.stats[cpu]
    stats["overrun"] = str(int(stats["overrun"]) + lost)
    losses = recording.about["lost"]
    entry = next((e for e in losses if e["cpu"] == cpu and e["reason"] == "overrun"), None)
    if entry is None:
        entry = {"cpu": cpu, "count": 0, "reason": "overrun", "ts_begin": None, "ts_end": None}
        losses.append(entry)
    entry["count"] += lost


def recount(recording: Recording) -> None:
    """Make the kernel's counts agree with the file, so that nothing shows the missing events."""
    for cpu, records in recording.cpus.items():
        if cpu in recording.stats:
            recording.stats[cpu]["read events"] = str(len(records))
            if records and "oldest event ts" in recording.stats[cpu]:
                # As if the last one had a sub-buffer for itself.
                recording.stats[cpu]["oldest event ts"] = stamp(records[-1].ts)


def some_hole(
    recording: Recording, rng: Draw, shortest: float = 20e3, longest: float = 0.5
) -> tuple[int, int]:
    """A stretch of the window: its length log-uniform up to a share `longest` of it."""
    begin, end = recording.window
    top = (end - begin) * longest
    length = int(shortest * (top / shortest) ** rng.random())
    at = rng.randint(begin, end - length)
    return at, at + length


def _hole(name: str, cpus: int, marked: bool, pieces: int = 1, counted: bool = False) -> None:
    @kind(name, of=of_all_that_was_counted if counted else None)
    def hole(whole: Recording, rng: Draw) -> Mutant:
        made, holes = whole.copy(), []
        chosen = rng.sample(sorted(made.cpus), min(cpus, len(made.cpus)))
        for _ in range(pieces):
            begin, end = some_hole(whole, rng, longest=0.5 if pieces == 1 else 0.1)
            for cpu in chosen:
                if lost := cut(made, cpu, begin, end):
                    holes.append((cpu, begin, end))
                    if marked:
                        mark(made, cpu, end, lost, counted=rng.random() < 0.7)
        if not counted:
            recount(made)
        spans = ", ".join(f"CPU {c} {b}..{e}" for c, b, e in holes)
        return Mutant(made, f"hole {spans}", holes)


@kind("nothing")
def nothing(whole: Recording, rng: Draw) -> Mutant:
    """Undamaged: any difference is an error of the campaign or of a definition."""
    return Mutant(whole.copy(), "nothing")


_hole("hole, marked", 1, True)
_hole("hole on all CPUs, marked", 64, True)
_hole("many holes, marked", 1, True, pieces=6)
_hole("hole, unmarked", 1, False)
_hole("hole, in the count of events read only", 1, False, counted=True)
_hole("hole on all CPUs, unmarked", 64, False)


@kind("hole, in stats only", of=of_all_that_was_counted)
def in_stats_only(whole: Recording, rng: Draw) -> Mutant:
    made = whole.copy()
    begin, end = some_hole(whole, rng)
    cpu = rng.choice(sorted(made.cpus))
    if lost := cut(made, cpu, begin, end):
        book(made, cpu, lost)
    recount(made)
    return Mutant(made, f"hole CPU {cpu} {begin}..{end}, {lost} events", [(cpu, begin, end)])


def _edge(name: str, first: bool, counted: bool) -> None:
    @kind(name, of=of_all_that_was_counted if counted else None)
    def edge(whole: Recording, rng: Draw) -> Mutant:
        made = whole.copy()
        begin, end = whole.window
        cpu = rng.choice(sorted(made.cpus))
        share = rng.choice([0.01, 0.05, 0.1, 0.25, 0.5, 0.8])
        at = begin + int((end - begin) * (share if first else 1 - share))
        hole = (cpu, begin, at) if first else (cpu, at, end)
        lost = cut(made, *hole)
        if counted and lost:
            book(made, cpu, lost)
        recount(made)
        side = "first" if first else "last"
        return Mutant(made, f"{side} {share:.0%} of CPU {cpu} missing", [hole])


_edge("start of a CPU missing, counted in stats", True, True)
_edge("start of a CPU missing, unmarked", True, False)
_edge("end of a CPU missing, counted in stats", False, True)
_edge("end of a CPU missing, unmarked", False, False)


@kind("CPU absent")
def absent(whole: Recording, rng: Draw) -> Mutant:
    made = whole.copy()
    cpu = rng.choice(sorted(made.cpus))
    del made.cpus[cpu]
    made.stats.pop(cpu, None)
    return Mutant(made, f"CPU {cpu} absent", [(cpu, *whole.window)])


@kind("one CPU only", of=of_several_cpus)
def one_only(whole: Recording, rng: Draw) -> Mutant:
    """A recorder with the option to record one CPU."""
    made = whole.copy()
    kept = rng.choice(sorted(made.cpus))
    others = [cpu for cpu in made.cpus if cpu != kept]
    for cpu in others:
        del made.cpus[cpu]
        made.stats.pop(cpu, None)
    return Mutant(made, f"CPU {kept} only", [(cpu, *whole.window) for cpu in others])


@kind("CPU empty")
def empty(whole: Recording, rng: Draw) -> Mutant:
    made = whole.copy()
    cpu = rng.choice(sorted(made.cpus))
    made.cpus[cpu] = []
    recount(made)
    return Mutant(made, f"CPU {cpu} without a record", [(cpu, *whole.window)])


_DROPPED = {
    "switch": ("sched_switch",),
    "waking": ("sched_waking",),
    "wakeup": ("sched_wakeup", "sched_wakeup_new"),
    "waking and wakeup": ("sched_waking", "sched_wakeup", "sched_wakeup_new"),
    "migrate": ("sched_migrate_task",),
    "fork": ("sched_process_fork", "task_newtask"),
    "exit": ("sched_process_exit",),
}


def _dropped(what: str, share: float) -> None:
    @kind(f"{share:.1%} of {what} dropped".replace(".0%", "%"))
    def dropped(whole: Recording, rng: Draw) -> Mutant:
        made, names = whole.copy(), _DROPPED[what]
        ids = {number for number, layout in made.formats.items() if layout.name in names}
        n = 0
        for cpu, records in made.cpus.items():
            kept = [r for r in records if r.event_id not in ids or rng.random() >= share]
            n += len(records) - len(kept)
            made.cpus[cpu] = kept
        if not n and (
            found := [(c, r) for c, rs in made.cpus.items() for r in rs if r.event_id in ids]
        ):
            cpu, record = rng.choice(found)
            made.cpus[cpu].remove(record)
            n = 1
        recount(made)
        # Where no `waking` is recorded, waits begin when the thread is enqueued.
        defined = [made] if what == "waking" and share == 1 else []
        return Mutant(made, f"{n} of {what} dropped", truth_of=defined)


for _what in _DROPPED:
    for _share in (0.001, 0.01, 0.1):
        _dropped(_what, _share)
for _what in ("migrate", "fork", "exit", "waking", "wakeup", "waking and wakeup"):
    _dropped(_what, 1.0)
