"""Who ran on each CPU and who waited for it: `states`, read once for native sweeps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from schedscope.analysis.weights import TABLE, Levels
from schedscope.parsers.schema import CAUSE, STATE

if TYPE_CHECKING:
    from schedscope._native import Occupancy
    from schedscope.trace import Trace

RUNNING = STATE.categories.to_list().index("running")
"""Its code in `coded_states`."""


def occupancy(trace: Trace, *, weights: Levels | None = None) -> Occupancy:
    """The changes of what threads do on CPUs, in order of time, within the window.

    Takes 16 bytes for each row of `states` beside the table; any number of questions may be
    asked of it. With `weights` it knows every thread's class and weight, too.
    """
    from schedscope import _native

    if weights is None:
        return _native.Occupancy(coded_states(trace), trace.window, trace.ncpu)
    return _native.Occupancy(
        coded_states(trace, prio=True),
        trace.window,
        trace.ncpu,
        (weights.known(), TABLE.tolist(), weights.linux, weights.fair, weights.realtime),
    )


def coded_states(trace: Trace, *, prio: bool = False) -> pl.DataFrame:
    """`states` in the order of the table, with codes for words."""
    columns = [
        pl.col("ts", "dur").cast(pl.Int64),
        pl.col("utid").cast(pl.UInt32),
        pl.col("state").cast(STATE).to_physical().cast(pl.UInt8),
        pl.col("cpu").cast(pl.UInt16),
    ]
    if prio:
        columns.append(pl.col("prio").cast(pl.Int16))
    return trace.states.select(columns).collect()


def coded_waits(trace: Trace) -> pl.DataFrame:
    """Of every wait in the ledger whose it was, when it began and why, with codes for words."""
    return trace.waits.select(
        pl.col("utid").cast(pl.UInt32),
        pl.col("ts_ready").cast(pl.Int64),
        pl.col("cause").cast(CAUSE).to_physical().cast(pl.UInt8),
    ).collect()


def recorded_cpus(trace: Trace) -> set[int]:
    """Numbers of the CPUs that were recorded; they may have gaps."""
    return {int(cpu["cpu"]) for cpu in trace.info.get("per_cpu") or []} or set(range(trace.ncpu))
