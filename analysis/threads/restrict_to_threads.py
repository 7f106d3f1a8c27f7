"""A trace reduced to some threads."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from schedscope.analysis.threads.of_threads import threads_with

if TYPE_CHECKING:
    from schedscope.store.trace import Trace


def restrict_to_threads(trace: Trace, where: pl.Expr) -> Trace:
    """States and waits of the threads that fit `where`; a CPU that runs another one counts as idle.

    `where` is an expression over the columns of `threads`, and `service`. For questions about CPUs
    that are asked of some threads, such as how many of them queue there. The tables of facts and
    the kernel's own reports (`queue_load`) stay out: they are about all threads.
    """
    from schedscope.store.trace import Trace

    known = threads_with(trace, (), where)
    chosen = known.filter(where).select("utid").collect()["utid"].implode()
    ours = pl.col("utid").is_in(chosen) | (pl.col("utid") < trace.ncpu)
    # Idle threads are numbered as their CPUs are.
    states = trace.states.filter(ours | (pl.col("state") == "running")).with_columns(
        utid=pl.when(ours).then(pl.col("utid")).otherwise(pl.col("cpu").cast(pl.UInt32))
    )
    tables = {
        "states": states,
        "waits": trace.waits.filter(pl.col("utid").is_in(chosen)),
        "threads": trace.threads,
        "cpus": trace.cpus,
        "losses": trace.losses,
    }
    return Trace.from_tables(tables, trace.info)
