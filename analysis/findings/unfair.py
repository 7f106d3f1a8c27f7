"""Which threads received less CPU time than their weight promises?"""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from schedscope.analysis.asking.memo import once
from schedscope.analysis.asking.needs import has
from schedscope.analysis.fairness import fairness, jain_of
from schedscope.analysis.findings.facts import Facts
from schedscope.analysis.findings.finding import Finding
from schedscope.analysis.findings.heavier import heavier
from schedscope.analysis.shares.group_weights import GroupWeights, group_weights
from schedscope.units import interval, nanoseconds, printable, several

_LAG = 0.1
"""Shortfalls of service below this share of the window are in the table only, as are those
below the threshold of starvation: over a few turns nobody gets exactly what is due."""


def unfair(facts: Facts) -> Iterator[Finding]:
    """Only where the weights are known, including those of groups: elsewhere nothing is due by
    weight.
    """
    if not has(facts.trace, "competitors"):
        return
    frame = once(fairness, facts.trace)
    known = frame.filter(pl.col("basis").cast(pl.String) == "kernel table")
    # A quota, which may be unknown, limits what is due by weight.
    held = facts.throttling
    limited = [*held.quota_of, *(utid for utids in held.gone.values() for utid in utids)]
    known = known.filter(~pl.col("utid").is_in(limited))
    mine = facts.mine(known)
    if mine.is_empty():
        return
    worst = mine.sort("lag", descending=True).row(0, named=True)
    lag = round(worst["lag"])
    if lag < max(_LAG * facts.trace.duration, nanoseconds(facts.threshold)):
        return
    counted = once(group_weights, facts.trace) is not None
    if not counted and GroupWeights(facts.trace).undecided():
        return
    jain = jain_of(known).filter(pl.col("sharing") == worst["sharing"]).row(0, named=True)
    text = (
        f"{printable(worst['comm'] or '?')} ({worst['tid']}) received"
        f" {interval(worst['running'], worst['running_high'])} of the"
        f" {interval(worst['due'], worst['due_high'])} of CPU time due to it by"
        " weight."
    )
    if jain["jain"] is not None:
        fair = interval(jain["jain"], jain["jain_high"], "{:.2f}".format)
        text += (
            f" Jain's index of the {several(jain['n'], 'thread')} of class"
            f" {worst['sharing']} is {fair} (1 if all are treated alike)."
        )
    if counted:
        text += " Weights of control groups and sessions are included."
    else:
        text += " Weights of control groups and sessions are not included and may be the reason."
    more = heavier(facts.trace, worst["utid"])
    yield Finding(
        "fairness", lag, text, "fairness", utid=worst["utid"], cost_high=round(worst["lag_high"]),
        level="note", whatif=more,
    )  # fmt: skip
