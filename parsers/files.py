"""Read a table's file by its name, whatever the name: the one place where Polars opens files.

To Polars a path is a pattern, an address or a partition too: `run[12]`, `a*b`, `~x`, `key=1/`.
Here it is the name of one file.
"""

from __future__ import annotations

import io
from pathlib import Path

import polars as pl

from schedscope.parsers import csv_text

MAGIC = b"PAR1"
"""What a whole Parquet file begins and ends with."""


def scan_parquet(path: Path) -> pl.LazyFrame:
    """The table in one Parquet file, not read before it is asked for."""
    whole = path.absolute()
    try:
        str(whole).encode()
    except UnicodeEncodeError:
        # Polars knows no names that are not UTF-8: it gets the bytes.
        return pl.scan_parquet(io.BytesIO(whole.read_bytes()), glob=False, hive_partitioning=False)
    return pl.scan_parquet(whole, glob=False, hive_partitioning=False)


def read_parquet(path: Path) -> pl.DataFrame:
    """The table in one Parquet file."""
    return scan_parquet(path).collect()


def read_csv(path: Path) -> pl.DataFrame:
    """The table in one CSV file, whose columns' types all of its rows decide.

    Texts that were guarded against spreadsheets are what they were before.
    """
    with path.open("rb") as file:
        return csv_text.unguard(pl.read_csv(file, infer_schema_length=None, glob=False))


def read_ipc(path: Path) -> pl.DataFrame:
    """The table in one Arrow (Feather) file."""
    with path.open("rb") as file:
        return pl.read_ipc(file)
