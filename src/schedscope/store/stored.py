"""Is a `.sched` folder whole, and can its tables be a trace's? Asked once, when one is opened.

* trace.json: every key has the type it should have (`parsers.trace_json`).
* A table whose checksum is in trace.json is as it was written, to the bit.
* For a part in time, only the row groups that hold some of it are compared, each with its own
  checksum. These checksums are in the file's metadata, and trace.json has a checksum of that.
* All values of a table are looked at when it is first used, by the rules of
  native/trace/src/store/plausible.rs: a checksum reveals damage, not malice. `convert` and
  `Trace.to_sched` look at the values of the tables that they write, and `looked_at` notes which
  were looked at. For a part in time, only those of its row groups are.

Native code that sizes its memory by the values in a table checks each value again as it reads
(native/trace/src/store/range.rs).
"""

from __future__ import annotations

import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from schedscope.errors import FormatError, SchedscopeError, StorageError
from schedscope.parsers import derived, files, schema, trace_json
from schedscope.parsers.plausible import check_frame, check_rows
from schedscope.store import looked_at

METADATA = "trace.json"
SELECTION = "selection.json"
"""In its place where a folder has the rows about some threads only, which are no trace."""

_REWRITE = "convert the capture again"


def read_about(folder: Path) -> dict[str, Any]:
    """What trace.json of a `.sched` folder says.

    Raises `StorageError` if it cannot be read, `FormatError` if it is of another version
    or says something that cannot be.
    """
    path = folder / METADATA
    try:
        text = files.read_small(path)
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


ADDED = ("dispatch_queues", "kicks")
"""Tables that a copy of this schema may lack: they are younger than its number."""


def table(folder: Path, name: str, about: Mapping[str, Any]) -> pl.LazyFrame:
    """The table `name` of a `.sched` folder, whole and with values that a trace can have.

    Raises `FormatError` if it is not, `StorageError` if it cannot be read.
    """
    path = folder / f"{name}.parquet"
    try:
        recorded = (about.get("files") or {}).get(path.name)
        if name in ADDED and recorded is None and not path.exists():
            return schema.empty(name).lazy()
        _check_ends(path)
        now = looked_at.identity(folder, path.name)
        if recorded is not None:
            _check_bytes(path, recorded)
        lazy = _rows(path, name)
        _check_columns(path, name, lazy, about)
    except OSError as error:
        raise _unread(path, error) from error
    if recorded is None or not looked_at.known(now, folder):
        _check_values(path, name, lazy, about)
        looked_at.note(now, folder)
    return lazy


def part(
    folder: Path, name: str, about: Mapping[str, Any], begin: int, end: int
) -> pl.LazyFrame | None:
    """Rows of the table `name`, in order, among them all that have a part in `[begin, end]`.

    Reads what these need and no more. None if the file does not say where they are: only
    `convert` writes that.

    Raises `FormatError` if what is read is damaged, `StorageError` if it cannot be read.
    """
    from schedscope import _native

    path = folder / f"{name}.parquet"
    recorded = (about.get("files") or {}).get(path.name)
    if recorded is None or "metadata" not in recorded:
        return None
    try:
        _check_ends(path)
        _check_size(path, recorded)
        _check_metadata(path, recorded)
        told = _native.row_groups(path)
        if told is None:
            return None
        groups, n_long = told
        held = [first <= end and last >= begin for *_, first, last in groups]
        # All between the first and the last of them, so that rows stay in order.
        low = held.index(True) if any(held) else 0
        high = len(held) - held[::-1].index(True) if any(held) else 0
        _check_groups(path, groups[low:high])
        lazy = _rows(path, name)
        _check_columns(path, name, lazy, about)
        strange = not looked_at.known(looked_at.identity(folder, path.name), folder)
        if strange:
            _check_values(path, name, lazy, about, groups=(low, high))
        row = sum(group[0] for group in groups[:low])
        rows = sum(group[0] for group in groups[low:high])
        inside = lazy.slice(row, rows)
        if not n_long:
            return inside
        long = _long_rows(path, about, n_long)
        if strange:
            _check_values(_beside(path), name, long, about)
    except OSError as error:
        raise _unread(path, error) from error
    columns = lazy.collect_schema().names()
    before = long.filter(pl.col("row") < row).select(columns)
    after = long.filter(pl.col("row") >= row + rows).select(columns)
    return pl.concat([before, inside, after])


def _beside(path: Path) -> Path:
    """The file of a table's rows that reach across several row groups."""
    return path.with_name(f"long_{path.name}")


def _long_rows(path: Path, about: Mapping[str, Any], rows: int) -> pl.LazyFrame:
    """The rows of the table in `path` that reach across several row groups, in order."""
    beside = _beside(path)
    recorded = (about.get("files") or {}).get(beside.name)
    if recorded is None or not beside.exists():
        raise FormatError(f"{beside} does not exist", "the long rows of its table", _REWRITE)
    _check_ends(beside)
    _check_bytes(beside, recorded)
    long = _rows(beside, path.stem)
    found = long.select(pl.len()).collect().item()
    if found != rows:
        raise FormatError(f"{beside} has {found} rows", f"{rows}, as {path.name} says", _REWRITE)
    return long


def stamp(folder: Path, name: str) -> tuple[int, ...]:
    """What changes whenever the file of the table `name` is written; empty if it is not there."""
    try:
        found = (folder / f"{name}.parquet").stat()
    except OSError:
        return ()
    return (found.st_ino, found.st_size, found.st_mtime_ns)


def record(folder: Path) -> dict[str, dict[str, Any]]:
    """Size and checksums of every Parquet file in `folder`, as trace.json keeps them."""
    return {
        path.name: {
            "bytes": path.stat().st_size,
            "crc32": checksum(path),
            "metadata": checksum(path, *_metadata(path)),
        }
        for path in sorted(folder.glob("*.parquet"))
    }


def checksum(path: Path, offset: int = 0, length: int | None = None) -> str:
    """CRC-32 of a file's bytes, or of some of them, in hexadecimal digits."""
    from schedscope import _native

    return f"{_native.crc32(path, offset, length):08x}"


def _metadata(path: Path) -> tuple[int, int]:
    """Offset and length of the end of a Parquet file: its metadata, their length and the magic."""
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - 8))
        length = int.from_bytes(file.read(4), "little") + 8
    return max(0, size - length), min(size, length)


def _check_ends(path: Path) -> None:
    if not stat.S_ISREG(path.stat().st_mode):
        # Opening a pipe without a writer would block forever.
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
    _check_size(path, recorded)
    if (now := checksum(path)) != (crc := recorded.get("crc32")):
        raise _damaged(path, f"has the checksum {now}", f"{crc}, which trace.json records")


def _check_size(path: Path, recorded: Mapping[str, Any]) -> None:
    found, size = path.stat().st_size, recorded.get("bytes")
    if found != size:
        raise _damaged(path, f"has {found} bytes", f"the {size} that trace.json says")


def _check_metadata(path: Path, recorded: Mapping[str, Any]) -> None:
    now, crc = checksum(path, *_metadata(path)), recorded["metadata"]
    if now != crc:
        raise _damaged(
            path, f"has metadata with the checksum {now}", f"{crc}, which trace.json records"
        )


def _check_groups(path: Path, groups: Sequence[tuple[int, ...]]) -> None:
    for _, offset, length, crc, *_ in groups:
        now = checksum(path, offset, length)
        if now != f"{crc:08x}":
            found = f"has the checksum {now} in {length} bytes from byte {offset} on"
            raise _damaged(path, found, f"{crc:08x}, as its metadata say")


def _damaged(path: Path, found: str, expected: str) -> FormatError:
    return FormatError(
        f"{path} {found}: it is damaged or belongs to another trace",
        expected,
        f"{_REWRITE} (or use --refresh, where schedscope made it by itself)",
    )


def _rows(path: Path, name: str) -> pl.LazyFrame:
    """The rows of the file, with the columns of the table `name`."""
    try:
        with files.no_panics():
            return derived.plain(name, files.scan_parquet(path))
    except OSError:
        raise
    except Exception as error:
        raise _unreadable(path, error) from error


def _check_columns(path: Path, name: str, lazy: pl.LazyFrame, about: Mapping[str, Any]) -> None:
    try:
        with files.no_panics():
            found = lazy.collect_schema()
            rows = lazy.select(pl.len()).collect().item()
    except OSError:
        raise
    except Exception as error:
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


def _check_values(
    path: Path,
    name: str,
    lazy: pl.LazyFrame,
    about: Mapping[str, Any],
    groups: tuple[int, int] | None = None,
) -> None:
    """Reads all of the table, or these row groups of it: a page may be damaged, too."""
    from schedscope import _native

    ncpu, window = about["ncpu"], about.get("window")
    columns = schema.TABLES[name].schema
    if path.name == f"{name}.parquet" and name != "threads":
        numbers = [column for column, dtype in columns.items() if dtype != pl.String]
        rows = _native.StoredTable.open(path.parent, name, numbers, groups)
        if rows is not None:
            threads = _threads(path, name, None, about)
            check_rows(name, rows, str(path), ncpu=ncpu, threads=threads, window=window)
            return
    try:
        with files.no_panics():
            # In the columns' order, without any that other programs added.
            frame = lazy.select(columns.names()).collect()
    except OSError:
        raise
    except Exception as error:
        raise _unreadable(path, error) from error
    try:
        frame = schema.conform(name, frame)
    except SchedscopeError as error:
        raise FormatError(f"{path}: {error.found}", error.expected, error.hint) from error
    threads = _threads(path, name, frame, about)
    check_frame(name, frame, str(path), ncpu=ncpu, threads=threads, window=window)


def _threads(path: Path, name: str, frame: pl.DataFrame | None, about: Mapping[str, Any]) -> int:
    """One more than the highest utid of the threads beside `path`, or in their `frame`."""
    if name == "threads" and frame is not None:
        utids = frame["utid"]
        # Valid utids do not have more gaps than threads.
        if not (utids.is_sorted() and utids.n_unique() == len(utids)):
            raise FormatError(
                f"{path}, column utid: not in order, or with duplicates",
                "one row for each thread, in order of utid",
                _REWRITE,
            )
        return 2 * len(utids) + 2**20
    threads = table(path.parent, "threads", about)
    return 1 + int(threads.select(pl.col("utid").max()).collect().item() or 0)


def _unread(path: Path, error: OSError) -> SchedscopeError:
    if isinstance(error, FileNotFoundError):
        expected = "one Parquet file for each table"
        return FormatError(f"{path} does not exist", expected, _REWRITE)
    return StorageError(f"cannot read {path}: {error.strerror or error}")


def _unreadable(path: Path, error: Exception) -> Exception:
    """The error to raise where Polars could not read a file."""
    if isinstance(error, (SchedscopeError, MemoryError)):
        return error
    reason = " ".join(str(error).split())[:200]
    return FormatError(f"{path} is damaged: {reason}", "a whole Parquet file", _REWRITE)
