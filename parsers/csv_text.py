"""Texts in CSV files: a spreadsheet must not take a thread's name for a formula.

A cell that begins with `=`, `+`, `-`, `@`, a tab or a carriage return gets an apostrophe before it,
by which spreadsheets mark text; so does one that begins with apostrophes and then one of those, so
that reading takes away exactly what writing put there. Numbers stay numbers.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import polars as pl

_FORMULA = re.compile("^'*[=+\\-@\t\r\uff1d\uff0b\uff0d\uff20]")
_GUARDED = re.compile("^'+[=+\\-@\t\r\uff1d\uff0b\uff0d\uff20]")


def guarded(text: str) -> str:
    """A text that no spreadsheet takes for a formula.

    >>> guarded("=1+1"), guarded("-bash"), guarded("'=1"), guarded("make -j4")
    ("'=1+1", "'-bash", "''=1", 'make -j4')
    """
    return "'" + text if _FORMULA.match(text) else text


def unguarded(text: str) -> str:
    """The text that `guarded` was given.

    >>> unguarded("'=1+1"), unguarded("''=1"), unguarded("'tis")
    ('=1+1', "'=1", "'tis")
    """
    return text[1:] if _GUARDED.match(text) else text


def guard(frame: pl.DataFrame) -> pl.DataFrame:
    """The frame with every text in it guarded."""
    return each_text(frame, guarded)


def unguard(frame: pl.DataFrame) -> pl.DataFrame:
    """The frame that `guard` was given."""
    return each_text(frame, unguarded)


def each_text(frame: pl.DataFrame, change: Callable[[str], str]) -> pl.DataFrame:
    """The frame with `change` made to every value of its columns of texts."""
    columns = []
    for column in frame.iter_columns():
        if column.dtype != pl.String:
            continue  # the categories of an Enum are ours
        texts = column.unique().drop_nulls().to_list()
        changed = {text: new for text in texts if (new := change(text)) != text}
        if changed:
            columns.append(column.replace(changed))
    return frame.with_columns(columns) if columns else frame
