"""What was due to threads while they waited?"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    from schedscope._native import ArrowTable, CpuHistory

_LATE = 4_000_000
"""Waits of which a sweep of their own finds what was due: 45 bytes for each."""


def due_in_waits(
    read: CpuHistory,
    sharing: Mapping[str, object],
    waits: Iterator[pl.DataFrame],
    take: Callable[[pl.DataFrame], None],
) -> None:
    """Hands `take` all rows of `waits` (utid, ts, wait), with what was `due` (ns) to the thread.

    They are answered by one sweep, some at a time, if they come in order of their ends and each
    begins where `states` say so. Those that do not are answered by sweeps of their own, in no
    order.
    """
    late: list[pl.DataFrame] = []
    n_late = 0

    def known(rows: pl.DataFrame) -> None:
        nonlocal n_late
        late.append(rows.filter(pl.col("due").is_null()).drop("due"))
        n_late += len(late[-1])
        take(rows.filter(pl.col("due").is_not_null()))
        if n_late >= _LATE:
            ask_late()

    def ask_late() -> None:
        nonlocal n_late
        if n_late:
            rows = pl.concat(late, rechunk=True)
            late.clear()
            n_late = 0
            # Everything is known for waits that are asked for at once.
            _sweep(read, sharing, iter([rows]), take)

    _sweep(read, sharing, waits, known)
    ask_late()


def _sweep(
    read: CpuHistory,
    sharing: Mapping[str, object],
    waits: Iterator[pl.DataFrame],
    take: Callable[[pl.DataFrame], None],
) -> None:
    held = pl.DataFrame()

    def more(due: ArrowTable | None) -> pl.DataFrame | None:
        nonlocal held
        if due is not None:
            rows, held = held.hstack(pl.DataFrame(due)), pl.DataFrame()
            take(rows)
            # Not held while more is read.
            del rows
        some = next(waits, None)
        if some is None:
            return None
        # One chunk, for native code to use where it is.
        held = some.rechunk()
        return held.select(
            pl.col("utid").cast(pl.UInt32), "ts", until=pl.col("ts") + pl.col("wait")
        )

    read.due_in(sharing, more)
