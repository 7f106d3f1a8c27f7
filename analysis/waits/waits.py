"""The wait ledger, with what is known about each waiting thread beside each wait."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import polars as pl

from schedscope.analysis.asking.arguments import THREAD_COLUMNS
from schedscope.analysis.asking.batches import in_batches
from schedscope.analysis.threads.of_threads import threads_with
from schedscope.errors import UsageError

if TYPE_CHECKING:
    from schedscope.store.trace import Trace

WAIT_COLUMNS = ("utid", "cause", "prio", "cpu", "queue_cpu", "prev_cpu", "waker_cpu", "waker_utid")
"""Columns of `waits` that a wait may be grouped by."""


def waits_in_batches(
    trace: Trace, columns: Iterable[str] | None = None, where: pl.Expr | None = None
) -> Iterator[pl.LazyFrame]:
    """What `waits` returns, some rows at a time; one frame at least."""
    columns = None if columns is None else list(columns)
    for ledger in in_batches(trace.waits):
        yield waits(trace, columns, where, ledger)


def waits(
    trace: Trace,
    columns: Iterable[str] | None = None,
    where: pl.Expr | None = None,
    ledger: pl.LazyFrame | None = None,
) -> pl.LazyFrame:
    """One row per wait in the ledger, joined with its thread's columns.

    `columns` of `waits` or `threads` (default: all); `where` selects rows and
    may use any of them; `ledger`: rows of `waits` (default: all). `cpu` is where
    the thread ran, or, where it never did, on whose queue it waited.

    Raises `UsageError` for a column that neither table has.
    """
    ledger = trace.waits if ledger is None else ledger
    ledger = ledger.with_columns(pl.coalesce("cpu", "queue_cpu").alias("cpu"))
    own = ledger.collect_schema().names()
    wanted = [*own, *THREAD_COLUMNS] if columns is None else list(dict.fromkeys(columns))
    used = {*wanted, *(where.meta.root_names() if where is not None else ())}
    for name in sorted(used):
        if name not in own and name not in THREAD_COLUMNS:
            raise UsageError(
                f"no column {name!r} in waits",
                "a column of waits or of their threads",
                "one of " + ", ".join([*own, *THREAD_COLUMNS]),
            )
    of_thread = [name for name in THREAD_COLUMNS if name in used]
    if of_thread:
        ledger = ledger.join(
            threads_with(trace, of_thread).select("utid", *of_thread), on="utid", how="left"
        )
    if where is not None:
        ledger = ledger.filter(where)
    return ledger.select(wanted)
