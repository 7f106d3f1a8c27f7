"""What threads had done before a recording of FreeBSD began, as far as their priorities show it.

Both of its schedulers make a thread's priority of what it did, so that a replay needs to know that.
A recording has the active priority at each switch; on return to user mode that is the user
priority, which `sched_priority` and `resetpriority` compute (sched_ule.c, sched_4bsd.c). Turned
round, their formulas give, of threads that no other forked within the recording:

* ULE, a batch priority: the CPU time used in the last 10 s. It is the middle of what agrees with
  the priorities of the thread and those that it forked, from the first one on.
* ULE, an interactive priority: the score, which is the proportion of run and sleep in up to 5 s;
  a batch priority says that it is at least 30. Of 100 pasts (five lengths, 20 proportions) that
  one is taken which the thread's priorities fit best as the rules go on from there; of several
  that fit equally well, the middle one of the longest. A sleeping thread has the priority to which
  `kern.sched.static_boost` raises those that are worse, so that this too says batch.
* ULE's own sums of run and sleep, where they were recorded (`capture --with inter`), take the place
  of that: those at the thread's first switch, less what it ran and slept in between.
* 4BSD: the ticks charged to it. The decay since the start is undone.

What one scheduler does not count is estimated for the other. A share of CPU time becomes what
4BSD charges for it under that load, and back; ULE's window then has the thread's share of the
recording, but no more than that, and nothing of the recorder, which began only then.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from schedscope.simulator.recorded.freebsd_priorities import (
    MAX_TIMESHARE,
    NICE_LEVELS,
    WINDOW,
    Bands,
    bands_of,
    charge_of,
    share_of,
)
from schedscope.store.trace import Trace

PASTS = ("past_used", "past_run", "past_sleep", "past_charged")

SECOND = 1_000_000_000
HISTORY = 5.0
"""Seconds of run and sleep from which ULE forgets."""
INHERITED = 0.5
"""Seconds of them that a child takes over."""
THRESHOLD = 30
HALF = 50
SIGNALLED = 120
"""Priority to which a signal raises a sleeper, whatever its own."""
MOST = 200
"""Priorities of one thread that are looked at, and seconds from the start."""
WITHIN = 5 * SECOND

_LENGTHS = (0.5, 1.0, 2.0, 3.0, 4.5)
_SHARES = tuple(i / 20 for i in range(21))


@dataclass
class Life:
    """One thread: its nice value, and what it did, in seconds from the start of the window."""

    nice: int
    seen: list[tuple[float, int, bool]]
    """When, the priority with which it left a CPU, and whether it slept then."""
    doing: list[tuple[float, float, str]]
    """When and for how long it ran, slept; and 0.0 for `fork`, and the run time for `exit`, of a
    child."""


def used_within(
    seen: Sequence[tuple[float, int]], nice: int, bands: Bands
) -> tuple[float, float] | None:
    """Seconds used in the window before the start, at least and at most, by the batch priorities
    of a thread and what had been run by each in between.

    >>> bands = Bands(48, 120, 32, 127, 1)
    >>> used_within([(0.0, 172), (0.25, 173)], 0, bands)
    (0.0625, 0.3125)
    """
    width = WINDOW / bands.levels
    low, high = 0.0, WINDOW
    found = False
    for ran, prio in seen:
        level = prio - bands.batch - NICE_LEVELS - nice
        if not 0 <= level < bands.levels:
            continue
        least = max(low, level * width - ran)
        most = min(high, (level + 1) * width - ran)
        if least < most:
            low, high, found = least, most, True
    return (low, high) if found else None


def history_of(life: Life, bands: Bands) -> tuple[float, float] | None:
    """Seconds of run and sleep at the start that ULE's rules need for the priorities that follow;
    None if none was seen.
    """
    length = np.repeat(np.array(_LENGTHS), len(_SHARES))
    share = np.tile(np.array(_SHARES), len(_LENGTHS))
    run, sleep = length * share, length * (1 - share)
    events: list[tuple[float, int, Any]] = [(at, 1, (prio, s)) for at, prio, s in life.seen]
    events += [
        (at + took if what != "exit" else at, 0, (what, took)) for at, took, what in life.doing
    ]
    off = np.zeros_like(run)
    seen = 0
    for _, kind, told in sorted(events, key=lambda e: e[:2]):
        if kind == 0:
            what, took = told
            if what == "sleep":
                sleep = sleep + took
            elif what == "run":
                run = run + took
            elif what == "fork":
                run = run + 1 / bands.stathz
            else:
                both = run + sleep
                run = run + took + run * np.minimum(1.0, INHERITED / np.maximum(both, 1e-9))
            run, sleep = _forget(run, sleep)
            continue
        prio, _ = told
        score = np.where(run >= sleep, HALF, HALF * run / np.maximum(sleep, 1e-9)) + life.nice
        score = np.maximum(score, 0)
        seen += 1
        if prio < bands.batch:
            off += np.abs(score - (prio - bands.first) * THRESHOLD / bands.interactive)
        else:
            off += np.maximum(0, THRESHOLD - score)
    if not seen:
        return None
    best = np.flatnonzero(off <= off.min() + 1e-6)
    longest = best[length[best] == length[best].max()]
    chosen = longest[len(longest) // 2]
    whole, part = length[chosen], share[chosen]
    return float(whole * part), float(whole * (1 - part))


def _forget(run: Any, sleep: Any) -> tuple[Any, Any]:
    """`sched_interact_update`."""
    both = run + sleep
    huge, far = both > 2 * HISTORY, both > HISTORY * 6 / 5
    less = np.where(both < HISTORY, 1.0, np.where(far, 0.5, 0.8))
    runs = huge & (run > sleep)
    new_run = np.where(huge, np.where(runs, HISTORY, 0.001), run * less)
    new_sleep = np.where(huge, np.where(runs, 0.001, HISTORY), sleep * less)
    return new_run, new_sleep


def recorded_pasts(
    trace: Trace,
    utids: pl.Series,
    forked: pl.Series,
    nice: Mapping[int, int],
    changes: pl.DataFrame,
) -> tuple[pl.DataFrame, dict[str, Any]]:
    """The columns `PASTS`, a row for each of `utids`, ns; null of those `forked` within the
    recording and where nothing is known. And, of 4BSD and for it, the load average at the start
    (`first_load`) and when usage first decays (`first_decay`, ns, if 4BSD was recorded).
    """
    bands = bands_of(trace)
    if bands is None:
        return pl.DataFrame({c: pl.Series([None] * len(utids), dtype=pl.Int64) for c in PASTS}), {}
    record = _Record(trace, bands, nice, changes)
    decays = record.decays()
    load = record.load(decays)
    about: dict[str, Any] = {"first_load": round(load, 3)}
    if decays:
        about["first_decay"] = round(decays[0] * SECOND)
    rows: list[tuple[int | None, ...]] = []
    for utid, inherits in zip(utids, forked, strict=True):
        past = None if inherits else record.past(utid, load, decays)
        rows.append(
            (None,) * len(PASTS) if past is None else tuple(round(s * SECOND) for s in past)
        )
    return pl.DataFrame(rows, schema=dict.fromkeys(PASTS, pl.Int64), orient="row"), about


class _Record:
    """What a recording says of priorities and of who ran when; times in seconds from its start."""

    def __init__(
        self, trace: Trace, bands: Bands, nice: Mapping[int, int], changes: pl.DataFrame
    ) -> None:
        begin = trace.window[0]
        self.bands, self.nice, self.ule = bands, nice, bands.ule
        self.span = trace.duration / SECOND
        self.uptime = _uptime(trace)
        threads = trace.threads.collect()
        own = threads.filter(
            pl.col("utid") >= trace.ncpu,
            ~pl.col("kernel").fill_null(False),
            pl.col("sched_class").cast(pl.String).is_in(["timeshare", "fair", "unknown"]),
        )
        self.own = set(own["utid"])
        self.recorders = set(threads.filter(pl.col("recorder").fill_null(False))["utid"])
        self.parents = dict(threads.select("utid", "parent_utid").drop_nulls().iter_rows())
        self.ends = {
            u: (at - begin) / SECOND
            for u, at in threads.select("utid", "exit_ts").drop_nulls().iter_rows()
        }
        states = (
            trace.states.filter(pl.col("ts") < begin + WITHIN, pl.col("utid") >= trace.ncpu)
            .select("ts", "dur", "utid", state=pl.col("state").cast(pl.String))
            .collect()
        )
        self.doing: dict[int, list[tuple[float, float, str]]] = {}
        self.first: dict[int, float] = {}
        self.runnable = 0.0
        interrupts = threads.filter(pl.col("sched_class").cast(pl.String) == "interrupt")["utid"]
        left_out = self.recorders | set(interrupts)
        for ts, dur, utid, state in states.iter_rows():
            at, took = (ts - begin) / SECOND, (dur or 0) / SECOND
            self.first.setdefault(utid, at)
            if state in ("running", "runnable") and utid not in left_out:
                self.runnable += max(0.0, min(at + took, LOOK) - max(at, 0.0))
            if state in _DOING and utid in self.own:
                self.doing.setdefault(utid, []).append((at, took, _DOING[state]))
        self.seen: dict[int, list[tuple[float, int, bool]]] = {}
        switches = (
            trace.switches.filter(
                pl.col("ts") < begin + WITHIN,
                pl.col("prev_utid").is_in(list(self.own)),
                pl.col("prev_prio").is_between(bands.first, MAX_TIMESHARE),
                pl.col("prev_state") != "dead",
            )
            .select("ts", "prev_utid", "prev_prio", slept=pl.col("prev_state") != "runnable")
            .collect()
        )
        for ts, utid, prio, slept in switches.iter_rows():
            self.seen.setdefault(utid, []).append(((ts - begin) / SECOND, prio, slept))
        for ts, utid in changes.select("ts", "utid").iter_rows():
            at = (ts - begin) / SECOND
            self.seen[utid] = [one for one in self.seen.get(utid, ()) if one[0] < at]
        for utid, seen in self.seen.items():
            if any(prio >= bands.batch for _, prio, _ in seen):
                self.seen[utid] = [one for one in seen if one[1] != SIGNALLED]
        self.sums = _recorded_sums(trace)
        self.children: dict[int, list[int]] = {}
        for child, parent in self.parents.items():
            self.children.setdefault(parent, []).append(child)
        schedcpu = threads.filter(pl.col("comm") == "schedcpu", "kernel")["utid"].to_list()
        passes = trace.switches.filter(pl.col("next_utid").is_in(schedcpu)).select("ts").collect()
        self.passes = [(ts - begin) / SECOND for ts in passes["ts"]]

    def ran(self, utid: int, begin: float, end: float, doing: str = "run") -> float:
        """Seconds that a thread ran, or slept, between two instants."""
        spans = (
            min(at + took, end) - max(at, begin)
            for at, took, what in self.doing.get(utid, ())
            if what == doing
        )
        return sum(span for span in spans if span > 0)

    def decays(self) -> list[float]:
        """When 4BSD's once-a-second pass was made: when its thread came."""
        return [] if self.ule else self.passes

    def load(self, decays: Sequence[float]) -> float:
        """The load average at the start: that by which the charges of threads decayed in the
        passes of 4BSD, the median of all. Where none shows it, the mean number of threads that ran
        or waited in the first second, the recorder's aside, as the average over a minute has it
        if it was so since the machine started.
        """
        kept = sorted(self._kept(decays))
        if kept:
            part = min(kept[len(kept) // 2], 0.98)
            return part / (2 * (1 - part))
        mean = self.runnable / max(min(LOOK, self.span), 1e-9)
        return mean if self.uptime is None else mean * (1 - math.exp(-self.uptime / MINUTE))

    def _kept(self, decays: Sequence[float]) -> Iterator[float]:
        """What part of a charge a pass left, by the priorities before and after it."""
        for at in decays:
            for utid, seen in self.seen.items():
                before = [one for one in seen if at - 1 < one[0] < at]
                after = [one for one in seen if at < one[0] < at + 1]
                # Forks and exits change a charge and not the priority: only a tick does both.
                stale = utid in self.parents or utid in self.children
                if not before or not after:
                    continue
                if stale and len({prio for _, prio, _ in before}) < 2:
                    continue
                old = self.charged(utid, before[-1][1]) + self._ticks(utid, before[-1][0], at)
                new = self.charged(utid, after[0][1]) - self._ticks(utid, at, after[0][0])
                if old >= ENOUGH * self.bands.weight and 0 <= new <= old:
                    yield new / min(old, self.bands.most_charged)

    def _ticks(self, utid: int, begin: float, end: float) -> float:
        return self.ran(utid, begin, end) * self.bands.stathz

    def charged(self, utid: int, prio: int) -> float:
        """The ticks of a priority of 4BSD, the middle of those that make it."""
        above = prio - self.bands.first - NICE_LEVELS - self.nice.get(utid, 0)
        return above * self.bands.weight + (self.bands.weight - 1) / 2

    def past(
        self, utid: int, load: float, decays: Sequence[float]
    ) -> tuple[float, float, float, float] | None:
        """Seconds used in ULE's window, run and slept in its history, and charged by 4BSD."""
        if utid not in self.own:
            return None
        own = self.ran(utid, 0.0, self.span) / min(self.span, WITHIN / SECOND)
        if not self.ule:
            charged = self._charged_at_start(utid, load, decays)
            if charged is None:
                return None
            share = share_of(charged, load, self.bands)
            run = FULL * share
            used = 0.0 if utid in self.recorders else min(share, own) * WINDOW
            return used, run, FULL - run, charged / self.bands.stathz
        history = self._recorded_history(utid) or history_of(self._life(utid), self.bands)
        range_of_use = used_within(self._levels(utid), self.nice.get(utid, 0), self.bands)
        if history is None and range_of_use is None:
            return None
        run, sleep = history or (FULL / 2, FULL / 2)
        share = run / max(run + sleep, 1e-9)
        middle = sum(range_of_use) / 2 if range_of_use else WINDOW * min(share, own)
        return middle, run, sleep, charge_of(share, load, self.bands) / self.bands.stathz

    def _recorded_history(self, utid: int) -> tuple[float, float] | None:
        if utid not in self.sums:
            return None
        at, run, sleep = self.sums[utid]
        run -= self.ran(utid, 0.0, at)
        sleep -= self.ran(utid, 0.0, at, "sleep")
        return max(run, 0.0), max(sleep, 0.0)

    def _life(self, utid: int) -> Life:
        """A thread's own life, with its children's beginnings and ends."""
        doing = list(self.doing.get(utid, ()))
        for child in self.children.get(utid, ()):
            if child in self.first:
                doing.append((self.first[child], 0.0, "fork"))
            if child in self.ends and child in self.first:
                end = self.ends[child]
                doing.append((end, self.ran(child, 0.0, end), "exit"))
        return Life(self.nice.get(utid, 0), self.seen.get(utid, [])[:MOST], doing)

    def _family(self, utid: int) -> Iterator[tuple[int, float]]:
        """A thread and those forked from it, and what had been run up to each one's beginning."""
        waiting = [(utid, 0.0)]
        while waiting:
            one, ran = waiting.pop()
            yield one, ran
            for child in self.children.get(one, ()):
                if child in self.first:
                    waiting.append((child, ran + self.ran(one, 0.0, self.first[child])))

    def _levels(self, utid: int) -> list[tuple[float, int]]:
        """Batch priorities of a family as `used_within` takes them, in order of time."""
        found = []
        for one, ran in self._family(utid):
            for at, prio, slept in self.seen.get(one, ()):
                if prio >= self.bands.batch and not (slept and prio == self.bands.batch):
                    found.append((at, ran + self.ran(one, 0.0, at), prio))
        return [(ran, prio) for _, ran, prio in sorted(found)[:MOST]]

    def _charged_at_start(self, utid: int, load: float, decays: Sequence[float]) -> float | None:
        """The ticks that 4BSD had charged, by the first priority of a family."""
        found = [
            (at, prio, one, ran)
            for one, ran in self._family(utid)
            for at, prio, _ in self.seen.get(one, ())[:1]
        ]
        if not found:
            return None
        at, prio, one, ran = min(found)
        ticks = self.charged(one, prio) - (ran + self.ran(one, 0.0, at)) * self.bands.stathz
        kept = 2 * load / (2 * load + 1)
        passed = sum(one < at for one in decays)
        if passed:
            ticks /= max(kept, 0.01) ** passed
        return float(min(max(ticks, 0.0), self.bands.most_charged))


def _recorded_sums(trace: Trace) -> dict[int, tuple[float, float, float]]:
    """By utid, of each number that only one thread had: when, in seconds from the start, and the
    seconds of run and sleep that ULE then had of it (`ts_runtime`, `ts_slptime`).
    """
    rows = {row["tid"]: row for row in trace.info.get("kernel_scores") or []}
    second = int(trace.info.get("hz") or 0) << 10
    if not rows or not second:
        return {}
    own = trace.threads.select("utid", "tid").collect().filter(pl.col("tid").is_unique())
    found = ((utid, rows[tid]) for utid, tid in own.iter_rows() if tid in rows)
    return {
        utid: (
            (row["ts_first"] - trace.window[0]) / SECOND,
            row["ran_first"] / second,
            row["slept_first"] / second,
        )
        for utid, row in found
    }


def _uptime(trace: Trace) -> float | None:
    """Seconds from the start of the machine to that of the window; None if not recorded."""
    told = (trace.info.get("scheduler") or {}).get("tunables") or {}
    started = re.search(r"sec = (\d+)", str(told.get("kern.boottime")))
    pairs = (trace.info.get("clock") or {}).get("pairs")
    if started is None or not pairs:
        return None
    clock, wall = pairs[0]
    up = (int(wall) + trace.window[0] - int(clock)) / SECOND - int(started[1])
    return max(0.0, up)


_DOING = {"running": "run", "sleeping": "sleep", "blocked": "sleep"}
MINUTE = 60.0
LOOK = 1.0
"""Seconds from the start whose load stands for that before."""
ENOUGH = 8
"""A charge that makes fewer priorities says too little of its decay."""
FULL = 4.5
"""Seconds of run and sleep that ULE remembers in the middle: it forgets from 5 down to 4."""
