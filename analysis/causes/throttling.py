"""Which threads' control groups had used up their CPU quota, when, and how is that known?

Linux counts how often a quota held a group back (`cpu.stat`). When that was follows from the time
that its threads ran (`quota_periods`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import polars as pl

from schedscope.analysis.asking.memo import once
from schedscope.analysis.causes.quota_periods import period_timers, throttled_periods
from schedscope.analysis.threads.memberships import gone, memberships

if TYPE_CHECKING:
    from schedscope.store.trace import Trace

_DISPATCH = 1_000_000
"""A CPU that idles beside a runnable thread for longer (ns) could not run it: waking up from idle
takes some 100 us at most."""

ACCOUNTING = "quota accounting"
IDLE_CPU = "idle CPU"

_STRETCHES = pl.Schema({"ts": pl.Int64, "dur": pl.Int64, "cpu": pl.UInt16, "group": pl.UInt32})
_GUESSED = pl.Schema({**_STRETCHES, **pl.Schema({"likely": pl.Boolean, "certain": pl.Boolean})})


@dataclass(frozen=True)
class Throttling:
    """What is known about quotas, with lists by utid as native code takes them."""

    known: bool
    """The kernel's counters are there: where nothing is said, nobody was throttled."""
    stretches: pl.DataFrame
    """`ts`, `dur`, `cpu`, `group`: when which threads could not run on which CPU, most probably."""
    certain: pl.DataFrame
    """Of these what the kernel's count of throttled time leaves no other reading for."""
    possible: pl.DataFrame
    """These, and when they may not have been able to run."""
    group: list[int | None]
    """The number of each thread in `stretches`; threads of one control group share it."""
    held: list[bool]
    """Threads of a group that was throttled, with nothing that tells when."""
    quotas_of: dict[int, list[str]]
    """The control groups, each within the one before, whose quotas held a thread back."""
    quota_of: dict[int, str]
    """Of those the one that held it back longest."""
    by_quota: dict[str, pl.DataFrame]
    """By control group the part of `possible` that is due to its own quota, with `likely`, whether
    it is in `stretches`, and `certain`."""
    gone: dict[str, list[int]]
    """The threads, not held back by any of `quotas_of`, of control groups that did not exist when
    recording ended: the kernel's counters of these were not read."""
    dispatch: int = _DISPATCH

    def to_native(self) -> dict[str, Any] | None:
        """When each thread could not run, as native sweeps take it; None if unknown."""
        return self._native(self.stretches)

    def bounds_to_native(self) -> list[dict[str, Any] | None]:
        """The same for the least and for the most that threads may have been held back; one where
        these are the same.
        """
        both = [self.certain, self.possible]
        return [self._native(one) for one in (both if self.guessed else both[:1])]

    @property
    def guessed(self) -> bool:
        """Whether it is a guess which of some periods were throttled."""
        return not self.certain.equals(self.possible)

    def _native(self, stretches: pl.DataFrame) -> dict[str, Any] | None:
        if stretches.is_empty():
            return None
        return {"stretches": stretches, "group": self.group}

    def evidence(self, utid: int) -> str | None:
        """How it is known that the thread was throttled, if it was."""
        if self.group[utid] is not None:
            return ACCOUNTING
        return IDLE_CPU if self.held[utid] else None


def throttling(trace: Trace) -> Throttling:
    """For each thread, whether its group or an ancestor was throttled, and when.

    For a part of a recording the whole is used: which periods were throttled, and how often the
    kernel counted it, cannot be derived from a part.
    """
    if trace.whole is not None:
        return _clipped(once(throttling, trace.whole), *trace.window)
    threads = trace.threads.select(pl.col("utid").cast(pl.UInt32), "cgroup").collect()
    size = int(threads["utid"].max() or 0) + 1  # type: ignore[arg-type]
    group: list[int | None] = [None] * size
    held = [False] * size
    moved = memberships(trace)
    movers = moved["utid"].unique(maintain_order=True).to_list()
    threads = threads.filter(~pl.col("utid").is_in(movers))
    quotas_of: dict[int, list[str]] = {}
    by_quota: dict[str, pl.DataFrame] = {}
    groups = trace.info.get("groups")
    throttled = [one for one in groups or [] if one.get("n_throttled")]
    throttled.sort(key=lambda one: str(one["cgroup"]).rstrip("/").count("/"))
    paths = threads.drop_nulls()["cgroup"].unique().sort().to_list()
    timers = period_timers(trace) if throttled else {}
    for one in throttled:
        quota = str(one["cgroup"])
        found = [_GUESSED.to_frame()]
        inside = [path for path in paths if within(path, quota)]
        members = threads.filter(pl.col("cgroup").is_in(inside))
        there = [within(path or "", quota) for path in moved["cgroup"]]
        spans = moved.filter(pl.Series(there, dtype=pl.Boolean))
        of_group = throttled_periods(trace, one, members, spans, timers)
        if of_group is not None:
            # For a thread that moved, only its time in that group, under a number of its own.
            for utid, since, until, _ in spans.iter_rows():
                if quota not in quotas_of.setdefault(utid, []):
                    quotas_of[utid].append(quota)
                group[utid] = len(paths) + movers.index(utid)
                found.append(_cut(of_group, since, until, group[utid]))
        for utid, path in members.iter_rows():
            quotas_of.setdefault(utid, []).append(quota)
            if of_group is None:
                held[utid] = True
            else:
                group[utid] = paths.index(path)
        if of_group is not None:
            found += [
                of_group.with_columns(group=pl.lit(paths.index(path), pl.UInt32)).select(
                    _GUESSED.names()
                )
                for path in inside
            ]
        by_quota[quota] = pl.concat(found)
    of_all = pl.concat([_GUESSED.to_frame(), *by_quota.values()])
    stretches = merged(of_all.filter("likely"))
    certain, possible = merged(of_all.filter("certain")), merged(of_all)
    counted = {str(one["cgroup"]): int(one.get("throttled") or 0) for one in throttled}
    quota_of = _longest(quotas_of, by_quota, group, counted)
    unread = _unread(trace, groups or [], quotas_of)
    known = groups is not None
    return Throttling(
        known,
        stretches,
        certain,
        possible,
        group,
        held,
        quotas_of,
        quota_of,
        by_quota,
        unread,
    )


def _clipped(whole: Throttling, begin: int, end: int) -> Throttling:
    """The part that lies within a part of the recording."""
    since, until = pl.col("ts").clip(begin, None), pl.col("ts") + pl.col("dur")

    def cut(stretches: pl.DataFrame) -> pl.DataFrame:
        within = stretches.with_columns(ts=since, dur=until.clip(None, end) - since)
        return within.filter(pl.col("dur") > 0)

    by_quota = {quota: cut(rows) for quota, rows in whole.by_quota.items()}
    return replace(
        whole,
        stretches=cut(whole.stretches),
        certain=cut(whole.certain),
        possible=cut(whole.possible),
        by_quota=by_quota,
    )


def _unread(
    trace: Trace, groups: list[dict[str, Any]], quotas_of: dict[int, list[str]]
) -> dict[str, list[int]]:
    """See `Throttling.gone`. Where refill timers are recorded and no more of them fired than there
    are known groups with a quota, no other group had one.
    """
    timers = len(period_timers(trace))
    recorded = trace.metadata("recorder", "quota_refills")
    if recorded is None:
        # Older captures do not say so; of these only ftrace's have them.
        recorded = trace.metadata("recorder", "name") == "ftrace"
    if timers or recorded:
        limited = sum(1 for one in groups if one.get("n_periods"))
        if timers <= limited:
            return {}
    unread = gone(trace) | {
        str(one["cgroup"]) for one in groups if one.get("quota") and one.get("n_throttled") is None
    }
    found: dict[str, list[int]] = {}
    threads = trace.threads.select(pl.col("utid").cast(pl.UInt32), "cgroup").drop_nulls()
    for utid, path in threads.sort("utid").collect().iter_rows():
        if path in unread and utid not in quotas_of:
            found.setdefault(path, []).append(utid)
    return found


def _longest(
    quotas_of: dict[int, list[str]],
    by_quota: dict[str, pl.DataFrame],
    group: list[int | None],
    counted: dict[str, int],
) -> dict[int, str]:
    """For each thread, the quota that held it back longest; by the kernel's count if the times are
    unknown.
    """
    lengths = {
        quota: dict(rows.filter("likely").group_by("group").agg(pl.col("dur").sum()).iter_rows())
        for quota, rows in by_quota.items()
    }
    return {
        utid: max(quotas, key=lambda one: (lengths[one].get(group[utid], 0), counted[one]))
        for utid, quotas in quotas_of.items()
    }


def merged(stretches: pl.DataFrame) -> pl.DataFrame:
    """Time in which a quota and that of a group around it are both used up counts once."""
    key, end = ["group", "cpu"], pl.col("ts") + pl.col("dur")
    apart = pl.col("ts") > end.cum_max().shift(1).over(key)
    return (
        stretches.sort("ts")
        .with_columns(nth=apart.fill_null(value=True).cum_sum().over(key))
        .group_by(*key, "nth", maintain_order=True)
        .agg(pl.col("ts").first(), dur=end.max() - pl.col("ts").first())
        .select(*_STRETCHES.names())
        .sort("ts", maintain_order=True)
    )


def within(path: str, group: str) -> bool:
    """Whether a control group is another one or lies in it.

    >>> within("/a/b", "/a"), within("/ab", "/a"), within("/a", "/")
    (True, False, True)
    """
    return path == group or path.startswith(group.rstrip("/") + "/")


def _cut(stretches: pl.DataFrame, since: int, until: int, number: int | None) -> pl.DataFrame:
    """The parts of `stretches` from `since` to `until`, of the threads with this number."""
    end = pl.min_horizontal(pl.col("ts") + pl.col("dur"), pl.lit(until))
    cut = stretches.with_columns(pl.max_horizontal("ts", pl.lit(since)), end=end)
    return (
        cut.filter(pl.col("end") > pl.col("ts"))
        .with_columns(dur=pl.col("end") - pl.col("ts"), group=pl.lit(number, pl.UInt32))
        .select(_GUESSED.names())
    )
