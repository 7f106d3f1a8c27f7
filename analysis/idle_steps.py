"""When did CPUs idle, and who waited for another CPU meanwhile, step by step?"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from schedscope.analysis.allowed_cpus import allowed_cpus

if TYPE_CHECKING:
    import numpy.typing as npt

    from schedscope.trace import Trace

    Ints = npt.NDArray[np.int64]
    Small = npt.NDArray[np.int32]
    Flags = npt.NDArray[np.bool_]

NOWHERE = -1
"""Stands for the CPU of a thread that waited on no known queue."""

_BITS, _DIGITS = 20, 3

PINNED = -1
"""Class of threads with one allowed CPU only."""


@dataclass(frozen=True)
class Intervals:
    """Intervals of time on one CPU, ns after the begin of the window."""

    begin: Ints
    end: Ints

    def total(self) -> int:
        """Their length together."""
        return int((self.end - self.begin).sum())


@dataclass(frozen=True)
class Waits(Intervals):
    """Stretches in which a thread was runnable on one queue; in order of their end."""

    utid: npt.NDArray[np.uint32]
    kind: Small
    """The thread's class: a number of `Masks.classes`, or PINNED."""


@dataclass(frozen=True)
class Masks:
    """Threads by their allowed CPUs, and CPUs by the classes that may use them."""

    cpus: tuple[int, ...]
    classes: tuple[frozenset[int], ...]
    """The distinct masks; the first is that of all CPUs."""
    atoms: tuple[tuple[int, ...], ...]
    """For each class, the groups of CPUs that it may use: CPUs of a group are alike to all."""
    atom: dict[int, int]
    kind: Small
    """By utid: a number of `classes`, or PINNED."""

    @property
    def natoms(self) -> int:
        """Number of groups of CPUs."""
        return max(self.atom.values(), default=0) + 1


@dataclass(frozen=True)
class Cpu:
    """What was seen of one CPU."""

    number: int
    idle: Intervals
    blind: Intervals
    """Time in which the trace does not tell what it did."""
    waits: Waits


@dataclass(frozen=True)
class Lane:
    """The step function of one CPU: value `i` holds from `ts[i]` to `ts[i + 1]`."""

    cpu: Cpu
    ts: Ints
    spare: Flags
    """It idles, and nobody is on its queue."""
    surplus: list[Small]
    """By class: threads on its queue, less the one that it is about to pick up."""
    picked: list[Flags]
    """By class: it idles, or may do, and is about to pick up a thread of that class."""
    pinned: Small
    """The same as `surplus` of the threads that may run nowhere else."""


@dataclass(frozen=True)
class Steps:
    """The step function of the machine: value `i` holds from `ts[i]` to `ts[i + 1]`."""

    ts: Ints
    spare: list[Small]
    """By atom: CPUs that idle with nobody on their queue."""
    surplus: list[Small]
    """By class: threads that wait, beyond those that an idle CPU is about to pick up."""
    wasted: Small
    unplaced: Small
    """The part of `wasted` that only threads on no known queue make."""
    pinned: Small

    def usable(self, masks: Masks, kind: int) -> Flags:
        """Where a CPU is spare that this class may use."""
        atoms = range(masks.natoms) if kind == PINNED else masks.atoms[kind]
        found: Flags = np.any([self.spare[atom] > 0 for atom in atoms], axis=0)
        return found

    def wanted(self, masks: Masks, atom: int) -> Flags:
        """Where a thread waits elsewhere that may use this group of CPUs."""
        kinds = [k for k, atoms in enumerate(masks.atoms) if atom in atoms]
        found: Flags = np.any([self.surplus[kind] > 0 for kind in kinds], axis=0)
        return found


class IdleSteps:
    """Reads a trace once and holds what all tables of work conservation need."""

    def __init__(self, trace: Trace) -> None:
        """Read the states; ts are ns after the begin of the window."""
        self.begin, end = trace.window
        self.length = end - self.begin
        self.cpus = _read(trace)
        known = frozenset(cpu.number for cpu in self.cpus if cpu.number != NOWHERE)
        self.masks = _masks(trace, known)
        self.cpus = [_classified(cpu, self.masks) for cpu in self.cpus]

    def lanes(self) -> list[Lane]:
        """The step function of each CPU; that of no known queue last, if there is one."""
        return [_lane(cpu, len(self.masks.classes), self.length) for cpu in self.cpus]

    def steps(self, lanes: list[Lane]) -> Steps:
        """All lanes together."""
        return _together(lanes, self.masks, self.length)


def integral(ts: Ints, flags: Flags | Small, at: Ints) -> Ints:
    """The integral of a step function of flags or small numbers from its begin to each of `at`."""
    sums = np.concatenate([[0], np.cumsum(flags[:-1].astype(np.int64) * np.diff(ts))])
    if flags.dtype == np.bool_:
        # Slopes of 0 and 1 between whole numbers: exact below 2^53 ns, a hundred days.
        exact: Ints = np.interp(at, ts, sums).astype(np.int64)
        return exact
    last = np.clip(np.searchsorted(ts, at, side="right") - 1, 0, len(ts) - 2)
    several: Ints = sums[last] + flags[last].astype(np.int64) * (at - ts[last])
    return several


def _read(trace: Trace) -> list[Cpu]:
    begin, end = trace.window
    running, runnable = pl.Series(["running", "runnable"], dtype=_state(trace)).to_physical()
    frame = trace.states.select(
        "ts", "dur", "utid", pl.col("state").to_physical(), pl.col("cpu").cast(pl.Int16)
    ).collect()
    state = frame["state"].to_numpy()
    rows = {
        kind: _by_cpu(frame, np.flatnonzero(state == kind), begin, end)
        for kind in (running, runnable)
    }
    del frame
    recorded = trace.info.get("per_cpu") or []
    numbers = {int(c["cpu"]) for c in recorded} or set(range(trace.ncpu))
    numbers |= (rows[running].keys() - {NOWHERE}) | rows[runnable].keys()
    found = []
    nothing = np.zeros(0, dtype=np.int64)
    for number in sorted(numbers, key=lambda n: (n == NOWHERE, n)):
        a, b, who = rows[running].get(number, (nothing, nothing, nothing.astype(np.uint32)))
        gaps = Intervals(nothing, nothing) if number == NOWHERE else _gaps(a, b, end - begin)
        idle = who < trace.ncpu
        rests = Intervals(a[idle], b[idle])
        a, b, who = rows[runnable].get(number, (nothing, nothing, nothing.astype(np.uint32)))
        found.append(Cpu(number, rests, gaps, Waits(a, b, who, np.zeros(len(who), np.int32))))
    return found


def _by_cpu(
    frame: pl.DataFrame, rows: Ints, begin: int, end: int
) -> dict[int, tuple[Ints, Ints, npt.NDArray[np.uint32]]]:
    """Begin, end and thread of the given rows within the window, CPU by CPU."""
    cpu = frame["cpu"].fill_null(NOWHERE).to_numpy()[rows]
    rows = rows[np.argsort(cpu, kind="stable")]
    first = frame["ts"].to_numpy()[rows] - begin
    last = first + frame["dur"].to_numpy()[rows]
    if len(first) and (first.min() < 0 or last.max() > end - begin):
        first, last = np.maximum(first, 0), np.minimum(last, end - begin)
    who = frame["utid"].to_numpy()[rows].astype(np.uint32, copy=False)
    counts = np.bincount(cpu + 1) if len(cpu) else np.zeros(0, dtype=np.int64)
    parts: dict[int, tuple[Ints, Ints, npt.NDArray[np.uint32]]] = {}
    at = 0
    for number, count in enumerate(counts.tolist(), NOWHERE):
        if not count:
            continue
        a, b, u = first[at : at + count], last[at : at + count], who[at : at + count]
        at += count
        inside = a < b
        parts[number] = (a, b, u) if inside.all() else (a[inside], b[inside], u[inside])
    return parts


def _state(trace: Trace) -> pl.DataType:
    return trace.states.collect_schema()["state"]


def _gaps(a: Ints, b: Ints, length: int) -> Intervals:
    """What intervals that do not overlap leave of the window."""
    if int((b - a).sum()) == length:
        return Intervals(a[:0], a[:0])
    if np.any(a[1:] < a[:-1]):  # they are in order of their end, unless a chain broke
        order = np.argsort(a, kind="stable")
        a, b = a[order], b[order]
    until = np.concatenate([[0], np.maximum.accumulate(b)]).astype(np.int64)
    following = np.concatenate([a, [length]]).astype(np.int64)
    gap = until < following
    return Intervals(until[gap], following[gap])


def _masks(trace: Trace, cpus: frozenset[int]) -> Masks:
    allowed = allowed_cpus(trace, cpus)
    classes = [cpus, *sorted({m for m in allowed.values() if len(m) > 1}, key=sorted)]
    alike: dict[tuple[bool, ...], int] = {}
    atom = {
        cpu: alike.setdefault(tuple(cpu in mask for mask in classes), len(alike))
        for cpu in sorted(cpus)
    }
    top = trace.threads.select(pl.col("utid").max()).collect().item()
    states = trace.states.select(pl.col("utid").max()).collect().item()
    kind = np.zeros(max(top or 0, states or 0) + 1, dtype=np.int32)
    for utid, mask in allowed.items():
        kind[utid] = PINNED if len(mask) == 1 else classes.index(mask)
    return Masks(
        tuple(sorted(cpus)),
        tuple(classes),
        tuple(tuple(sorted({atom[cpu] for cpu in mask})) for mask in classes),
        atom,
        kind,
    )


def _classified(cpu: Cpu, masks: Masks) -> Cpu:
    waits = cpu.waits
    kind = masks.kind[waits.utid]
    return Cpu(cpu.number, cpu.idle, cpu.blind, Waits(waits.begin, waits.end, waits.utid, kind))


def _lane(cpu: Cpu, nclasses: int, length: int) -> Lane:
    waits = cpu.waits
    # What an interval adds while it lasts, as one number of digits: the threads that
    # wait by class are counted apart only where there are several classes.
    one, pin, free, blind = 1, 1 << 20, 1 << 40, 1 << 50
    adds = np.where(waits.kind == PINNED, pin, one)
    nidle, nblind = len(cpu.idle.begin), len(cpu.blind.begin)
    up = np.concatenate([adds, np.full(nidle, free), np.full(nblind, blind), [0]])
    window = np.array([0, length], dtype=np.int64)
    begins = [waits.begin, cpu.idle.begin, cpu.blind.begin, window[:1]]
    ts: Ints = np.concatenate([*begins, waits.end, cpu.idle.end, cpu.blind.end, window[1:]])
    order = np.argsort(ts, kind="stable")
    ts = ts[order]
    last = np.append(ts[1:] != ts[:-1], True)  # of an instant, only the sum ever held
    levels = np.cumsum(np.concatenate([up, -up])[order])[last]
    w = (levels & ((1 << 20) - 1)).astype(np.int32)
    p = ((levels >> 20) & ((1 << 20) - 1)).astype(np.int32)
    idle = (levels >> 40) & 1 == 1
    unseen = levels >> 50 != 0
    # An idle CPU that has a thread of its own to run is on its way to it. So may one be
    # of which nothing is known: then the first of its queue is not counted as waiting.
    free_for = (idle | unseen) & (p == 0)
    taking = free_for & (w > 0)
    spare = idle & (w == 0) & (p == 0)
    pinned = p - ((idle | unseen) & (p > 0))
    if nclasses == 1:
        return Lane(cpu, ts[last], spare, [w - taking], [taking], pinned)
    ups = [np.where(waits.kind == k, 1, 0) for k in range(nclasses)]
    pad = np.zeros(nidle + nblind + 1, dtype=np.int64)
    surplus, picked = [], []
    rest = taking
    counts = [
        np.cumsum(np.concatenate([up, pad, -up, pad])[order])[last].astype(np.int32) for up in ups
    ]
    # The one that is picked up is taken from the masks in reverse order, all CPUs last.
    for count in reversed(counts):
        takes = rest & (count > 0)
        rest = rest & ~takes
        surplus.append(count - takes)
        picked.append(takes)
    return Lane(cpu, ts[last], spare, surplus[::-1], picked[::-1], pinned)


def _together(lanes: list[Lane], masks: Masks, length: int) -> Steps:
    """Sum the lanes up; each change of a quantity is one edge."""
    nclasses, natoms = len(masks.classes), masks.natoms
    several = nclasses > 1
    parts: list[tuple[Ints, int, Small]] = []
    names: dict[tuple[str, int, int], int] = {}

    def quantity(name: str, a: int = 0, b: int = 0) -> int:
        return names.setdefault((name, a, b), len(names))

    def add(lane: Lane, values: Small | Flags, number: int) -> None:
        numbers = values.astype(np.int32)
        deltas = np.diff(numbers, prepend=np.int32(0))
        changed = np.flatnonzero(deltas)
        if len(changed):
            parts.append((lane.ts[changed], number, deltas[changed]))

    for lane in lanes:
        nowhere = lane.cpu.number == NOWHERE
        atom = 0 if nowhere else masks.atom[lane.cpu.number]
        add(lane, lane.spare, quantity("spare", atom))
        add(lane, lane.pinned, quantity("pinned"))
        for kind in range(nclasses):
            name = "nowhere" if nowhere else "surplus"
            add(lane, lane.surplus[kind], quantity(name, kind))
            if several:
                add(lane, lane.picked[kind], quantity("picked", atom, kind))
    ts = np.concatenate([part[0] for part in parts] + [np.array([0, length])])
    order = np.argsort(ts, kind="stable")
    ts = ts[order]
    last = np.append(ts[1:] != ts[:-1], True)
    level: dict[int, Small] = {}
    # Sums of three quantities in one number: each is far below a million.
    for group in range(0, len(names), _DIGITS):
        deltas = np.zeros(len(ts), dtype=np.int64)
        at = 0
        for edges, number, changes in parts:
            if group <= number < group + _DIGITS:
                shift = np.int64(1 << (_BITS * (number - group)))
                np.multiply(changes, shift, out=deltas[at : at + len(edges)])
            at += len(edges)
        sums = np.cumsum(deltas[order])[last]
        for number in range(group, min(group + _DIGITS, len(names))):
            digit = (sums >> (_BITS * (number - group))) & ((1 << _BITS) - 1)
            level[number] = digit.astype(np.int32)
    nothing = np.zeros(int(last.sum()), dtype=np.int32)

    def of(name: str, a: int = 0, b: int = 0) -> Small:
        return level.get(names.get((name, a, b), -1), nothing)

    spare = [of("spare", atom) for atom in range(natoms)]
    placed = [of("surplus", kind) for kind in range(nclasses)]
    unplaced = [of("nowhere", kind) for kind in range(nclasses)]
    surplus = [a + b if b.any() else a for a, b in zip(placed, unplaced, strict=True)]
    picked = [[of("picked", a, k) for k in range(nclasses)] for a in range(natoms)]
    wasted = _matched(spare, surplus, picked, masks)
    without = wasted
    if any(levels.any() for levels in unplaced):
        without = _matched(spare, placed, picked, masks)
    return Steps(ts[last], spare, surplus, wasted, wasted - without, of("pinned"))


def _matched(
    spare: list[Small], surplus: list[Small], picked: list[list[Small]], masks: Masks
) -> Small:
    """How many threads more could run than idle CPUs are about to pick up."""
    total = np.sum(spare, axis=0, dtype=np.int32) if len(spare) > 1 else spare[0]
    if len(masks.classes) == 1:
        return np.minimum(total, surplus[0])
    # Where nobody waits whose mask is not that of all CPUs, numbers are enough.
    result: Small = np.minimum(total, surplus[0])
    partial = [*surplus[1:], *(levels for atom in picked for levels in atom[1:])]
    hard = np.flatnonzero(np.any([levels > 0 for levels in partial], axis=0) & (total > 0))
    if len(hard):
        columns = [*spare, *surplus, *(levels for atom in picked for levels in atom)]
        rows = np.stack([levels[hard] for levels in columns], axis=1)
        distinct, back = np.unique(rows, axis=0, return_inverse=True)
        answers = [_matching(tuple(map(int, row)), masks.atoms) for row in distinct]
        result[hard] = np.array(answers, dtype=np.int32)[back.ravel()]
    return result


@lru_cache(maxsize=1 << 16)
def _matching(row: tuple[int, ...], atoms: tuple[tuple[int, ...], ...]) -> int:
    """The largest matching of waiting threads to idle CPUs, less those picked up anyway.

    `row` has the spare CPUs by atom, the waiting threads by class, and the threads
    about to be picked up by atom and class. Augmenting paths over classes and atoms: both are few.
    """
    nclasses = len(atoms)
    natoms = max(atom for mask in atoms for atom in mask) + 1
    spare, surplus = row[:natoms], row[natoms : natoms + nclasses]
    picked = [
        row[natoms + nclasses + a * nclasses : natoms + nclasses + (a + 1) * nclasses]
        for a in range(natoms)
    ]
    free = [spare[a] + sum(picked[a]) for a in range(natoms)]
    waiting = [surplus[k] + sum(picked[a][k] for a in range(natoms)) for k in range(nclasses)]
    flow = [[0] * natoms for _ in range(nclasses)]
    while True:
        came: dict[tuple[str, int], tuple[str, int] | None] = {
            ("class", k): None for k in range(nclasses) if waiting[k] > sum(flow[k])
        }
        queue = list(came)
        goal = None
        for node in queue:
            kind, number = node
            if kind == "class":
                following = [("atom", a) for a in atoms[number]]
            else:
                if free[number] > sum(flow[k][number] for k in range(nclasses)):
                    goal = node
                    break
                following = [("class", k) for k in range(nclasses) if flow[k][number]]
            for other in following:
                if other not in came:
                    came[other] = node
                    queue.append(other)
        if goal is None:
            break
        path: list[tuple[str, int]] = []
        step: tuple[str, int] | None = goal
        while step is not None:
            path.append(step)
            step = came[step]
        for (_, a), (kind, b) in pairwise(path):
            if kind == "class":
                flow[b][a] += 1
            else:
                flow[a][b] -= 1
    # A mask that was changed after it was recorded may forbid the CPU that a thread waits for.
    return max(sum(map(sum, flow)) - sum(map(sum, picked)), 0)
