"""Exports read a trace block by block: the output does not depend on the blocks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
from decoded import FIXTURES, decode

import schedscope as ss
from schedscope import _native
from schedscope.exports import blocks as blocks_of
from schedscope.exports.blocks import blocks
from schedscope.exports.perfetto import perfetto_blocks
from schedscope.parsers.schema import TABLES
from schedscope.simulator.runs.run import simulate
from schedscope.simulator.workloads.generators import make

FACTS = ("switches", "wakeups", "migrations")


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ss.Trace]:
    """With several row groups and rows across them; a part of it; with losses, births, ties."""
    folder = tmp_path_factory.mktemp("blocks")
    _native.synthesize_trace_dat(folder / "t.dat", 300_000, 4, 3000)
    stored = ss.convert(folder / "t.dat", folder / "t.sched")
    fifth = stored.duration / 5e9
    return {
        "stored": stored,
        "cut": stored.between(fifth, 4 * fifth),
        "lossy": decode(FIXTURES / "perf-lost.data"),
        "freebsd": decode(FIXTURES / "freebsd-ule-synthetic.capture"),
        "simulated": simulate(make(20), policy="cfs-2.6.32", machine="1x2x2"),
    }


KINDS = ("stored", "cut", "lossy", "freebsd", "simulated")


def in_small_blocks(monkeypatch: pytest.MonkeyPatch, trace: ss.Trace) -> None:
    rows = sum(getattr(trace, name).select(pl.len()).collect().item() for name in FACTS)
    monkeypatch.setattr(blocks_of, "ROWS", max(rows // 10, 4))
    assert len(list(blocks(trace))) > 4


@pytest.mark.parametrize("kind", KINDS)
def test_every_row_is_in_one_block(
    traces: dict[str, ss.Trace], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A block has no more rows than requested, except those of one instant."""
    trace = traces[kind]
    in_small_blocks(monkeypatch, trace)
    for name, ts in [*((name, "ts") for name in FACTS), ("losses", "ts_begin")]:
        parts = [block.rows(trace, name, ts).collect() for block in blocks(trace)]
        whole = getattr(trace, name).collect()
        assert pl.concat(parts).equals(whole)
        most = whole.group_by(ts).len()["len"].max() if len(whole) else 0
        assert isinstance(most, int)
        if name in FACTS:
            assert max(map(len, parts)) <= 1.25 * blocks_of.ROWS + most


@pytest.mark.parametrize("kind", KINDS)
def test_trace_dat_in_blocks_is_the_same_bytes(
    traces: dict[str, ss.Trace], kind: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    trace = traces[kind]
    whole = ss.export(trace, tmp_path / "whole.dat", "trace.dat").read_bytes()
    in_small_blocks(monkeypatch, trace)
    assert ss.export(trace, tmp_path / "blocks.dat", "trace.dat").read_bytes() == whole


@pytest.mark.parametrize("kind", KINDS)
def test_perfetto_blocks_have_the_same_events_and_points(
    traces: dict[str, ss.Trace], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the same order on each CPU and track; every track comes once, before its points."""
    trace = traces[kind]
    whole = joined(trace)
    in_small_blocks(monkeypatch, trace)
    parts = joined(trace)
    assert parts.keys() == whole.keys()
    # A thread's track comes when it is first needed.
    whole, parts = ({**all_, "tracks": all_["tracks"].sort("uuid")} for all_ in (whole, parts))
    for name, frame in whole.items():
        assert parts[name].equals(frame), name
    known: set[int] = set()
    for frames, _ in perfetto_blocks(trace, waits=True):
        known |= set(frames["tracks"]["uuid"])
        assert known.issuperset(frames["points"]["track"])


@pytest.mark.parametrize("kind", ["stored", "lossy"])
def test_perfetto_in_blocks_reads_back_the_same(
    traces: dict[str, ss.Trace], kind: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Losses at the end of a block, too, which mark the CPU's next events."""
    trace = traces[kind]
    whole = decode(ss.export(trace, tmp_path / "whole.pftrace", "perfetto"))
    in_small_blocks(monkeypatch, trace)
    parts = decode(ss.export(trace, tmp_path / "parts.pftrace", "perfetto"))
    for name in TABLES:
        assert getattr(parts, name).collect().equals(getattr(whole, name).collect()), name
    assert (kind == "lossy") == bool(parts.losses.filter(reason="overrun").collect().height)


def joined(trace: ss.Trace) -> dict[str, pl.DataFrame]:
    """All blocks' frames with texts instead of their numbers, events in order of their CPUs."""
    texts: list[str] = []
    found: dict[str, list[pl.DataFrame]] = {}
    for frames, new in perfetto_blocks(trace, waits=True):
        texts += new
        for name, frame in frames.items():
            named = [c for c in ("comm", "comm2", "name", "processor") if c in frame.columns]
            names = pl.lit(pl.Series(texts, dtype=pl.String))
            found.setdefault(name, []).append(
                frame.with_columns(names.gather(pl.col(column)).alias(column) for column in named)
            )
    whole = {name: pl.concat(parts) for name, parts in found.items()}
    return {**whole, "ftrace": whole["ftrace"].sort("cpu", maintain_order=True)}


@pytest.mark.parametrize("kind", ["cut", "freebsd"])
def test_tables_in_blocks_are_the_same(
    traces: dict[str, ss.Trace], kind: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    trace = traces[kind]
    whole = ss.export(trace, tmp_path / "whole", "csv")
    in_small_blocks(monkeypatch, trace)
    parts = ss.export(trace, tmp_path / "parts", "csv")
    parquet = ss.export(trace, tmp_path / "parquet", "parquet")
    for name in TABLES:
        assert (parts / f"{name}.csv").read_bytes() == (whole / f"{name}.csv").read_bytes()
        found = pl.read_parquet(parquet / f"{name}.parquet")
        assert found.equals(getattr(trace, name).collect())


@pytest.mark.parametrize(
    "to",
    [
        "perfetto",
        "parquet",
        *(pytest.param(to, marks=pytest.mark.release) for to in ("trace.dat", "csv")),
    ],
)
def test_eight_times_the_events_take_no_more_memory(to: str, tmp_path: Path) -> None:
    code = (
        "import sys; import schedscope as ss; from schedscope import _native\n"
        "from schedscope.exports import blocks\n"
        "blocks.ROWS = 1 << 16\n"
        "for name, events in [('short', 200_000), ('long', 1_600_000)]:\n"
        "    _native.synthesize_trace_dat(f'{name}.dat', events, 4, 200)\n"
        "    ss.convert(f'{name}.dat', f'{name}.sched')\n"
        "for name in ('short', 'long'):\n"
        "    ss.export(ss.Trace.read(f'{name}.sched'), f'{name}.out', sys.argv[1])\n"
        # Not ru_maxrss, which starts at the parent's value at the fork.
        "    status = open('/proc/self/status')\n"
        "    print(next(int(l.split()[1]) for l in status if l.startswith('VmHWM')) >> 10)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, to], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    short, long = map(int, done.stdout.split())
    # With whole tables in memory it takes 81 (Parquet) to 477 (Perfetto) more.
    assert long - short < 60
