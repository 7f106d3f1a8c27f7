"""How much of their waiting were threads throttled?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from schedscope.analysis.asking.memo import once
from schedscope.analysis.causes.quota_periods import overlaps
from schedscope.analysis.causes.throttling import Throttling, merged, throttling

if TYPE_CHECKING:
    from schedscope.store.trace import Trace


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
        both = overlaps(queued, stretches, pl.col("group") == pl.col("of"))
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
        int(overlaps(queued, merged(part), pl.col("group") == pl.col("of"))["both"].sum())
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
