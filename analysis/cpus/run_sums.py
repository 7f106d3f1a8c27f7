"""How long did each thread run on each CPU? What several analyses add up further."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from schedscope.analysis.asking.memo import once
from schedscope.analysis.cpus.occupancy import coded_states

if TYPE_CHECKING:
    from schedscope.store.trace import Trace


def run_sums(trace: Trace) -> pl.DataFrame:
    """One row per thread and CPU on which it ran within the window, idle threads included.

    * `utid`, `cpu` (null: on none that the table names);
    * `running`: time, ns; `runs`: intervals of running, those that the window cuts included;
    * `ts_first`, `ts_last`: when the first and the last of them began within the window.
    """
    return once(_summed, trace)


def _summed(trace: Trace) -> pl.DataFrame:
    from schedscope import _native

    return pl.DataFrame(_native.run_sums(coded_states(trace), trace.window))
