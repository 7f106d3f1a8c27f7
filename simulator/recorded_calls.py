"""The reads and writes of a trace, where system calls were recorded: for messages that woke nobody.

Only calls on a file descriptor that may be a pipe or a socket, and that say how much they moved.
Which of them go through one pipe the engine finds (`native/src/sim/extract/pipes.rs`).
"""

from __future__ import annotations

import polars as pl

from schedscope.analysis._base.system_calls import READS, WRITES, names
from schedscope.trace import Trace

_EMPTY = pl.Schema(
    {
        "ts": pl.Int64(),
        "utid": pl.UInt32(),
        "process": pl.UInt32(),
        "enters": pl.Boolean(),
        "writes": pl.Boolean(),
        "value": pl.Int64(),
    }
)


def reads_and_writes(trace: Trace, threads: pl.DataFrame) -> pl.DataFrame:
    """The ends of such calls in time order; `process` tells tables of descriptors apart.

    Empty if none were recorded, or not with their descriptors.
    """
    known = names(trace.info.get("machine"))
    numbers = {number: name in WRITES for number, name in known.items() if name in READS + WRITES}
    if not numbers:
        return pl.DataFrame(schema=_EMPTY)
    of_process = threads.select(
        "utid",
        process=pl.coalesce(pl.col("pid").cast(pl.Int64), -1 - pl.col("utid").cast(pl.Int64))
        .rank("dense")
        .cast(pl.UInt32),
    )
    calls = (
        trace.system_calls.filter(pl.col("number").is_in(list(numbers)))
        .join(of_process.lazy(), on="utid", how="left", maintain_order="left")
        .select(
            "ts",
            "utid",
            pl.col("process").fill_null(0),
            enters=pl.col("step") == "enter",
            writes=pl.col("number").replace_strict(numbers, return_dtype=pl.Boolean),
            value=pl.when(pl.col("step") == "enter")
            # An argument that is no descriptor may be any 64 bits.
            .then(pl.col("arg0").cast(pl.Int64, strict=False))
            .otherwise("value"),
        )
        .collect()
    )
    if calls.filter("enters")["value"].is_null().all():
        return pl.DataFrame(schema=_EMPTY)
    return calls.with_columns(pl.col("value").fill_null(-1)).select(_EMPTY.names()).cast(_EMPTY)
