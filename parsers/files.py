"""Read files that others made: the one place where Polars opens a table's file.

To Polars a path is a pattern, an address or a partition too: `run[12]`, `a*b`, `~x`, `key=1/`.
Here it is the name of one file.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import stat
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import polars as pl

from schedscope.parsers import csv_text

MAGIC = b"PAR1"
"""What a whole Parquet file begins and ends with."""


_ONE_AT_A_TIME = threading.RLock()


@contextlib.contextmanager
def no_panics() -> Iterator[None]:
    """Within it, a panic of Polars over a damaged file is a `PolarsError` without a backtrace.

    Rust writes the panic to the process's stderr before Python gets it, so stderr is held back
    meanwhile; what else was written to it follows afterwards, if there was no panic.
    """
    with _ONE_AT_A_TIME, tempfile.TemporaryFile() as said:
        try:
            kept = os.dup(2)
        except OSError:  # closed: it has no reader
            kept = os.dup(said.fileno())
        try:
            os.dup2(said.fileno(), 2)
            yield
        except pl.exceptions.PanicException as error:
            raise pl.exceptions.ComputeError("its bytes do not fit together") from error
        except BaseException:
            _pass_on(said, kept)
            raise
        else:
            _pass_on(said, kept)
        finally:
            os.dup2(kept, 2)
            os.close(kept)


def _pass_on(said: io.IOBase, to: int) -> None:
    said.seek(0)
    if text := said.read():
        os.write(to, text)


def read_small(path: Path, most: int = 64 << 20) -> bytes:
    """All of a small file that others may have made; `OSError` for any other.

    A pipe would be waited for, and a hole of any length takes no room in a file.
    """
    with open(path, "rb", opener=_opened) as file:
        about = os.fstat(file.fileno())
        if not stat.S_ISREG(about.st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file")
        if about.st_size > most:
            raise OSError(errno.EFBIG, f"it is longer than {most} bytes")
        return file.read(about.st_size)


def _opened(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def scan_parquet(path: Path) -> pl.LazyFrame:
    """The table in one Parquet file, not read before it is asked for."""
    whole = path.absolute()
    if whole.exists() and not whole.is_file():  # a pipe would be waited for
        raise OSError(errno.EINVAL, f"{path.name} is not a regular file")
    try:
        str(whole).encode()
    except UnicodeEncodeError:
        # Polars knows no names that are not UTF-8: it gets the bytes.
        return pl.scan_parquet(io.BytesIO(whole.read_bytes()), glob=False, hive_partitioning=False)
    return pl.scan_parquet(whole, glob=False, hive_partitioning=False)


def read_parquet(path: Path) -> pl.DataFrame:
    """The table in one Parquet file."""
    with no_panics():
        return scan_parquet(path).collect()


def read_csv(path: Path) -> pl.DataFrame:
    """The table in one CSV file, whose columns' types all of its rows decide.

    Texts that were guarded against spreadsheets are what they were before.
    """
    with path.open("rb") as file, no_panics():
        return csv_text.unguard(pl.read_csv(file, infer_schema_length=None, glob=False))


def read_ipc(path: Path) -> pl.DataFrame:
    """The table in one Arrow (Feather) file."""
    with path.open("rb") as file, no_panics():
        return pl.read_ipc(file)
