"""Would a larger weight help a thread?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from schedscope.analysis._base.memo import once
from schedscope.analysis.findings.finding import option
from schedscope.analysis.weights import weights

if TYPE_CHECKING:
    from schedscope.trace import Trace


def heavier(trace: Trace, utid: int) -> str | None:
    """The option of `whatif` that gives a thread a larger weight, where weights decide."""
    row = once(weights, trace).filter(pl.col("utid") == utid).row(0, named=True)
    if row["basis"] != "kernel table" or row["sharing"] != "fair" or row["prio"] is None:
        return None
    nice = row["prio"] - 120
    return option("set-nice", row["comm"], 0 if nice > 0 else max(nice - 5, -20))
