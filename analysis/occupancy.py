"""Who ran on each CPU and who waited for it: `states`, read once for native sweeps."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import polars as pl

from schedscope.analysis.weights import TABLE, Levels
from schedscope.parsers.schema import CAUSE, END, STATE

if TYPE_CHECKING:
    from schedscope._native import Occupancy
    from schedscope.trace import Trace

_ROWS = 1 << 20


_readings: WeakKeyDictionary[Trace, Occupancy] = WeakKeyDictionary()


@contextmanager
def reading_once(trace: Trace) -> Iterator[None]:
    """Within it all questions about this trace share one reading, which is let go at the end.

    It takes 16 bytes for each row of `states`: not to be kept for long.
    """
    if trace in _readings:
        yield
        return
    _readings[trace] = _read(trace, Levels(trace))
    try:
        yield
    finally:
        del _readings[trace]


def occupancy(trace: Trace, *, weights: Levels | None = None) -> Occupancy:
    """The changes of what threads do on CPUs, in order of time, within the window.

    Any number of questions may be asked of it. With `weights`, those of the trace, it knows every
    thread's class and weight, too.
    """
    return _readings[trace] if trace in _readings else _read(trace, weights)


def _read(trace: Trace, weights: Levels | None) -> Occupancy:
    from schedscope import _native

    if weights is None:
        return _native.Occupancy(coded_states(trace), trace.window, trace.ncpu)
    return _native.Occupancy(
        coded_states(trace, prio=True),
        trace.window,
        trace.ncpu,
        (weights.known(), TABLE.tolist(), weights.linux, weights.fair, weights.realtime),
    )


def coded_states(
    trace: Trace, *, prio: bool = False, end: bool = False, states: pl.LazyFrame | None = None
) -> Iterator[pl.DataFrame]:
    """`states` (or what was selected of them) in the order of the table, with codes for words.

    Frame by frame, so that never more than some are in memory.
    """
    columns = [
        pl.col("ts", "dur").cast(pl.Int64),
        pl.col("utid").cast(pl.UInt32),
        pl.col("state").cast(STATE).to_physical().cast(pl.UInt8),
        pl.col("cpu").cast(pl.UInt16),
    ]
    if prio:
        columns.append(pl.col("prio").cast(pl.Int16))
    if end:
        columns.append(pl.col("end").cast(END).to_physical().cast(pl.UInt8))
    chosen = trace.states if states is None else states
    return iter(chosen.select(columns).collect_batches(chunk_size=_ROWS))


def coded_waits(trace: Trace) -> pl.DataFrame:
    """Of every wait in the ledger whose it was, when it began and why, with codes for words."""
    return trace.waits.select(
        pl.col("utid").cast(pl.UInt32),
        pl.col("ts_ready").cast(pl.Int64),
        pl.col("cause").cast(CAUSE).to_physical().cast(pl.UInt8),
    ).collect()
