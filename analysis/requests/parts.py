"""What the time of requests consisted of, part by part."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from schedscope.analysis.causes.sleep_causes import causes
from schedscope.analysis.wait_breakdown import wait_breakdown

if TYPE_CHECKING:
    from schedscope.store.trace import Trace

PARTS = (
    *("running", "waiting", "throttled", "interrupted", "locks", "io", "timer", "other_sleep"),
    *("backlog", "unknown"),
)

_OF_CAUSE = {
    "futex": "locks",
    **dict.fromkeys(("read", "write", "socket", "poll", "sync", "file", "disk", "io"), "io"),
    "fault": "io",
    "timer": "timer",
    **dict.fromkeys(
        ("child", "signal", "memory", "process", "other call", "stop", "kernel"), "other_sleep"
    ),
    "unknown": "unknown",
}
_OF_THREADS = tuple(part for part in PARTS if part not in ("backlog", "unknown"))


def parts_of(trace: Trace, requests: pl.DataFrame) -> pl.DataFrame:
    """The parts of each of `requests`, in their order; they sum up to `dur`, exactly.

    For each thread and part there is a sum that grows along the trace, and a part of a request is
    the difference of two of its values. The backlog is time between the stretches of two threads.
    What is in no known part is unknown.
    """
    stretches = _stretches(requests)
    lines = _lines(trace, stretches["utid"].unique())
    edges = pl.concat(
        [
            stretches.select("request", "utid", at="begin", sign=pl.lit(-1, pl.Int64)),
            stretches.select("request", "utid", at="end", sign=pl.lit(1, pl.Int64)),
        ]
    )
    until = pl.min_horizontal("at", pl.col("ts") + pl.col("dur"))
    met = (
        edges.sort("at", maintain_order=True)
        .join_asof(
            lines, left_on="at", right_on="ts", by="utid", strategy="backward", coalesce=False,
            check_sortedness=False,
        )
        .with_columns(into=until - pl.col("ts"))
    )  # fmt: skip
    met = _interrupted(trace, met)
    done = pl.col("at") >= pl.col("ts") + pl.col("dur")
    values = {
        # A wait for a CPU has several parts, which are added when it ends.
        part: pl.col(f"{part}_before")
        + pl.when(pl.col("simple") == part)
        .then(pl.col("into") - (pl.col("hit") if part == "running" else 0))
        .when(done)
        .then(pl.col(part).fill_null(0))
        .otherwise(0)
        for part in _OF_THREADS
    }
    values["interrupted"] += pl.when(pl.col("simple") == "running").then("hit").otherwise(0)
    sums = (
        met.select("request", **{part: value * pl.col("sign") for part, value in values.items()})
        .group_by("request")
        .agg(pl.col(part).sum() for part in _OF_THREADS)
    )
    irqs = trace.irqs.head(1).collect().height > 0
    known = pl.sum_horizontal(*_OF_THREADS, "backlog")
    backlog = pl.col("freed") - pl.coalesce("handed", "read")
    return (
        requests.select("dur", backlog=backlog.fill_null(0))
        .with_row_index("request")
        .with_columns(pl.col("request").cast(pl.Int64))
        .join(sums, on="request", how="left", maintain_order="left")
        .with_columns(pl.col(part).fill_null(0) for part in _OF_THREADS)
        .with_columns(unknown=pl.col("dur") - known)
        .with_columns(interrupted=pl.col("interrupted") if irqs else pl.lit(None, pl.Int64))
        .select(PARTS)
    )


def _stretches(requests: pl.DataFrame) -> pl.DataFrame:
    """The stretches of threads' time that each request consists of: `request`, `utid`, `begin`,
    `end`.
    """
    rows = requests.with_row_index("request").with_columns(
        pl.col("request").cast(pl.Int64), end=pl.col("ts") + pl.col("dur")
    )
    alone = pl.col("writer") == pl.col("utid")
    left = pl.coalesce("handed", "read")
    # Without a recorded handover or backlog, the time until the writer writes is unknown.
    taken = pl.coalesce("freed", "handed", "wrote")
    return pl.concat(
        [
            rows.filter(alone).select("request", "utid", begin="ts", end="end"),
            rows.filter(~alone).select("request", "utid", begin="ts", end=left),
            rows.filter(~alone).select("request", utid="writer", begin=taken, end="end"),
        ]
    )


def _lines(trace: Trace, utids: pl.Series) -> pl.DataFrame:
    """Each thread's time, without the waits' own steps: `utid`, `ts`, `dur`, `cpu`, `simple` (the
    part that all of it is), the parts of waits, and `PART_before`, the sums before each row."""
    states = (
        trace.states.filter(pl.col("utid").is_in(utids.implode()))
        .select("utid", "ts", "dur", "cpu", pl.col("state").cast(pl.String))
        .collect()
    )
    off = states.filter(pl.col("state").is_in(["sleeping", "blocked", "stopped", "parked"]))
    slept = causes(trace, off.lazy().select("utid", "ts", "dur", "state")).collect()
    part = pl.col("cause").cast(pl.String).replace_strict(_OF_CAUSE, default="unknown")
    ran = states.filter(pl.col("state") == "running")
    n_waits = states.filter(pl.col("state") == "runnable").height
    waits = wait_breakdown(
        trace, by="wait", where=pl.col("utid").is_in(utids.implode()), top=max(n_waits, 1)
    )
    held, hit = pl.col("throttled").fill_null(0), pl.col("interrupted").fill_null(0)
    # Time in which a quota may have been used up stays unknown.
    may = pl.when(pl.col("throttled_high") > held).then("unknown").otherwise(0)
    none = {name: pl.lit(0, pl.Int64) for name in _OF_THREADS}
    number = pl.col("utid").cast(pl.UInt32)
    cpu = pl.col("cpu").cast(pl.UInt16)
    rows = pl.concat(
        [
            ran.select(number, "ts", "dur", cpu, simple=pl.lit("running"), **none),
            slept.select(number, "ts", "dur", cpu=pl.lit(None, pl.UInt16), simple=part, **none),
            waits.select(
                number,
                "ts",
                dur=pl.col("wait").cast(pl.Int64),
                cpu=pl.lit(None, pl.UInt16),
                simple=pl.lit(None, pl.String),
                **none
                | {
                    "waiting": (pl.col("wait") - held - hit - may).cast(pl.Int64),
                    "throttled": held.cast(pl.Int64),
                    "interrupted": hit.cast(pl.Int64),
                },
            ),
        ]
    ).sort("ts", maintain_order=True)
    whole = {
        name: pl.when(pl.col("simple") == name).then("dur").otherwise(name) for name in _OF_THREADS
    }
    rows = _interrupted(trace, rows.with_columns(at=pl.col("ts") + pl.col("dur")), of_row=True)
    ran_free = pl.when(pl.col("simple") == "running").then("hit").otherwise(0)
    whole["running"] -= ran_free
    whole["interrupted"] += ran_free
    return rows.drop("hit", "at").hstack(
        rows.select(**{f"{name}_whole": value for name, value in whole.items()}, utid="utid")
        .select(
            (pl.col(f"{name}_whole").cum_sum().over("utid") - pl.col(f"{name}_whole")).alias(
                f"{name}_before"
            )
            for name in _OF_THREADS
        )
    )  # fmt: skip


def _interrupted(trace: Trace, rows: pl.DataFrame, *, of_row: bool = False) -> pl.DataFrame:
    """Adds `hit`: time of interrupts on `cpu` from `ts` until `at`, at most the row's length."""
    until = pl.col("at") if of_row else pl.col("ts") + pl.col("into")
    numbered = rows.with_columns(until=until).with_row_index("nth")
    spans = _spans(trace)
    ends = []
    for name in ("ts", "until"):
        point = (
            numbered.select("nth", "cpu", point=name)
            .filter(pl.col("cpu").is_not_null() & pl.col("point").is_not_null())
            .sort("point")
            .join_asof(
                spans, left_on="point", right_on="begin", by="cpu", strategy="backward",
                coalesce=False, check_sortedness=False,
            )
            .select(
                "nth",
                (
                    pl.col("before")
                    + pl.min_horizontal(pl.col("point") - pl.col("begin"), pl.col("length"))
                )
                .fill_null(0)
                .alias(f"hit_{name}"),
            )
        )  # fmt: skip
        ends.append(point)
    joined = numbered.join(ends[0], on="nth", how="left").join(ends[1], on="nth", how="left")
    return (
        joined.sort("nth")
        .with_columns(hit=(pl.col("hit_until") - pl.col("hit_ts")).fill_null(0))
        .drop("nth", "hit_until", "hit_ts", "until")
    )


def _spans(trace: Trace) -> pl.DataFrame:
    """When a CPU handled interrupts, nested ones once: `cpu`, `begin`, `length`, `before`."""
    last = pl.col("end").cum_max().shift(1).over("cpu")
    return (
        trace.irqs.select(
            pl.col("cpu").cast(pl.UInt16), begin="ts", end=pl.col("ts") + pl.col("dur")
        )
        .sort("cpu", "begin")
        .with_columns(span=(pl.col("begin") > last).fill_null(value=True).cum_sum().over("cpu"))
        .group_by("cpu", "span", maintain_order=True)
        .agg(pl.col("begin").min(), length=pl.col("end").max() - pl.col("begin").min())
        .with_columns(before=pl.col("length").cum_sum().over("cpu") - pl.col("length"))
        .select("cpu", "begin", "length", "before")
        .sort("begin")
        .collect()
    )
