"""A part in time reads only the row groups that it needs, and is identical to the bit."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import schedscope as ss
from schedscope import _native
from schedscope.errors import FormatError, SchedscopeError
from schedscope.parsers.schema import TABLES
from schedscope.store import stored

FIXTURES = Path(__file__).parents[2] / "fixtures"
# Threads that sleep across many row groups, and ones that never do.
GENERATED = {"many": (120_000, 4, 3000), "few": (60_000, 8, 40)}
RECORDED = ["linux-ftrace-mixed.capture", "linux-requests.capture", "linux-bpftrace.capture"]
SHARE = st.floats(0, 1)


def in_pages(source: Path, folder: Path) -> ss.Trace:
    """The trace with row groups of one page."""
    folder.mkdir()
    about = json.loads(_native.convert(source, folder, layout=(1, False)))
    about["files"] = stored.record(folder)
    (folder / "trace.json").write_text(json.dumps(about))
    return ss.Trace.read(folder)


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ss.Trace]:
    folder = tmp_path_factory.mktemp("parts")
    sources = {name: FIXTURES / name for name in RECORDED}
    for name, (events, cpus, threads) in GENERATED.items():
        sources[name] = folder / f"{name}.dat"
        _native.synthesize_trace_dat(sources[name], events, cpus, threads)
    return {name: in_pages(path, folder / f"{name}.sched") for name, path in sources.items()}


def groups(trace: ss.Trace, name: str) -> tuple[list[tuple[int, ...]], int]:
    assert trace.path is not None
    described = _native.row_groups(trace.path / f"{name}.parquet")
    assert described is not None
    return described


@pytest.mark.parametrize("name", [*RECORDED, *GENERATED])
@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(one=SHARE, other=SHARE)
def test_part_read_from_disk_equals_the_part_in_memory(
    name: str, one: float, other: float, traces: dict[str, ss.Trace]
) -> None:
    trace = traces[name]
    assert len(groups(trace, "states")[0]) > 1
    begin, end = trace.window
    cuts = sorted(begin + round(share * (end - begin)) - trace.origin for share in (one, other))
    if cuts[0] == cuts[1]:
        return
    since, until = (f"{cut}ns" for cut in cuts)
    part = trace.between(since, until)
    held = trace.in_memory(*TABLES).between(since, until)
    assert part.info == held.info
    for table in TABLES:
        assert part.table(table).collect().equals(held.table(table).collect()), table


def test_long_rows_are_stored_separately_and_are_few(traces: dict[str, ss.Trace]) -> None:
    many, few = (groups(traces[name], "states") for name in ("many", "few"))
    rows = sum(group[0] for group in many[0])
    assert 0 < many[1] < rows / 8
    assert few[1] == 0
    # Without those, a group's rows are of its own time.
    spans = [last - first for *_, first, last in many[0][2:-1]]
    begin, end = traces["many"].window
    assert max(spans) < (end - begin) / 2


def flip(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


def test_part_reads_only_the_row_groups_it_needs(
    traces: dict[str, ss.Trace], tmp_path: Path
) -> None:
    """Damage outside it has no effect; damage in what it needs is one sentence."""
    trace = traces["few"]
    assert trace.path is not None
    copy = Path(shutil.copytree(trace.path, tmp_path / "t.sched"))
    begin, end = trace.window
    middle = (begin + end) // 2 - trace.origin
    cut = f"{middle}ns", f"{middle + 1000}ns"
    whole = trace.between(*cut).states.collect()
    described = groups(trace, "states")[0]
    (offset, length), (mine, size) = described[0][1:3], described[len(described) // 2][1:3]
    flip(copy / "states.parquet", offset + length // 2)
    assert ss.Trace.read(copy).between(*cut).states.collect().equals(whole)
    with pytest.raises(FormatError, match=r"states\.parquet has the checksum"):
        _ = ss.Trace.read(copy).states
    flip(copy / "states.parquet", mine + size // 2)
    with pytest.raises(FormatError, match=rf"checksum \w+ in {size} bytes from byte {mine} on"):
        ss.Trace.read(copy).between(*cut)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda path: flip(path, -20), "metadata with the checksum"),
        (lambda path: path.write_bytes(path.read_bytes()[:-1]), "start and end like a Parquet"),
        (lambda path: path.unlink(), "does not exist"),
        (lambda path: path.with_name("long_states.parquet").unlink(), "long_states.* not exist"),
        (lambda path: flip(path.with_name("long_states.parquet"), 99), "long_states.*checksum"),
    ],
)
def test_damaged_table_is_reported_in_one_sentence(
    damage: Callable[[Path], object], said: str, traces: dict[str, ss.Trace], tmp_path: Path
) -> None:
    trace = traces["many"]
    assert trace.path is not None
    copy = Path(shutil.copytree(trace.path, tmp_path / "t.sched"))
    damage(copy / "states.parquet")
    with pytest.raises(SchedscopeError, match=said):
        ss.Trace.read(copy).between("1us", "2us")


def test_second_read_keeps_no_long_rows_of_the_first(tmp_path: Path) -> None:
    for threads in (3000, 40):
        source = tmp_path / f"{threads}.dat"
        _native.synthesize_trace_dat(source, 60_000, 4, threads)
        _native.convert(source, tmp_path, layout=(1, False))
        there = (tmp_path / "long_states.parquet").exists()
        assert there == (threads == 3000)


def test_folder_of_another_writer_is_cut(traces: dict[str, ss.Trace], tmp_path: Path) -> None:
    """`to_sched` does not record what its row groups hold: its tables are read as a whole."""
    trace = traces["linux-requests.capture"]
    copy = trace.to_sched(tmp_path / "copy.sched")
    assert copy.path is not None
    assert _native.row_groups(copy.path / "states.parquet") is None
    cut = f"{trace.duration // 3}ns", f"{trace.duration // 2}ns"
    ours, theirs = (one.between(*cut).states.collect() for one in (trace, copy))
    assert ours.height
    assert ours.equals(theirs)
    assert pl.read_parquet(copy.path / "states.parquet").height == trace.states.collect().height


@pytest.mark.parametrize("cut", [None, (0.2, 0.7)])
def test_copy_has_the_same_rows_and_streams_tables_on_disk(
    cut: tuple[float, float] | None,
    traces: dict[str, ss.Trace],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trace = traces["linux-requests.capture"]
    times = [f"{int(share * trace.duration)}ns" for share in cut or ()]
    given = trace.between(*times) if times else trace
    looked_at: list[str] = []
    monkeypatch.setattr(
        "schedscope.store.trace.check_frame", lambda name, *_, **__: looked_at.append(name)
    )
    copy = given.to_sched(tmp_path / "copy.sched")
    # No frame is made of tables on disk.
    assert looked_at == []
    for name in TABLES:
        rows = getattr(given, name).collect()
        assert getattr(copy, name).collect().equals(rows), name
        assert copy.info["rows"][name] == rows.height
