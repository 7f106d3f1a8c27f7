"""Who waited for very long?"""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from schedscope.analysis.findings.facts import Facts
from schedscope.analysis.findings.finding import Finding
from schedscope.analysis.findings.heavier import heavier
from schedscope.analysis.starvation.starvation import starvation, starvation_summary
from schedscope.units import count, duration, nanoseconds, printable, several

EPISODES = 200
"""Episodes of starvation that are looked at one by one."""
_NAMED = 5
"""Threads that starved longest, which are named."""
_DOUBTFUL = 0.5
"""No scheduler lets a CPU idle for this part of a long wait for it: switches are missing."""


def starved(facts: Facts) -> Iterator[Finding]:
    """Waits of the threshold or longer, but those that a quota explains."""
    whole = facts.ask(starvation_summary, by="all", threshold=facts.threshold)
    n, total, threads, unfinished = whole.select("n", "total", "threads", "n_censored").row(0)
    if not n:
        return
    rows = facts.ask(starvation, threshold=facts.threshold, top=EPISODES)
    if facts.phantoms:
        sure = rows.filter(pl.col("idle") < _DOUBTFUL * pl.col("wait"))
        n -= rows.height - sure.height
        total -= int(rows["wait"].sum()) - int(sure["wait"].sum())
        threads = sure["utid"].n_unique()
        rows = sure
    throttled = rows.filter(pl.col("throttled") >= 0.5 * pl.col("wait"))
    if throttled.height:
        # Those are of the finding about the quota.
        n -= throttled.height
        total -= int(throttled["wait"].sum())
        rows = rows.join(throttled, on="episode", how="anti", maintain_order="left")
        threads -= len(set(throttled["utid"]) - set(rows["utid"]))
    if rows.is_empty():
        return
    first = rows.row(0, named=True)
    text = (
        f"{several(threads, 'thread')} starved: {several(n, 'wait')} of"
        f" {duration(nanoseconds(facts.threshold))} or more,"
        f" {'at least ' if unfinished else ''}{duration(total)} in total."
        f" The longest: {first['story']}."
    )
    behind = (
        rows.filter(pl.col("culprit").is_not_null())
        .group_by("culprit")
        .agg(pl.col("culprit_time").sum(), pl.len())
        .sort("culprit_time", "culprit", descending=[True, False])
    )
    name, time, times = behind.row(0) if behind.height > 1 else ("", 0, 0)
    if times > 1 and time > 0.2 * int(rows["wait"].sum()):
        which = "of these waits" if rows.height == n else f"of the {rows.height} longest"
        text += (
            f" In {count(times)} {which} {printable(name)} had the CPU longest,"
            f" {duration(time)} in total."
        )
    most = (
        rows.group_by("utid")
        .agg(pl.col("wait").sum(), pl.col("comm", "tid").first())
        .sort("wait", "utid", descending=[True, False])
    )
    if most.height > 1:
        # Several threads may have one name.
        longest = [
            f"{printable(comm or '?')} ({tid}) {duration(wait)}"
            for comm, tid, wait in most.head(_NAMED).select("comm", "tid", "wait").iter_rows()
        ]
        text += f" Longest in total: {', '.join(longest)}."
    inversion = int(rows["inversion"].sum())
    if inversion > 0.01 * int(rows["wait"].sum()):
        text += f" For {duration(inversion)} they waited behind threads of worse priority."
    yield Finding(
        "starvation", total, text, "starvation", first["ts"], first["dur"],
        utid=first["utid"],
        whatif=heavier(facts.trace, int(first["utid"]), first["culprit"]),
    )  # fmt: skip
