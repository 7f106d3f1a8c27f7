"""Files store some columns as differences from others; every reader gets them complete."""

from __future__ import annotations

import shutil
from pathlib import Path

import polars as pl
import pytest

import schedscope as ss
from schedscope import _native
from schedscope.parsers import derived, files
from schedscope.parsers.schema import TABLES

FIXTURES = Path(__file__).parents[2] / "fixtures"
# Losses and censored waits; waits with one step only; threads that are preempted.
TRACES = ["linux-ftrace-lossy.capture", "freebsd-ule-synthetic.capture", "perf-sched.data"]
DECLARED = _native.derived_columns()


@pytest.fixture(params=TRACES)
def source(request: pytest.FixtureRequest) -> Path:
    return FIXTURES / request.param


def kept(source: Path, folder: Path) -> ss.Trace:
    """The trace, with its cached copy in `folder`."""
    return ss.open(source, cache=folder)


def test_derived_columns_are_restored_on_reading(source: Path, tmp_path: Path) -> None:
    trace = kept(source, tmp_path)
    assert trace.path is not None
    decoded, _ = _native.decode(source)
    for table in ("states", "waits"):
        schema = TABLES[table].schema
        expected = pl.DataFrame(decoded[table]).cast(dict(schema))
        there = pl.read_parquet(trace.path / f"{table}.parquet", glob=False).columns
        for _, name, stored, _ in (one for one in DECLARED if one[0] == table):
            assert name not in there
            assert stored in there
        assert getattr(trace, table).collect().equals(expected)
        for name in schema:
            # Alone, and with others in any order, whatever it is derived from.
            for wanted in ([name], [name, "utid"], ["utid", name]):
                read = _native.StoredTable.open(trace.path, table, list(dict.fromkeys(wanted)))
                assert read is not None
                frame = pl.DataFrame(read)
                assert frame.columns == list(dict.fromkeys(wanted))
                same = expected[name].to_physical().cast(frame[name].dtype)
                assert frame[name].equals(same)


def test_long_rows_equal_those_of_the_table(tmp_path: Path) -> None:
    """Also where a page of them is gathered from many pages of the table."""
    source = tmp_path / "long.dat"
    _native.synthesize_trace_dat(source, 400_000, 8, 6000)
    _native.convert(source, tmp_path, layout=(1 << 14, False))
    whole = derived.plain("states", files.scan_parquet(tmp_path / "states.parquet")).collect()
    beside = files.scan_parquet(tmp_path / "long_states.parquet")
    long = derived.plain("states", beside).collect()
    assert long.columns == [*TABLES["states"].schema, "row"]
    assert long.drop("row").equals(whole[long["row"]])


def test_exported_tables_have_all_columns(source: Path, tmp_path: Path) -> None:
    trace = kept(source, tmp_path)
    converted = ss.convert(source, tmp_path / "t.sched")
    for again in (converted, trace.to_sched(tmp_path / "again.sched")):
        assert again.path is not None
        for table in ("states", "waits"):
            there = pl.read_parquet(again.path / f"{table}.parquet", glob=False)
            assert there.schema == TABLES[table].schema
            assert getattr(again, table).collect().equals(getattr(trace, table).collect())
        assert ss.latency(again).equals(ss.latency(trace))


def test_the_formulas_of_the_documentation_are_those_declared() -> None:
    text = (Path(__file__).parents[2] / "docs" / "trace-model.md").read_text()
    for table, name, stored, terms in DECLARED:
        added = "".join(f" {'+' if sign > 0 else '-'} {term}" for term, sign in terms)
        assert f"| `{table}` | `{name}` | `{stored}{added}` |" in text


def test_documented_formulas_work_without_schedscope(source: Path, tmp_path: Path) -> None:
    trace = kept(source, tmp_path / "cache")
    assert trace.path is not None
    shutil.copy(trace.path / "waits.parquet", tmp_path / "waits.parquet")
    with pl.SQLContext(waits=pl.scan_parquet(tmp_path / "waits.parquet")) as sql:
        ready = sql.execute(
            "SELECT ready_shift + coalesce(ts_run, 0) - coalesce(wait, 0) AS ts_ready FROM waits"
        ).collect()
    assert ready["ts_ready"].equals(trace.waits.collect()["ts_ready"])
