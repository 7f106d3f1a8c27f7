"""In which control group was each thread when, as far as moves were recorded?

`threads.cgroup` is the last one known. The kernel's event names a thread or, by the number of its
first thread, a process; a child starts in the group that its parent is in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from schedscope import _native

if TYPE_CHECKING:
    from schedscope.store.trace import Trace

_BEFORE = 0.01
"""Of the CPU time that a thread wanted: less before its last move changes nothing."""

BLIND_TO_MOVES = ("perf", "bpftrace", "dtrace")
"""Our recorders that do not see processes enter a group."""

SCHEMA = {"utid": pl.UInt32, "since": pl.Int64, "until": pl.Int64, "cgroup": pl.String}


def memberships(trace: Trace) -> pl.DataFrame:
    """One row per stretch of a thread in one group, for threads that moved or whose parents did.

    `utid`, `since`, `until`, `cgroup` (null: unknown). Of a thread without rows, `threads.cgroup`
    holds for the whole window.
    """
    moves = trace.info.get("group_moves") or []
    if not moves:
        return pl.DataFrame(schema=SCHEMA)
    begin, end = trace.window
    threads = trace.threads.sort("utid").select(
        pl.col("tid", "pid", "parent_utid").cast(pl.UInt32),
        pl.col("start_ts", "exit_ts").cast(pl.Int64),
        "cgroup",
    )
    known = threads.collect()
    found = _native.memberships(
        known.drop("cgroup"),
        known["cgroup"].to_list(),
        [(move["ts"], move["tid"], move.get("from"), move["cgroup"]) for move in moves],
    )
    lines = pl.DataFrame(
        found, {name: SCHEMA[name] for name in ("utid", "since", "cgroup")}, orient="row"
    )
    until = pl.col("since").shift(-1).over("utid").fill_null(end)
    return (
        lines.with_columns(pl.col("since").fill_null(begin))
        .with_columns(until=until)
        .filter(pl.col("until") > pl.col("since"))
        .select(*SCHEMA)
    )


def unsettled(trace: Trace) -> pl.Series:
    """`utid` of threads that moved, except those whose last group holds for nearly all their life.

    A program that is started in a container or a unit moves there before it runs. For a part of a
    recording this is taken from the whole.
    """
    if trace.whole is not None:
        return unsettled(trace.whole)
    last = memberships(trace).sort("since").unique("utid", keep="last", maintain_order=True)
    if last.is_empty():
        return last["utid"]
    end = pl.col("ts") + pl.col("dur")
    wanted = (
        trace.states.filter(pl.col("state").is_in(["running", "runnable"]))
        .select("ts", "dur", utid=pl.col("utid").cast(pl.UInt32))
        .join(last.lazy().select("utid", "since"), on="utid")
        .group_by("utid")
        .agg(
            pl.col("dur").sum(),
            before=(pl.min_horizontal(end, "since") - pl.col("ts")).clip(lower_bound=0).sum(),
        )
        .filter(pl.col("before") <= _BEFORE * pl.col("dur"))
        .collect()
    )
    return last.join(wanted, on="utid", how="anti", maintain_order="left")["utid"]


def gone(trace: Trace) -> set[str]:
    """Control groups that threads moved to, but that were not there when recording ended.

    The recorder lists those that were there at the start or at the end.
    """
    listed = {str(one["cgroup"]) for one in trace.info.get("groups") or []}
    moves = trace.info.get("group_moves") or []
    return {str(move["cgroup"]) for move in moves if listed and move.get("cgroup")} - listed - {"/"}


def guessed(trace: Trace) -> set[int]:
    """`utid` of threads that began while it was recorded, and were gone at the end, where the
    recorder does not see moves between groups: theirs may differ from their parent's.
    """
    if trace.metadata("recorder", "name") not in BLIND_TO_MOVES:
        return set()
    listed = [row["pid"] for row in trace.info.get("autogroups") or []]
    seen = pl.col("pid").is_in(listed) | pl.col("cmdline").is_not_null()
    born = trace.threads.filter(pl.col("start_ts").is_not_null(), ~seen.fill_null(value=False))
    return set(born.select(pl.col("utid").cast(pl.UInt32)).collect()["utid"])
