"""Did threads come back to the CPU whose cache they had warmed, and after what time?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import polars as pl

from schedscope.analysis._base.needs import needs
from schedscope.analysis._base.quantiles import nearest_rank
from schedscope.analysis._base.time_since_run import since_last_run
from schedscope.analysis._base.topology import places
from schedscope.analysis._base.waits import waits
from schedscope.analysis.residency import place_of
from schedscope.errors import UsageError
from schedscope.units import nanoseconds

if TYPE_CHECKING:
    from schedscope.trace import Trace

IDLE_TIMES = ("10us", "30us", "100us", "300us", "1ms", "3ms", "10ms", "30ms", "100ms", "1s")
"""Bounds between the rows of `cpu_returns`."""


@needs("switches", "wakeups")
def cpu_returns(
    trace: Trace,
    *,
    bounds: Sequence[str | int] = IDLE_TIMES,
    where: pl.Expr | None = None,
) -> pl.DataFrame:
    """One row per range of time since the last run: did threads come back to the same CPU?

    Data that a thread left in a cache is useful only on that CPU, and only for a short time.

    * `since_from`, `since_to`: time from the end of the last run to the start of this one,
      `[since_from, since_to)`, ns; null: no upper bound;
    * `n`: runs after such a time; `same_cpu`, `same_cpu_frac`: of them on the CPU
      of the last run; `same_llc`, `same_llc_frac`: on a CPU of the same last-level cache, null
      without topology;
    * `wait_p50`: the median wait of these runs, ns.

    The last row, with both bounds null, has in `n_excluded` the runs whose previous run is not
    known or whose end was not seen, and in `n_censored` the waits that had not ended when last
    observed.

    Raises `UsageError` for bounds that are not increasing durations.
    """
    edges = [nanoseconds(bound) for bound in bounds]
    if not edges or edges[0] <= 0 or sorted(set(edges)) != edges:
        raise UsageError(f"bounds={bounds!r}", "rising durations above 0 ns", 'as in ["1ms", "1s"]')
    columns = ["utid", "cause", "ts_ready", "ts_run", "prev_cpu", "cpu", "wait"]
    rows = waits(trace, columns, where)
    ended = pl.col("ts_run").is_not_null()
    begun = rows.filter(ended).rename({"ts_run": "ts", "cause": "waiting"}).collect()
    censored = int(rows.select((~ended).sum()).collect().item())
    # Without the columns that are not needed any more, or the filter would copy them.
    timed = begun.select("prev_cpu", "cpu", "wait", since=since_last_run(trace, begun))
    known = timed.filter(pl.col("since").is_not_null(), pl.col("prev_cpu").is_not_null())
    llc = places(trace, "llc")
    # The row of a time is how many bounds it has reached.
    row = pl.lit(0, dtype=pl.UInt32)
    for edge in edges:
        row = row + (pl.col("since") >= edge).cast(pl.UInt32)
    told = None not in llc.values()
    same_llc = (place_of(llc, "cpu") == place_of(llc, "prev_cpu")).sum() if told else pl.lit(None)
    sums = known.group_by(row.alias("row")).agg(
        n=pl.len().cast(pl.UInt32),
        same_cpu=(pl.col("cpu") == pl.col("prev_cpu")).sum().cast(pl.UInt32),
        same_llc=same_llc.cast(pl.UInt32),
        wait_p50=nearest_rank(pl.col("wait"), 0.5).cast(pl.Int64),
    )
    table = pl.DataFrame(
        {
            "row": range(len(edges) + 1),
            "since_from": [0, *edges],
            "since_to": [*edges, None],
        },
        schema={"row": pl.UInt32, "since_from": pl.Int64, "since_to": pl.Int64},
    )
    none = pl.lit(0, dtype=pl.UInt32)
    counted = table.join(sums, on="row", how="left").with_columns(
        pl.col("n", "same_cpu").fill_null(0),
        pl.col("same_llc").fill_null(0) if told else pl.col("same_llc"),
        n_censored=none,
        n_excluded=none,
    )
    last = counted.clear(1).with_columns(
        n=none,
        n_censored=pl.lit(censored, dtype=pl.UInt32),
        n_excluded=pl.lit(begun.height - known.height, dtype=pl.UInt32),
    )
    share = pl.when(pl.col("n") > 0)
    return pl.concat([counted.sort("row"), last]).select(
        *("since_from", "since_to", "n", "same_cpu"),
        share.then(pl.col("same_cpu") / pl.col("n")).alias("same_cpu_frac"),
        "same_llc",
        share.then(pl.col("same_llc") / pl.col("n")).alias("same_llc_frac"),
        *("wait_p50", "n_censored", "n_excluded"),
    )
