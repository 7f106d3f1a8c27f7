"""A frame as lines of text, with numbers as people read them, as wide as a terminal is."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Sequence
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from schedscope import units
from schedscope.present.bounds import upper_bounds
from schedscope.present.columns import Column

if TYPE_CHECKING:
    import polars as pl

    from schedscope.present.registry import Kind


_SENTENCE = 30
"""A last column of text with so much room, in characters, has lines enough to be read."""


class HeadingLine(str):
    """The line of a table with the headings: bold where that is possible."""

    __slots__ = ()


def text_table(
    frame: pl.DataFrame, columns: Sequence[Column], *, width: int | None = None
) -> list[str]:
    """The lines of a table at most `width` wide (None: as wide as needed).

    Columns of lower rank are left out for that, then the widest text is shortened; a sentence that
    stands last goes on below.
    """
    shown = [column for column in columns if column.name in frame.columns]
    texts = {column.name: cells(frame, column) for column in shown}
    widths = {column.name: max(map(room, [column.title, *texts[column.name]])) for column in shown}

    def total() -> int:
        return sum(widths[column.name] for column in shown) + 2 * (len(shown) - 1)

    dropped: list[str] = []
    while width is not None and total() > width:
        droppable = [column for column in shown if column.rank > 0]
        if droppable:
            victim = max(droppable, key=lambda column: column.rank)
            shown.remove(victim)
            dropped.append(victim.title)
            continue
        # Nothing to leave out: shorten the widest text column, to 8 at least.
        wide = [c for c in shown if c.kind == "text" and widths[c.name] > 8]
        if not wide:
            break
        widest = max(wide, key=lambda column: widths[column.name])
        widths[widest.name] = max(8, widths[widest.name] - (total() - width))

    last = shown[-1].name if shown and shown[-1].kind == "text" else ""
    wrapped = widths.get(last, 0) >= _SENTENCE

    def line(values: Iterable[str]) -> str:
        fields = []
        for column, value in zip(shown, values, strict=True):
            value = _shortened(value, widths[column.name])
            rest = " " * (widths[column.name] - room(value))
            fields.append(value + rest if column.kind == "text" else rest + value)
        return "  ".join(fields).rstrip()

    lines: list[str] = [HeadingLine(line(column.title for column in shown))]
    rows = zip(*(texts[column.name] for column in shown), strict=True)
    for row in rows:
        parts = [row[-1]]
        if wrapped and room(row[-1]) > widths[last]:
            parts = wrap(row[-1], widths[last], break_on_hyphens=False)
        lines.append(line([*row[:-1], parts[0]]))
        lines += [line([*("" for _ in row[:-1]), part]) for part in parts[1:]]
    if dropped:
        said = f"(no room for: {', '.join(dropped)}; --format csv has every column)"
        lines += sentence(said, width)
    return lines


def sentence(text: str, width: int | None) -> list[str]:
    """The lines of a sentence beside a table: what does not fit goes on below, further in."""
    if width is None or room(text) <= width:
        return [text]
    # Wrapped as it will be seen: an escape takes more room than what it stands for.
    return wrap(
        units.printable(text),
        width,
        break_on_hyphens=False,
        break_long_words=False,
        subsequent_indent="  ",
    )


def room(text: str) -> int:
    """Columns of a terminal that a text takes: East Asian letters two, accents by themselves none.

    >>> room("naïve"), room("e\u0301"), room("日本")
    (5, 1, 4)
    """
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(letter) in "WF" for letter in text)
    return len(text) + wide - sum(unicodedata.combining(letter) > 0 for letter in text)


def _shortened(text: str, space: int) -> str:
    if room(text) <= space:
        return text
    end = min(len(text), space - 1)
    while room(text[:end]) > space - 1:
        end -= 1
    return text[:end] + "…"


def cells(frame: pl.DataFrame, column: Column) -> list[str]:
    """The texts of one column: intervals, where the frame has its upper bound as `NAME_high`."""
    values, write = frame[column.name], way(column.kind, column.origin)
    texts = [write(value) for value in values]
    high = f"{column.name}_high"
    if high in upper_bounds(frame.columns) and values.dtype.is_numeric():
        both = [units.interval(*pair, write) for pair in zip(values, frame[high], strict=True)]
        if both != texts:
            return both
    if column.kind == "time":
        # The unit in a column of its own width: digits line up.
        return [text + " " if text.endswith(" s") else text for text in texts]
    return texts


def way(kind: Kind, origin: int = 0) -> Callable[[Any], str]:
    """How a value of this kind is written; null is `-`."""
    ways: dict[Kind, Callable[[Any], str]] = {
        "time": units.duration,
        "at": lambda value: units.instant(value, origin),
        "count": units.count,
        "share": units.percent,
        "number": _number,
        "fixed": "{:,.2f}".format,
    }
    write = ways.get(kind, _word)
    return lambda value: "-" if value is None else write(value)


def _word(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return units.printable(str(value))


def _number(value: float) -> str:
    """Four digits; large ones in full, since powers of ten are hard to read in a table."""
    return f"{value:.4g}" if abs(value) < 9999.5 else f"{value:,.0f}"
