"""In which periods had a control group used up its CPU quota, and from when on each CPU?

When a group is throttled follows from the time that its threads ran: kernel/sched/fair.c hands out
a period's quota to CPUs in slices (`sched_cfs_bandwidth_slice_us`), and a CPU whose slice is used
up when none is left runs no thread of the group until the next refill, which the ftrace recorder
has (`quota_refills`).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import polars as pl

from schedscope.analysis.asking.batches import in_batches

if TYPE_CHECKING:
    from schedscope.store.trace import Trace

_SLICE = 5_000_000
"""Default of `sched_cfs_bandwidth_slice_us`, in ns."""
_KEPT = 1_000_000
"""What a CPU keeps of its slice when the group's last thread leaves it, in ns."""
_PERIOD_OFF = 0.02
"""A timer is of a group if its period is the group's, within this part."""
_OVERRUN = 5_000_000
"""A thread runs on beyond its quota until the next tick, which may be 10 ms away but is 4 ms or
less nearly everywhere, ns."""
_UNINFORMED = 0.2
"""Of the throttled time: if it may have passed unrecorded, the kernel's count says little."""
_ROUNDING = 100_000
"""The kernel's time of a throttled period, from its tick to its timer, and ours differ by less."""


def period_timers(trace: Trace) -> dict[int, pl.Series]:
    """When each period timer fired."""
    refills = trace.quota_refills.select("ts", "timer").collect()
    return {
        int(timer): rows["ts"].sort()
        for (timer,), rows in refills.group_by("timer", maintain_order=True)
        if len(rows) > 1
    }


def throttled_periods(
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
    return overlaps(waits, stretches)


def overlaps(queued: pl.DataFrame, stretches: pl.DataFrame, *same: pl.Expr) -> pl.DataFrame:
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
