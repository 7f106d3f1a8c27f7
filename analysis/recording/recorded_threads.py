"""Recordings of chosen threads: a filter of the recorder left out the events of all others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from schedscope.analysis.asking.memo import once
from schedscope.units import printable, several

if TYPE_CHECKING:
    from schedscope.store.trace import Trace

_NAMED = 3
"""Threads that are named; of more, the ones that ran most often."""


def recorded_threads(trace: Trace) -> list[int] | None:
    """Utids of the threads that were recorded; None where no filter left out others.

    The reconstruction finds this (docs/trace-model.md, Filtered).
    """
    filtered = trace.info.get("filtered")
    return None if filtered is None else list(filtered.get("utids") or [])


def filtered(trace: Trace) -> str:
    """A description of what a filter recorded; empty where no filter was used."""
    return once(_filtered, trace)


def _filtered(trace: Trace) -> str:
    utids = recorded_threads(trace)
    if utids is None:
        return ""
    if not utids:
        return (
            "a filter of the recorder left out switches of every thread: what threads and CPUs did"
            " is unknown"
        )
    ran = (
        trace.waits.filter(pl.col("utid").is_in(utids), pl.col("ts_run").is_not_null())
        .group_by("utid")
        .len()
        .join(trace.threads.select("utid", "comm"), on="utid")
        .sort("len", "utid", descending=[True, False])
        .collect()
    )
    names = [printable(name or "?") for name in ran["comm"].unique(maintain_order=True)]
    shown = ", ".join(names[:_NAMED]) + (", ..." if len(names) > _NAMED else "")
    who = several(len(utids), "thread") + (f" ({shown})" if shown else "")
    return (
        f"a filter of the recorder left in only {who}: what other threads and the CPUs did"
        " meanwhile is unknown"
    )
