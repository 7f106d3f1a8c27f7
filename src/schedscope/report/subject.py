"""The subject of a page: a trace, and all of its threads or those that were selected."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import polars as pl

from schedscope.analysis.asking.memo import once
from schedscope.analysis.findings.findings import findings
from schedscope.present.selection import narrowed
from schedscope.store.trace import Trace


@dataclass(frozen=True)
class Subject:
    """A trace and, if `where` is given, those of its threads that the sections are about.

    `where`: an expression over columns of `threads`, as analyses take it; `words`: the options
    of commands that select the same threads, as in `--service nginx.service`.
    """

    trace: Trace
    where: pl.Expr | None = None
    words: str = ""

    def ask(self, analysis: Callable[..., pl.DataFrame], /, **options: Any) -> pl.DataFrame:
        """The answer about these threads, computed once."""
        return once(analysis, self.trace, where=self.where, **options)

    @cached_property
    def findings(self) -> pl.DataFrame:
        """What affects these threads; its commands ask about the same ones."""
        return narrowed(self.ask(findings), self.words)

    def commands(self, *commands: str) -> list[str]:
        """The same commands, about these threads."""
        return [f"{command} {self.words}".rstrip() for command in commands]
