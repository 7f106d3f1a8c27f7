"""How are the lengths of waits spread, in powers of two?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from schedscope.analysis.asking.needs import needs
from schedscope.analysis.waits.observed import MEASURED
from schedscope.analysis.waits.waits import waits

if TYPE_CHECKING:
    from schedscope.store.trace import Trace

_SCHEMA = {"from": pl.Int64, "to": pl.Int64, "n": pl.UInt32, "total": pl.Int64}


@needs("switches", "wakeups")
def latency_histogram(trace: Trace, *, where: pl.Expr | None = None) -> pl.DataFrame:
    """One row per range of lengths, `[from, to)`: how many waits for a CPU were that long.

    The ranges are those of BCC's runqlat: 0 to 1 us, 1 to 2 us, and so on in powers of two, from
    the first to the last that has a wait. They count measured waits only, which are those in `n` of
    `latency`. `where`: which ones, an expression over the columns of `waits` and `threads`.

    * `from`, `to` (ns); `n`: waits; `total`: their lengths added up (ns).

    >>> waits = pl.DataFrame({"utid": [1] * 3, "cpu": [0] * 3, "queue_cpu": [0] * 3,
    ...     "ts_ready": [0] * 3, "wait": [700, 1500, 6000], "censored": ["none"] * 3})
    >>> from schedscope import Trace
    >>> trace = Trace.from_tables({"waits": waits}, {"ncpu": 1, "window": [0, 9000]})
    >>> latency_histogram(trace).rows()
    [(0, 1000, 1, 700), (1000, 2000, 1, 1500), (2000, 4000, 0, 0), (4000, 8000, 1, 6000)]
    """
    # The range of a wait by its number of binary digits in us, exactly.
    us = pl.col("wait") // 1000
    found = (
        waits(trace, ["wait", "censored"], where)
        .filter(MEASURED)
        .select("wait", range=64 - us.bitwise_leading_zeros().cast(pl.Int64))
        .group_by("range")
        .agg(n=pl.len(), total=pl.col("wait").sum())
        .collect()
    )
    if found.is_empty():
        return pl.DataFrame(schema=_SCHEMA)
    first, last = int(found["range"].min()), int(found["range"].max())  # type: ignore[arg-type]
    return (
        pl.DataFrame({"range": range(first, last + 1)}, schema={"range": pl.Int64})
        .join(found, on="range", how="left", maintain_order="left")
        .select(
            (
                pl.when(pl.col("range") > 0)
                .then(1000 * 2 ** (pl.col("range") - 1).clip(0))
                .otherwise(0)
            )
            .cast(pl.Int64)
            .alias("from"),
            (1000 * 2 ** pl.col("range")).cast(pl.Int64).alias("to"),
            pl.col("n").fill_null(0).cast(pl.UInt32),
            pl.col("total").fill_null(0).cast(pl.Int64),
        )
    )
