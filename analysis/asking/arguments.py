"""Checks of a question's arguments: traces, and the expression that selects.

A path where a trace belongs, or an expression that is neither true nor false, would otherwise raise
an unrelated error of Python or Polars, or select arbitrary rows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from numbers import Integral
from typing import TYPE_CHECKING, Any

import polars as pl

from schedscope.errors import UsageError
from schedscope.parsers.schema import TABLES, kind_of

if TYPE_CHECKING:
    from schedscope.store.trace import Trace

THREAD_COLUMNS = (
    *("comm", "pid", "tid", "kernel", "sched_class", "affinity", "recorder"),
    *("process_name", "cgroup", "service", "cmdline", "ppid"),
)
"""What is known of a thread that it may be selected or grouped by: columns of `threads`, and
`service`, which follows from `cgroup`."""

_COLUMNS: dict[str, Any] = {
    **TABLES["states"].schema,
    **TABLES["waits"].schema,
    **TABLES["threads"].schema,
    "service": pl.String(),
}
"""Columns that expressions may use; a question that has others, or fewer, says so itself."""


def check_trace(value: object, question: str) -> Trace:
    """Raises `UsageError` for anything but a trace."""
    from schedscope.store.trace import Trace

    if not isinstance(value, Trace):
        what = repr(value) if isinstance(value, str) else f"a {type(value).__name__}"
        raise UsageError(
            f"{question} of {what}", "a trace", "open one: trace = schedscope.open(PATH)"
        )
    return value


def check_traces(value: object, question: str) -> None:
    """The same for one trace, or several."""
    for one in value if isinstance(value, Sequence) and not isinstance(value, str) else [value]:
        check_trace(one, question)


@contextmanager
def selecting(where: object) -> Iterator[None]:
    """Context in which a question is answered with this selection; None selects all.

    Raises `UsageError` for anything but an expression that is true or false for each row, also
    where that shows only when Polars computes it.
    """
    if where is None:
        yield
        return
    if not isinstance(where, pl.Expr):
        raise UsageError(
            f"where={where!r}", "a Polars expression", 'as in where=pl.col("comm") == "web"'
        )
    if where.meta.has_multiple_outputs():
        raise _not_a_selection("it gives several columns")
    kind = _kind(where)
    if kind is not None and kind != pl.Boolean:
        raise _not_a_selection(f"it gives {kind}")
    try:
        yield
    except pl.exceptions.PolarsError as error:
        if not _blamed(where, error):
            raise
        if isinstance(error, pl.exceptions.ColumnNotFoundError):
            raise _unknown_column(where, error) from error
        if word := _no_word(error):
            raise _unknown_word(where, word) from error
        raise _not_a_selection(str(error).partition("\n")[0]) from error


def count(name: str, value: object, of: str, *, least: int = 1) -> int:
    """The count that an argument gives; `what` it counts is named in the error, as in "waits".

    Raises `UsageError` for anything else.
    """
    if isinstance(value, Integral) and not isinstance(value, bool) and least <= int(value) < 2**63:
        return int(value)
    raise UsageError(f"{name}={value!r}", f"a number of {of}, {least} or more")


def by_name(name: str, value: object, example: str) -> None:
    """Raises `UsageError` for anything but values by names, or None."""
    if value is None or (isinstance(value, Mapping) and all(isinstance(key, str) for key in value)):
        return
    raise UsageError(f"{name}={value!r}", "values by names", f"as in {name}={example}")


def _not_a_selection(why: str) -> UsageError:
    return UsageError(
        f"where cannot select: {why}",
        "an expression that is true or false",
        'as in where=pl.col("comm") == "web"',
    )


def _unknown_column(where: pl.Expr, error: Exception) -> UsageError:
    named = [name for name in where.meta.root_names() if _names(error, name)]
    known = ", ".join(("utid", *THREAD_COLUMNS))
    return UsageError(f"no column {named[0]!r} here", "a column of the threads", f"one of {known}")


def _no_word(error: Exception) -> str | None:
    """A text that is compared with a column of fixed words but is not one of them."""
    found = re.search(r'to `enum` failed for value "(.*)"', str(error))
    return found and found[1]


def _unknown_word(where: pl.Expr, word: str) -> UsageError:
    named = {name: _COLUMNS.get(name) for name in where.meta.root_names()}
    words = {name: kind for name, kind in named.items() if isinstance(kind, pl.Enum)}
    name, kind = next(
        ((n, k) for n, k in words.items() if word not in k.categories), ("that column", None)
    )
    return UsageError(
        f"no {name} is {word!r}", kind_of(kind) if kind is not None else "one of its words"
    )


def _names(error: Exception, column: str) -> bool:
    return f'"{column}"' in str(error).partition(";")[0]


def _kind(where: pl.Expr) -> pl.DataType | None:
    """The type of its values; None where other columns are used, or Polars cannot tell."""
    if not set(where.meta.root_names()) <= _COLUMNS.keys():
        return None
    try:
        (kind,) = pl.LazyFrame(schema=_COLUMNS).select(where).collect_schema().dtypes()
    except (pl.exceptions.PolarsError, ValueError):
        return None
    return kind


def _blamed(where: pl.Expr, error: pl.exceptions.PolarsError) -> bool:
    """Whether Polars failed on the expression, not on the question."""
    names = where.meta.root_names()
    if isinstance(error, pl.exceptions.ColumnNotFoundError):
        return any(_names(error, name) for name in names)
    if _no_word(error) is not None:
        return True
    try:
        pl.DataFrame(schema={name: _COLUMNS.get(name, pl.Null()) for name in names}).select(where)
    except pl.exceptions.PolarsError:
        return True
    return False
