"""The nice values of threads where priorities do not give them, as on FreeBSD, and their changes.

A recorder notes the nice values that it finds, which children inherit, and in lines of version 2
those of every thread that is queued or comes onto a CPU. One that has another value when it comes
back is taken to have set it itself, as soon as it had last come onto a CPU: programs do so before
their work.

Older lines have no nice values, but priorities, which a changed value makes worse at once. Where a
thread leaves its CPU with a priority worse by `LEAST` or more than that with which it came, by more
than it could be by what it ran, it has set its nice value higher by as much. 4BSD charges threads
at forks and for their ended children, which shows in their priorities later: there it is only what
is worse than the largest charge makes a thread of nice 0.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping

import polars as pl

from schedscope.simulator.recorded.freebsd_priorities import NICE_LEVELS, Bands, bands_of
from schedscope.store.trace import Trace

NICEST = 19
"""Of a simulated thread: FreeBSD has 20, too."""
LEAST = 5
"""A worse priority by less than this is taken to come from use."""

CHANGES = pl.Schema({"ts": pl.Int64(), "utid": pl.UInt32(), "nice": pl.Int64()})


def recorded_nice(trace: Trace, switches: pl.DataFrame) -> tuple[dict[int, int], pl.DataFrame]:
    """By utid the nice value with which each thread began, without those of 0, and `CHANGES`."""
    found = {row["tid"]: min(row["nice"], NICEST) for row in trace.info.get("nice") or []}
    noted: dict[int, list[tuple[int, int]]] = {}
    for row in trace.info.get("nice_changes") or []:
        noted.setdefault(row["tid"], []).append((row["ts"], min(row["nice"], NICEST)))
    threads = trace.threads.select("utid", "tid", "parent_utid", "start_ts").collect()
    bands = bands_of(trace)
    if noted:
        began, changes = _as_noted(threads, switches, found, noted, trace.window[0])
    elif bands is not None:
        changes = _by_priorities(switches, bands, trace.ncpu)
        began = _inherited(threads, found, changes)
    else:
        began, changes = _inherited(threads, found, {}), {}
    rows = [(ts, utid, nice) for utid, own in changes.items() for ts, nice in own]
    return (
        {utid: nice for utid, nice in began.items() if nice},
        pl.DataFrame(rows, schema=CHANGES, orient="row").sort("ts", "utid"),
    )


def _as_noted(
    threads: pl.DataFrame,
    switches: pl.DataFrame,
    found: Mapping[int, int],
    noted: Mapping[int, list[tuple[int, int]]],
    begin: int,
) -> tuple[dict[int, int], dict[int, list[tuple[int, int]]]]:
    """A number belongs to one thread after another: each has the values between its first coming
    and its last.
    """
    mine = threads.filter(pl.col("tid").is_in([*noted, *found]))
    came: dict[int, list[int]] = {}
    comes = switches.filter(pl.col("next_utid").is_in(mine["utid"].implode()))
    for ts, utid in comes.select("ts", "next_utid").iter_rows():
        came.setdefault(utid, []).append(ts)
    began, changes = {}, {}
    for utid, tid in mine.select("utid", "tid").iter_rows():
        stays = came.get(utid, [begin])
        rows = sorted(noted.get(tid, []))
        index = bisect_right([ts for ts, _ in rows], stays[0])
        began[utid] = rows[index - 1][1] if index else found.get(tid, 0)
        own = [
            (stays[bisect_left(stays, ts) - 1] + 1, nice)
            for ts, nice in rows[index:]
            if ts <= stays[-1]
        ]
        if own:
            changes[utid] = own
    return began, changes


def _inherited(
    threads: pl.DataFrame,
    found: Mapping[int, int],
    changes: Mapping[int, list[tuple[int, int]]],
) -> dict[int, int]:
    """The values of those found, and of their children, as they were when those began."""
    if not found and not changes:
        return {}
    began: dict[int, int] = {}
    for utid, tid, parent, start in threads.sort("utid").iter_rows():
        if parent is None:
            began[utid] = found.get(tid, 0)
        else:
            own = [nice for ts, nice in changes.get(parent, ()) if start is None or ts <= start]
            began[utid] = own[-1] if own else began.get(parent, 0)
    return began


def _by_priorities(
    switches: pl.DataFrame, bands: Bands, ncpu: int
) -> dict[int, list[tuple[int, int]]]:
    """The changes of older lines, of threads on their own."""
    # ULE's better priorities are of interactive threads, and of those that sleep.
    least = bands.batch + NICE_LEVELS if bands.ule else bands.first
    came: dict[int, tuple[int, int]] = {}
    changes: dict[int, list[tuple[int, int]]] = {}
    rows = switches.select("ts", "prev_utid", "prev_prio", "prev_state", "next_utid", "next_prio")
    for ts, prev, left, state, utid, prio in rows.iter_rows():
        since = came.pop(prev, None)
        if since is not None and left is not None and state == "runnable":
            at, had = since
            worse = left - had - bands.rise((ts - at) / 1e9)
            if not bands.ule:
                worse = min(worse, left - bands.worst_by_use)
            if had >= least and worse >= LEAST and prev not in changes:
                changes[prev] = [(at + 1, min(worse, NICEST))]
        if utid >= ncpu and prio is not None:
            came[utid] = (ts, prio)
    return changes
