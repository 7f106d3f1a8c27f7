"""Locks that threads waited for, how many at once, and which threads held them meanwhile."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from schedscope.analysis.asking.needs import has
from schedscope.analysis.causes.lock_waits import futex_calls, lock_waits
from schedscope.analysis.recording.lost_events import losses_of_any_event

if TYPE_CHECKING:
    from schedscope.store.trace import Trace

_KEY = ["kind", "pid", "address"]
Span = tuple[int, int]


@dataclass(frozen=True)
class Convoy:
    """A lock that threads waited for."""

    kind: str
    address: int
    pid: int | None
    threads: int
    """How many waited for it."""
    n: int
    total: int
    """Times they did, and how long altogether, ns."""
    own: int
    """Of that, how long the threads did that are asked about."""
    waited: int
    """How long anyone waited, ns: the time of all threads at once counts once."""
    queued: int
    """Of that, how long two or more did."""
    ts: int
    dur: int
    utid: int
    """The longest wait of those threads, and whose it was."""
    holder: int | None
    """The utid of whoever released it at the end of most of `waited`; null if nobody is proved."""
    held: int
    """How much of `waited` that is."""
    held_runnable: int
    """Of that, how long the holder itself waited for a CPU."""
    held_running: int
    unproved: int
    """How much of `waited` nobody was seen to have it."""


def convoys(trace: Trace, *, top: int = 3, affected: pl.Series | None = None) -> list[Convoy]:
    """The locks that threads waited for, the most waiting first.

    `affected`: only those for which these threads (utids) waited, by how long these did.

    Only what one thread holds at a time counts: mutexes, not conditions or semaphores. While a
    thread waits, a thread that releases such a lock wakes another. So the time between two releases
    belongs to the thread that ends it; the holder after the last release is unknown.
    """
    if not (has(trace, "locks") or has(trace, "system_calls")):
        return []
    waits = lock_waits(trace).filter("is_lock")
    own = pl.lit(True) if affected is None else pl.col("utid").is_in(affected.implode())
    heads = (
        waits.with_columns(dur=pl.when(own).then("dur").otherwise(0), own=own)
        .group_by(_KEY)
        .agg(pl.col("dur").sum(), pl.col("own").any())
        .filter("own")
        .sort("dur", *_KEY, descending=[True, False, False, False], nulls_last=True)
        .head(top)
    )
    if heads.is_empty():
        return []
    calls = futex_calls(trace).filter("wakes").collect()
    return [
        _convoy(
            trace,
            waits.filter(
                (pl.col("kind") == row["kind"])
                & pl.col("pid").eq_missing(pl.lit(row["pid"], pl.UInt32))
                & (pl.col("address") == pl.lit(row["address"], pl.UInt64))
            ),
            calls,
            own,
        )
        for row in heads.to_dicts()
    ]


def _convoy(trace: Trace, waits: pl.DataFrame, calls: pl.DataFrame, own_waits: pl.Expr) -> Convoy:
    first = waits.row(0, named=True)
    spans = list(zip(waits["ts"], waits["ts"] + waits["dur"], strict=True))
    alone, queued = depth_spans(spans)
    if first["kind"] == "futex":
        of_lock = (pl.col("pid") == first["pid"]) & (
            pl.col("address") == pl.lit(first["address"], pl.UInt64)
        )
        releases = calls.filter(of_lock).select("ts", "utid").sort("ts").rows()
    else:
        known = waits.filter(pl.col("releaser").is_not_null())
        releases = known.select(pl.col("ts") + pl.col("dur"), "releaser").sort("ts").rows()
    parts = holders(alone, releases, _holes(trace))
    waited = sum(end - begin for begin, end in alone)
    best = max(
        (utid for utid in parts if utid is not None),
        key=lambda utid: (_length(parts[utid]), -utid),
        default=None,
    )
    own = parts[best] if best is not None else []
    mine = waits.filter(own_waits)
    longest = mine.sort("dur", "ts", descending=[True, False]).row(0, named=True)
    return Convoy(
        kind=first["kind"],
        address=first["address"],
        pid=first["pid"],
        threads=waits["utid"].n_unique(),
        n=waits.height,
        total=int(waits["dur"].sum()),
        own=int(mine["dur"].sum()),
        waited=waited,
        queued=sum(end - begin for begin, end in queued),
        ts=longest["ts"],
        dur=longest["dur"],
        utid=longest["utid"],
        holder=best,
        held=_length(own),
        held_runnable=_in_state(trace, best, own, "runnable"),
        held_running=_in_state(trace, best, own, "running"),
        unproved=_length(parts.get(None, [])),
    )


def _length(spans: Iterable[Span]) -> int:
    return sum(end - begin for begin, end in spans)


def depth_spans(spans: Iterable[Span]) -> tuple[list[Span], list[Span]]:
    """When at least one of `spans` was open, and when at least two were.

    >>> depth_spans([(0, 10), (5, 8), (20, 30)])
    ([(0, 10), (20, 30)], [(5, 8)])
    """
    # Of edges at the same time the ends come last: spans that touch are one.
    steps = sorted(step for begin, end in spans for step in ((begin, 0), (end, 1)))
    depth, since = 0, {1: 0, 2: 0}
    found: dict[int, list[Span]] = {1: [], 2: []}
    for ts, ends in steps:
        if ends:
            if depth in since and ts > since[depth]:
                found[depth].append((since[depth], ts))
            depth -= 1
        else:
            depth += 1
            if depth in since:
                since[depth] = ts
    return found[1], found[2]


def _holes(trace: Trace) -> list[Span]:
    """When releases may be missing from the trace."""
    return losses_of_any_event(trace).select("ts_begin", "ts_end").collect().rows()


def holders(
    waited: Iterable[Span], releases: list[tuple[int, int]], holes: Iterable[Span] = ()
) -> dict[int | None, list[Span]]:
    """Which thread held the lock in each part of `waited`: that of the next of `releases`.

    `releases` are (`ts`, `utid`). For a part with lost events the holder is unknown.

    >>> holders([(0, 10), (20, 30)], [(4, 7), (10, 8), (29, 7)], [(8, 9)])
    {7: [(0, 4), (20, 29)], None: [(4, 10), (29, 30)]}
    """
    found: dict[int | None, list[Span]] = {}
    gaps, _ = depth_spans(holes)
    at, gap = 0, 0
    for begin, end in waited:
        while at < len(releases) and releases[at][0] <= begin:
            at += 1
        while at < len(releases) and releases[at][0] <= end:
            ts, utid = releases[at]
            while gap < len(gaps) and gaps[gap][1] <= begin:
                gap += 1
            unseen = gap < len(gaps) and gaps[gap][0] < ts
            if ts > begin:
                found.setdefault(None if unseen else utid, []).append((begin, ts))
            begin = ts
            at += 1
        if end > begin:
            found.setdefault(None, []).append((begin, end))
    return found


def _in_state(trace: Trace, utid: int | None, spans: list[Span], state: str) -> int:
    """How long the thread was in this state during `spans`, which are in order and apart."""
    if utid is None:
        return 0
    own = (
        trace.states.filter((pl.col("utid") == utid) & (pl.col("state").cast(pl.String) == state))
        .select("ts", until=pl.col("ts") + pl.col("dur"))
        .sort("ts")
        .collect()
        .rows()
    )
    total, at = 0, 0
    for begin, end in spans:
        while at < len(own) and own[at][1] <= begin:
            at += 1
        look = at
        while look < len(own) and own[look][0] < end:
            total += min(end, own[look][1]) - max(begin, own[look][0])
            look += 1
    return total
