"""A frame as the viewer shows it: texts as in a terminal, rows that lead to their instants."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from schedscope.present.columns import Column
from schedscope.present.text_table import cells

if TYPE_CHECKING:
    import polars as pl

_BEGINS = ("ts", "ts_ready", "ts_run", "ts_waking", "ts_begin", "ts_max")
_LENGTHS = ("dur", "wait", "max", "time")


def table(
    frame: pl.DataFrame,
    columns: Sequence[Column],
    *,
    title: str,
    python: str,
    begin: int,
    most: int = 200,
    note: str = "",
) -> dict[str, Any]:
    """Headings, texts, and per row where it leads: the instant, its length, the lane.

    `begin` is the window's, from which the timeline counts. `python` makes the same frame.
    """
    shown = frame.head(most)
    columns = [column for column in columns if column.name in frame.columns]
    texts = [[text.strip() for text in cells(shown, column)] for column in columns]
    if frame.height > most:
        note = f"{note} the first {most:,} of {frame.height:,} rows".strip()
    return {
        "title": title,
        "python": python,
        "heads": [[column.title, column.kind != "text"] for column in columns],
        "rows": [list(row) for row in zip(*texts, strict=True)] if columns else [],
        "links": _links(shown, begin),
        "note": note,
    }


def _links(frame: pl.DataFrame, begin: int) -> list[list[Any] | None]:
    """`[ns after the begin, its length, its lane]` for each row that is about an instant."""
    at = next((name for name in _BEGINS if name in frame.columns), None)
    if at is None or not frame.schema[at].is_integer():
        lanes = _lanes(frame)
        return [None if lane is None else [None, 0, lane] for lane in lanes]
    length = next((name for name in _LENGTHS if name in frame.columns), None)
    if length is not None and not frame.schema[length].is_integer():
        length = None
    lengths = frame[length].to_list() if length else [0] * frame.height
    return [
        None if ts is None else [ts - begin, max(0, dur or 0), lane]
        for ts, dur, lane in zip(frame[at].to_list(), lengths, _lanes(frame), strict=True)
    ]


def _lanes(frame: pl.DataFrame) -> list[str | None]:
    for name, kind in (("utid", "utid"), ("cpu", "cpu")):
        if name in frame.columns and frame.schema[name].is_integer():
            return [None if n is None else f"{kind}:{n}" for n in frame[name].to_list()]
    return [None] * frame.height
