"""Tables as declared in Python are those that the native engine fills."""

from __future__ import annotations

import ctypes

import polars as pl
import pytest

from schedscope import Trace, _native
from schedscope.errors import FormatError, UsageError
from schedscope.parsers import schema

EMPTY = dict(_native.empty_tables())
NATIVE = {name: pl.DataFrame(table) for name, table in EMPTY.items()}


class _ArrowSchema(ctypes.Structure):
    """Of the Arrow C data interface. Polars drops nullability, so it is read here."""


_ArrowSchema._fields_ = [
    ("format", ctypes.c_char_p),
    ("name", ctypes.c_char_p),
    ("metadata", ctypes.c_void_p),
    ("flags", ctypes.c_int64),
    ("n_children", ctypes.c_int64),
    ("children", ctypes.POINTER(ctypes.POINTER(_ArrowSchema))),
    ("dictionary", ctypes.POINTER(_ArrowSchema)),
    ("release", ctypes.CFUNCTYPE(None, ctypes.POINTER(_ArrowSchema))),
    ("private_data", ctypes.c_void_p),
]
_ARROW_FLAG_NULLABLE = 2


def _arrow_nullability(table: object) -> dict[str, bool]:
    capsule = table.__arrow_c_stream__()  # type: ignore[attr-defined]
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype = ctypes.c_void_p
    pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    stream = pointer(capsule, b"arrow_array_stream")
    # get_schema is the first member of an ArrowArrayStream.
    get_schema = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(_ArrowSchema))(
        ctypes.c_void_p.from_address(stream).value
    )
    declared = _ArrowSchema()
    assert get_schema(stream, ctypes.byref(declared)) == 0
    children = [child.contents for child in declared.children[: declared.n_children]]
    fields = {child.name.decode(): bool(child.flags & _ARROW_FLAG_NULLABLE) for child in children}
    declared.release(ctypes.byref(declared))
    return fields


def test_schema_versions_agree() -> None:
    assert schema.SCHEMA_VERSION == _native.SCHEMA_VERSION


def test_python_and_rust_declare_the_same_tables() -> None:
    assert schema.TABLES.keys() == NATIVE.keys()


@pytest.mark.parametrize("name", schema.TABLES)
def test_a_trace_offers_every_table(name: str) -> None:
    trace = Trace.from_tables({}, {"ncpu": 1})
    assert getattr(trace, name).collect().schema == schema.TABLES[name].schema


@pytest.mark.parametrize("name", schema.TABLES)
def test_columns_and_types_agree(name: str) -> None:
    """Same columns, same order, same types; Enums with the same categories in order."""
    assert schema.TABLES[name].schema == NATIVE[name].schema


@pytest.mark.parametrize("name", schema.TABLES)
def test_nullability_agrees(name: str) -> None:
    """A column that the native engine declares as never null is declared so here."""
    fields = _arrow_nullability(EMPTY[name])
    assert {column.name: column.nullable for column in schema.TABLES[name].columns} == fields


@pytest.mark.parametrize("name", schema.TABLES)
def test_every_column_is_documented_in_one_sentence(name: str) -> None:
    table = schema.TABLES[name]
    for text in [table.row, *(column.doc for column in table.columns)]:
        assert text.endswith(".")
        assert text == text.strip()


def test_an_unknown_table_is_named() -> None:
    with pytest.raises(UsageError, match=r"no table 'switch'.*switches"):
        schema.empty("switch")


@pytest.mark.parametrize(
    ("columns", "complaint"),
    [
        ({"ts": [1], "utid": [1], "tid": [1]}, "unknown columns: tid"),
        ({"ts": [1]}, "has no column utid"),
        ({"ts": [None], "utid": [1]}, "column ts has no value in 1 row, the first is row 0"),
        ({"ts": [1], "utid": [-1]}, "column utid"),
        ({"ts": [1.5], "utid": [1]}, "column ts has floating-point values"),
    ],
)
def test_a_frame_that_does_not_fit_is_refused(
    columns: dict[str, list[object]], complaint: str
) -> None:
    with pytest.raises(FormatError, match=complaint):
        schema.conform("yields", pl.DataFrame(columns))


def test_unknown_category_is_refused() -> None:
    rename = {"ts": [1], "utid": [1], "prio": [1], "cause": ["whim"]}
    with pytest.raises(FormatError, match="column cause"):
        schema.conform("priorities", pl.DataFrame(rename))


def test_nullable_columns_may_be_left_out() -> None:
    wakeup = pl.DataFrame({"ts": [5], "cpu": [0], "utid": [3], "kind": ["waking"]})
    row = schema.conform("wakeups", wakeup).row(0, named=True)
    assert row == {
        "ts": 5,
        "cpu": 0,
        "waker_utid": None,
        "current_utid": None,
        "utid": 3,
        "kind": "waking",
        "target_cpu": None,
        "prio": None,
    }
