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
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TextIO

from schedscope import units
from schedscope.errors import StorageError
from schedscope.outputs import whole
from schedscope.present.answer import Answer, Facts
from schedscope.present.text_table import HeadingLine


def emit(answer: Answer | Facts, form: str) -> None:
    """Write an answer to stdout as `form`: "table", "json" or "csv"."""
    if isinstance(answer, Facts):
        _emit_facts(answer, form)
    elif form == "csv":
        from schedscope.parsers.csv_text import each_text

        _write(each_text(answer.frame, _csv_text).write_csv())
    elif form == "json":
        say_json(answer.document())
    else:
        say(*answer.lines(width()))


def _emit_facts(facts: Facts, form: str) -> None:
    if form == "table":
        say(*facts.lines, keep=facts.keep)
    elif form == "json":
        say_json(facts.about)
    else:
        rows = [
            (key, value if isinstance(value, str | int | float) else _json_line(value))
            for key, value in facts.about.items()
        ]
        say_csv(("key", "value"), rows)


def say(*lines: str, keep: str = "") -> None:
    """Write lines for people to stdout, with all that is not visible escaped, except `keep`."""
    _write("".join(f"{_visible(line, keep)}\n" for line in lines))


def say_json(document: object) -> None:
    """Write a JSON document to stdout."""
    text = json.dumps(document, ensure_ascii=False, indent=1, default=str)
    _write(_UNSEEN.sub(_json_escape, text) + "\n")


def say_json_line(document: object) -> None:
    """Write a JSON document to stdout as one line, for what never ends."""
    text = json.dumps(document, ensure_ascii=False, default=str)
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


# Nearly everything is plain; the rest is checked value by value. Values are joined by line breaks.
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
    return _bold(text) if isinstance(line, HeadingLine) else text


def width() -> int | None:
    """Columns of the terminal; None where output goes to a file or pipe."""
    if os.environ.get("COLUMNS", "").isdigit() or sys.stdout.isatty():
        return max(40, shutil.get_terminal_size().columns)
    return None


def redraws() -> bool:
    """Whether what is on the screen can be replaced, as in a terminal."""
    return sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"


def clear() -> None:
    """Clear the screen and start at its top, if it is one."""
    if redraws():
        _write("\x1b[H\x1b[J")


def flush() -> None:
    """Flush, so that the text appears now."""
    sys.stdout.flush()


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


def write_whole(target: Path, text: str, sources: Iterable[Path]) -> None:
    """Write all of it or nothing: a page cut off by a full disk would look complete."""
    try:
        with whole(target, sources) as made:
            made.write_text(text, encoding="utf-8")
    except OSError as error:
        raise StorageError(f"cannot write {target}: {error.strerror}") from error
