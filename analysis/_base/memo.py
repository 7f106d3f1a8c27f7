"""Answers that several parts of a report need, computed once."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from schedscope.trace import Trace

Answer = TypeVar("Answer")

_answers: WeakKeyDictionary[Trace, dict[Any, Any]] = WeakKeyDictionary()


def once(analysis: Callable[..., Answer], trace: Trace, **options: Any) -> Answer:
    """What `analysis(trace, **options)` returns, kept for as long as the trace is.

    A trace does not change, so neither does the answer; it stays in memory, so this
    is for those of few rows.
    """
    kept = _answers.setdefault(trace, {})
    key = (analysis, tuple(sorted(options.items())))
    if key not in kept:
        kept[key] = analysis(trace, **options)
    answer: Answer = kept[key]
    return answer
