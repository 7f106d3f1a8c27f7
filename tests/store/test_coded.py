"""Tables that native code reads from their files, compared with what Polars reads."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

import polars as pl
import pytest

from schedscope import Trace, _native, open
from schedscope.errors import FormatError
from schedscope.parsers.schema import TABLES
from schedscope.store.native_tables import coded

FIXTURES = Path(__file__).parents[2] / "fixtures"
NUMBERS = (pl.Int16, pl.Int64, pl.UInt16, pl.UInt32, pl.Boolean, pl.Enum)


def columns(table: str) -> list[str]:
    return [name for name, dtype in TABLES[table].schema.items() if isinstance(dtype, NUMBERS)]


@pytest.fixture(
    scope="module",
    params=["linux-ftrace-lossy.capture", "freebsd-ule-synthetic.capture", "perf-sched.data"],
)
def trace(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Trace:
    return open(FIXTURES / request.param, cache=tmp_path_factory.mktemp("cache"))


@pytest.mark.parametrize("table", TABLES)
def test_a_table_from_its_file_is_the_one_that_polars_reads(trace: Trace, table: str) -> None:
    stored = coded(trace, table, *columns(table))
    assert isinstance(stored, _native.StoredTable)
    frame = coded(trace, table, *columns(table), rows=getattr(trace, table))
    assert isinstance(frame, pl.DataFrame)
    found = pl.DataFrame(stored)
    assert found.equals(frame)
    assert found.schema == frame.schema
    assert found.height == trace.info["rows"][table]


def test_selected_or_in_memory_tables_are_frames(trace: Trace) -> None:
    begin, end = trace.window
    for other in (trace.between(until=f"{(end - begin) // 2}ns"), trace.in_memory("states")):
        assert isinstance(coded(other, "states", "ts"), pl.DataFrame)
    held = trace.in_memory("states")
    assert isinstance(coded(held, "waits", "utid"), _native.StoredTable)
    assert held.folder_of("states") is None
    assert held.folder_of("waits") == trace.path


def test_a_file_that_another_program_wrote_is_a_frame(trace: Trace, tmp_path: Path) -> None:
    again = trace.to_sched(tmp_path / "again.sched")
    frame = coded(again, "states", "utid", "end")
    assert isinstance(frame, pl.DataFrame)
    assert frame.equals(pl.DataFrame(coded(trace, "states", "utid", "end")))


def test_broken_page_is_reported_with_its_column(trace: Trace, tmp_path: Path) -> None:
    assert trace.path is not None
    folder = tmp_path / "broken.sched"
    shutil.copytree(trace.path, folder)
    file = folder / "states.parquet"
    whole = file.read_bytes()
    said = set()
    # Bytes of pages, from the first one's body on; the footer stays whole.
    for at in range(40, 4000, 31):
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
        # `Trace.read` would refuse the file by its checksum.
        stored = _native.StoredTable.open(str(folder), "states", columns("states"))
        try:
            pl.DataFrame(stored)
        except FormatError as error:
            said.add(str(error))
    assert said
    assert all("states.parquet, column " in text for text in said)
    assert all("convert the capture again" in text for text in said)


def test_broken_footer_does_not_panic(trace: Trace, tmp_path: Path) -> None:
    assert trace.path is not None
    file = tmp_path / "states.parquet"
    whole = (trace.path / "states.parquet").read_bytes()
    size = int.from_bytes(whole[-8:-4], "little")
    read = 0
    for at in range(len(whole) - 8 - size, len(whole), 3):
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
        stored = _native.StoredTable.open(str(tmp_path), "states", columns("states"))
        if stored is not None:
            with contextlib.suppress(FormatError):
                pl.DataFrame(stored)
            read += 1
    assert read
