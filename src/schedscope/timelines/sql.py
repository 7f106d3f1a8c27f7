"""SQL over the tables of one trace, and over nothing else.

A query runs in a process of its own (`sql_child`), since Polars can neither be stopped in the
middle of one nor be kept from using up memory. It ends at a limit, when it is no longer asked for,
and with this process, however that ends.
"""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Lock
from typing import TYPE_CHECKING, Any

import polars as pl

from schedscope.errors import StorageError, UsageError
from schedscope.outputs import temporary
from schedscope.parsers.schema import TABLES
from schedscope.present.columns import conventional
from schedscope.timelines.tables import table
from schedscope.units import size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from schedscope.store.trace import Trace

MOST = 1_000
"""Rows of a result that are shown."""
SECONDS = 60
MEMORY = 2 << 30
RESULT = 64 << 20
"""Bytes of a result."""
_STEP = 0.1

_OUTSIDE = re.compile(r"\b(?:read|scan)_\w+", re.IGNORECASE)
_ASKS = re.compile(r"\s*(?:\(\s*)*(?:select|with)\b", re.IGNORECASE)
_PARTS = re.compile(
    r"""(?P<comment> --[^\n]* | /\*.*?\*/ )
      | (?P<text> (?<!\w)[eE]'(?:[^'\\]|\\.|'')*' | '(?:[^']|'')*' | \$(\w*)\$.*?\$\3\$ )
      | (?P<name> "(?:[^"]|"")*" | `[^`]*` )""",
    re.VERBOSE | re.DOTALL,
)
_one_at_a_time = Lock()


def query(trace: Trace, text: Any, stop: Event | None = None) -> dict[str, Any]:
    """The table that Polars' SQL makes of `text`, over the tables of docs/trace-model.md.

    It ends when `stop` is set. Raises `UsageError` for what is no such query, for one that would
    read anything else, and for one that reaches a limit.
    """
    if not isinstance(text, str) or not text.strip() or len(text) > 10_000:
        raise UsageError("this query", "a SELECT of at most 10,000 characters")
    bare = _without(text, "comment").strip().rstrip(";")
    code = _without(bare, "text")
    if not _ASKS.match(code):
        raise UsageError(
            f"a query that begins with {code.split(maxsplit=1)[0]!r:.40}" if code else "no query",
            "SELECT or WITH",
        )
    if found := _OUTSIDE.search(code):
        raise UsageError(
            f"{found[0]} in a query", "tables of this trace", "one of " + ", ".join(TABLES)
        )
    used = [name for name in TABLES if re.search(rf"\b{name}\b", code, re.IGNORECASE)]
    with _one_at_a_time, _request(trace, bare, used) as request:
        frame = _answer(request, stop or Event())
    if "len" in frame.columns and "n" not in frame.columns:
        # Polars' name for a count(*), whose type could also be that of a time.
        frame = frame.rename({"len": "n"})
    frames = ", ".join(f"{name}=trace.{name}" for name in used)
    return table(
        frame.head(MOST),
        conventional(frame, origin=trace.origin),
        title=f"{frame.height:,} rows" if frame.height <= MOST else f"the first {MOST:,} rows",
        python=f'pl.SQLContext({frames}).execute("""{bare}""", eager=True)',
        begin=trace.window[0],
        most=MOST,
    )


def _without(text: str, kind: str) -> str:
    """A blank for each part of this kind; comment marks within strings or names do not count."""
    return _PARTS.sub(lambda part: " " if part[kind] is not None else part[0], text)


@contextmanager
def _request(trace: Trace, text: str, used: list[str]) -> Iterator[bytes]:
    """What the child needs to know; tables that are in no file yet are written for it."""
    whole = trace.whole or trace
    with tempfile.TemporaryDirectory(prefix="schedscope-sql-", dir=temporary()) as folder:
        written = [name for name in used if whole.folder_of(name) is None]
        for name in written:
            whole.table(name).sink_parquet(Path(folder) / f"{name}.parquet")
        begin, end = (ts - whole.origin for ts in trace.window)
        about = {
            "text": text,
            "used": used,
            "info": whole.info,
            "path": str(whole.path.absolute()) if whole.path else None,
            "folder": folder,
            "written": written,
            "part": None if whole is trace else [f"{begin}ns", f"{end}ns"],
            "limits": [SECONDS, MEMORY, RESULT],
        }
        yield json.dumps(about, default=str).encode()


def _answer(request: bytes, stop: Event) -> pl.DataFrame:
    """The rows that the child found, one more than are shown."""
    # The child sees the end of this pipe when this process ends, kill -9 included.
    reading, writing = os.pipe()
    command = [sys.executable, "-P", "-m", "schedscope.timelines.sql_child", str(reading)]
    try:
        child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            pass_fds=[reading],
        )  # fmt: skip
    except OSError as error:
        os.close(writing)
        raise StorageError(f"cannot start the query: {error.strerror}") from error
    finally:
        os.close(reading)
    try:
        found = _communicated(child, request, stop)
    finally:
        child.kill()
        child.wait()
        for pipe in (child.stdin, child.stdout):
            assert pipe is not None
            pipe.close()
        os.close(writing)
    if found[:1] == b"F" and child.returncode == 0:
        return pl.read_ipc(io.BytesIO(found[1:]))
    if found[:1] == b"E":
        raise UsageError(*json.loads(found[1:]))
    raise UsageError(
        f"a query that ended early: it may have needed more than {size(MEMORY)} of memory,"
        " or be nested too deeply",
        hint="ask for fewer rows and columns, or for a simpler query",
    )


def _communicated(child: subprocess.Popen[bytes], request: bytes, stop: Event) -> bytes:
    end = time.monotonic() + SECONDS
    asked: bytes | None = request
    while not stop.is_set():
        try:
            return child.communicate(asked, timeout=_STEP)[0]
        except subprocess.TimeoutExpired:
            asked = None
        if time.monotonic() > end:
            raise UsageError(
                f"a query that takes more than {SECONDS} s",
                hint="select fewer rows, or ask in Python: trace.waits is a Polars frame",
            )
    raise UsageError("the query was cancelled")


def _only_ours(lazy: pl.LazyFrame, trace: Trace, *folders: str) -> None:
    """Whatever the query, its plan may read only this trace's files."""
    allowed = [*([str(trace.path)] if trace.path else []), *folders]
    for line in lazy.explain(optimized=False).splitlines():
        found = re.search(r"\b\w+ SCAN \[?(.*?)\]?(?:$|, )", line)
        if found and not found[1].lstrip("\"'").startswith(tuple(f"{one}/" for one in allowed)):
            raise UsageError("a query of other files", "tables of this trace")


def schema() -> list[dict[str, Any]]:
    """Each table, what a row of it is, and its columns with their types and meanings."""
    return [
        {
            "name": each.name,
            "row": each.row,
            "columns": [[c.name, _word(c.dtype), c.doc] for c in each.columns],
        }
        for each in TABLES.values()
    ]


def _word(dtype: pl.DataType) -> str:
    return "word" if isinstance(dtype, pl.Enum) else str(dtype).lower()
