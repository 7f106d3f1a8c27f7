"""Which threads waited for very long?"""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from schedscope.analysis.findings.facts import Facts
from schedscope.analysis.findings.finding import Finding
from schedscope.analysis.findings.heavier import heavier
from schedscope.analysis.starvation.starvation import starvation, starvation_summary
from schedscope.units import count, duration, interval, nanoseconds, printable, several

EPISODES = 200
"""Episodes of starvation that are looked at one by one."""
_NAMED = 5
"""Threads that starved longest, which are named."""
_DOUBTFUL = 0.5
"""No scheduler lets a CPU idle for this part of a long wait for it: switches are missing."""


def starved(facts: Facts) -> Iterator[Finding]:
    """Waits of the threshold or longer, but those that a quota explains."""
    per_thread = facts.ask(starvation_summary, by="thread", threshold=facts.threshold)
    if not per_thread["n"].sum():
        return
    rows = facts.ask(starvation, threshold=facts.threshold, top=EPISODES)
    # Throttled waits belong to the finding about the quota.
    left_out = pl.col("throttled") >= 0.5 * pl.col("wait")
    if facts.phantoms:
        left_out |= pl.col("idle") >= _DOUBTFUL * pl.col("wait")
    others = rows.filter(left_out)
    rows = rows.join(others, on="episode", how="anti", maintain_order="left")
    if rows.is_empty():
        return
    more = int((per_thread["n_high"] - per_thread["n"]).sum())
    per_thread = _without(per_thread, others)
    highs = pl.col("total_high").sum(), pl.col("longest_high").max()
    most, longest = per_thread.select(highs).row(0)
    per_thread = per_thread.filter(pl.col("n") > 0)
    threads, n, total = (
        per_thread.height,
        int(per_thread["n"].sum()),
        int(per_thread["total"].sum()),
    )
    unfinished = per_thread["n_censored"].sum() > 0
    first = rows.row(0, named=True)
    in_total, may = interval(total, total if more else most), ""
    if more:
        longer = f", one of them {duration(longest)}" if longest > first["wait"] else ""
        may = (
            f" {several(more, 'more wait')} may have lasted that long{longer}: at most"
            f" {duration(most)} in total."
        )
    text = (
        f"{several(threads, 'thread')} starved: {several(n, 'wait')} of"
        f" {duration(nanoseconds(facts.threshold))} or more,"
        f" {'at least ' if unfinished else ''}{in_total} in total."
        f"{may}"
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
    if threads > 1:
        # Several threads may have one name.
        worst = [
            f"{printable(comm or '?')} ({tid}) {duration(starved)}"
            for comm, tid, starved in per_thread.sort("total", "utid", descending=[True, False])
            .head(_NAMED)
            .select("comm", "tid", "total")
            .iter_rows()
        ]
        text += f" Longest in total: {', '.join(worst)}."
    inversion = int(rows["inversion"].sum())
    if inversion > 0.01 * int(rows["wait"].sum()):
        text += f" For {duration(inversion)} they waited behind threads of worse priority."
    yield Finding(
        "starvation", total, text, "starvation", first["ts"], first["dur"],
        utid=first["utid"], cost_high=most,
        whatif=heavier(facts.trace, int(first["utid"]), first["culprit"]),
    )  # fmt: skip


def _without(per_thread: pl.DataFrame, episodes: pl.DataFrame) -> pl.DataFrame:
    """The sums of each thread less those of these episodes."""
    less = episodes.group_by("utid").agg(
        less_n=pl.len(),
        less_censored=(pl.col("censored") != "none").sum(),
        less_total=pl.col("wait").sum(),
    )
    return per_thread.join(less, on="utid", how="left").with_columns(
        n=pl.col("n") - pl.col("less_n").fill_null(0),
        n_censored=pl.col("n_censored") - pl.col("less_censored").fill_null(0),
        total=pl.col("total") - pl.col("less_total").fill_null(0),
        total_high=pl.col("total_high") - pl.col("less_total").fill_null(0),
    )
