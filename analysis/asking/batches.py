"""A table some rows at a time."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

BATCH = 1 << 19
"""Rows of the ledger, or of `states`, in memory at a time: some 50 MB."""


def in_batches(table: pl.LazyFrame) -> Iterator[pl.LazyFrame]:
    """The table's rows, `BATCH` at a time, in order; one frame at least, for its columns.

    >>> [some.collect().height for some in in_batches(pl.LazyFrame({"n": []}))]
    [0]
    """
    rows = int(table.select(pl.len()).collect().item())
    for row in range(0, max(rows, 1), BATCH):
        yield table.slice(row, BATCH)
