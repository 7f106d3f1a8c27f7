"""Tables read straight into memory have the rows of the whole trace."""

from __future__ import annotations

from pathlib import Path

import pytest
from decoded import FIXTURES, decode

import schedscope as ss
from schedscope.errors import FormatError, StorageError, UsageError

FILES = ["perf-sched.data", "perfetto-compact.pftrace", "text-report-R.txt", "linux-dtrace.capture"]


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("tables", [("waits",), ("states", "threads"), ("switches", "losses")])
def test_read_tables_equal_those_of_the_whole_trace(name: str, tables: tuple[str, ...]) -> None:
    whole = decode(FIXTURES / name)
    found = ss.read_tables(FIXTURES / name, *tables)
    assert list(found) == list(tables)
    for table, frame in found.items():
        assert frame.equals(getattr(whole, table).collect()), table
        assert frame.height > 0 or table == "losses"


def test_read_tables_writes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "perf.data"
    path.write_bytes((FIXTURES / "perf-sched.data").read_bytes())
    ss.read_tables(path, "waits")
    assert list(tmp_path.iterdir()) == [path]


def test_wrong_names_and_files_are_refused(tmp_path: Path) -> None:
    source = FIXTURES / "perf-sched.data"
    with pytest.raises(UsageError, match="table 'slices'"):
        ss.read_tables(source, "waits", "slices")
    with pytest.raises(UsageError, match="no table named"):
        ss.read_tables(source)
    with pytest.raises(StorageError, match="No such file"):
        ss.read_tables(tmp_path / "none", "waits")
    (tmp_path / "empty").touch()
    with pytest.raises(FormatError, match="is empty"):
        ss.read_tables(tmp_path / "empty", "waits")
