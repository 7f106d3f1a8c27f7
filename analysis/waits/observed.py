"""Was a wait measured, is it unfinished, or was its start not recorded? Each is one of the three.

docs/trace-model.md (The ledger) has the rule; `latency` refines it by bounds (`wait_bounds`).
"""

from __future__ import annotations

import polars as pl

EXCLUDED = pl.col("wait").is_null()
"""Of rows of `waits`: their length is unknown."""

MEASURED = ~EXCLUDED & (pl.col("censored") == "none")
"""Seen from start to end."""

UNFINISHED = ~EXCLUDED & (pl.col("censored") != "none")
"""Not over when last observed."""

COUNTS = {
    "n": MEASURED.sum(),
    "n_censored": UNFINISHED.sum(),
    "n_excluded": EXCLUDED.sum(),
}
"""How many there are of each, under the names of answers."""
