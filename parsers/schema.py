"""Every table of the trace model, as the engine declares it (`native/model/src/tables.rs`).

Times (`ts`, `ts_*`) are ns on the capture's own monotonic clock, durations are ns,
CPUs are the host's logical numbers, and null means "not known". docs/trace-model.md explains the
terms.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import polars as pl

from schedscope import _native
from schedscope.errors import FormatError, UsageError
from schedscope.units import several

SCHEMA_VERSION = _native.SCHEMA_VERSION
"""Bumped whenever a table changes; caches of another version are rebuilt."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its name, Polars type, whether it may be null, and what it says."""

    name: str
    dtype: pl.DataType
    nullable: bool
    doc: str


@dataclass(frozen=True, slots=True)
class Table:
    """One table: its name, what a row of it is, and its columns in order."""

    name: str
    row: str
    columns: tuple[Column, ...]

    @property
    def schema(self) -> pl.Schema:
        """Column names and Polars types, in order."""
        return pl.Schema({column.name: column.dtype for column in self.columns})


def _declared() -> dict[str, Table]:
    tables = {}
    for name, row, empty, columns in _native.declared_tables():
        types = pl.DataFrame(empty).schema.items()
        tables[name] = Table(
            name,
            row,
            tuple(
                Column(column, dtype, nullable, doc)
                for (column, dtype), (nullable, doc) in zip(types, columns, strict=True)
            ),
        )
    return tables


TABLES: Mapping[str, Table] = MappingProxyType(_declared())
"""Every table by name: the facts, then `cpus`, then what reconstruction infers."""


def _categories(table: str, column: str) -> pl.Enum:
    dtype = TABLES[table].schema[column]
    assert isinstance(dtype, pl.Enum)
    return dtype


STATE = _categories("states", "state")
CAUSE = _categories("waits", "cause")
END = _categories("states", "end")
CENSORED = _categories("waits", "censored")
SCHED_CLASS = _categories("threads", "sched_class")
SLEEP_KIND = _categories("sleeps", "kind")


def _table(name: str) -> Table:
    try:
        return TABLES[name]
    except KeyError:
        raise UsageError(
            f"there is no table {name!r}", "one of " + ", ".join(TABLES), "check the spelling"
        ) from None


def empty(name: str) -> pl.DataFrame:
    """The table `name` without rows.

    >>> empty("yields")
    shape: (0, 2)
    ┌─────┬──────┐
    │ ts  ┆ utid │
    │ --- ┆ ---  │
    │ i64 ┆ u32  │
    ╞═════╪══════╡
    └─────┴──────┘
    """
    return pl.DataFrame(schema=_table(name).schema)


def conform(name: str, frame: pl.DataFrame) -> pl.DataFrame:
    """`frame` as the table `name`: its columns in order, with its types.

    Nullable columns may be left out and become null; types are cast where no
    value is lost. Raises `FormatError` on a column too many, on a missing or
    null value that the table needs, and on a value that does not fit its type.

    >>> conform("yields", pl.DataFrame({"utid": [7], "ts": [1_000]}))
    shape: (1, 2)
    ┌──────┬──────┐
    │ ts   ┆ utid │
    │ ---  ┆ ---  │
    │ i64  ┆ u32  │
    ╞══════╪══════╡
    │ 1000 ┆ 7    │
    └──────┴──────┘
    """
    table = _table(name)
    strange = [column for column in frame.columns if column not in table.schema]
    if strange:
        raise FormatError(
            f"table {name} has unknown columns: {', '.join(strange)}",
            ", ".join(table.schema),
            "drop or rename them",
        )
    columns: list[pl.Series] = []
    for column in table.columns:
        if column.name not in frame.columns:
            if not column.nullable and frame.height:
                doc = column.doc.rstrip(".")
                raise FormatError(
                    f"table {name} has no column {column.name}", f"{kind_of(column.dtype)}: {doc}"
                )
            columns.append(pl.repeat(None, frame.height, dtype=column.dtype, eager=True))
        else:
            columns.append(_cast(name, column, frame[column.name]))
    return pl.DataFrame(
        [values.alias(column.name) for column, values in zip(table.columns, columns, strict=True)]
    )


def kind_of(dtype: pl.DataType) -> str:
    """What values of this type are, in words.

    >>> kind_of(pl.UInt16()), kind_of(CENSORED)
    ('UInt16', 'none, right, left or both')
    """
    if isinstance(dtype, pl.Enum):
        *most, last = dtype.categories.to_list()
        return f"{', '.join(most)} or {last}"
    return str(dtype)


def _cast(name: str, column: Column, values: pl.Series) -> pl.Series:
    expected = f"{kind_of(column.dtype)} ({column.doc.rstrip('.')})"
    if values.dtype.is_float() and column.dtype.is_integer():
        # Polars would cut off fractions without a word.
        raise FormatError(
            f"table {name}, column {column.name} has floating-point values",
            expected,
            "ns as floats lose digits: use the original integers",
        )
    try:
        cast = values.cast(column.dtype)
    except pl.exceptions.PolarsError:
        raise FormatError(
            f"table {name}, column {column.name} has {_misfits(values, column.dtype)}", expected
        ) from None
    if not column.nullable and cast.has_nulls():
        row = int(cast.is_null().arg_max() or 0)
        raise FormatError(
            f"table {name}, column {column.name} has no value in "
            f"{several(cast.null_count(), 'row')}, the first is row {row}",
            "a value in every row",
        )
    return cast


def _misfits(values: pl.Series, dtype: pl.DataType) -> str:
    """What is wrong with values that cannot be cast."""
    try:
        fits = values.cast(dtype, strict=False)
    except pl.exceptions.PolarsError:
        return f"{values.dtype} values"
    wrong = fits.is_null() & values.is_not_null()
    row = int(wrong.arg_max() or 0)
    return f"{values[row]!r} in row {row}"
