"""Results on stdout: a table for people, JSON or CSV for programs.

Tables show human units and fit the terminal; JSON and CSV carry every column
in nanoseconds and plain digits.

Threads, hosts and files choose their own names. Whatever goes to stdout or stderr goes through
here (or `_progress`), where characters that would move the cursor, change colours, reverse the
direction of writing or not be seen are written as escapes: `\\x1b` in tables, sentences and CSV,
`\\u001b` in JSON.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TextIO

from schedscope import units
from schedscope.errors import StorageError

if TYPE_CHECKING:
    import polars as pl

Kind = Literal["text", "right", "id", "count", "time", "at", "share", "number", "fixed"]

# Columns whose digits are a name, not a quantity.
_IDS = {"cpu", "tid", "pid", "utid", "prio", "core", "llc", "package", "numa_node"}
# Signed whole numbers that are no durations.
_NUMBERS = {"weight", "max_difference"}


@dataclass(frozen=True)
class Column:
    """How one column of a frame appears in a table.

    `rank` decides what goes first when the terminal is narrow: the highest
    rank; 0 never goes. `origin` is subtracted from instants.
    """

    name: str
    head: str = ""
    kind: Kind = "text"
    rank: int = 0
    origin: int = 0

    @property
    def title(self) -> str:
        """The word above the column."""
        return self.head or self.name


def emit(
    frame: pl.DataFrame,
    form: str,
    *,
    columns: Sequence[Column] | None = None,
    about: Mapping[str, Any] | None = None,
    head: Iterable[str] = (),
    foot: Iterable[str] = (),
) -> None:
    """Write `frame` to stdout as `form`: "table", "json" or "csv".

    `head` and `foot` are lines around the table; `about` the same knowledge
    as keys of the JSON object, beside its `rows`. CSV is the rows alone.
    """
    if form == "csv":
        from schedscope.parsers.csv_text import each_text

        _write(each_text(frame, _csv_text).write_csv())
    elif form == "json":
        say_json({**(about or {}), "rows": frame.to_dicts()})
    else:
        columns = columns_of(frame) if columns is None else columns
        # No columns: the lines around say it all.
        say(*head, *(table(frame, columns, width=width()) if columns else []), *foot)


def emit_about(about: Mapping[str, Any], form: str, lines: Iterable[str]) -> None:
    """Write a result that is no table: `lines` for people, else `about`."""
    if form == "table":
        say(*lines)
    elif form == "json":
        say_json(about)
    else:
        rows = [
            (key, value if isinstance(value, str | int | float) else _json_line(value))
            for key, value in about.items()
        ]
        say_csv(("key", "value"), rows)


def say(*lines: str, keep: str = "") -> None:
    """Write lines for people to stdout, nothing in them but what can be seen, and `keep`."""
    _write("".join(f"{_visible(line, keep)}\n" for line in lines))


def say_json(document: object) -> None:
    """Write a JSON document to stdout."""
    text = json.dumps(document, ensure_ascii=False, indent=1, default=str)
    _write(_UNSEEN.sub(_json_escape, text) + "\n")


def say_csv(head: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Write rows to stdout as CSV."""
    import csv
    import io

    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(head)
    for row in rows:
        writer.writerow([_csv_text(cell) if isinstance(cell, str) else cell for cell in row])
    _write(text.getvalue())


def complain(text: str) -> None:
    """Write a sentence for people to stderr."""
    # stderr may be closed: then the exit code must do.
    with suppress(OSError, AttributeError):
        print(f"schedscope: {_encodable(units.printable(text), sys.stderr)}", file=sys.stderr)


class Head(str):
    """A line of a table that says what its columns are: bold, where that can be."""

    __slots__ = ()


# Nearly everything is plain; the rest is looked at one by one. A line break is between values.
_UNSEEN = re.compile(r"[^ -~\n]")


def _json_escape(found: re.Match[str]) -> str:
    return found[0] if found[0].isprintable() else json.dumps(found[0])[1:-1]


def _json_line(value: object) -> str:
    return json.dumps(value, default=str)


def _csv_text(text: str) -> str:
    from schedscope.parsers.csv_text import guarded

    return guarded(units.printable(text))


def _visible(line: str, keep: str) -> str:
    text = units.printable(line, keep)
    return _bold(text) if isinstance(line, Head) else text


def columns_of(frame: pl.DataFrame, *, origin: int = 0) -> list[Column]:
    """Columns guessed from names and types, by the trace model's conventions."""
    found = []
    for name, dtype in frame.schema.items():
        kind: Kind = "text"
        if name in _IDS or name.endswith(("_cpu", "_utid", "_tid", "_pid")):
            kind = "id"
        elif (
            name == "n" or name.startswith("n_") or name in _NUMBERS or dtype.is_unsigned_integer()
        ):
            kind = "count"
        elif name == "ts" or name.startswith("ts_") or name.endswith("_ts"):
            kind = "at"
        elif name.endswith("_frac"):
            kind = "share"
        elif dtype.is_float():
            kind = "number"
        elif dtype.is_integer():
            kind = "time"
        found.append(Column(name, kind=kind, origin=origin))
    return found


def table(frame: pl.DataFrame, columns: Sequence[Column], *, width: int | None) -> list[str]:
    """The lines of a table at most `width` wide (None: as wide as needed)."""
    shown = [column for column in columns if column.name in frame.columns]
    texts = {column.name: cells(frame, column) for column in shown}
    widths = {column.name: max(map(len, [column.title, *texts[column.name]])) for column in shown}

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

    def line(values: Iterable[str]) -> str:
        fields = []
        for column, value in zip(shown, values, strict=True):
            space = widths[column.name]
            if len(value) > space:
                value = value[: space - 1] + "…"
            fields.append(value.ljust(space) if column.kind == "text" else value.rjust(space))
        return "  ".join(fields).rstrip()

    lines: list[str] = [Head(line(column.title for column in shown))]
    rows = zip(*(texts[column.name] for column in shown), strict=True)
    lines += [line(row) for row in rows]
    if dropped:
        lines.append(f"(no room for: {', '.join(dropped)}; --format csv has every column)")
    return lines


def width() -> int | None:
    """Columns of the terminal; None where output goes to a file or pipe."""
    if os.environ.get("COLUMNS", "").isdigit() or sys.stdout.isatty():
        return max(40, shutil.get_terminal_size().columns)
    return None


def cells(frame: pl.DataFrame, column: Column) -> list[str]:
    """The texts of one column."""
    values = frame[column.name].to_list()
    match column.kind:
        case "time":
            # The unit in a column of its own width: digits line up.
            texts = [units.duration(value) for value in values]
            return [text + " " if text.endswith(" s") else text for text in texts]
        case "at":
            return [units.instant(value, column.origin) for value in values]
        case "count":
            return [units.count(value) for value in values]
        case "share":
            return [units.percent(value) for value in values]
        case "number":
            return ["-" if value is None else _number(value) for value in values]
        case "fixed":
            return ["-" if value is None else f"{value:,.2f}" for value in values]
        case _:
            return ["-" if value is None else units.printable(str(value)) for value in values]


def _number(value: float) -> str:
    """Four digits; all of a large one: nobody reads powers of ten in a table."""
    return f"{value:.4g}" if abs(value) < 9999.5 else f"{value:,.0f}"


def _bold(text: str) -> str:
    if sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb":
        return f"\x1b[1m{text}\x1b[0m"
    return text


def _encodable(text: str, to: TextIO) -> str:
    encoding = to.encoding or "utf-8"
    if encoding.lower().replace("-", "") == "utf8":
        # Bytes of a file's name that are not UTF-8 are no characters.
        return text.encode("utf-8", "backslashreplace").decode("utf-8")
    plain = text.replace("µ", "u").replace("≥", ">=").replace("…", "~").replace("·", "|")
    return plain.encode(encoding, "backslashreplace").decode(encoding)


def _write(text: str) -> None:
    sys.stdout.write(_encodable(text, sys.stdout))


def more(rest: int, what: str = "more row", why: str = "") -> list[str]:
    """The line below a table of which so many rows were cut off, if any were.

    >>> more(2), more(1, "waker", ", all rarer"), more(0)
    (['(2 more rows; give a larger --top)'], ['(1 waker, all rarer; give a larger --top)'], [])
    """
    return [f"({units.several(rest, what)}{why}; give a larger --top)"] if rest > 0 else []


def write_whole(target: Path, text: str) -> None:
    """All of it or nothing: a page cut off by a full disk would look complete."""
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        partial.write_text(text, encoding="utf-8")
        partial.replace(target)
    except OSError as error:
        raise StorageError(f"cannot write {target}: {error.strerror}") from error
    finally:
        partial.unlink(missing_ok=True)
