"""Which threads ran on each CPU and waited for it: `states`, read once for native sweeps."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import polars as pl

from schedscope.analysis.threads.levels import Levels
from schedscope.store.native_tables import coded

if TYPE_CHECKING:
    from schedscope._native import CpuHistory, StoredTable
    from schedscope.store.trace import Trace

_readings: WeakKeyDictionary[Trace, CpuHistory] = WeakKeyDictionary()


@contextmanager
def reading_once(trace: Trace, *, weighed: bool = True) -> Iterator[None]:
    """Within it all questions about this trace share one reading, which is let go at the end.

    `weighed`: some of them ask for weights.

    It takes 12 bytes for each row of `states`, 200 MB at most, so it is not kept for long. Each
    question reads a longer table of a `.sched` folder again.
    """
    if trace in _readings:
        yield
        return
    _readings[trace] = read_states(trace, Levels(trace) if weighed else None)
    try:
        yield
    finally:
        del _readings[trace]


def occupancy(trace: Trace, *, weights: Levels | None = None) -> CpuHistory:
    """The changes of what threads do on CPUs, in order of time, within the window.

    Any number of questions may be asked of it. With `weights`, those of the trace, it knows every
    thread's class and weight, too.
    """
    return _readings[trace] if trace in _readings else read_states(trace, weights)


def read_states(
    trace: Trace, weights: Levels | None, states: pl.LazyFrame | None = None
) -> CpuHistory:
    """The same from `states` (or some rows of it), read again."""
    from schedscope import _native

    if weights is None:
        return _native.CpuHistory(coded_states(trace, states=states), trace.window, trace.ncpu)
    chosen = coded_states(trace, prio=True, states=states)
    return _native.CpuHistory(chosen, trace.window, trace.ncpu, weights.to_native())


def coded_states(
    trace: Trace, *, prio: bool = False, end: bool = False, states: pl.LazyFrame | None = None
) -> StoredTable | pl.DataFrame:
    """`states` (or what was selected of them) in the order of the table, with codes for words."""
    more = [name for name, wanted in (("prio", prio), ("end", end)) if wanted]
    return coded(trace, "states", "ts", "dur", "utid", "state", "cpu", *more, rows=states)


def coded_waits(trace: Trace) -> StoredTable | pl.DataFrame:
    """The thread, start, end and cause of every wait in the ledger, with codes for words.

    For a part of a recording this includes waits that began before it, whose cause is known.
    """
    whole, (begin, end) = trace, trace.window
    while whole.whole is not None:
        whole = whole.whole
    rows = None if whole is trace else whole.part("waits", begin, end)
    return coded(trace, "waits", "utid", "ts_ready", "cause", "ts_run", rows=rows)
