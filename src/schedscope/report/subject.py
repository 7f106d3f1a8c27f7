"""What a page is about: a trace, and all of its threads or those that were selected."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import polars as pl

from schedscope.analysis._base.memo import once
from schedscope.analysis._base.of_threads import threads_with
from schedscope.analysis.findings.findings import findings
from schedscope.present.selection import narrowed
from schedscope.trace import Trace


@dataclass(frozen=True)
class Subject:
    """A trace and, if `where` is given, those of its threads that the sections are about.

    `where`: an expression over columns of `threads`, as analyses take it; `words`: the options
    of commands that select the same threads, as in `--service nginx.service`.
    """

    trace: Trace
    where: pl.Expr | None = None
    words: str = ""
    _answers: dict[Any, pl.DataFrame] = field(default_factory=dict, repr=False, compare=False)

    def ask(self, analysis: Callable[..., pl.DataFrame], /, **options: Any) -> pl.DataFrame:
        """The answer about these threads, computed once."""
        if self.where is None:
            return once(analysis, self.trace, **options)
        key = (analysis, tuple(sorted(options.items())))
        if key not in self._answers:
            self._answers[key] = analysis(self.trace, where=self.where, **options)
        return self._answers[key]

    @cached_property
    def findings(self) -> pl.DataFrame:
        """What affects these threads; its commands ask about the same ones."""
        return narrowed(self.ask(findings), self.words)

    @cached_property
    def threads(self) -> int | None:
        """How many were selected; None for all."""
        if self.where is None:
            return None
        chosen = threads_with(self.trace, (), self.where).filter(self.where)
        return int(chosen.filter(pl.col("utid") >= self.trace.ncpu).collect().height)

    def commands(self, *commands: str) -> list[str]:
        """The same commands, about these threads."""
        return [f"{command} {self.words}".rstrip() for command in commands]
