"""A trace's rows block after block of time, for exports whose size has no bound."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    from schedscope.store.trace import Trace

ROWS = 2**20
"""About as many rows of each of switches, wakeups and migrations are in one block, at most; an
export to Perfetto takes some 420 MB for it."""

_FIRST, _END = -(2**63), 2**63 - 1


@dataclass(frozen=True)
class Block:
    """The instants from `begin` on and before `end`; the first and the last one are open."""

    begin: int
    end: int

    def holds(self, ts: pl.Expr) -> pl.Expr:
        """Is this instant in the block?"""
        return (ts >= self.begin) & (ts < self.end)

    def around(self, trace: Trace, name: str) -> pl.LazyFrame:
        """Rows of a table, in order, among them all that have a part in the block."""
        return trace.part(name, self.begin, self.end)

    def rows(self, trace: Trace, name: str, ts: str = "ts") -> pl.LazyFrame:
        """The rows of a table whose instant in the column `ts` is in the block, in order."""
        return self.around(trace, name).filter(self.holds(pl.col(ts)))


def blocks(trace: Trace) -> Iterator[Block]:
    """All instants, in blocks, at least one; an instant with many rows is not divided."""
    # Blocks end at every fourth of these marks, whatever the table: at most five stretches.
    every = pl.col("ts").gather_every(max(1, ROWS // 4))
    tables = (trace.switches, trace.wakeups, trace.migrations)
    marks = [table.select(every).collect(engine="streaming")["ts"] for table in tables]
    begin = _FIRST
    for end in pl.concat(marks).sort().gather_every(4, 4).unique(maintain_order=True):
        yield Block(begin, end)
        begin = end
    yield Block(begin, _END)


def slices(lazy: pl.LazyFrame) -> Iterator[pl.LazyFrame]:
    """The rows of a table, so many at a time; at least once."""
    rows = lazy.select(pl.len()).collect().item()
    for row in range(0, max(rows, 1), ROWS):
        yield lazy.slice(row, ROWS)
