"""A frame as an HTML table, with numbers as people read them."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

import polars as pl

from schedscope.present.columns import Column
from schedscope.present.headline import headline
from schedscope.present.text_table import cells

if TYPE_CHECKING:
    from schedscope.store.trace import Trace


def html_table(
    frame: pl.DataFrame, columns: Sequence[Column], anchor: str = "", *, most: int | None = None
) -> str:
    """A table of those `columns` that the frame has; numbers stand right, with their units.

    With `most` it ends after so many rows, and says so if there are more.
    """
    cut = most is not None and frame.height > most
    frame = frame[:most]
    columns = [column for column in columns if column.name in frame.columns]
    texts = [cells(frame, column) for column in columns]
    sides = [_side(column) for column in columns]
    head = "".join(
        f"<th{side}>{escape(column.title)}</th>"
        for side, column in zip(sides, columns, strict=True)
    )
    rows = "".join(
        "<tr>"
        + "".join(
            f"<td{side}>{escape(text.strip())}</td>" for side, text in zip(sides, row, strict=True)
        )
        + "</tr>"
        for row in zip(*texts, strict=True)
    )
    name = f' id="{anchor}-table"' if anchor else ""
    return (
        f"<div class=table{name}><table><thead><tr>{head}</tr></thead>"
        f"<tbody>{rows}</tbody></table></div>"
        + (f"<p>Only the first {most} rows; the command below has all of them.</p>" if cut else "")
    )


def html_headline(trace: Trace | None) -> str:
    """The two lines above every answer: which trace it is of, and what is missing."""
    lines = [] if trace is None else headline(trace)
    return "".join(f"<p>{escape(line)}</p>" for line in lines)


def _side(column: Column) -> str:
    if column.kind != "text":
        return " class=n"
    return " class=long" if column.name in ("story", "text") else ""
