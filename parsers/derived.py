"""Columns that files hold as differences from other columns (docs/trace-model.md, In kept files).

`native/trace/src/store/derived.rs` declares which, and writes them. A file that another program
wrote, or `Trace.to_sched`, may have the columns themselves.
"""

from __future__ import annotations

from functools import cache

import polars as pl

from schedscope.parsers.schema import TABLES


@cache
def _declared() -> list[tuple[str, str, str, list[tuple[str, int]]]]:
    from schedscope import _native

    return _native.derived_columns()


def plain(table: str, lazy: pl.LazyFrame) -> pl.LazyFrame:
    """The rows of a file of `table` with the columns of the trace model, and others it has."""
    there = lazy.collect_schema().names()
    replaced = []
    for of, name, stored, terms in _declared():
        if of == table and name not in there and stored in there:
            column = pl.col(stored)
            for term, sign in terms:
                if term in lazy.collect_schema():
                    addend = pl.col(term).fill_null(0)
                    column = column + addend if sign > 0 else column - addend
            # The check of columns names the one that is missing or of another type.
            lazy = lazy.with_columns(column.cast(pl.Int64).alias(name))
            replaced.append(stored)
    if not replaced:
        return lazy
    known = TABLES[table].schema.names()
    others = [name for name in there if name not in known and name not in replaced]
    found = set(lazy.collect_schema().names())
    return lazy.select([name for name in known if name in found] + others)
