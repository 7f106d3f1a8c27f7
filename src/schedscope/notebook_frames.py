"""Answers in notebooks: Polars frames that show themselves as the terminal's tables do.

The package's public functions (`ss.latency`) return them. Nothing is changed for other frames: an
answer is a frame of a class of its own, which knows the question and the trace. Results derived
from it, except fewer or reordered rows, are plain frames.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from html import escape
from inspect import isfunction
from typing import TYPE_CHECKING, Any, TypeVar

import polars as pl

from schedscope import units
from schedscope.present.bounds import upper_bounds
from schedscope.present.columns import Column, choose, conventional
from schedscope.present.compare_table import difference_columns, worded_differences
from schedscope.present.html_table import html_headline, html_table
from schedscope.present.registry import meaning

if TYPE_CHECKING:
    from schedscope.store.trace import Trace

ROWS = 20
"""A table in a notebook has at most so many rows."""

_HIDDEN = {"utid", "coverage"}
_ONLY = {"check": ("level", "check", "text")}
"""Of these questions other columns are not of one unit."""
_STYLE = """<style>
.schedscope-answer { font-size: 13px; line-height: 1.4; max-width: 100%; }
.schedscope-answer p { margin: .2em 0; }
.schedscope-answer .table { overflow-x: auto; }
.schedscope-answer table { border-collapse: collapse; border: 0; margin: .3em 0; }
.schedscope-answer th, .schedscope-answer td { text-align: left !important; vertical-align: top;
  padding: .15em 1.2em .15em 0; white-space: nowrap; }
.schedscope-answer th { border-bottom: 1px solid currentColor; }
.schedscope-answer .n { text-align: right !important; font-variant-numeric: tabular-nums; }
.schedscope-answer .long { white-space: normal; min-width: 24em; }
</style>"""

Question = TypeVar("Question", bound=Callable[..., Any])


@dataclass(frozen=True)
class Source:
    """Where an answer comes from."""

    question: str
    trace: Trace | None


class AnswerFrame(pl.DataFrame):
    """A Polars frame of nanoseconds and fractions, which a notebook shows as a person reads it.

    `pl.DataFrame(answer)` is the frame as Polars shows it, and `ss.readable(frame)` shows any
    frame under the names of its columns.
    """

    _source: Source | None = None

    @property
    def question(self) -> str:
        """The name of the question that this answers; empty of none."""
        return self._source.question if self._source else ""

    def _repr_html_(self, **options: Any) -> str:
        if self._source is None or not self.columns:
            return super()._repr_html_(**options)
        if self._source.question == "findings":
            from schedscope.timelines.cards import cards

            return cards(self, self._source.trace)
        return shown(self, self._source)

    def _display_(self) -> object:
        """For marimo, which otherwise shows every frame in its own table."""
        return Html(self._repr_html_()) if self._source is not None else pl.DataFrame(self)

    def _repr_mimebundle_(self, **_options: Any) -> Any:
        if self._source is None or self._source.question != "findings":
            return {}
        from schedscope.timelines.cards import bundle

        return bundle(self, self._source.trace)

    def _like(self, frame: pl.DataFrame) -> AnswerFrame:
        made = AnswerFrame(frame)
        made._source = self._source
        return made


@dataclass(frozen=True)
class Html:
    """An object with a rich display."""

    text: str

    def _repr_html_(self) -> str:
        return self.text


def _keeps_rows(name: str) -> Callable[..., pl.DataFrame]:
    plain = getattr(pl.DataFrame, name)

    @wraps(plain)
    def method(self: AnswerFrame, *args: Any, **options: Any) -> pl.DataFrame:
        return self._like(plain(self, *args, **options))

    return method


for _name in ("filter", "head", "limit", "slice", "sort", "tail"):
    setattr(AnswerFrame, _name, _keeps_rows(_name))


def showing(question: Question) -> Question:
    """The question, returning an `Answer`; any other object unchanged."""
    if not isfunction(question):
        return question

    @wraps(question)
    def asked(*args: Any, **options: Any) -> Any:
        frame = question(*args, **options)
        if type(frame) is not pl.DataFrame:
            return frame
        from schedscope.store.trace import Trace

        # An answer about several traces has no line about a single one.
        traces = [each for each in (*args, *options.values()) if isinstance(each, Trace)]
        one = traces[0] if len(traces) == 1 else None
        made = AnswerFrame(frame)
        made._source = Source(question.__name__, one)
        return made

    return asked  # type: ignore[return-value]


def shown(frame: pl.DataFrame, source: Source) -> str:
    """The table, below which trace it is of and what is missing from that."""
    plain = pl.DataFrame(frame[:ROWS])
    if source.question == "compare":
        others = frame["setting"].unique(maintain_order=True).to_list()
        plain = worded_differences(plain, several=len(others) > 1)
        table = html_table(plain, difference_columns(plain, ["first", *others]))
    else:
        table = html_table(plain, columns(plain, source))
    rest = len(frame) - len(plain)
    notes = []
    if rest:
        notes.append(f"{units.several(rest, 'more row')}: the frame has all")
    if not len(frame):
        notes.append("no rows")
    if ">= " in table.replace("&gt;", ">"):
        notes.append(">= marks a lower bound: not all of it is recorded")
    return (
        f"<div class=schedscope-answer>{_STYLE}{html_headline(source.trace)}{table}"
        + "".join(f"<p>{escape(note)}</p>" for note in notes)
        + "</div>"
    )


def columns(frame: pl.DataFrame, source: Source) -> list[Column]:
    """Under the headings of the terminal, without bounds, numbers of threads, and empty columns."""
    origin = source.trace.origin if source.trace is not None else 0
    upper = upper_bounds(frame.columns)
    names = [
        name
        for name in _ONLY.get(source.question, frame.columns)
        if name not in upper and not (name in _HIDDEN and len(frame.columns) > 3)
    ]
    types = {column.name: column for column in conventional(frame, origin=origin)}
    found = []
    for name in names:
        if meaning(name, source.question) is None:
            found.append(types[name])
            continue
        empty = frame[name].null_count() == len(frame) > 0
        optional = "?" if empty or name in ("n_censored", "n_excluded") else ""
        found += choose(frame, [name + optional], question=source.question, origin=origin)
    return found
