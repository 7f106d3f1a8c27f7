"""How many waits may have been as long as an episode of starvation, and how long were they?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from schedscope.analysis.sums.folded import Fold
from schedscope.analysis.waits.wait_bounds import (
    COLUMNS,
    begun_before,
    hidden_waits,
    possible_spans,
    rests,
    with_bounds,
)
from schedscope.analysis.waits.waits import waits_in_batches

if TYPE_CHECKING:
    from schedscope.store.trace import Trace


def most_episodes(trace: Trace, threshold: int, where: pl.Expr | None = None) -> pl.DataFrame:
    """One row per thread: the most that there can have been of waits of `threshold` (ns) or more.

    * `utid`; `n_high`: waits that reached it or may have, those included that may be hidden in the
      thread's unknown time, and one that began before the recording;
    * `total_high`: how long they lasted at most; `longest_high`: the longest of them (ns).

    A wait still open at the window's end counts as it is: it lasted until then.
    """
    rest, end = rests(trace), trace.window[1]
    spans = possible_spans(trace, where)
    length = pl.col("until") - pl.col("since")
    # No more of them can be in a stretch of unknown time.
    fit = spans.select("utid", n_high=length // threshold, high=pl.lit(None, pl.Int64))
    hidden = hidden_waits(trace, where).select(
        "utid", n_high=pl.lit(0, pl.Int64), high=length.cast(pl.Int64)
    )
    before = begun_before(trace, where).select(
        "utid", n_high=pl.lit(1, pl.Int64), high=length.cast(pl.Int64)
    )
    before = before.filter(pl.col("high") >= threshold)
    found = Fold(_per_thread)
    long = (pl.col("n_high") > 0) | (pl.col("high") >= threshold)
    for spans_or_waits in (fit, hidden, before):
        found.add(_as_sums(spans_or_waits.filter(long).collect()))
    # Of measured waits, which are most, few are as long.
    may = (pl.col("censored") != "none") | (pl.col("wait") >= threshold)
    for batch in waits_in_batches(trace, COLUMNS, where):
        known = with_bounds(batch.filter(may).collect(), rest, end)
        other = ~pl.col("again") | (pl.col("low") >= threshold)
        reached = known.filter(pl.col("high") >= threshold, other)
        found.add(_as_sums(reached.select("utid", "high", n_high=pl.lit(1, pl.Int64))))
    return found.result()


def _as_sums(rows: pl.DataFrame) -> pl.DataFrame:
    return _per_thread(
        rows.select(
            pl.col("utid").cast(pl.UInt32),
            pl.col("n_high").cast(pl.Int64),
            total_high=pl.col("high").cast(pl.Int64),
            longest_high=pl.col("high").cast(pl.Int64),
        )
    )


def _per_thread(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.group_by("utid").agg(
        pl.col("n_high", "total_high").sum(), pl.col("longest_high").max()
    )
