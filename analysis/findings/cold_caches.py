"""Which threads are woken onto another core again and again, where caches are cold?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import polars as pl

from schedscope.analysis.findings.finding import Finding, option
from schedscope.analysis.migration.migrations import moves
from schedscope.units import count, duration, percent, printable, several

if TYPE_CHECKING:
    from schedscope.store.trace import Trace

_OFTEN = 20
"""Wake-ups a second that moved a thread: fewer cost next to nothing."""
_MOST = 0.2
"""Of a thread's wake-ups."""
_WORTH = 0.001
"""Of the machine's time: cold caches cost more than the stretches in which they fill."""


def wakeup_migrations(trace: Trace, where: pl.Expr | None = None) -> Iterator[Finding]:
    """Threads that a wakeup moved to another core, again and again; `where`: which, by `utid`."""
    enough = max(_OFTEN * trace.duration / 1e9, 10)
    # The kernel's own threads, as RCU's, go wherever they are needed.
    programs = trace.threads.filter(~pl.col("kernel").fill_null(False))
    names = programs.select(pl.col("utid").cast(pl.UInt32), "comm").collect()
    moved = pl.concat(
        part.join(names, on="utid")
        .filter(
            pl.lit(True) if where is None else where,
            pl.col("cause") == "wake",
            pl.col("distance").cast(pl.String).ne_missing("smt"),
        )
        .select("utid", "ts", "comm", "distance")
        for part in moves(trace, None)
    )
    times = moved.group_by("utid", "comm").len("n").filter(pl.col("n") >= enough)
    if times.is_empty():
        return
    woken = (
        trace.waits.filter(pl.col("cause") == "wake", pl.col("ts_run").is_not_null())
        .group_by(pl.col("utid").cast(pl.UInt32))
        .len("wakeups")
        .collect()
    )
    rows = times.join(woken, on="utid").filter(pl.col("n") >= _MOST * pl.col("wakeups"))
    if rows.is_empty():
        return
    ran = (
        trace.states.filter(
            pl.col("state") == "running", pl.col("utid").is_in(rows["utid"].implode())
        )
        .select(pl.col("utid").cast(pl.UInt32), "ts", "dur")
        .collect()
        .join(moved.select("utid", "ts"), on=["utid", "ts"], how="semi")
        .group_by("utid")
        .agg(pl.col("dur").sum())
    )
    rows = rows.join(ran, on="utid").sort("dur", "utid", descending=[True, False])
    worst, cost = rows.row(0, named=True), int(rows["dur"].sum())
    name = worst["comm"] or "?"
    caches = moved.filter(pl.col("utid") == worst["utid"])["distance"].cast(pl.String)
    far = int((caches.is_in(["package", "numa"])).sum())
    text = (
        f"{several(rows.height, 'thread was', 'threads were')} often woken on another core than"
        f" before, most of all {printable(name)}: in {count(worst['n'])} of"
        f" {several(worst['wakeups'], 'wakeup')} ({percent(worst['n'] / worst['wakeups'])}),"
        f" {count(far)} of them without a shared cache. It then ran with cold caches for at most"
        f" {duration(worst['dur'])}."
    )
    yield Finding(
        "wakeup migration", cost, text, "migrations --by comm,cause", level="note", worth=_WORTH,
        utid=worst["utid"], whatif=kept_in_place(trace, worst["utid"], name),
    )  # fmt: skip


def kept_in_place(trace: Trace, utid: int, name: str) -> str | None:
    """The option of `whatif` that pins a thread to the CPU where it ran longest."""
    ran = (
        trace.states.filter(pl.col("state") == "running", pl.col("utid") == utid)
        .group_by("cpu")
        .agg(pl.col("dur").sum())
        .sort("dur", descending=True)
        .collect()
    )
    return option("pin", name, ran["cpu"][0]) if ran.height else None
