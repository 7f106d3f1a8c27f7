"""Answers that several parts of a report need, computed once."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    import polars as pl

    from schedscope.store.trace import Trace

Answer = TypeVar("Answer")

_answers: WeakKeyDictionary[Trace, dict[Any, Any]] = WeakKeyDictionary()


def once(
    analysis: Callable[..., Answer], trace: Trace, *, where: pl.Expr | None = None, **options: Any
) -> Answer:
    """What `analysis(trace, **options)` returns, kept for as long as the trace is.

    With `where`, the answer about these threads; only the same expression object finds it again.

    A trace does not change, so neither does the answer; it stays in memory, so use this for answers
    with few rows.
    """
    kept = _answers.setdefault(trace, {})
    key = (analysis, id(where), tuple(sorted(options.items())))
    if key not in kept:
        chosen = {} if where is None else {"where": where}
        # Keep the expression alive: otherwise a new one could get the same id().
        kept[key] = where, analysis(trace, **options, **chosen)
    answer: Answer = kept[key][1]
    return answer
