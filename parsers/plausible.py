"""Can the rows of a table be a trace's? What each value, and rows beside one another, must be."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    from schedscope._native import StoredTable


def check_frame(
    name: str, frame: pl.DataFrame, where: str, *, ncpu: int, threads: int, window: object = None
) -> None:
    """Raises `FormatError` naming the first row that no trace has, as `check_rows` does.

    `frame` is the table `name` with its types.
    """
    numbers = [
        pl.col(column).to_physical().cast(pl.UInt8) if isinstance(dtype, pl.Enum) else column
        for column, dtype in frame.schema.items()
        if dtype != pl.String
    ]
    check_rows(name, frame.select(numbers), where, ncpu=ncpu, threads=threads, window=window)


def check_rows(
    name: str,
    rows: pl.DataFrame | StoredTable,
    where: str,
    *,
    ncpu: int,
    threads: int,
    window: object = None,
) -> None:
    """Raises `FormatError` naming the first row that no trace has.

    Utids are below `threads`, CPUs below `ncpu`, times in `window` (without one, within 2^62 ns of
    0), lengths of time not negative and the differences of their times, and their sum is a number
    of ns; facts are in order of time, a thread is in one state at a time, and a CPU runs one
    thread. `rows` are those of the table `name` without texts, categories as codes; `where` is how
    the error calls it.
    """
    from schedscope import _native

    # A machine without CPUs has no rows that name one.
    span = tuple(window) if isinstance(window, list) else None
    # A file's name need not be UTF-8.
    called = where.encode("utf-8", "backslashreplace").decode()
    _native.check_table(rows, name, called, max(1, ncpu), threads, span)
