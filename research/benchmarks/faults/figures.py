"""The figures that lead the answers, and whether those of a damaged input may stand.

The reference is the same analysis of the undamaged recording, whose waits and states equal
the truth. A figure of a damaged input

* is right if it is within 0.1 % (or 1 us) of the reference;
* is a bound if its column has an upper bound beside it, and the reference is between the two;
* is one, too, if the headline admits that more is missing than in the undamaged recording, and the
  figure is what a part of the truth can give: a sum or count or maximum that is not larger, a
  quantile that a subset of the true waits of that size can have;
* is doubted if it is a time and off by no more than what `check` says that clocks may differ
  unnoticed, for each wait that it sums;
* is flagged if `check` warns of something that it does not warn of in the undamaged recording;
* else it is wrong, and given as measured.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import polars as pl

from faults.truth import Truth

if TYPE_CHECKING:
    import schedscope as ss
    from faults.comparison import Doubt

Status = Literal["right", "doubted", "bound", "flagged", "wrong"]
Kind = Literal["part", "quantile", "mean"]

SHARE = 0.001
_SLACK_NS = 1_000
_SUMS = (" total", " waiting", " wasted", " idle", " running")
_MORE_UNKNOWN = 0.005
"""The share of CPU time by which `unknown` must grow to be news to a reader of the headline."""
LONG = "5ms"
"""Threshold of starvation: short captures have few waits of 100 ms."""


@dataclass(frozen=True)
class Figure:
    """One number: `part`: a part of the truth can only make it smaller."""

    value: float
    kind: Kind
    share: float = 0
    n: int = 0
    high: float | None = None
    """The upper bound that the answer gives beside it, if it gives a larger one."""


def figures(trace: ss.Trace) -> dict[str, Figure]:
    """Every figure by name."""
    import schedscope as ss

    found: dict[str, Figure] = {}

    def put(
        name: str,
        value: Any,
        kind: Kind = "part",
        share: float = 0,
        n: int = 0,
        high: float | None = None,
    ) -> None:
        found[name] = Figure(float(value or 0), kind, share, n, high)

    latency = ss.latency(trace).row(0, named=True)
    n = latency["n"]
    put("latency n", n)
    for name in ("total", "max"):
        put(f"latency {name}", latency[name], high=latency[f"{name}_high"])
    for name, share in (("p50", 0.5), ("p99", 0.99)):
        put(f"latency {name}", latency[name], "quantile", share, n, latency[f"{name}_high"])
    starved = ss.starvation_summary(trace, by="all", threshold=LONG)
    row = starved.row(0, named=True) if starved.height else {}
    put("starvation episodes", (row.get("n") or 0) - (row.get("n_censored") or 0))
    whole = ss.starvation(trace, threshold=LONG).filter(pl.col("censored") == "none")
    put("starvation longest", whole["wait"].max() if whole.height else 0)
    wasted = ss.work_conservation(trace).row(0, named=True)
    put("work conservation wasted", wasted["wasted"])
    put("work conservation idle", wasted["idle"])
    off = ss.off_cpu(trace)
    put("off CPU total", off["total"].sum())
    put("off CPU longest", off["max"].max())
    put("off CPU n", off["n"].sum())
    moves = ss.migration_summary(trace, by=[])
    put("migrations", moves["n"].sum())
    # Recordings of chosen threads have none.
    if "filtered" not in trace.info:
        depth = ss.queue_depth_summary(trace, by="all").row(0, named=True)
        put("queue depth mean", depth["mean"], "mean")
        put("queue depth waiting", depth["waiting"])
    busy = ss.efficiency(trace, by="all").row(0, named=True)
    put("efficiency running", busy["busy"])
    put("efficiency idle", busy["idle"])
    runs = ss.run_lengths(trace).row(0, named=True)
    put("run lengths total", runs["total"])
    put("run lengths max", runs["max"])
    wakers = ss.wakers(trace)
    put("wakers n", wakers["n"].sum())
    put("wakers total", wakers["total"].sum())
    return found


@dataclass(frozen=True)
class Caution:
    """What a reader sees beside the figures: warnings of `check`, gaps in the headline."""

    # By the name of the check: how many rows or ns it is about.
    warnings: dict[str, int]
    doubts: tuple[str, ...]
    unknown: float


def caution(trace: ss.Trace) -> Caution:
    """Checks that warn, and how often; the doubts of the headline, without their numbers."""
    from schedscope.analysis.check.check import check
    from schedscope.present.headline import gaps

    findings = check(trace).filter(pl.col("level").is_in(["warning", "violated"]))
    doubted = tuple(re.sub(r"[\d.,]+", "N", doubt) for doubt in gaps(trace))
    per_cpu = trace.info.get("per_cpu") or []
    unknown = sum(cpu.get("unknown", 0) for cpu in per_cpu)
    named = any("unknown" in doubt for doubt in doubted) and trace.duration
    share = unknown / (trace.duration * max(1, trace.ncpu)) if named else 0
    found = dict(findings.select("check", pl.col("found").fill_null(1)).iter_rows())
    return Caution(found, doubted, share)


def news(said: Caution, whole: Caution) -> list[str]:
    """What check warns of beyond what it warned of in the undamaged recording."""
    return sorted(name for name, n in said.warnings.items() if n > whole.warnings.get(name, 0))


def trusted(said: Caution, whole: Caution) -> bool:
    """Does check warn of nothing more than in the undamaged recording?"""
    return not news(said, whole)


def admits(said: Caution, whole: Caution) -> bool:
    """Does the headline name a gap that the undamaged recording does not have?"""

    def plain(doubt: str) -> str:
        return re.sub(r"s\b", "", doubt)

    news = set(map(plain, said.doubts)) - set(map(plain, whole.doubts))
    news = {doubt for doubt in news if "unknown" not in doubt}
    return bool(news) or said.unknown - whole.unknown > _MORE_UNKNOWN


def status(
    name: str,
    said: Figure,
    reference: Figure,
    truth: Truth,
    spoken: Caution,
    whole: Caution,
    doubt: Doubt,
) -> Status:
    """Is this figure acceptable given what else the reader sees?"""
    counted = name.endswith((" n", "episodes", "migrations"))
    timed = not counted and not name.endswith("mean")
    slack = max(_SLACK_NS if timed else 0, SHARE * abs(reference.value))
    if abs(said.value - reference.value) <= slack:
        return "right"
    if said.high is not None and said.value - slack <= reference.value <= said.high + slack:
        return "bound"
    if admits(spoken, whole) and _possible(said, reference, truth, slack):
        return "bound"
    if doubt.ns is None and timed:
        return "doubted"
    if doubt.ns and abs(said.value - reference.value) <= slack + _off(name, timed, doubt, truth):
        return "doubted"
    return "wrong" if trusted(spoken, whole) else "flagged"


def _off(name: str, timed: bool, doubt: Doubt, truth: Truth) -> float:
    """By how much a figure may be off by what two clocks may differ by unnoticed.

    A sum by that for each wait in it; a count by the sleeps that are shorter, since in their place
    the trace may show none. In the last stretch, where nothing shows how far clocks differ, by
    whatever begins there.
    """
    ns, (begin, end) = doubt.ns or 0, truth.window
    if timed:
        return ns * (truth.waits.height if name.endswith(_SUMS) else 1)
    late = 0 if doubt.since is None else truth.states.filter(pl.col("ts") > doubt.since).height
    if name.endswith("mean"):
        waiting = pl.col("end") - pl.col("ts")
        beyond = pl.col("ts") > (end if doubt.since is None else doubt.since)
        queued = truth.states.filter(pl.col("state") == "runnable", beyond)
        last = queued.select(waiting.sum()).item() or 0
        return (ns * truth.waits.height + last) / max(1, end - begin)
    asleep = ~pl.col("state").is_in(["running", "runnable", "unknown"])
    brief = truth.states.filter(asleep, pl.col("end") - pl.col("ts") <= ns)
    return late + brief.height


def _possible(said: Figure, reference: Figure, truth: Truth, slack: float) -> bool:
    """Can a part of the truth give this figure?"""
    if said.kind == "part":
        return said.value <= reference.value + slack
    if said.kind == "quantile":
        waits = np.sort(truth.waits["wait"].to_numpy())
        if not 0 < said.n <= len(waits):
            return said.n == 0
        rank = max(1, math.ceil(said.share * said.n)) - 1
        low, high = waits[rank], waits[rank + len(waits) - said.n]
        return bool(low - slack <= said.value <= high + slack)
    # The mean depth of a part of the window may be anything that occurred.
    return True
