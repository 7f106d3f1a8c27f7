"""Impossible facts are refused in a sentence, not turned into a wrong answer."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from worlds import facts

from schedscope import _native
from schedscope.errors import FormatError, UsageError

SWITCH = {"ts": 5, "cpu": 0, "prev_utid": 2, "prev_state": "sleeping", "next_utid": 3}


@pytest.mark.parametrize(
    ("table", "rows", "complaint"),
    [
        ("switches", [SWITCH | {"cpu": 2}], "cpu of table switches holds 2 in row 0"),
        ("switches", [SWITCH | {"next_utid": 4_000_000_000}], "next_utid holds 4000000000"),
        ("switches", [SWITCH | {"prev_utid": 1}], "prev_utid holds 1 on CPU 0 in row 0"),
        ("switches", [SWITCH, SWITCH | {"ts": 4}], "row 1 of table switches has ts 4 after 5"),
        ("switches", [SWITCH | {"ts": 2**62 + 1}], "times no farther"),
        ("wakeups", [{"ts": 1, "cpu": 0, "utid": 2**31, "kind": "new"}], "wakeups, column utid"),
        (
            "losses",
            [{"ts_begin": 9, "ts_end": 8, "reason": "overrun"}],
            "ts_end .* before ts_begin",
        ),
    ],
)
def test_impossible_facts_are_refused(
    table: str, rows: list[dict[str, Any]], complaint: str
) -> None:
    """The error names table, column and row; there is no wrong answer and no panic."""
    with pytest.raises((UsageError, FormatError), match=complaint):
        _native.reconstruct(facts({table: rows}), 2)


def test_a_window_that_ends_before_it_begins_is_refused() -> None:
    with pytest.raises(UsageError, match="a window from 9 to 8"):
        _native.reconstruct({}, 1, (9, 8))


def test_null_in_a_required_column_is_refused() -> None:
    switches = facts({"switches": [SWITCH]})["switches"].with_columns(ts=pl.lit(None, pl.Int64))
    with pytest.raises(UsageError, match="column ts of table switches is null in row 0"):
        _native.reconstruct({"switches": switches}, 2)


def test_a_column_of_another_type_is_refused() -> None:
    switches = facts({"switches": [SWITCH]})["switches"].with_columns(ts=pl.lit("noon"))
    with pytest.raises(UsageError, match="column ts of table switches has type"):
        _native.reconstruct({"switches": switches}, 2)


@pytest.mark.parametrize("row", [2047, 2048, 9_999])
def test_the_row_of_a_long_table_is_named(row: int) -> None:
    """Tables are read in batches; rows are counted from the start of the table in any batches."""
    rows = [SWITCH | {"ts": ts} for ts in range(10_000)]
    whole = facts({"switches": rows})["switches"].with_row_index()
    lacking = whole.with_columns(prev_utid=pl.when(pl.col("index") != row).then("prev_utid")).drop(
        "index"
    )
    chunked = pl.concat([lacking[:3000], lacking[3000:3001], lacking[3001:]], rechunk=False)
    for table in (lacking, chunked):
        with pytest.raises(UsageError, match=f"prev_utid of table switches is null in row {row};"):
            _native.reconstruct({"switches": table}, 2)


def test_an_unknown_category_of_a_long_table_is_refused() -> None:
    """Only if a row has it; one that is only in the list of categories does no harm."""
    states = ["sleeping"] * 4999 + ["dozing"]
    table = facts({"switches": [SWITCH | {"ts": ts} for ts in range(5000)]})["switches"]
    named = pl.Series("prev_state", states, dtype=pl.Enum(["sleeping", "dozing"]))
    dozing = table.with_columns(named)
    with pytest.raises(UsageError, match='prev_state of table switches holds "dozing"'):
        _native.reconstruct({"switches": dozing}, 2)
    _native.reconstruct({"switches": dozing[:4999]}, 2)
