"""What two traces differ in, over a stretch of each: who ran and who waited, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import polars as pl

from schedscope import units
from schedscope.errors import SchedscopeError, UsageError

if TYPE_CHECKING:
    from schedscope.store.trace import Trace
    from schedscope.timelines.answer import Answer
    from schedscope.timelines.lanes import Lanes
    from schedscope.timelines.questions import Questions

_MOST = 30
_MOST_NAMES = 5_000


def differences(one: Questions, two: Questions, request: Mapping[str, Any]) -> Answer:
    """A table of the names whose waiting differs most; `spans` are the two stretches (ns)."""
    try:
        spans = request.get("spans")
        if not (isinstance(spans, list) and len(spans) == 2):
            raise UsageError("this comparison", "two stretches of time")
        first, second = (
            _sums(side.timeline.lanes, span) for side, span in zip((one, two), spans, strict=True)
        )
        here, there = _apart(one, two)
        only = dict.fromkeys(here, "only in the first")
        data = _table(first, second, {**only, **dict.fromkeys(there, "only in the second")})
        return {"kind": "answer", "id": request.get("id"), "tables": [data]}, []
    except SchedscopeError as error:
        return {"kind": "error", "id": request.get("id"), "text": str(error)}, []


def absent(one: Questions, two: Questions, request: Mapping[str, Any]) -> Answer:
    """The names of threads that only the first trace has, and only the second."""
    names = [sorted(only)[:_MOST_NAMES] for only in _apart(one, two)]
    return {"kind": "answer", "id": request.get("id"), "names": names}, []


def _apart(one: Questions, two: Questions) -> tuple[set[str], set[str]]:
    here, there = (_names(side.timeline.lanes.trace) for side in (one, two))
    return here - there, there - here


def _names(trace: Trace) -> set[str]:
    known = trace.threads.filter(pl.col("utid") >= trace.ncpu).select("comm").collect()["comm"]
    return {units.printable(name) for name in known.unique().to_list() if name}


def _sums(lanes: Lanes, span: Any) -> pl.DataFrame:
    """Per name: time waited for a CPU, and time run, within the stretch."""
    if not (isinstance(span, list) and len(span) == 2 and all(type(at) is int for at in span)):
        raise UsageError("this comparison", "two instants, whole numbers")
    begin, end = (max(0, min(lanes.duration, at)) + lanes.begin for at in span)
    trace = lanes.trace
    inside = pl.min_horizontal(pl.col("ts") + pl.col("dur"), end) - pl.max_horizontal(
        "ts", pl.lit(begin)
    )
    names = trace.threads.select(pl.col("utid").cast(pl.UInt32), "comm")
    return (
        trace.states.filter(
            pl.col("utid") >= trace.ncpu,
            pl.col("state").is_in(["running", "runnable"]),
            pl.col("ts") < end,
            pl.col("ts") + pl.col("dur") > begin,
        )
        .select(pl.col("utid").cast(pl.UInt32), state=pl.col("state").cast(pl.String), time=inside)
        .join(names, on="utid", how="left")
        .group_by(pl.col("comm").fill_null("?"))
        .agg(
            waited=pl.col("time").filter(pl.col("state") == "runnable").sum(),
            ran=pl.col("time").filter(pl.col("state") == "running").sum(),
        )
        .collect()
    )


def _table(one: pl.DataFrame, two: pl.DataFrame, only: Mapping[str, str]) -> dict[str, Any]:
    both = (
        one.join(two, on="comm", how="full", coalesce=True, suffix="_two")
        .with_columns(pl.col("waited", "ran", "waited_two", "ran_two").fill_null(0))
        .with_columns(off=(pl.col("waited_two") - pl.col("waited")))
        .sort(pl.col("off").abs(), "comm", descending=[True, False])
    )
    total = both.sum().row(0, named=True)
    rows = [("all threads", total)]
    rows += [(row["comm"], row) for row in both.head(_MOST).iter_rows(named=True)]

    def time(ns: int) -> str:
        return units.duration(ns) if ns else ""

    def signed(ns: int) -> str:
        return f"{'+' if ns > 0 else '-'}{units.duration(abs(ns))}" if ns else ""

    more = both.height - _MOST
    return {
        "title": "Waiting for a CPU, and running, by name: the first trace and the second",
        "python": "",
        "heads": [
            ["name", False], ["waited, first", True], ["waited, second", True],
            ["difference", True], ["ran, first", True], ["ran, second", True], ["occurs", False],
        ],
        "rows": [
            [
                units.printable(name), time(row["waited"]), time(row["waited_two"]),
                signed(row["off"]), time(row["ran"]), time(row["ran_two"]),
                only.get(units.printable(name), ""),
            ]
            for name, row in rows
        ],
        "links": [None] * len(rows),
        "note": f"{more:,} names with smaller differences are not shown." if more > 0 else "",
    }  # fmt: skip
