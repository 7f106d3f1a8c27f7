"""What is missing from a trace, or cannot be derived from it?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import polars as pl

from schedscope.analysis.asking.memo import once
from schedscope.analysis.asking.needs import has
from schedscope.analysis.check.missing_wakeups import missing_wakeups
from schedscope.analysis.cpus.offline import offline
from schedscope.analysis.cpus.stolen_time import stolen_shares
from schedscope.analysis.recording.lost_events import is_short_edge
from schedscope.analysis.recording.recorded_threads import recorded_threads
from schedscope.analysis.recording.ring_trigger import trigger
from schedscope.store.losses import BROKEN_CHAINS, IS_BREAK

if TYPE_CHECKING:
    from schedscope.store.trace import Trace

Kind = Literal[
    "no events", "filter", "trigger not shown", "always offline", "offline", "unreported switches",
    "loss", "loss without a time", "wakeups", "all wakeups", "contradictions", "clocks",
    "clocks of unknown distance", "unknown", "stolen", "warnings",
]  # fmt: skip


@dataclass(frozen=True)
class Gap:
    """One thing that is missing; only what its kind has is set."""

    kind: Kind
    n: int = 0
    """How many there are: switches, wakeups, places of a loss, warnings."""
    events: int = 0
    """How many events were lost there, as far as anybody counted them."""
    time: int = 0
    """ns: of an offline CPU, of the wait that is not shown."""
    share: float = 0.0
    """Part of the CPUs' time."""
    cpus: tuple[int, ...] = ()
    reason: str = ""
    """Of a loss, as in `losses`."""


def gaps(trace: Trace) -> list[Gap]:
    """Everything that the trace lacks or cannot show; empty if nothing is missing."""
    return list(once(_gaps, trace))


def _gaps(trace: Trace) -> list[Gap]:
    return list(_found(trace))


def _found(trace: Trace) -> Iterator[Gap]:
    if not trace.events:
        yield Gap("no events")
    if recorded_threads(trace) is not None:
        yield Gap("filter")
    snapshot = trigger(trace)
    if snapshot and snapshot.wait is not None and not snapshot.shown:
        yield Gap("trigger not shown", time=snapshot.wait)
    gone = offline(trace)
    yield from _offline(gone.group_by("cpu").agg(pl.col("dur").sum()).sort("cpu"), trace.duration)
    yield from _losses(trace, broken=int(gone["broken"].sum()))
    for loss in trace.info.get("unplaced_losses") or []:
        cpu = loss.get("cpu")
        cpus = () if cpu is None else (int(cpu),)
        yield Gap("loss without a time", events=loss.get("count") or 0, cpus=cpus)
    if (missing := missing_wakeups(trace)) and missing[0]:
        some: Kind = "wakeups" if has(trace, "wakeup_events") else "all wakeups"
        yield Gap(some, n=missing[0])
    if n := (trace.info.get("reconstruction") or {}).get("contradictions"):
        yield Gap("contradictions", n=n)
    if offsets := trace.info.get("clock_offsets"):
        unsure = any(one.get("ahead") is None for one in offsets)
        yield Gap("clocks of unknown distance" if unsure else "clocks")
    unknown = sum(cpu.get("unknown", 0) for cpu in trace.info.get("per_cpu") or [])
    unknown -= int(gone["dur"].sum())
    known_of = trace.duration * trace.ncpu - int(gone["dur"].sum())
    if unknown > 0 and known_of:
        yield Gap("unknown", share=unknown / known_of)
    if shares := stolen_shares(trace):
        yield Gap("stolen", share=sum(shares.values()) / len(shares))
    if warnings := trace.info.get("warnings"):
        yield Gap("warnings", n=len(warnings))


def _offline(gone: pl.DataFrame, whole: int) -> Iterator[Gap]:
    """CPUs that the host did not use: what is missing from them is not lost."""
    if always := gone.filter(pl.col("dur") >= whole)["cpu"].to_list():
        yield Gap("always offline", cpus=tuple(always))
    for cpu, dur in gone.filter(pl.col("dur") < whole).iter_rows():
        yield Gap("offline", cpus=(cpu,), time=dur)


def _losses(trace: Trace, *, broken: int) -> Iterator[Gap]:
    """Losses by reason; `broken` chains are due to CPUs that were taken down."""
    # Counts from files may be arbitrarily large: their sum must not wrap.
    counts = pl.col("count").cast(pl.Float64).sum()
    rows = pl.when(IS_BREAK).then(BROKEN_CHAINS).otherwise(1)
    told = trace.losses.filter(~is_short_edge(trace))
    losses = told.group_by("reason").agg(rows.sum().alias("rows"), counts).collect()
    for reason, places, count in sorted(losses.iter_rows()):
        if reason == "chain_break":
            habit = (trace.info.get("reconstruction") or {}).get("unreported_leavings") or 0
            places -= broken + habit
            if habit:
                yield Gap("unreported switches", n=habit)
        if places > 0:
            yield Gap("loss", n=places, events=int(count), reason=str(reason))
