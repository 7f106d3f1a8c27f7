"""Did threads come back to the CPU whose cache they had warmed, and after what time?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import polars as pl

from schedscope.analysis.asking.needs import needs
from schedscope.analysis.cpus.time_since_run import NotInOrder, with_time_since_run
from schedscope.analysis.cpus.topology import places
from schedscope.analysis.residency import place_of
from schedscope.analysis.sums.grouped import sums_by_code
from schedscope.analysis.sums.quantiles import shares_of
from schedscope.analysis.waits.waits import waits, waits_in_batches
from schedscope.errors import UsageError
from schedscope.units import nanoseconds

if TYPE_CHECKING:
    from schedscope.store.trace import Trace

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
    * `n`: runs after such a time; `same_cpu`, `same_cpu_frac`: how many of them, and what share,
      were on the CPU of the last run; `same_llc`, `same_llc_frac`: the same for a CPU with the same
      last-level cache, null without topology;
    * `wait_p50`: the median wait of these runs, ns.

    In the last row both bounds are null. Its `n_excluded` counts the runs whose previous run is not
    known or whose end was not seen, its `n_censored` the waits that had not ended when last
    observed.

    Raises `UsageError` for bounds that are not increasing durations.
    """
    edges = [nanoseconds(bound) for bound in bounds]
    if not edges or edges[0] <= 0 or sorted(set(edges)) != edges:
        raise UsageError(f"bounds={bounds!r}", "rising durations above 0 ns", 'as in ["1ms", "1s"]')
    llc = places(trace, "llc")
    try:
        sums = _sums(trace, edges, llc, where, whole=False)
    except NotInOrder:
        sums = _sums(trace, edges, llc, where, whole=True)
    ranges = pl.DataFrame(
        {
            "row": range(len(edges) + 2),
            "since_from": [0, *edges, None],
            "since_to": [*edges, None, None],
        },
        schema={"row": pl.Int64, "since_from": pl.Int64, "since_to": pl.Int64},
    )
    last = pl.col("row") > len(edges)
    counts = pl.col("n", "n_censored", "n_excluded")
    same = [pl.col(name).fill_null(0) for name in ("same_cpu", "same_llc")]
    counted = ranges.join(sums, on="row", how="left", maintain_order="left").with_columns(
        counts.fill_null(0),
        same_cpu=pl.when(~last).then(same[0]),
        same_llc=pl.when(~last & (None not in llc.values())).then(same[1]),
    )
    share = pl.when(pl.col("n") > 0)
    return counted.select(
        *("since_from", "since_to", "n", "same_cpu"),
        share.then(pl.col("same_cpu") / pl.col("n")).alias("same_cpu_frac"),
        "same_llc",
        share.then(pl.col("same_llc") / pl.col("n")).alias("same_llc_frac"),
        pl.col("p50").alias("wait_p50"),
        *("n_censored", "n_excluded"),
    )


def _sums(
    trace: Trace,
    edges: list[int],
    llc: dict[int, int | None],
    where: pl.Expr | None,
    *,
    whole: bool,
) -> pl.DataFrame:
    """By `row`, the number of bounds that a time has reached, what is counted and the median wait.

    The row after the last is for unknown times. `whole`: holds all of the ledger, in any order.
    """
    columns = ("utid", "cause", "ts_ready", "ts_run", "prev_cpu", "cpu", "wait")
    used = where.meta.root_names() if where is not None else ()
    names = dict.fromkeys([*columns, *used])

    def ledger() -> Iterator[pl.DataFrame]:
        lazy = [waits(trace, names)] if whole else waits_in_batches(trace, names)
        for rows in lazy:
            yield (
                rows.with_columns(chosen=pl.lit(value=True) if where is None else where)
                .select(*columns, "chosen")
                .rename({"ts_run": "ts", "cause": "waiting"})
                .collect()
            )

    row = pl.lit(0, dtype=pl.Int64)
    for edge in edges:
        row = row + (pl.col("since") >= edge).cast(pl.Int64)
    ran = pl.col("ts").is_not_null()
    known = ran & pl.col("since").is_not_null() & pl.col("prev_cpu").is_not_null()
    told = {
        "runs": known,
        "same_cpu": known & (pl.col("cpu") == pl.col("prev_cpu")).fill_null(value=False),
        "same_llc": known
        & (place_of(llc, "cpu") == place_of(llc, "prev_cpu")).fill_null(value=False),
        "n_censored": ~ran,
        "n_excluded": ran & ~known,
    }

    def batches() -> Iterator[pl.DataFrame]:
        for batch in with_time_since_run(trace, ledger(), whole=whole):
            yield batch.filter("chosen").select(
                group=pl.when(known).then(row).otherwise(len(edges) + 1).cast(pl.Int64),
                time=pl.when(known).then("wait"),
                **told,
            )

    sums = sums_by_code(batches, shares_of([0.5]), list(told))
    return sums.select("p50", *told, row="group").rename({"runs": "n"})
