"""Answers that several parts of a report need, computed once."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import polars as pl

if TYPE_CHECKING:
    from schedscope.trace import Trace

_answers: WeakKeyDictionary[Trace, dict[Any, pl.DataFrame]] = WeakKeyDictionary()


def once(analysis: Callable[..., pl.DataFrame], trace: Trace, **options: Any) -> pl.DataFrame:
    """What `analysis(trace, **options)` returns, kept for as long as the trace is.

    A trace does not change, so neither does the answer; the frames stay in memory, so this
    is for those of few rows.
    """
    kept = _answers.setdefault(trace, {})
    key = (analysis, tuple(sorted(options.items())))
    if key not in kept:
        kept[key] = analysis(trace, **options)
    return kept[key]
