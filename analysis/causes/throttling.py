"""Which threads' control groups had used up their CPU quota, when, and how is that known?

Linux counts how often a quota held a group back (`cpu.stat`), and with the ftrace recorder when
the period timers fire that make quotas whole (`quota_refills`). When a group is throttled follows
from the time that its threads ran: kernel/sched/fair.c hands out a period's quota to CPUs in
slices (`sched_cfs_bandwidth_slice_us`), and a CPU whose slice is used up when none is left runs no
thread of the group until the next refill.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import polars as pl

from schedscope.analysis.asking.batches import in_batches
from schedscope.analysis.asking.memo import once
from schedscope.analysis.threads.memberships import gone, memberships

if TYPE_CHECKING:
    from schedscope.store.trace import Trace

_DISPATCH = 1_000_000
"""A CPU that idles beside a runnable thread for longer (ns) could not run it: waking up from idle
takes some 100 us at most."""
_SLICE = 5_000_000
"""Default of `sched_cfs_bandwidth_slice_us`, in ns."""
_KEPT = 1_000_000
"""What a CPU keeps of its slice when the group's last thread leaves it, in ns."""
_PERIOD_OFF = 0.02
"""A timer is of a group if its period is the group's, within this part."""

ACCOUNTING = "quota accounting"
IDLE_CPU = "idle CPU"

_STRETCHES = pl.Schema({"ts": pl.Int64, "dur": pl.Int64, "cpu": pl.UInt16, "group": pl.UInt32})
_GUESSED = pl.Schema({**_STRETCHES, **pl.Schema({"likely": pl.Boolean, "certain": pl.Boolean})})
_OVERRUN = 5_000_000
"""A thread runs on beyond its quota until the next tick, which may be 10 ms away but is 4 ms or
less nearly everywhere, ns."""
_UNINFORMED = 0.2
"""Of the throttled time: if it may have passed unrecorded, the kernel's count says little."""
_ROUNDING = 100_000
"""The kernel's time of a throttled period, from its tick to its timer, and ours differ by less."""


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
        of_group = _stretches(trace, one, members, spans, timers)
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
    stretches = _once(of_all.filter("likely"))
    certain, possible = _once(of_all.filter("certain")), _once(of_all)
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


def _once(stretches: pl.DataFrame) -> pl.DataFrame:
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


def throttled_in(trace: Trace, held: Throttling, waits: pl.DataFrame) -> pl.DataFrame:
    """How much of each wait (`utid`, `ts`, `dur`, `wait`; `idle` of its CPU) was throttled, ns:
    `throttled` at least, `throttled_high` at most.

    Null where nothing is known of quotas. The longest idle stretch is not distinguished there: an
    idle CPU counts as a whole from `dispatch` on, and the rest may have been throttled.
    """
    names = ("throttled", "throttled_high")
    unread = [utid for utids in held.gone.values() for utid in utids]
    told = ~waits["utid"].is_in(unread) & held.known
    group = pl.Series("group", [held.group[utid] for utid in waits["utid"]], pl.UInt32)
    idles = pl.Series("held", [held.held[utid] for utid in waits["utid"]], pl.Boolean)
    numbered = waits.select("utid", "ts", "dur", "wait", "idle").with_row_index("row")
    numbered = numbered.with_columns(group, idles, told=told)
    inferred = pl.when(pl.col("held") & (pl.col("idle") > held.dispatch)).then("idle").otherwise(0)
    most = pl.when("held").then("wait").otherwise(0)
    numbered = numbered.with_columns(throttled=inferred, throttled_high=most)
    accounted = numbered.filter(pl.col("group").is_not_null())
    states = trace.states.filter(pl.col("state") == "runnable").select(
        "cpu", "ts", "dur", utid=pl.col("utid").cast(pl.UInt32)
    )
    queued = (
        states.join(accounted.lazy().select("utid").unique(), on="utid", how="semi")
        .collect()
        .join_where(
            accounted.select(
                "row", "group", who="utid", since="ts", until=pl.col("ts") + pl.col("dur")
            ),
            pl.col("utid") == pl.col("who"),
            pl.col("ts") < pl.col("until"),
            pl.col("ts") + pl.col("dur") > pl.col("since"),
        )
        .select(
            "row",
            "cpu",
            "group",
            begin=pl.max_horizontal("ts", "since"),
            end=pl.min_horizontal(pl.col("ts") + pl.col("dur"), "until"),
        )
    )
    # On no known queue all of it may have been.
    unplaced = queued.filter(pl.col("cpu").is_null())
    slack = unplaced.group_by("row").agg(slack=(pl.col("end") - pl.col("begin")).sum())
    numbered = numbered.join(slack, on="row", how="left", maintain_order="left")
    for name, stretches in zip(names, (held.certain, held.possible), strict=True):
        both = _both(queued, stretches, pl.col("group") == pl.col("of"))
        sums = both.group_by("row").agg(pl.col("both").sum())
        numbered = numbered.join(sums, on="row", how="left", maintain_order="left")
        numbered = numbered.with_columns(pl.coalesce("both", name).alias(name)).drop("both")
    high = pl.col("throttled_high") + pl.col("slack").fill_null(0)
    return numbered.with_columns(throttled_high=high).select(
        pl.when("told").then(name).cast(pl.Int64).alias(name) for name in names
    )


def throttled_by(trace: Trace, held: Throttling, quota: str, utids: list[int]) -> tuple[int, int]:
    """For how long at least and at most some threads waited while this one group's quota was used
    up, ns.
    """
    numbers = {utid: held.group[utid] for utid in utids if held.group[utid] is not None}
    if not numbers:
        return 0, 0
    of = pl.DataFrame(
        {"utid": list(numbers), "group": list(numbers.values())},
        {"utid": pl.UInt32, "group": pl.UInt32},
    )
    queued = (
        trace.states.filter(pl.col("state") == "runnable")
        .select(
            "cpu", begin="ts", end=pl.col("ts") + pl.col("dur"), utid=pl.col("utid").cast(pl.UInt32)
        )
        .join(of.lazy(), on="utid")
        .collect()
    )
    rows = held.by_quota[quota]
    least, most = (
        int(_both(queued, _once(part), pl.col("group") == pl.col("of"))["both"].sum())
        for part in (rows.filter("certain"), rows)
    )
    return least, most


def held_back(trace: Trace, threads: pl.DataFrame) -> pl.DataFrame:
    """For threads with `avoidable` waiting: `utid` and `held`, how much of it a quota may explain.

    Only those of which the trace does not show when that was: it was at most as long as the kernel
    counted for their groups, ns. Where the trace does show it, none of it counts as avoidable.
    """
    held = once(throttling, trace)
    counted = {
        str(group["cgroup"]): int(group.get("throttled") or 0)
        for group in trace.info.get("groups") or []
    }
    most = {
        utid: sum(counted[quota] for quota in quotas)
        for utid, quotas in held.quotas_of.items()
        if held.held[utid]
    }
    bounds = pl.DataFrame(
        {"utid": list(most), "most": list(most.values())}, {"utid": pl.UInt32, "most": pl.Int64}
    )
    both = threads.join(bounds, on="utid")
    both = both.select("utid", held=pl.min_horizontal("avoidable", "most"))
    return both.filter(pl.col("held") > 0)


def within(path: str, group: str) -> bool:
    """Whether a control group is another one or lies in it.

    >>> within("/a/b", "/a"), within("/ab", "/a"), within("/a", "/")
    (True, False, True)
    """
    return path == group or path.startswith(group.rstrip("/") + "/")


def period_timers(trace: Trace) -> dict[int, pl.Series]:
    """When each period timer fired."""
    refills = trace.quota_refills.select("ts", "timer").collect()
    return {
        int(timer): rows["ts"].sort()
        for (timer,), rows in refills.group_by("timer", maintain_order=True)
        if len(rows) > 1
    }


def _stretches(
    trace: Trace,
    group: dict[str, Any],
    members: pl.DataFrame,
    spans: pl.DataFrame,
    timers: dict[int, pl.Series],
) -> pl.DataFrame | None:
    """When each CPU ran no thread of the group because its quota was used up; None without a
    matching timer.
    """
    quota, period = group.get("quota"), group.get("period")
    if not quota or not period:
        return None
    edges = [_edges(trace, fired) for fired in timers.values() if _is_period(fired, period)]
    seen = [_Seen(each) for each in edges]
    for states, left in _states(trace, members, spans):
        for one in seen:
            one.add(states, left)
    found = [one.periods(trace, group) for one in seen]
    if not found:
        return None
    explained = [0.0] * len(found)
    waited: list[list[pl.DataFrame]] = [[] for _ in found]
    for states, _ in _states(trace, members, spans):
        for i, periods in enumerate(found):
            both = _explained(states, periods)
            explained[i] += float(both.filter("likely")["both"].sum())
            waited[i].append(both.group_by("period", "cpu", "utid").agg(pl.col("both").sum()))
    # Another group's timer fires at other moments and explains less of the waiting.
    best = explained.index(max(explained))
    outside = _outside(trace, members, spans)
    return _with_certain(found[best], pl.concat(waited[best]), group, outside)


def _outside(trace: Trace, members: pl.DataFrame, spans: pl.DataFrame) -> int:
    """For how long the kernel counted while the group's threads may have been held back unseen."""
    begin, end = trace.window
    first, last = trace.info.get("counters_read") or trace.window
    since = [*spans["since"]]
    if "start_ts" in trace.threads.collect_schema().names():
        born = trace.threads.select(pl.col("utid").cast(pl.UInt32), "start_ts").collect()
        since += [*members.join(born, on="utid")["start_ts"]]
    else:
        since += [None] * members.height
    before = 0 if all(one is not None and one > begin for one in since) else max(0, begin - first)
    return before + max(0, last - end)


def _with_certain(
    periods: pl.DataFrame, waited: pl.DataFrame, group: dict[str, Any], outside: int
) -> pl.DataFrame:
    """The stretches that may be true, with `certain`, so that both sums allow for the kernel's
    count of throttled time.

    What may have been throttled is together longer than that count by an excess. A period in which
    a CPU's threads waited for longer than the excess must be one that was counted. Of the others
    the most probable are certain as long as together they do not exceed the count; and as many
    more may be true as reach it.
    """
    per_cpu = waited.group_by("period", "cpu").agg(pl.col("both").max())
    held = per_cpu.group_by("period").agg(held=pl.col("both").sum())
    time = group.get("throttled")
    rows = periods.join(held, on="period", how="left", maintain_order="left")
    rows = rows.with_columns(pl.col("held").fill_null(0))
    if time is None or outside > time * _UNINFORMED:
        return rows.filter("likely").with_columns(certain=True)
    rounding = int(group["n_throttled"]) * _ROUNDING
    # The kernel counts each period at its end.
    counted = rows.filter("counted").unique("period").sort("period")
    may = counted.filter(pl.col("likely") | pl.col("possible"))
    if may["held"].sum() >= int(time) - outside - rounding:
        # Otherwise switches are missing, and the group ran for longer than it seems.
        counted = may
    excess = int(counted["held"].sum()) - int(time)
    if excess > rounding:
        must = pl.col("held") > excess + outside + rounding
        sum_of = pl.col("held").cum_sum()
        counted = counted.sort(
            must, "likely", "used", "period", descending=[True, True, True, False]
        ).with_columns(
            certain=must | pl.col("likely") & (sum_of <= int(time) - outside + rounding),
            possible=sum_of - pl.col("held") < int(time),
        )
    else:
        counted = counted.with_columns(certain="likely", possible=True)
    read = counted.select("period", "certain", "possible")
    rows = rows.drop("possible").join(read, on="period", how="left", maintain_order="left")
    rows = rows.with_columns(
        pl.when("counted").then(pl.col(name).fill_null(value=False)).otherwise("likely").alias(name)
        for name in ("certain", "possible")
    )
    # The kernel throttles no queue on which no thread waits.
    rows = rows.with_columns(pl.col("possible") & (pl.col("held") > 0))
    return rows.filter(pl.col("certain") | pl.col("possible"))


def _is_period(fired: pl.Series, period: int) -> bool:
    typical = fired.diff().median()
    return abs(float(typical or 0) - period) <= _PERIOD_OFF * period  # type: ignore[arg-type]


def _edges(trace: Trace, fired: pl.Series) -> pl.DataFrame:
    """The periods, from `ts` to `refill`; the last one, not `whole`, to the window's end."""
    _, end = trace.window
    refill = fired.shift(-1)
    edges = pl.DataFrame(
        {"ts": fired, "refill": refill.fill_null(end), "whole": refill.is_not_null()}
    )
    # The one that the first of them ended.
    length = int(fired.diff().median() or 0)  # type: ignore[arg-type]
    first = pl.DataFrame({"ts": [fired[0] - length], "refill": [fired[0]], "whole": [True]})
    edges = pl.concat([first, edges])
    return edges.with_row_index("period").filter(pl.col("ts") < pl.col("refill"))


def _states(
    trace: Trace, members: pl.DataFrame, spans: pl.DataFrame
) -> Iterator[tuple[pl.DataFrame, pl.DataFrame]]:
    """When the group's threads wanted a CPU, or may have run, and which of their waits ended
    because they left for another queue (`_left`).

    In batches: the table is in order of time, so what follows a thread's last row in one is its
    first in a later one.
    """
    carried = None
    told = "end" in trace.states.collect_schema().names()
    lost = (pl.col("end") == "lost").fill_null(value=False) if told else pl.lit(False)
    for rows in in_batches(trace.states):
        asked = ["running", "runnable", "unknown"]
        wanting = rows.filter(pl.col("state").is_in(asked)).select(
            "ts", "dur", "cpu", "state", utid=pl.col("utid").cast(pl.UInt32), lost=lost
        )
        own = wanting.join(members.select("utid").lazy(), on="utid", how="semi")
        states = own.collect(engine="streaming")
        if spans.height:
            states = pl.concat([states, _inside(wanting, spans)])
        known = states.filter(pl.col("state") != "unknown")
        known = known if carried is None else pl.concat([carried, known])
        yield states, _left(known)
        carried = known.sort("utid", "ts").unique("utid", keep="last")


def _inside(states: pl.LazyFrame, spans: pl.DataFrame) -> pl.DataFrame:
    """The parts of `states` in which their threads were in the group."""
    until = pl.min_horizontal(pl.col("ts") + pl.col("dur"), "until")
    cut = states.join(spans.lazy().drop("cgroup"), on="utid").with_columns(
        ts=pl.max_horizontal("ts", "since"), until=until
    )
    return (
        cut.with_columns(dur=pl.col("until") - pl.col("ts"))
        .filter(pl.col("dur") > 0)
        .select("ts", "dur", "cpu", "state", "utid", "lost")
        .collect()
    )


def _cut(stretches: pl.DataFrame, since: int, until: int, number: int | None) -> pl.DataFrame:
    """The parts of `stretches` from `since` to `until`, of the threads with this number."""
    end = pl.min_horizontal(pl.col("ts") + pl.col("dur"), pl.lit(until))
    cut = stretches.with_columns(pl.max_horizontal("ts", pl.lit(since)), end=end)
    return (
        cut.filter(pl.col("end") > pl.col("ts"))
        .with_columns(dur=pl.col("end") - pl.col("ts"), group=pl.lit(number, pl.UInt32))
        .select(_GUESSED.names())
    )


class _Seen:
    """What a group's threads did between the refills of one timer, added up."""

    def __init__(self, edges: pl.DataFrame) -> None:
        """`edges`: the periods, from `ts` to `refill`."""
        self._edges = edges
        self._used: list[pl.DataFrame] = []
        self._unknown: list[pl.DataFrame] = []
        self._here: list[pl.DataFrame] = []
        self._cpus: set[int] = set()

    def add(self, states: pl.DataFrame, left: pl.DataFrame) -> None:
        """More of the threads' states; `left`: waits, `until` a thread left for another queue."""
        since = self._edges.rename({"ts": "since"})
        running = states.filter(pl.col("state") == "running").with_columns(
            until=pl.col("ts") + pl.col("dur")
        )
        # A run over a refill counts in both periods.
        runs = running.sort("until").join_where(
            since, pl.col("ts") < pl.col("refill"), pl.col("until") > pl.col("since")
        )
        runs = runs.with_columns(
            ran=pl.min_horizontal("until", "refill") - pl.max_horizontal("ts", "since")
        )
        unknown = states.filter(pl.col("state") == "unknown").with_columns(
            until=pl.col("ts") + pl.col("dur")
        )
        unknown = unknown.join_where(
            since, pl.col("ts") < pl.col("refill"), pl.col("until") > pl.col("since")
        ).with_columns(may=pl.min_horizontal("until", "refill") - pl.max_horizontal("ts", "since"))
        self._unknown.append(unknown.group_by("period").agg(pl.col("may").sum()))
        left = left.join_where(
            since, pl.col("until") > pl.col("since"), pl.col("until") < pl.col("refill")
        )
        seen = pl.concat([one.select("period", "cpu", "until") for one in (runs, left)])
        ran = runs.group_by("period").agg(pl.col("ran").sum(), last=pl.col("until").max())
        self._used.append(ran)
        self._here.append(seen.group_by("period", "cpu").agg(last_here=pl.col("until").max()))
        self._cpus |= set(states["cpu"].drop_nulls().unique())

    def periods(self, trace: Trace, group: dict[str, Any]) -> pl.DataFrame:
        """Stretches of throttled periods, from when a CPU last had a thread of the group to the
        refill.

        They start at the last run of such a thread there, or when one last left that queue for
        another: a throttled CPU gives no thread away. A period counts as throttled if the group
        used up its quota except for what CPUs may keep of their slices. There are at most as many
        as the kernel counted: those in which the group used most. The kernel counts a period at its
        end, so the last one, which lasts beyond the recording, is not counted. Some recorders have
        events from before and after the kernel's counters were read. There a CPU is assumed to keep
        no more of a slice than one that the group has left for good (`min_cfs_rq_runtime` in
        kernel/sched/fair.c), and what the group ran beyond its quota, until the tick that
        throttles, is taken from the next one.
        """
        slice_us = (trace.metadata("scheduler", "tunables") or {}).get(
            "/proc/sys/kernel/sched_cfs_bandwidth_slice_us"
        )
        kept = int(slice_us) * 1000 if slice_us else _SLICE
        most, least = group["quota"], group["quota"] // 2
        first, last = trace.info.get("counters_read") or trace.window
        inside = pl.col("ts").is_between(first, last)
        counted = inside & (pl.col("refill") <= last) & pl.col("whole")
        used = (
            pl.concat(self._used)
            .group_by("period")
            .agg(used=pl.col("ran").sum(), last=pl.col("last").max())
            .join(self._edges, on="period")
            .sort("period")
            .with_columns(owed=pl.struct("period", "used").map_batches(partial(_owed, most)))
            .with_columns(
                left=pl.when(inside)
                .then(trace.ncpu * kept)
                .otherwise(pl.col("owed") + trace.ncpu * min(kept, _KEPT))
            )
            .with_columns(
                reached=pl.col("used") >= pl.max_horizontal(most - pl.col("left"), pl.lit(least))
            )
            .sort("reached", "used", "period", descending=[True, True, False])
            .with_columns(
                likely=pl.col("reached") & (~counted | (counted.cum_sum() <= group["n_throttled"])),
                counted=counted,
            )
            .join(
                pl.concat(self._unknown).group_by("period").agg(pl.col("may").sum()),
                on="period",
                how="left",
                maintain_order="left",
            )
        )
        here = pl.concat(self._here).group_by("period", "cpu").agg(pl.col("last_here").max())
        on = here.group_by("period").agg(cpus=pl.len())
        used = used.join(on, on="period", how="left", maintain_order="left")
        reach = partial(_may_be_used_up, most, trace.ncpu, kept)
        used = used.sort("period").with_columns(
            possible=pl.struct("period", "used", "may", "cpus").map_batches(reach)
        )
        used = used.filter(pl.col("likely") | pl.col("counted"))
        cpus = pl.DataFrame({"cpu": sorted(self._cpus)}, {"cpu": pl.UInt16})
        return (
            used.join(cpus, how="cross")
            .join(here, on=["period", "cpu"], how="left")
            .with_columns(ts=pl.coalesce("last_here", "last"))
            .with_columns(dur=pl.col("refill") - pl.col("ts"))
            .filter(pl.col("dur") > 0)
            .with_columns(pl.col("cpu").cast(pl.UInt16))
            .select("ts", "dur", "cpu", "period", "used", "likely", "counted", "possible")
        )


def _owed(quota: int, rows: pl.Series) -> pl.Series:
    """For each `period`, how far the group had exceeded its quota before it, ns; `used` is what it
    used.
    """
    owed, before, found = 0, None, []
    for row in rows.to_list():
        owed = owed if row["period"] - 1 == before else 0
        found.append(owed)
        owed, before = max(0, owed + row["used"] - quota), row["period"]
    return pl.Series("owed", found, pl.Int64)


def _may_be_used_up(quota: int, ncpu: int, kept: int, rows: pl.Series) -> pl.Series:
    """For each `period`, whether the quota may have been used up: the group ran for `used` ns, on
    so many `cpus`, and it is unknown whether for `may` more.

    What is there is the quota and what CPUs had kept of their slices, less what they had overdrawn
    when they were throttled. A CPU that has a thread of the group keeps up to a slice, another one
    little (`min_cfs_rq_runtime`).
    """
    least, most, before, found = 0, ncpu * kept, None, []
    for row in rows.to_list():
        if before is not None and row["period"] - 1 != before:
            least, most = 0, ncpu * kept
        on = row["cpus"] or ncpu
        elsewhere = (on - 1) * kept + (ncpu - on) * _KEPT
        left = quota + least - row["used"] - (row["may"] or 0), quota + most - row["used"]
        found.append(left[0] <= elsewhere)
        if left[1] <= 0:
            least, most = max(left[0], -on * _OVERRUN), left[1]
        else:
            # It may not have been: a CPU may be in the middle of a slice.
            least, most = -on * _OVERRUN, min(left[1], on * kept + (ncpu - on) * _KEPT)
        before = row["period"]
    return pl.Series("possible", found, pl.Boolean)


def _left(states: pl.DataFrame) -> pl.DataFrame:
    """Waits, `until` a thread left the queue that it was on. One that was cut there by a doubt may
    go on.
    """
    until = pl.col("ts") + pl.col("dur")
    stays = (
        (pl.col("state").shift(-1) == "runnable")
        & (pl.col("cpu").shift(-1) == pl.col("cpu"))
        & (pl.col("ts").shift(-1) == until)
    )
    in_order = states.sort("utid", "ts").with_columns(until=until)
    stays = stays.over("utid").fill_null(True)
    return in_order.filter(pl.col("state") == "runnable", ~stays, ~pl.col("lost"))


def _explained(states: pl.DataFrame, stretches: pl.DataFrame) -> pl.DataFrame:
    """The group's waiting that lies in the stretches: `both`, ns."""
    waits = states.filter(pl.col("state") == "runnable").select(
        "utid", "cpu", begin="ts", end=pl.col("ts") + pl.col("dur")
    )
    return _both(waits, stretches)


def _both(queued: pl.DataFrame, stretches: pl.DataFrame, *same: pl.Expr) -> pl.DataFrame:
    """Rows of `queued` (`cpu`, `begin`, `end`) with each stretch on the CPU that they overlap.

    `both`: for how long, ns. `same`: what else must hold; the stretch's group is `of`.
    """
    pairs = queued.join_where(
        stretches.rename({"cpu": "at", "group": "of", "ts": "since"}, strict=False).with_columns(
            until=pl.col("since") + pl.col("dur")
        ),
        *same,
        pl.col("cpu") == pl.col("at"),
        pl.col("begin") < pl.col("until"),
        pl.col("end") > pl.col("since"),
    )
    return pairs.with_columns(
        both=pl.min_horizontal("end", "until") - pl.max_horizontal("begin", "since")
    )
