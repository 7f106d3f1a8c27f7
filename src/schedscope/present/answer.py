"""What a command found: a frame with what is around it. Tables, JSON and CSV are views of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from schedscope import units
from schedscope.present.columns import Column, conventional
from schedscope.present.text_table import sentence, text_table

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True)
class Answer:
    """A frame, facts about all of it, and the sentences around its table.

    JSON has `about` as keys beside the `rows`; CSV the rows alone. People read `head`, the
    `columns` of `shown` (by default the frame; else the same rows, worded), and `notes`.

    `rows_in_all`: how many rows there are where `frame` has the first of them only. JSON says the
    number, and the line below a table says what was left out: `rest`, a sentence or what one
    row is called and why it is below.
    """

    frame: pl.DataFrame
    columns: Sequence[Column] | None = None
    about: Mapping[str, Any] = field(default_factory=dict)
    head: Iterable[str] = ()
    notes: Iterable[str] = ()
    shown: pl.DataFrame | None = None
    exit_code: int = 0
    rows_in_all: int | None = None
    rest: str | tuple[str, str] = ("more row", "")

    def lines(self, width: int | None = None) -> list[str]:
        """As people read it, in a terminal of this width."""
        frame = self.frame if self.shown is None else self.shown
        columns = conventional(frame) if self.columns is None else self.columns
        # No columns: only the lines around are shown.
        table = text_table(frame, columns, width=width) if columns else []
        left_out = self._left_out()
        head, notes = (
            [line for text in texts for line in sentence(text, width)]
            for texts in (self.head, [*([left_out] if left_out else []), *self.notes])
        )
        return [*head, *table, *notes]

    def document(self) -> dict[str, Any]:
        """As programs read it: nanoseconds, plain digits, every column."""
        rows = self.frame.height if self.rows_in_all is None else self.rows_in_all
        return {**self.about, "rows_in_all": rows, "rows": self.frame.to_dicts()}

    def _left_out(self) -> str:
        if self.rows_in_all is None or self.rows_in_all <= self.frame.height or not self.rest:
            return ""
        rest = self.rest
        if not isinstance(rest, str):
            what, why = rest
            rest = units.several(self.rows_in_all - self.frame.height, what) + why
        return f"({rest}; use a larger --top)"


@dataclass(frozen=True)
class Facts:
    """An answer that is no table: `about` for programs, `lines` for people.

    `keep`: characters that cannot be seen and stand in `lines` on purpose.
    """

    about: Mapping[str, Any]
    lines: Sequence[str]
    exit_code: int = 0
    keep: str = ""
