"""A table some rows at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

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


def gathered(batches: Iterable[pl.DataFrame], rows: int) -> Iterator[pl.DataFrame]:
    """The same rows, in order, in frames of `rows` or more, but for the last.

    >>> few = [pl.DataFrame({"n": [n]}) for n in range(5)]
    >>> [some["n"].to_list() for some in gathered(few, 2)]
    [[0, 1], [2, 3], [4]]
    """
    held: list[pl.DataFrame] = []
    for batch in batches:
        held.append(batch)
        if sum(map(len, held)) >= rows:
            # One chunk, for native code to use where it is; and nothing else that holds the rows
            # while somebody works on them, or on the next.
            whole, held = pl.concat(held, rechunk=True), []
            yield whole
            del whole
    if held:
        yield pl.concat(held, rechunk=True)
