"""How long each thread ran and waited in all, and its longest wait."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from schedscope.parsers.schema import TABLES
from schedscope.store.native_tables import coded

if TYPE_CHECKING:
    from schedscope.store.trace import Trace

RUN_COLUMNS = ("ts", "dur", "utid", "state", "cpu")
WAIT_COLUMNS = ("utid", "ts_ready", "wait")
"""Those of `states` and of `waits` that are needed."""

SCHEMA = pl.Schema(
    {
        "utid": TABLES["threads"].schema["utid"],
        "run": pl.Int64(),
        "cpu": TABLES["states"].schema["cpu"],
        "wait": pl.Int64(),
        "ready": pl.Int64(),
        "longest": pl.Int64(),
    }
)


def thread_totals(runs: pl.DataFrame, waits: pl.DataFrame, begin: int, ncpu: int) -> pl.DataFrame:
    """One row per thread that ran or waited, but the idle ones (utids below `ncpu`).

    `run` and `wait` are ns within the window, which begins at `begin`; `cpu` is where it ran
    longest, the lower number of equals; `ready` and `longest` are its longest wait, from the
    window's begin on, the first of equals. `runs` and `waits` are what `_native.run_sums` and
    `_native.wait_sums` say: memory is a row per thread and CPU, however long the trace is.
    """
    ran = (
        runs.filter(pl.col("utid") >= ncpu)
        .sort("running", "cpu", descending=[True, False])
        .group_by("utid", maintain_order=True)
        .agg(run=pl.col("running").sum(), cpu=pl.col("cpu").first())
    )
    waited = waits.with_columns(ready=pl.col("ts_ready") - begin)
    both = ran.join(waited, on="utid", how="full", coalesce=True)
    return both.select(pl.col(name).cast(dtype) for name, dtype in SCHEMA.items()).sort("utid")


def totals_of(trace: Trace) -> pl.DataFrame:
    """The same, read from the tables of `trace`."""
    from schedscope import _native

    runs = _native.run_sums(coded(trace, "states", *RUN_COLUMNS), trace.window)
    waits = _native.wait_sums(coded(trace, "waits", *WAIT_COLUMNS))
    return thread_totals(pl.DataFrame(runs), pl.DataFrame(waits), trace.window[0], trace.ncpu)
