"""What `by=` may say, the same for every question.

Names of columns of the schema (`comm`, `cpu`, `cause`, several in a list), or one of three words:
`thread` (a row for each, by name and number), `process`, and `all`: one row. Each question has
some of them; an error lists which.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from schedscope.analysis.asking.arguments import THREAD_COLUMNS
from schedscope.errors import UsageError

if TYPE_CHECKING:
    import polars as pl


By = str | Sequence[str]
"""One name or several."""

WORDS = {"thread": ("comm", "tid", "pid", "utid"), "process": ("process_name", "pid"), "all": ()}
"""The columns that a word stands for."""

THREADS = {
    "thread": WORDS["thread"],
    "process": WORDS["process"],
    **{name: (name,) for name in ("comm", "cgroup", "service")},
}
"""What a row about threads may be about, and its columns, where a question has no others."""


def keys_of(by: By | None, known: Collection[str]) -> list[str]:
    """The columns to group by, of those that a question has; none for `all`.

    Raises `UsageError` for another name, or one named twice.

    >>> keys_of("thread", ("comm", "tid", "utid")), keys_of(["cpu"], ("cpu",)), keys_of("all", ())
    (['comm', 'tid', 'utid'], ['cpu'], [])
    """
    if not isinstance(by, str | list | tuple | None):
        raise _unknown(by, [*known, *WORDS])
    asked = [by] if isinstance(by, str) else list(by or ())
    found: list[str] = []
    for name in asked:
        if not isinstance(name, str):
            raise _unknown(name, [*known, *WORDS])
        if name in known:
            found.append(name)
        elif name in WORDS and (len(asked) == 1 or name != "all"):
            found += [column for column in WORDS[name] if column in known]
        else:
            raise _unknown(name, [*known, *WORDS])
    if len(set(found)) != len(found):
        raise UsageError(f"by={by!r} names a column twice", "each column once")
    return found


def check(by: str, known: Sequence[str]) -> None:
    """Raises `UsageError` for a word that a question does not have."""
    if not isinstance(by, str) or by not in known:
        raise _unknown(by, known)


def check_where(where: pl.Expr | None, own: tuple[str, ...]) -> None:
    """Raises `UsageError` for a selection by a column that is neither of threads nor `own`."""
    for name in sorted(where.meta.root_names() if where is not None else ()):
        if name not in THREAD_COLUMNS and name not in own:
            raise UsageError(
                f"no column {name!r} here",
                "a column of the threads",
                "one of " + ", ".join([*own, *THREAD_COLUMNS]),
            )


def _unknown(name: object, known: Sequence[str]) -> UsageError:
    words = ", ".join(dict.fromkeys(known))
    return UsageError(f"by={name!r}", "what a row of the result is about", f"one of {words}")
