"""Who competed with whom for a CPU, and what was due to each by weight?

One sweep over `states` for everything that fairness and starvation ask. A
*stint* is a stretch in which a thread ran or waited without leaving its
competing set. Within a set, the service due to a weight of one is a function of
time, `V`: every instant's service is shared among those present by weight. So
what was due to a thread in a stint is `weight * (V(end) - V(begin))`, and no
pair of threads is ever looked at (Parekh and Gallager, "A generalized processor
sharing approach to flow control", 1993, call V the virtual time).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import polars as pl

from schedscope.analysis.occupancy import occupancy
from schedscope.analysis.weights import TABLE, Levels
from schedscope.errors import UsageError
from schedscope.parsers.schema import STATE

if TYPE_CHECKING:
    import numpy.typing as npt

    from schedscope._native import Occupancy
    from schedscope.trace import Trace

    # Of several widths: the narrow ones are a matter of memory.
    Ints = npt.NDArray[Any]
    Numbers = npt.NDArray[np.float64]
    Flags = npt.NDArray[np.bool_]

Per = Literal["cpu", "machine"]

# Steps whose weights are looked at level by level at a time: some 50 MB.
_CHUNK = 1 << 17
# Sums in a table, and not by search, up to this many combinations of keys.
_DENSE = 1 << 22
# More than one CPU, and not only by the last digit of a quotient.
_ONE = 1 + 1e-9

STATE_NUMBER = {name: number for number, name in enumerate(STATE.categories)}
_NOWHERE = (1 << 16) - 1


@dataclass
class CompetingSet:
    """Threads that share one queue's service: a step function of time.

    `times` has every instant at which somebody came or went or service began or
    ended; `rate` the service due to a weight of one from then on. `served` is
    the service given in all up to then, in ns. With `capped`, a thread is due
    one CPU at most (several CPUs, and a thread heavy enough).
    """

    name: str
    cpu: int | None
    times: Ints
    rate: Numbers
    served: Ints
    capped: bool
    _due: dict[int, Numbers] = field(default_factory=dict)

    def due(self, weight: int) -> Numbers:
        """Service due to a thread of that weight, had it been here from the begin, at `times`."""
        key = weight if self.capped else 1
        if key not in self._due:
            rate = np.minimum(1.0, key * self.rate) if self.capped else self.rate
            steps = np.diff(self.times) * rate[:-1]
            self._due = {key: np.concatenate([[0.0], np.cumsum(steps)])}
        found = self._due[key]
        return found if self.capped else weight * found

    def due_at(self, weight: int, at: Ints) -> Numbers:
        """The same at any instants: between two of `times` it is a straight line."""
        # Relative to the first: ns since boot have more digits than a float.
        origin = self.times[0] if len(self.times) else 0
        values: Numbers = np.interp(at - origin, self.times - origin, self.due(weight))
        return values


@dataclass(frozen=True)
class Stints:
    """Stretches of competing, as parallel arrays; in no order that matters.

    `place` numbers the competing set, `level` the weight (`weights.TABLE`);
    `due` and `served` are what was due to the thread in it, and what its set got
    meanwhile, in ns.
    """

    utid: Ints
    place: Ints
    level: Ints
    begin: Ints
    end: Ints
    due: Numbers
    served: Ints


@dataclass(frozen=True)
class Competition:
    """All competing sets of a trace, and the stints in them."""

    per: Per
    sets: list[CompetingSet]
    stints: Stints
    totals: pl.DataFrame
    """Time by thread and class (and CPU, if asked for; else `cpu` is null): `utid, sharing, cpu`,
    `running`, `waiting` in a competing set, and `unplaced`: runnable on no known queue (ns)."""


def competitors(trace: Trace, levels: Levels, per: Per | None) -> tuple[Occupancy, Per]:
    """What native sweeps read, and which threads compete: as asked for, or as the queues are."""
    _check(per)
    read = occupancy(trace, weights=levels)
    placed, nowhere = read.waiting
    return read, per or ("machine" if nowhere > placed else "cpu")


def _check(per: str | None) -> None:
    if per not in (None, "cpu", "machine"):
        raise UsageError(f"per={per!r}", '"cpu" or "machine"')


def due_between(
    trace: Trace, found: Competition, rows: pl.DataFrame, ts: Ints, until: Ints
) -> Numbers:
    """Service due to each thread between two instants within one interval of its life.

    `rows` has `utid`, `cpu` and `prio` of the intervals, as `states` has them.
    """
    levels = Levels(trace)
    cls, level = levels.of(rows["utid"].to_numpy(), rows["prio"].cast(pl.Int16))
    cpu = rows["cpu"].cast(pl.Int64).fill_null(-1).to_numpy()
    if found.per == "machine":
        cpu = np.zeros_like(cpu)
    places = {(s.name, s.cpu or 0): s for s in found.sets}
    due = np.zeros(len(ts))
    # Class, CPU and weight together: a set keeps what it computed for one weight only.
    key = ((cls.astype(np.int64) << 24) + cpu + 1 << 8) + level
    for part in _parts(np.unique(key, return_inverse=True)[1]).values():
        first = part[0]
        place = places.get((levels.classes[cls[first]], int(cpu[first])))
        if place is not None:  # else on no known queue
            weight = int(TABLE[level[first]])
            due[part] = place.due_at(weight, until[part]) - place.due_at(weight, ts[part])
    return due


def competition(
    trace: Trace,
    *,
    per: Per | None = None,
    capacity: Literal["class", "cpu"] = "class",
    by_cpu: bool = False,
) -> Competition:
    """Sweep the trace once.

    `per`: which threads compete, see `sharing`. `capacity`: what there is to
    share, the service that the class got ("class"), or all that a CPU could give
    while somebody competed for it ("cpu"). `by_cpu`: `totals` by CPU, too.
    """
    _check(per)
    rows = _rows(trace)
    levels = Levels(trace)
    cls, level = levels.of(rows.utid, rows.prio)
    totals = _totals(rows, cls, levels.classes, by_cpu)
    nowhere, placed = totals.select(pl.col("unplaced", "waiting").sum()).row(0)
    how: Per = per or ("machine" if nowhere > placed else "cpu")
    if how == "machine":
        totals = totals.with_columns(
            waiting=pl.col("waiting") + pl.col("unplaced"), unplaced=pl.lit(0, pl.Int64)
        )
    ncpu = int(rows.cpu.max(initial=0)) + 1
    place = cls.astype(np.int32)
    if how == "cpu":
        place = place * np.int32(ncpu) + rows.cpu
    given = _stretches(place, rows, ncpu)
    utid, ts, until = rows.utid, rows.ts, rows.until
    if how == "cpu" and nowhere:
        there = rows.cpu >= 0
        utid, place, level = utid[there], place[there], level[there]
        ts, until = ts[there], until[there]
    del rows
    stints = _stints(utid, place, level, ts, until)
    del utid, place, level, ts, until
    sets, stints = _sweep(stints, given, levels, how, ncpu, capacity, trace.ncpu)
    return Competition(how, sets, stints, totals)


@dataclass(frozen=True)
class Rows:
    """Who ran or waited, idle threads apart, as parallel arrays in order of the end.

    `cpu` is -1 where a thread waited on no known queue; `utid` has 16 bits where that is enough.
    """

    ts: Ints
    until: Ints
    utid: Ints
    cpu: Ints
    prio: pl.Series
    runs: Flags


def _rows(trace: Trace) -> Rows:
    """The rows of `states` within the window that compete."""
    begin, end = trace.window
    states = trace.states.select("ts", "dur", "utid", "cpu", "prio", "state").collect()
    state = states["state"].cast(STATE).to_physical().to_numpy()
    utid = states["utid"].to_numpy()
    runs = state == STATE_NUMBER["running"]
    keep = (runs | (state == STATE_NUMBER["runnable"])) & (utid >= trace.ncpu)
    ts = states["ts"].to_numpy()[keep]
    until = ts + states["dur"].to_numpy()[keep]
    cpu = states["cpu"].fill_null(_NOWHERE).to_numpy()[keep]
    prio = states["prio"].cast(pl.Int16).filter(pl.Series(keep))
    utid, runs = utid[keep], runs[keep]
    if utid.max(initial=0) < 1 << 16:
        utid = utid.astype(np.uint16)
    where = cpu.astype(np.int32)
    where[cpu == _NOWHERE] = -1
    rows = Rows(ts, until, utid, where, prio, runs)
    if len(ts) and (ts.min() < begin or until.max() > end):
        ts, until = np.maximum(ts, begin), np.minimum(until, end)
        rows = _taken(Rows(ts, until, utid, where, prio, runs), np.flatnonzero(ts < until))
    # In order it is, unless a break in a chain made an interval known late.
    if (rows.until[1:] < rows.until[:-1]).any():
        rows = _taken(rows, np.argsort(rows.until, kind="stable"))
    return rows


def _taken(rows: Rows, at: Ints) -> Rows:
    return Rows(
        rows.ts[at],
        rows.until[at],
        rows.utid[at],
        rows.cpu[at],
        rows.prio.gather(at),
        rows.runs[at],
    )


def _totals(rows: Rows, cls: Ints, classes: list[str], by_cpu: bool) -> pl.DataFrame:
    top = int(rows.utid.max(initial=0)) + 1
    ncpu = int(rows.cpu.max(initial=0)) + 2 if by_cpu else 1
    # Waiting on no queue, waiting on one, running; and class, CPU (0: none), thread.
    key = np.where(rows.runs, np.int32(2), rows.cpu >= 0).astype(np.int64)
    key = key * len(classes) + cls
    if by_cpu:
        key = key * ncpu + (rows.cpu + 1)
    key = key * top + rows.utid
    size = 3 * len(classes) * ncpu * top
    if size <= _DENSE:
        sums = np.bincount(key, rows.until - rows.ts, size)
        found = np.flatnonzero(sums)
        sums = sums[found]
    else:
        found, inverse = np.unique(key, return_inverse=True)
        sums = np.bincount(inverse, rows.until - rows.ts, len(found))
    rest, utid = np.divmod(found, top)
    rest, cpu = np.divmod(rest, ncpu)
    kind, number = np.divmod(rest, len(classes))
    frame = pl.DataFrame(
        {
            "utid": pl.Series(utid, dtype=pl.UInt32),
            "sharing": pl.Series([classes[i] for i in number.tolist()], dtype=pl.String),
            "cpu": pl.Series(cpu - 1, dtype=pl.Int64),
            "kind": kind,
            "time": pl.Series(sums).cast(pl.Int64),
        }
    )
    time = pl.col("time")
    return frame.group_by(
        "utid", "sharing", pl.when(pl.col("cpu") >= 0).then(pl.col("cpu").cast(pl.UInt16))
    ).agg(
        running=time.filter(pl.col("kind") == 2).sum(),
        waiting=time.filter(pl.col("kind") == 1).sum(),
        unplaced=time.filter(pl.col("kind") == 0).sum(),
    )


def _order(numbers: Ints) -> Ints:
    """A stable order of small numbers: by radix where they fit in 16 bits."""
    small = numbers.astype(np.uint16) if numbers.max(initial=0) < 1 << 16 else numbers
    order: Ints = np.argsort(small, kind="stable")
    return order


def _stints(utid: Ints, place: Ints, level: Ints, ts: Ints, until: Ints) -> Stints:
    order = _order(utid)
    key = (place << 6 | level)[order]
    who, begin, end = utid[order], ts[order], until[order]
    apart = np.ones(len(key) + 1, dtype=bool)
    apart[1:-1] = (begin[1:] != end[:-1]) | (key[1:] != key[:-1]) | (who[1:] != who[:-1])
    first, last = np.flatnonzero(apart[:-1]), np.flatnonzero(apart[1:])
    # Back into the order of time, in which sorting them is cheap: only the pairs must stay.
    back = np.argsort(order[last], kind="stable")
    first, last = first[back], last[back]
    of = order[last]
    return Stints(
        who[last].astype(np.int64),
        place[of].astype(np.int64),
        level[of].astype(np.int64),
        begin[first],
        end[last],
        np.zeros(0),
        np.zeros(0, dtype=np.int64),
    )


def _stretches(place: Ints, rows: Rows, ncpu: int) -> tuple[Ints, Ints, Ints]:
    """Stretches in which a CPU served one competing set: the set, begin and end."""
    runs = np.flatnonzero(rows.runs)
    runs = runs[_order(rows.cpu[runs])]
    place, cpu, ts, until = place[runs], rows.cpu[runs], rows.ts[runs], rows.until[runs]
    apart = np.ones(len(runs) + 1, dtype=bool)
    apart[1:-1] = (ts[1:] != until[:-1]) | (place[1:] != place[:-1]) | (cpu[1:] != cpu[:-1])
    first, last = np.flatnonzero(apart[:-1]), np.flatnonzero(apart[1:])
    return place[first].astype(np.int64), ts[first], until[last]


def _sweep(
    stints: Stints,
    given: tuple[Ints, Ints, Ints],
    levels: Levels,
    how: Per,
    ncpu: int,
    capacity: str,
    cpus: int,
) -> tuple[list[CompetingSet], Stints]:
    sets: list[CompetingSet] = []
    due = np.zeros(len(stints.utid))
    served = np.zeros(len(stints.utid), dtype=np.int64)
    renumbered = stints.place.copy()
    members = _parts(stints.place)
    stretches = _parts(given[0])
    for place, chosen in members.items():
        begin, end, level = (a[chosen] for a in (stints.begin, stints.end, stints.level))
        run = stretches.get(place, np.zeros(0, dtype=np.int64))
        weight = TABLE[level]
        n, m = len(chosen), len(run)
        at = np.concatenate([begin, end, given[1][run], given[2][run]])
        order = np.argsort(at, kind="stable")
        adds = np.concatenate([weight, -weight, np.zeros(2 * m, dtype=np.int64)])[order]
        gives = np.zeros(2 * (n + m), dtype=np.int64)
        if capacity == "class":
            gives[2 * n : 2 * n + m], gives[2 * n + m :] = 1, -1
        else:
            gives[:n], gives[n : 2 * n] = 1, -1
        times = at[order]
        weights, giving = np.cumsum(adds), np.cumsum(gives[order])
        if capacity == "cpu":
            giving = np.minimum(giving, 1 if how == "cpu" else cpus)
        rate = np.zeros(len(times))
        np.divide(giving, weights, out=rate, where=weights > 0)
        heaviest = int(weight.max(initial=0))
        # Of the steps of one instant only the last ever held.
        lasted = np.diff(times, append=times[-1:]) > 0
        rate[~lasted] = 0
        capped = how == "machine" and bool((rate * heaviest > _ONE).any())
        if capped:
            rate = _fill(rate, order, level, giving, weights)
        total = np.concatenate([[0], np.cumsum(np.diff(times) * giving[:-1])])
        cls, cpu = divmod(place, ncpu) if how == "cpu" else (place, None)
        found = CompetingSet(levels.classes[cls], cpu, times, rate, total, capped)
        where = np.empty(len(order), dtype=np.int64)
        where[order] = np.arange(len(order))
        into, out = where[:n], where[n : 2 * n]
        served[chosen] = total[out] - total[into]
        if capped:
            for each in np.unique(level).tolist():
                mine = level == each
                grown = found.due(int(TABLE[each]))
                due[chosen[mine]] = grown[out[mine]] - grown[into[mine]]
        else:
            grown = found.due(1)
            due[chosen] = weight * (grown[out] - grown[into])
        renumbered[chosen] = len(sets)
        sets.append(found)
    answer = Stints(stints.utid, renumbered, stints.level, stints.begin, stints.end, due, served)
    return sets, answer


def _parts(numbers: Ints) -> dict[int, Ints]:
    """The positions of each number."""
    if not len(numbers):
        return {}
    order = _order(numbers)
    sorted_ = numbers[order]
    cuts = np.flatnonzero(np.diff(sorted_)) + 1
    return {int(numbers[part[0]]): part for part in np.split(order, cuts)}


def _fill(rate: Numbers, order: Ints, level: Ints, giving: Ints, weights: Ints) -> Numbers:
    """The rate at which nobody is due more than one CPU, and what they leave goes to the rest.

    Filling water: whoever is due more gets one CPU and is left out, which raises
    the rate of the others, until nobody is. Looks only at the steps where it matters.
    """
    present = np.unique(level)
    heavy = TABLE[present]
    steps = np.flatnonzero(rate * heavy.max() > _ONE)
    n = len(level)
    counts = np.zeros((len(steps), len(present)), dtype=np.int32)
    for column, each in enumerate(present.tolist()):
        here = np.zeros(len(order), dtype=np.int32)
        here[:n], here[n : 2 * n] = level == each, -(level == each).astype(np.int32)
        counts[:, column] = np.cumsum(here[order])[steps]
    answer = rate.copy()
    for offset in range(0, len(steps), _CHUNK):
        chunk = slice(offset, offset + _CHUNK)
        at, count = steps[chunk], counts[chunk]
        now = rate[at]
        full = np.zeros(count.shape, dtype=bool)
        while True:
            more = (now[:, None] * heavy > _ONE) & (count > 0) & ~full
            if not more.any():
                break
            full |= more
            left = giving[at] - (count * full).sum(axis=1)
            rest = weights[at] - (count * full * heavy).sum(axis=1)
            # Nobody is left who is due less than a CPU.
            now = np.where(rest > 0, np.maximum(left, 0) / np.maximum(rest, 1), 1.0)
        answer[at] = now
    return answer
