"""What really happened: states and waits of every thread, from a complete recording.

Written apart from schedscope's own reconstruction, and shorter: nothing is missing from a
complete recording, so a thread's state follows from its own events alone. Where a recording
is not complete (`flaws` says where), its longest complete stretch is taken.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from faults.recording import Record, Recording

STATES = ("running", "runnable", "sleeping", "blocked", "stopped", "parked", "dead", "unknown")
# Bits of Linux 4.14 and later; R+ (preempted in the kernel) has none of them.
_BITS = {1: "sleeping", 2: "blocked", 4: "stopped", 8: "stopped"}
_BITS |= {0x10: "dead", 0x20: "dead", 0x40: "parked", 0x80: "parked"}
_AT_REST = {"sleeping", "blocked", "stopped", "parked"}


@dataclass(frozen=True)
class Flaw:
    """Something that the recording does not show, between `since` and `ts`."""

    since: int
    ts: int
    what: str
    tids: tuple[int, ...] = ()


@dataclass
class Truth:
    """States `tid ts end state cpu`, waits `tid ts_ready ts_run wait cpu cause`, and switches."""

    states: pl.DataFrame
    waits: pl.DataFrame
    switches: pl.DataFrame
    window: tuple[int, int]
    flaws: list[Flaw]
    # Threads that a flaw concerns: they are not judged.
    doubtful: set[int]
    ncpu: int


@dataclass
class _Thread:
    state: str = "unknown"
    since: int = 0
    cpu: int | None = None
    out: int | None = None
    ready: int | None = None
    cause: str = "wake"
    # A waking raised while the thread was still on its way off its CPU.
    early: int | None = None


@dataclass
class _Story:
    threads: dict[int, _Thread] = field(default_factory=lambda: defaultdict(_Thread))
    # Per CPU: who runs there, and since when.
    current: dict[int, tuple[int, int]] = field(default_factory=dict)
    states: list[tuple[int, int, int, str, int | None]] = field(default_factory=list)
    waits: list[tuple[int, int, int, int, int, str]] = field(default_factory=list)
    switches: list[tuple[int, int, int, int]] = field(default_factory=list)
    flaws: list[Flaw] = field(default_factory=list)

    def enter(self, tid: int, ts: int, state: str, cpu: int | None = None) -> None:
        thread = self.threads[tid]
        if thread.since and ts > thread.since:
            self.states.append((tid, thread.since, ts, thread.state, thread.cpu))
        thread.state, thread.since, thread.cpu = state, ts, cpu

    def switch(self, ts: int, cpu: int, prev: int, bits: int, following: int) -> None:
        self.switches.append((ts, cpu, prev, following))
        current, since = self.current.get(cpu, (prev, ts))
        if current != prev:
            self.flaws.append(Flaw(since, ts, "prev is not the last next", (current, prev)))
        self.current[cpu] = following, ts
        if prev:
            self.switch_out(ts, cpu, prev, bits)
        if following:
            self.switch_in(ts, cpu, following)

    def switch_out(self, ts: int, cpu: int, tid: int, bits: int) -> None:
        thread = self.threads[tid]
        if thread.state not in ("running", "unknown"):
            self.flaws.append(Flaw(thread.since, ts, "left a CPU it was not on", (tid,)))
        state = next((name for bit, name in _BITS.items() if bits & bit), "runnable")
        self.enter(tid, ts, state, cpu if state == "runnable" else None)
        thread.out = ts
        if state == "runnable":
            thread.ready, thread.cause, thread.early = ts, "preempt", None
        elif state == "dead":
            del self.threads[tid]

    def switch_in(self, ts: int, cpu: int, tid: int) -> None:
        thread = self.threads[tid]
        if thread.early is not None and thread.state in _AT_REST:
            self.early_wake(tid)
        if thread.state == "runnable":
            assert thread.ready is not None
            self.waits.append((tid, thread.ready, ts, ts - thread.ready, cpu, thread.cause))
        elif thread.state != "unknown":
            self.flaws.append(Flaw(thread.since, ts, "switched in without a wakeup", (tid,)))
        self.enter(tid, ts, "running", cpu)
        thread.early = None

    def early_wake(self, tid: int) -> None:
        thread = self.threads[tid]
        assert thread.out is not None
        thread.state, thread.since = "runnable", thread.out
        thread.ready, thread.cause, thread.early = thread.out, "wake", None

    def wake(self, ts: int, tid: int, kind: str, target: int | None) -> None:
        if not tid:
            return
        thread = self.threads[tid]
        if thread.state == "running":
            thread.early = ts if kind == "sched_waking" else None
        elif thread.state != "runnable":
            if thread.early is not None and kind == "sched_wakeup":
                self.early_wake(tid)
                return
            self.enter(tid, ts, "runnable", target)
            thread.early, thread.ready = None, ts
            thread.cause = "new" if kind == "sched_wakeup_new" else "wake"


def of(recording: Recording) -> Truth:
    """The truth of a complete recording."""
    story = _Story()
    for cpu, record in recording.merged():
        _take(story, recording, cpu, record)
    window = recording.window
    for tid in list(story.threads):
        story.enter(tid, window[1], "unknown")
    for records in recording.cpus.values():
        story.flaws += [Flaw(r.ts, r.ts, "gap marked") for r in records if r.missed is not None]
    doubtful = {tid for flaw in story.flaws for tid in flaw.tids if tid}
    judged = ~pl.col("tid").is_in(doubtful)
    return Truth(
        states=pl.DataFrame(
            story.states,
            schema={
                "tid": pl.Int64,
                "ts": pl.Int64,
                "end": pl.Int64,
                "state": pl.Enum(STATES),
                "cpu": pl.Int64,
            },
            orient="row",
        ).filter(judged, pl.col("state") != "unknown"),
        waits=pl.DataFrame(
            story.waits,
            schema={
                "tid": pl.Int64,
                "ts_ready": pl.Int64,
                "ts_run": pl.Int64,
                "wait": pl.Int64,
                "cpu": pl.Int64,
                "cause": pl.String,
            },
            orient="row",
        ).filter(judged),
        switches=pl.DataFrame(
            story.switches,
            schema=dict.fromkeys(("ts", "cpu", "prev", "next"), pl.Int64),
            orient="row",
        ),
        window=window,
        flaws=story.flaws,
        doubtful=doubtful,
        ncpu=len(recording.cpus),
    )


def _take(story: _Story, recording: Recording, cpu: int, record: Record) -> None:
    layout = recording.formats[record.event_id]
    match layout.name:
        case "sched_switch":
            prev, bits, following = (
                layout.get(record.data, name) for name in ("prev_pid", "prev_state", "next_pid")
            )
            story.switch(record.ts, cpu, prev, bits, following)
        case "sched_waking" | "sched_wakeup" | "sched_wakeup_new" as kind:
            tid, target = (layout.get(record.data, name) for name in ("pid", "target_cpu"))
            story.wake(record.ts, tid, kind, target)


def complete(recording: Recording) -> tuple[Recording, Truth]:
    """The longest stretch of a recording in which nothing is missing, and its truth."""
    truth = of(recording)
    begin, end = truth.window
    flaws = sorted(truth.flaws, key=lambda flaw: flaw.ts)
    # A stretch ends where the next flaw may have begun.
    edges = [(begin, min([flaw.since for flaw in flaws], default=end))]
    for at, flaw in enumerate(flaws):
        edges.append((flaw.ts + 1, min([later.since for later in flaws[at + 1 :]], default=end)))
    for begin, end in sorted(edges, key=lambda edge: edge[0] - edge[1]):
        part = recording.copy()
        if flaws:
            part.about["window"] = {"begin": begin, "end": end}
        part.cpus = {
            cpu: [r for r in records if begin <= r.ts <= end]
            for cpu, records in recording.cpus.items()
        }
        if end > begin and all(part.cpus.values()):
            truth = of(part)
            if not truth.flaws:
                return part, truth
    return recording, of(recording)


def stretches(states: pl.DataFrame) -> dict[int, tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Per tid: begins, ends and codes of the states, in order of time."""
    coded = states.sort("tid", "ts").with_columns(code=pl.col("state").to_physical())
    found = {}
    for (tid,), part in coded.group_by("tid", maintain_order=True):
        begin, end, code = (part[name].to_numpy() for name in ("ts", "end", "code"))
        found[int(str(tid))] = begin, end, code
    return found
