"""How are the waits of several settings distributed, curve beside curve?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from schedscope.analysis.asking.needs import needs
from schedscope.analysis.comparison.compare import grouped_runs, setting_labels
from schedscope.analysis.threads.of_threads import Where, where_in
from schedscope.analysis.waits.observed import COUNTS, MEASURED
from schedscope.analysis.waits.waits import waits

if TYPE_CHECKING:
    from schedscope.store.trace import Trace

POINTS = 2000
"""Points of a curve at most."""

_SCHEMA = {
    "setting": pl.String,
    "run": pl.UInt32,
    "wait": pl.Int64,
    "frac": pl.Float64,
    "n": pl.UInt32,
    "n_censored": pl.UInt32,
    "n_excluded": pl.UInt32,
}


@needs("switches", "wakeups")
def wait_distribution(
    a: Trace | Sequence[Trace],
    b: Trace | Sequence[Trace],
    *more: Trace | Sequence[Trace],
    where: Where = None,
    labels: Sequence[str] | None = None,
) -> pl.DataFrame:
    """One row per step of each run's empirical distribution of waits.

    Takes traces or lists of traces, as `compare` does. `where`: which waits, an expression over the
    columns of `waits` and `threads`, or a function of a trace that makes one.

    * `setting`, `run` (from 1 on);
    * `wait` (ns), `frac`: the share of the complete waits that are not longer. If there are more
      than 2,000 steps, only some have rows, more closely spaced towards the longest waits;
    * `n`, `n_censored`, `n_excluded`: waits of this run that are complete, whose end was not seen,
      and whose start was not seen. The curve has only the complete ones; where many are censored,
      see `survival`.

    Raises `UsageError` as `compare` does for traces that do not form settings.
    """
    settings = grouped_runs([a, b, *more])
    names = setting_labels(labels, len(settings))
    frames = [
        _steps(trace, where_in(trace, where)).select(
            pl.lit(label).alias("setting"), pl.lit(run, dtype=pl.UInt32).alias("run"), pl.all()
        )
        for label, runs in zip(names, settings, strict=True)
        for run, trace in enumerate(runs, 1)
    ]
    return pl.concat([pl.DataFrame(schema=_SCHEMA), *frames])


def _steps(trace: Trace, where: pl.Expr | None) -> pl.DataFrame:
    frame = waits(trace, ["wait", "censored"], where).collect()
    counts = frame.select(**COUNTS)
    complete = frame.filter(MEASURED)["wait"].sort().to_numpy()
    n = len(complete)
    wait, first = np.unique(complete, return_index=True)
    reached = np.append(first, n)[1:]  # no step where there is no complete wait
    if len(wait) > POINTS:
        tail = n - np.geomspace(1, n, POINTS // 2)
        marks = np.concatenate([np.linspace(1, n, POINTS // 2), tail, [n]]).astype(np.int64)
        kept = np.unique(np.searchsorted(reached, np.clip(marks, 1, n)))
        wait, reached = wait[kept], reached[kept]
    return pl.DataFrame({"wait": wait, "frac": reached / max(n, 1)}).select(
        pl.col("wait").cast(pl.Int64),
        pl.col("frac").cast(pl.Float64),
        *(pl.lit(many.item(), dtype=pl.UInt32).alias(many.name) for many in counts),
    )
