"""Joins the columns of `threads` to rows about threads."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, TypeAlias

import polars as pl

from schedscope.analysis.asking.arguments import THREAD_COLUMNS, selecting
from schedscope.analysis.asking.by import check_where
from schedscope.analysis.threads.services import service_of
from schedscope.errors import UsageError

if TYPE_CHECKING:
    from schedscope.store.trace import Trace

Where: TypeAlias = pl.Expr | Callable[["Trace"], pl.Expr | None] | None
"""A selection in several traces: the same expression for all, or a function that makes it for each,
since processes have other numbers in another recording."""


def where_in(trace: Trace, where: Where) -> pl.Expr | None:
    """The selection as an expression for this trace."""
    chosen = where(trace) if callable(where) else where
    with selecting(chosen):
        return chosen


def threads_with(
    trace: Trace, names: Collection[str], where: pl.Expr | None = None
) -> pl.LazyFrame:
    """`trace.threads`, with a column `service` if it is among `names` or `where` uses it.

    The table has none, since it follows from `cgroup`: null without one.
    """
    if "service" not in names and (where is None or "service" not in where.meta.root_names()):
        return trace.threads
    paths = trace.threads.select(pl.col("cgroup").drop_nulls().unique()).collect()["cgroup"]
    services = pl.LazyFrame(
        {"cgroup": paths, "service": [service_of(path) for path in paths]},
        schema={"cgroup": pl.String, "service": pl.String},
    )
    return trace.threads.join(services, on="cgroup", how="left", maintain_order="left")


def chosen_threads(trace: Trace, where: pl.Expr) -> pl.Series:
    """The utids of the threads that fit `where`, without the idle ones."""
    with selecting(where):
        chosen = threads_with(trace, (), where).filter(where, pl.col("utid") >= trace.ncpu)
        return chosen.select(pl.col("utid").cast(pl.UInt32)).collect()["utid"]


def some_threads(trace: Trace, where: pl.Expr) -> pl.Series:
    """The utids of the threads that fit `where`, by columns of threads; there are some.

    Raises `UsageError` for another column, and if no thread fits.
    """
    check_where(where, ("utid", *THREAD_COLUMNS))
    chosen = chosen_threads(trace, where)
    if chosen.is_empty():
        raise UsageError(f"no thread of {trace.name} matches where", "a thread that the trace has")
    return chosen


def with_threads(trace: Trace, frame: pl.DataFrame, names: Collection[str]) -> pl.DataFrame:
    """`frame` with those columns of each row's thread that it does not have yet."""
    wanted = [name for name in dict.fromkeys(names) if name not in frame.columns]
    if not wanted:
        return frame
    utid = pl.col("utid").cast(frame.schema["utid"])
    known = threads_with(trace, wanted).select(utid, *wanted).collect()
    return frame.join(known, on="utid", how="left", maintain_order="left")
