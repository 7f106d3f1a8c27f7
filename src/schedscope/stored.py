"""Is a `.sched` folder whole, and can its tables be a trace's? Asked once, when one is opened.

* trace.json: every key has the type it should have (`parsers.trace_json`).
* A table that trace.json has a checksum of is as it was written, to the bit. Whoever wrote it
  (`convert`, `Trace.to_sched`) looked at its values then.
* A table without one was written by another program: its columns and all of its values
  are looked at when it is first used. Those of `threads` and `cpus` are in any case.

A checksum reveals damage, not malice: native code that sizes its memory by the values in a table
checks each value again as it reads (native/src/store/range.rs).
"""

from __future__ import annotations

import stat
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl

from schedscope.errors import FormatError, SchedscopeError, StorageError
from schedscope.parsers import files, schema, trace_json
from schedscope.parsers.plausible import check_frame

METADATA = "trace.json"

_REWRITE = "convert the capture again"
_BLOCK = 1 << 20


def read_about(folder: Path) -> dict[str, Any]:
    """What trace.json of a `.sched` folder says.

    Raises `StorageError` if it cannot be read, `FormatError` if it is of another version
    or says something that cannot be.
    """
    path = folder / METADATA
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            # To open a pipe nobody writes to would wait for ever.
            raise FormatError(f"{path} is not a file", "what `schedscope convert` wrote", _REWRITE)
        text = path.read_bytes()
    except OSError as error:
        raise StorageError(
            f"cannot read {path}: {error.strerror}",
            "a .sched folder",
            "convert the capture again: schedscope convert CAPTURE",
        ) from error
    about = trace_json.parse(text, str(path))
    if about.get("schema_version") != schema.SCHEMA_VERSION:
        raise FormatError(
            f"{path} has schema version {trace_json.shown(about.get('schema_version'))}",
            f"version {schema.SCHEMA_VERSION}",
            "convert the capture again with this schedscope",
        )
    trace_json.check(about, str(path))
    return about


def table(folder: Path, name: str, about: Mapping[str, Any]) -> pl.LazyFrame:
    """The table `name` of a `.sched` folder, whole and with values that a trace can have.

    Raises `FormatError` if it is not, `StorageError` if it cannot be read.
    """
    path = folder / f"{name}.parquet"
    try:
        recorded = (about.get("files") or {}).get(path.name)
        _check_ends(path)
        if recorded is not None:
            _check_bytes(path, recorded)
        lazy = files.scan_parquet(path)
        _check_columns(path, name, lazy, about)
    except OSError as error:
        if not isinstance(error, FileNotFoundError):
            raise StorageError(f"cannot read {path}: {error.strerror or error}") from error
        expected = "one Parquet file for each table"
        raise FormatError(f"{path} does not exist", expected, _REWRITE) from error
    # What a table of threads says decides how much memory others take.
    if recorded is None or name in ("threads", "cpus"):
        _check_values(path, name, lazy, about)
    return lazy


def stamp(folder: Path, name: str) -> tuple[int, ...]:
    """What changes whenever the file of the table `name` is written; empty if it is not there."""
    try:
        found = (folder / f"{name}.parquet").stat()
    except OSError:
        return ()
    return (found.st_ino, found.st_size, found.st_mtime_ns)


def record(folder: Path) -> dict[str, dict[str, Any]]:
    """Size and checksum of every Parquet file in `folder`, as trace.json keeps them."""
    return {
        path.name: {"bytes": path.stat().st_size, "crc32": checksum(path)}
        for path in sorted(folder.glob("*.parquet"))
    }


def checksum(path: Path) -> str:
    """CRC-32 of a file's bytes, in hexadecimal digits."""
    crc = 0
    block = memoryview(bytearray(_BLOCK))
    with path.open("rb", buffering=0) as file:
        while n := file.readinto(block):
            crc = zlib.crc32(block[:n], crc)
    return f"{crc:08x}"


def _check_ends(path: Path) -> None:
    if not stat.S_ISREG(path.stat().st_mode):
        # To open a pipe nobody writes to would wait for ever.
        raise FormatError(f"{path} is not a file", "one Parquet file for each table", _REWRITE)
    with path.open("rb") as file:
        head = file.read(4)
        file.seek(0, 2)
        length = file.tell()
        file.seek(max(0, length - 4))
        whole = length >= 12 and head == files.MAGIC == file.read(4)
    if not whole:
        raise FormatError(
            f"{path} does not start and end like a Parquet file",
            "what `schedscope convert` wrote",
            _REWRITE,
        )


def _check_bytes(path: Path, recorded: Mapping[str, Any]) -> None:
    size, crc = recorded.get("bytes"), recorded.get("crc32")
    found = path.stat().st_size
    if found != size:
        found_text, expected = f"has {found} bytes", f"the {size} that trace.json says"
    elif (now := checksum(path)) != crc:
        found_text, expected = f"has the checksum {now}", f"{crc}, which trace.json records"
    else:
        return
    raise FormatError(
        f"{path} {found_text}: it is damaged or belongs to another trace",
        expected,
        f"{_REWRITE} (or use --refresh, where schedscope made it by itself)",
    )


def _check_columns(path: Path, name: str, lazy: pl.LazyFrame, about: Mapping[str, Any]) -> None:
    try:
        with files.no_panics():
            found = lazy.collect_schema()
            rows = lazy.select(pl.len()).collect().item()
    except OSError:
        raise
    except BaseException as error:
        raise _unreadable(path, error) from error
    expected = (about.get("rows") or {}).get(name, rows)
    if rows != expected:
        raise FormatError(f"{path} has {rows} rows", f"{expected}, as trace.json records", _REWRITE)
    wanted = schema.TABLES[name].schema
    if dict(found) == dict(wanted):
        return
    for column, dtype in wanted.items():
        if column not in found:
            said = f"has no column {column}"
        elif found[column] != dtype:
            said = f"has a column {column} of type {found[column]}"
        else:
            continue
        raise FormatError(f"{path} {said}", f"type {dtype}", _REWRITE)


def _check_values(path: Path, name: str, lazy: pl.LazyFrame, about: Mapping[str, Any]) -> None:
    """Reads all of the table: a page may be damaged, too."""
    try:
        # In the columns' order, without any that other programs added.
        with files.no_panics():
            frame = lazy.select(schema.TABLES[name].schema.names()).collect()
    except OSError:
        raise
    except BaseException as error:
        raise _unreadable(path, error) from error
    try:
        frame = schema.conform(name, frame)
    except SchedscopeError as error:
        raise FormatError(f"{path}: {error.found}", error.expected, error.hint) from error
    threads = _threads(path, name, frame, about)
    window = about.get("window")
    check_frame(name, frame, str(path), ncpu=about["ncpu"], threads=threads, window=window)


def _threads(path: Path, name: str, frame: pl.DataFrame, about: Mapping[str, Any]) -> int:
    """One more than the highest utid of the threads beside `path`."""
    if name == "threads":
        utids = frame["utid"]
        # Nobody numbers threads with more holes than threads.
        if not (utids.is_sorted() and utids.n_unique() == len(utids)):
            raise FormatError(
                f"{path}, column utid: not in order, or with duplicates",
                "one row for each thread, in order of utid",
                _REWRITE,
            )
        return 2 * len(utids) + 2**20
    threads = table(path.parent, "threads", about)
    return 1 + int(threads.select(pl.col("utid").max()).collect().item() or 0)


def _unreadable(path: Path, error: BaseException) -> BaseException:
    """What to raise where Polars could not read a file. On damaged ones it may even panic."""
    if isinstance(error, (SchedscopeError, KeyboardInterrupt, SystemExit, MemoryError)):
        return error
    reason = " ".join(str(error).split())[:200]
    return FormatError(f"{path} is damaged: {reason}", "a whole Parquet file", _REWRITE)
