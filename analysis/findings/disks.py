"""Which threads sleep for a disk, and is it the disk or the queue before it?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import polars as pl

from schedscope.analysis.asking.needs import has
from schedscope.analysis.causes.disk_sleeps import disk_sleeps
from schedscope.analysis.findings.finding import Finding
from schedscope.units import duration, percent, printable, several

if TYPE_CHECKING:
    from schedscope.store.trace import Trace

_SHARE = 0.1
"""Of the window: a thread that sleeps less for disks has other troubles."""


def disks(trace: Trace, where: pl.Expr | None = None) -> Iterator[Finding]:
    """The disk for which threads (of those `where` selects by `utid`) slept longest, if one slept
    for a tenth of the window."""
    if not has(trace, "disk_requests"):
        return
    times = trace.states.filter(
        (pl.col("state").cast(pl.String) == "blocked") & (pl.col("end").cast(pl.String) == "woken")
    ).select("utid", "ts", "dur", "state")
    if where is not None:
        times = times.filter(where)
    rows = disk_sleeps(trace, times).join(times, on=["utid", "ts"]).collect()
    of_thread = rows.group_by("device", "utid").agg(
        pl.col("dur").sum(), pl.len().alias("n"), most=pl.col("dur").max()
    )
    of_thread = of_thread.filter(pl.col("dur") >= _SHARE * trace.duration)
    if of_thread.is_empty():
        return
    devices = of_thread.group_by("device").agg(pl.col("dur").sum(), pl.len().alias("threads"))
    device, cost, threads = devices.sort("dur", "device", descending=[True, False]).row(0)
    worst = (
        of_thread.filter(pl.col("device") == device)
        .sort("dur", "utid", descending=[True, False])
        .row(0, named=True)
    )
    who = trace.threads.filter(pl.col("utid") == worst["utid"]).select("comm", "tid").collect()
    name, tid = who.row(0)
    longest = (
        rows.filter(utid=worst["utid"], device=device)
        .sort("dur", descending=True)
        .row(0, named=True)
    )
    others = f"; so did {several(threads - 1, 'other thread')}" if threads > 1 else ""
    text = (
        f"{printable(name or '?')} ({tid}) slept {duration(worst['dur'])} for disk"
        f" {device >> 20}:{device & 0xFFFFF} ({percent(worst['dur'] / trace.duration)} of the"
        f" window, {several(worst['n'], 'sleep')}, the longest {duration(worst['most'])}){others}."
        f" {_where(rows.filter(device=device))}"
    )
    yield Finding(
        "disk", cost, text, "off-cpu --by thread", longest["ts"], longest["dur"],
        worst["utid"], level="note", worth=0,
    )  # fmt: skip


def _where(rows: pl.DataFrame) -> str:
    """Whether requests waited in the kernel's queue or in the disk, of those seen all along."""
    seen = rows.filter(pl.col("made").is_not_null() & pl.col("given").is_not_null())
    if seen.is_empty():
        return "The trace does not show how long requests waited in the kernel's queue."
    queued = int((seen["given"] - seen["made"]).sum())
    served = int((seen["done"] - seen["given"]).sum())
    times = (seen["done"] - seen["made"]).sort().to_list()
    middle = duration(times[(len(times) - 1) // 2])
    text = (
        f"The median of its {several(len(seen), 'request')} is {middle};"
        f" {percent(queued / max(queued + served, 1))} of their total time was spent in the"
        " kernel's queue, the rest in the disk."
    )
    if queued > served:
        return text + " More requests are issued at a time than the disk accepts."
    return text + " It is the disk itself that takes the time."
