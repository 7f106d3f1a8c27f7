"""When any event may be missing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    from schedscope.trace import Trace


BROKEN_CHAINS = pl.col("count").fill_null(1)
"""How many broken chains a row of `losses` with that reason stands for."""


def reported_losses(trace: Trace) -> pl.LazyFrame:
    """The rows of `losses` that the source reports.

    A broken chain is none: a switch that the kernel does not tell of takes no other event along.
    """
    return trace.losses.filter(pl.col("reason").cast(pl.String) != "chain_break")
