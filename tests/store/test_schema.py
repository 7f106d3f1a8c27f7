"""The tables of the trace model, and frames that are to be one of them."""

from __future__ import annotations

import polars as pl
import pytest

from schedscope import Trace
from schedscope.errors import FormatError, UsageError
from schedscope.parsers import schema


@pytest.mark.parametrize("name", schema.TABLES)
def test_a_trace_offers_every_table(name: str) -> None:
    trace = Trace.from_tables({}, {"ncpu": 1})
    assert getattr(trace, name).collect().schema == schema.TABLES[name].schema


def test_types_and_nullability_are_those_that_the_engine_declares() -> None:
    columns = {column.name: column for column in schema.TABLES["waits"].columns}
    assert columns["cause"].dtype == schema.CAUSE
    assert schema.CAUSE.categories.to_list() == ["wake", "new", "preempt", "yield", "unknown"]
    assert columns["wait"].dtype == pl.Int64
    assert [columns[name].nullable for name in ("utid", "cause", "wait")] == [False, False, True]
    assert columns["queue"].doc == "ts_run - ts_enqueued, ns: on the queue."


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
