"""Columns of a table as native code reads them: numbers as they are, and codes for words."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from schedscope.parsers.schema import TABLES

if TYPE_CHECKING:
    from schedscope._native import StoredTable
    from schedscope.store.trace import Trace


def coded(
    trace: Trace, table: str, *columns: str, rows: pl.LazyFrame | None = None
) -> StoredTable | pl.DataFrame:
    """Some columns of a table (or of the `rows` selected of it), in its order.

    A table that `convert` wrote is not read here: native code does that page by page, in a
    third of the time that it takes to make a frame of it and in the memory of a page. One
    that was selected, made in memory or written by others is a frame.
    """
    from schedscope import _native

    folder = trace.folder_of(table)
    if rows is None and folder is not None:
        stored = _native.StoredTable.open(str(folder), table, list(columns))
        if stored is not None:
            return stored
    chosen = getattr(trace, table) if rows is None else rows
    schema = TABLES[table].schema
    return chosen.select(_coded(name, schema[name]) for name in columns).collect()


def _coded(name: str, dtype: pl.DataType) -> pl.Expr:
    column = pl.col(name).cast(dtype)
    return column.to_physical().cast(pl.UInt8) if isinstance(dtype, pl.Enum) else column
