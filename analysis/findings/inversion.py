"""Was a real-time thread delayed by threads of worse priority that kept its waker off the CPU?"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING

import polars as pl

from schedscope.analysis.findings.finding import Finding, option
from schedscope.analysis.threads.levels import linux_priorities
from schedscope.units import duration, printable, several

if TYPE_CHECKING:
    from schedscope.store.trace import Trace

_REAL_TIME = 100
"""Smaller kernel priorities are those of strict classes: fair threads only share by weight."""
_LONGEST = 10_000
"""Sleeps that are looked at; of an endless trace, the longest ones."""
_SHORT = 100_000
"""Sleeps below (ns) are not: nobody was held up for long in them."""
_BRIEF = 1_000_000
"""A real-time thread may well be held up for less (ns); from here on it is worth a row, however
little of the machine's time it is."""
_UNTIL = pl.col("ts") + pl.col("dur")


def inversions(trace: Trace) -> pl.DataFrame:
    """One row per real-time thread, waker and thread that kept the waker off its CPU.

    * `utid`, `waker`, `middle`: the sleeper, who woke it, and who ran instead of the waker, with a
      worse priority than the sleeper's and a better one than the waker's;
    * `time`: how long while the sleeper slept (ns), `n`: in how many sleeps, `longest`: the
      most in one of them, which began at `ts`.
    """
    none = pl.DataFrame(
        schema={
            "utid": pl.UInt32, "waker": pl.UInt32, "middle": pl.UInt32, "time": pl.Int64,
            "n": pl.UInt32, "longest": pl.Int64, "ts": pl.Int64,
        }
    )  # fmt: skip
    if not linux_priorities(trace):
        return none
    states = trace.states.select(
        pl.col("utid").cast(pl.UInt32), pl.col("cpu").cast(pl.UInt16), "ts", "state", "prio",
        until=_UNTIL,
    )  # fmt: skip
    # These kernel threads sleep for lack of work: a stopper or an interrupt's thread.
    programs = trace.threads.filter(~pl.col("kernel").fill_null(False)).select("utid").collect()
    woken = (
        trace.waits.filter(
            pl.col("cause") == "wake", pl.col("prio") < _REAL_TIME,
            pl.col("waker_utid") >= trace.ncpu, pl.col("utid").is_in(programs["utid"].implode()),
        )
        .select(
            pl.col("utid").cast(pl.UInt32), until="ts_waking",
            waker=pl.col("waker_utid").cast(pl.UInt32), high=pl.col("prio"),
        )
        .collect()
    )  # fmt: skip
    if woken.is_empty():
        return none
    sleeps = (
        states.filter(
            pl.col("state").is_in(["sleeping", "blocked"]),
            pl.col("utid").is_in(woken["utid"].unique().implode()),
            pl.col("until") - pl.col("ts") >= _SHORT,
        )
        .select("utid", "until", since="ts")
        .collect()
        .join(woken, on=["utid", "until"])
        .with_columns(dur=pl.col("until") - pl.col("since"))
        .top_k(_LONGEST, by="dur")
        .with_row_index("sleep")
    )
    queued = (
        states.filter(
            pl.col("state") == "runnable",
            pl.col("utid").is_in(sleeps["waker"].unique().implode()),
            pl.col("cpu").is_not_null(),
        )
        .select("cpu", who="utid", begin="ts", end="until", low="prio")
        .collect()
    )
    held = (
        sleeps.join_where(
            queued,
            pl.col("waker") == pl.col("who"),
            pl.col("begin") < pl.col("until"),
            pl.col("end") > pl.col("since"),
        )
        .filter(pl.col("low") > pl.col("high"))
        .with_columns(
            begin=pl.max_horizontal("begin", "since"), end=pl.min_horizontal("end", "until")
        )
        .drop("since", "until", "who")
    )
    if held.is_empty():
        return none
    ran = (
        states.filter(
            pl.col("state") == "running",
            pl.col("prio") < _REAL_TIME,
            pl.col("until") > held["begin"].min(),
            pl.col("ts") < held["end"].max(),
        )
        .select(middle="utid", on="cpu", ts="ts", until="until", between="prio")
        .collect()
    )
    both = held.join_where(
        ran,
        pl.col("cpu") == pl.col("on"),
        pl.col("ts") < pl.col("end"),
        pl.col("until") > pl.col("begin"),
    ).filter(pl.col("between") > pl.col("high"), pl.col("between") < pl.col("low"))
    overlap = pl.min_horizontal("until", "end") - pl.max_horizontal("ts", "begin")
    return (
        both.with_columns(time=overlap)
        .group_by("utid", "waker", "middle", "sleep")
        .agg(pl.col("time").sum(), ts=pl.col("begin").min())
        .group_by("utid", "waker", "middle")
        .agg(
            pl.col("time").sum(),
            n=pl.len(),
            longest=pl.col("time").max(),
            ts=pl.col("ts").sort_by("time").last(),
        )
        .sort("time", "utid", descending=[True, False])
    )


def priority_inversion(trace: Trace, where: pl.Expr | None = None) -> Iterator[Finding]:
    """What priority inversion cost real-time threads (those that `where` selects by `utid`)."""
    rows = inversions(trace)
    if where is not None:
        rows = rows.filter(where)
    if rows.is_empty():
        return
    names = dict(trace.threads.select("utid", "comm").collect().iter_rows())

    def name(utid: int) -> str:
        return printable(names.get(utid) or "?")

    worst = rows.row(0, named=True)
    if rows["longest"].max() < _BRIEF:  # type: ignore[operator]
        return
    total = int(rows["time"].sum())
    text = (
        f"{name(worst['utid'])}, a real-time thread, slept until {name(worst['waker'])}, of worse"
        f" priority, woke it. In {several(worst['n'], 'of these sleeps', 'of these sleeps')} the"
        f" waker was kept off its CPU by {name(worst['middle'])}, whose priority is between the"
        f" two: {duration(worst['time'])} in total, at most {duration(worst['longest'])} at a time."
        " Such a sleep is a priority inversion if it was for a lock or an answer, not for new work."
    )
    if rows.height > 1:
        text += f" With other threads, it was {duration(total)} in total."
    # As if the holder had the waiter's priority, which a lock can lend it (priority inheritance).
    own = trace.waits.filter(pl.col("utid") == worst["utid"]).select(pl.col("prio").min())
    lent = option(
        "set-class", names.get(worst["waker"]), f"fifo:{min(99, 99 - own.collect().item())}"
    )
    command = f"off-cpu --comm {shlex.quote(names.get(worst['utid']) or '?')}"
    yield Finding(
        "priority inversion",
        total,
        text,
        command,
        worst["ts"],
        utid=worst["utid"],
        always=True,
        whatif=lent,
    )
