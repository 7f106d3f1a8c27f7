"""Which rows of `losses` are broken chains, and how many each stands for."""

from __future__ import annotations

import polars as pl

FASTEST = 250
"""No CPU records a sequence of events faster than one in so many ns (docs/trace-model.md)."""

IS_BREAK = pl.col("reason") == "chain_break"
"""Of rows of `losses`: broken chains, which the source does not report."""

BROKEN_CHAINS = pl.col("count").fill_null(1)
"""How many broken chains a row of `losses` with that reason stands for."""
