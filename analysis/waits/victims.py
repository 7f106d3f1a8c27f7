"""Which threads' waits are selected, and on which queues they count, as native sweeps take it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from schedscope.analysis.cpus.topology import recorded_cpus

if TYPE_CHECKING:
    from schedscope.store.trace import Trace


def victims(trace: Trace, threads: pl.DataFrame, where: pl.Expr | None) -> pl.DataFrame:
    """Each selected thread and its number `victim`; with `cpu`, on whose queue it counts.

    `threads` has `utid`, `victim` and what `where` names; `where` may also name `cpu`, which
    is null for no known queue.
    """
    mine = threads.lazy().filter(pl.col("utid") >= trace.ncpu)
    columns = ["utid", "victim"]
    if where is not None:
        if "cpu" in where.meta.root_names():
            cpus = pl.LazyFrame(
                {"cpu": [*range(_most_cpus(trace)), None]}, schema={"cpu": pl.UInt16}
            )
            mine = mine.join(cpus, how="cross")
            columns.append("cpu")
        mine = mine.filter(where)
    return mine.select(columns).collect()


def _most_cpus(trace: Trace) -> int:
    """One more than the highest number of a CPU."""
    seen = trace.states.select(pl.col("cpu").max()).collect().item()
    return max(trace.ncpu, -1 if seen is None else int(seen), *recorded_cpus(trace)) + 1
