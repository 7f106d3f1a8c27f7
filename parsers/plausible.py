"""Can the rows of a table be a trace's? What each value, and rows beside one another, must be."""

from __future__ import annotations

import polars as pl


def check_frame(
    name: str, frame: pl.DataFrame, where: str, *, ncpu: int, threads: int, window: object = None
) -> None:
    """Raises `FormatError` naming the first row that no trace has.

    Utids are below `threads`, CPUs below `ncpu`, times within 2^62 ns of 0, lengths of
    time not negative, and their sum is a number of ns; facts are in order of time, a thread is in
    one state at a time, within `window`. `frame` is the table `name` with its types; `where` is
    how the error calls it.
    """
    from schedscope import _native

    numbers = [
        pl.col(column).to_physical().cast(pl.UInt8) if isinstance(dtype, pl.Enum) else column
        for column, dtype in frame.schema.items()
        if dtype != pl.String
    ]
    # A machine without CPUs has no rows that name one.
    span = tuple(window) if isinstance(window, list) else None
    # A file's name need not be UTF-8.
    called = where.encode("utf-8", "backslashreplace").decode()
    _native.check_table(frame.select(numbers), name, called, max(1, ncpu), threads, span)
