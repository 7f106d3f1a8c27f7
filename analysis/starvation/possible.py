"""How many waits may have been as long as an episode of starvation?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from schedscope.analysis.waits.wait_bounds import COLUMNS, possible_spans, rests, with_bounds
from schedscope.analysis.waits.waits import waits_in_batches

if TYPE_CHECKING:
    from schedscope.store.trace import Trace


def possible_episodes(trace: Trace, threshold: int, where: pl.Expr | None = None) -> int:
    """How many waits may have reached `threshold` (ns), but are not certain to have.

    This includes waits without a row, in a thread's unknown time. Waits that certainly reached it
    are episodes. A wait still open at the window's end does not count: it lasted until then.
    """
    rest, end = rests(trace), trace.window[1]
    spans = possible_spans(trace, where)
    # No more of them can be in a stretch of unknown time.
    most = ((pl.col("until") - pl.col("since")) // threshold).sum()
    found = int(spans.select(most).collect().item() or 0)
    for rows in waits_in_batches(trace, COLUMNS, where):
        known = with_bounds(rows.collect(), rest, end)
        may = (pl.col("low") < threshold) & (pl.col("high") >= threshold) & ~pl.col("again")
        found += int(known.select(may.sum()).item())
    return found
