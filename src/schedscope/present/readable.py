"""A frame as a person reads it: durations with units, shares in per cent, no data types."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import polars as pl

    from schedscope.present.columns import Column

_STYLE = """<style>
.schedscope-readable table th, .schedscope-readable table td { text-align: left !important; }
.schedscope-readable table .n { text-align: right !important; white-space: nowrap; }
.schedscope-readable table td.long { white-space: normal; }
</style>"""


@dataclass(frozen=True, repr=False)
class Readable:
    """What `readable` returned: a table in a notebook; `print` shows it as a terminal would."""

    frame: pl.DataFrame
    origin: int
    times: Collection[str]

    def __repr__(self) -> str:
        """As the command line prints it."""
        from schedscope.present.text_table import text_table

        return "\n".join(text_table(self.frame, self._columns(), width=None))

    def _repr_html_(self) -> str:
        from schedscope.present.html_table import html_table

        body = html_table(self.frame, self._columns())
        return f"<div class=schedscope-readable>{_STYLE}{body}</div>"

    def _columns(self) -> list[Column]:
        """How each column is shown; upper bounds are shown with what they bound."""
        from schedscope.present.bounds import upper_bounds
        from schedscope.present.columns import conventional

        question = getattr(self.frame, "question", "")  # a schedscope answer knows its question
        upper = upper_bounds(self.frame.columns)
        return [
            replace(column, kind="time") if column.name in self.times else column
            for column in conventional(self.frame, question=question, origin=self.origin)
            if column.name not in upper
        ]


def readable(frame: pl.DataFrame, *, origin: int = 0, times: Collection[str] = ()) -> Readable:
    """The whole of `frame` for reading, as the command line would print it.

    Analyses return nanoseconds and fractions, to calculate with. Here `_frac` is in per cent,
    counts have separators, whole numbers are durations with three digits and their unit, and
    instants (`ts`, `ts_...`) are seconds after `origin`: by the conventions of the trace
    model, from names and types of columns. Where `NAME_high` stands beside `NAME`, the two are
    one column of figures and intervals. `times` names columns of fractional numbers that are
    nanoseconds, too.

    >>> import polars as pl
    >>> frame = pl.DataFrame({"comm": ["web"], "wait": [1_234_567], "moved_frac": [0.25]})
    >>> readable(frame)
    comm     wait  moved_frac
    web   1.23 ms      25.0 %
    """
    return Readable(frame, origin, times)
