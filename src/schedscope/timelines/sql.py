"""SQL over the tables of one trace, and over nothing else."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import polars as pl

from schedscope.errors import UsageError
from schedscope.parsers.schema import TABLES
from schedscope.present.columns import conventional
from schedscope.timelines.tables import table

if TYPE_CHECKING:
    from schedscope.trace import Trace

MOST = 1_000
"""Rows of a result that are shown."""
_OUTSIDE = re.compile(r"\b(?:read|scan)_\w+", re.IGNORECASE)
_ASKS = re.compile(r"\s*(?:\(\s*)*(?:select|with)\b", re.IGNORECASE)


def query(trace: Trace, text: Any) -> dict[str, Any]:
    """The table that Polars' SQL makes of `text`, over the tables of docs/trace-model.md.

    Raises `UsageError` for what is no such query, and for one that would read anything else.
    """
    if not isinstance(text, str) or not text.strip() or len(text) > 10_000:
        raise UsageError("this query", "a SELECT of at most 10,000 characters")
    bare = re.sub(r"--[^\n]*|/\*.*?\*/", " ", text, flags=re.DOTALL).strip().rstrip(";")
    if not _ASKS.match(bare):
        raise UsageError(
            f"a query that begins with {bare.split(maxsplit=1)[0]!r:.40}" if bare else "no query",
            "SELECT or WITH",
        )
    if found := _OUTSIDE.search(bare):
        raise UsageError(
            f"{found[0]} in a query", "tables of this trace", "one of " + ", ".join(TABLES)
        )
    used = [name for name in TABLES if re.search(rf"\b{name}\b", bare, re.IGNORECASE)]
    try:
        with pl.SQLContext({name: trace._table(name) for name in used}) as context:
            lazy = context.execute(bare)
            _only_ours(lazy, trace)
            frame = lazy.head(MOST + 1).collect(engine="streaming")
    except pl.exceptions.PolarsError as error:
        # What follows is Polars' plan, with the names of files.
        message = " ".join(str(error).partition("Resolved plan")[0].split())[:300]
        raise UsageError(f"SQL: {message}", "a query that Polars' SQL knows") from error
    frames = ", ".join(f"{name}=trace.{name}" for name in used)
    return table(
        frame.head(MOST),
        conventional(frame, origin=trace.origin),
        title=f"{frame.height:,} rows" if frame.height <= MOST else f"the first {MOST:,} rows",
        python=f'pl.SQLContext({frames}).execute("""{bare}""", eager=True)',
        begin=trace.window[0],
        most=MOST,
    )


def _only_ours(lazy: pl.LazyFrame, trace: Trace) -> None:
    """Whatever a query says: its plan may read this trace's files, and no others."""
    for line in lazy.explain(optimized=False).splitlines():
        found = re.search(r"\b\w+ SCAN \[?(.*?)\]?(?:$|, )", line)
        if found and not (trace.path and found[1].lstrip("\"'").startswith(f"{trace.path}/")):
            raise UsageError("a query of other files", "tables of this trace")


def schema() -> list[dict[str, Any]]:
    """Each table, what a row of it is, and its columns with their types and meanings."""
    return [
        {
            "name": each.name,
            "row": each.row,
            "columns": [[c.name, _word(c.dtype), c.doc] for c in each.columns],
        }
        for each in TABLES.values()
    ]


def _word(dtype: pl.DataType) -> str:
    return "word" if isinstance(dtype, pl.Enum) else str(dtype).lower()
