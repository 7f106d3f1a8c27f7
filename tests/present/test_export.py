"""Exports for other tools read back as the same trace."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from pathlib import Path

import polars as pl
import pytest
from decoded import FIXTURES, decode, lives, migrations, switches, wakeups
from tools import tool

import schedscope as ss
from schedscope.errors import UsageError

SOURCES = ["perf-sched.data", "perf-zstd.data", "perfetto-deflate.pftrace", "text-tracefs.txt"]


@pytest.mark.parametrize("name", SOURCES)
def test_perfetto_reads_back_as_the_same_trace(name: str, tmp_path: Path) -> None:
    """Every switch, wakeup with its waker, migration, birth and exit; names and states too."""
    trace = decode(FIXTURES / name)
    again = decode(ss.export(trace, tmp_path / "x.pftrace", "perfetto"))
    for view in (switches, wakeups, migrations, lives):
        ours, theirs = view(trace), view(again)
        shared = theirs.join(ours, on=ours.columns, how="anti", nulls_equal=True)
        missing = ours.join(theirs, on=ours.columns, how="anti", nulls_equal=True)
        assert shared.is_empty()
        assert missing.is_empty()
        assert len(ours) == len(theirs)
    # The format cannot hold that a CPU's record started late, so no wait is cut by it; nor that a
    # recorder counts no losses, as in text, whose prev/next mismatches cut more waits.
    late = trace.losses.filter(pl.col("reason") == "late_start").collect().height
    less = late or name.startswith("text")
    cut = ("waits", "right_censored", "first_sights", "unseen_switch_ins") if less else ()
    counted, recounted = (
        {name: n for name, n in one.info["reconstruction"].items() if name not in cut}
        for one in (trace, again)
    )
    assert recounted == counted


@pytest.mark.parametrize("name", [*SOURCES, "freebsd-ule-synthetic.capture"])
def test_trace_dat_reads_back_as_the_same_trace(name: str, tmp_path: Path) -> None:
    """Switches, wakeups, migrations and waits; births and exits too, where Linux has the event."""
    trace = decode(FIXTURES / name)
    notes: list[str] = []
    again = decode(ss.export(trace, tmp_path / "x.dat", "trace.dat", notes=notes))
    # Linux has no term for FreeBSD's reasons of a switch-out, nor a null priority of idle threads.
    for view, columns in (
        (switches, ["ts", "cpu", "prev", "prev_state", "next"]),
        (wakeups, ["ts", "cpu", "kind", "tid", "target_cpu"]),
        (migrations, migrations(trace).columns),
    ):
        ours, theirs = (view(one).select(columns).sort(columns) for one in (trace, again))
        assert ours.equals(theirs, null_equal=True)
    # In whole microseconds events of two CPUs tie, and the text had them in another order.
    for column in ("wait", "ts_run") if not name.startswith("text") else ():
        ours, theirs = (sorted(waits(one, column)) for one in (trace, again))
        if name.startswith("freebsd") and column == "wait":
            # Linux has a `waking` before each enqueue: a wait without one has no recorded start.
            assert theirs
            assert not Counter(theirs) - Counter(ours)
        else:
            assert ours == theirs
    # FreeBSD's traces have reasons of sleeps and lengths of queues.
    assert len(notes) == (2 if name.startswith("freebsd") else 0)


def waits(trace: ss.Trace, column: str) -> list[int]:
    # Finished ones: a trace.dat's window ends with its last event.
    return (
        trace.waits.filter(pl.col("ts_run").is_not_null())
        .select(column)
        .drop_nulls()
        .collect()[column]
        .to_list()
    )


@pytest.mark.parametrize("to", ["perfetto", "trace.dat", "chrome"])
def test_export_notes_what_a_format_cannot_hold(tmp_path: Path, to: str) -> None:
    trace = decode(FIXTURES / "linux-trace-cmd-yield.dat")
    notes: list[str] = []
    ss.export(trace, tmp_path / "out", to, notes=notes)
    handlers = trace.irqs.collect().height
    assert handlers > 100
    assert f"{handlers:,} handlers of interrupts not written to {to}" in notes
    assert any("yield" in note for note in notes) == (to != "trace.dat")


@pytest.mark.needs("trace-cmd")
def test_trace_cmd_reads_our_trace_dat(tmp_path: Path) -> None:
    trace = decode(FIXTURES / "perf-sched.data")
    path = ss.export(trace, tmp_path / "x.dat", "trace.dat")
    command = [*(tool("trace-cmd") or ()), "report", str(path)]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert text.count(" sched_switch:") == trace.switches.collect().height
    assert text.count(" sched_waking:") == trace.wakeups.filter(kind="waking").collect().height


def test_export_of_a_compact_trace_keeps_unknown_values(tmp_path: Path) -> None:
    """State `unknown` is kept; a thread without a name gets a tid above all others."""
    trace = decode(FIXTURES / "perfetto-compact.pftrace")
    again = decode(ss.export(trace, tmp_path / "x.pftrace", "perfetto"))
    columns = ["ts", "cpu", "prev_state", "preempted", "next", "next_prio"]
    assert switches(again).select(columns).equals(switches(trace).select(columns), null_equal=True)
    # Full events name the running thread with every wakeup, and as evidence; in
    # the compact form it was inferred. So only the wakeups themselves compare.
    columns = ["ts", "cpu", "kind", "tid", "prio", "target_cpu"]
    assert wakeups(again).select(columns).equals(wakeups(trace).select(columns), null_equal=True)


def test_official_classes_read_the_perfetto_export(tmp_path: Path) -> None:
    """Slices of waits nest and end; counters are our queue depth; the host is included."""
    pb = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")
    source = decode(FIXTURES / "perf-zstd.data")
    path = ss.export(source, tmp_path / "x.pftrace", "perfetto")
    trace = pb.Trace()
    trace.ParseFromString(path.read_bytes())
    uts = next(p.system_info.utsname for p in trace.packet if p.HasField("system_info"))
    assert (uts.sysname, uts.release) == ("Linux", source.info["release"])
    tracks = {p.track_descriptor.uuid: p.track_descriptor for p in trace.packet}
    depth: dict[int, int] = {}
    open_slices: dict[int, int] = {}
    ended = 0
    for packet in trace.packet:
        if not packet.HasField("track_event"):
            continue
        point = packet.track_event
        track = tracks[point.track_uuid]
        match point.type:
            case 1:
                assert open_slices.setdefault(point.track_uuid, 0) == 0
                open_slices[point.track_uuid] = packet.timestamp
            case 2:
                assert packet.timestamp > open_slices[point.track_uuid] > 0
                open_slices[point.track_uuid] = 0
                ended += 1
            case 4:
                assert track.name.startswith("runnable on CPU ")
                assert point.counter_value >= 0
                depth[point.track_uuid] = point.counter_value
    waits = source.waits.filter(pl.col("ts_ready").is_not_null() & (pl.col("wait") > 0))
    assert ended == waits.collect().height
    assert not any(open_slices.values())
    assert len(depth) == 2


def test_freebsd_traces_are_exported_in_linux_terms(tmp_path: Path) -> None:
    """A FreeBSD trace: its states in Linux's bits, and a release whose letters readers know."""
    tables = {
        "switches": pl.DataFrame(
            {
                "ts": [100, 200],
                "cpu": [0, 0],
                "prev_utid": [0, 1],
                "prev_state": ["runnable", "blocked"],
                "prev_prio": [None, 120],
                "preempted": [False, False],
                "next_utid": [1, 0],
                "next_prio": [120, None],
            },
            schema=ss.Trace.from_tables({}, {"ncpu": 1}).switches.collect_schema(),
        ),
        "threads": pl.DataFrame(
            {"utid": [0, 1], "tid": [100002, 100999], "pid": [11, 4711], "comm": ["idle", "sh"]}
        ).with_columns(
            pl.col("utid", "tid", "pid").cast(pl.UInt32),
            comm_first="comm",
            start_ts=pl.lit(None, pl.Int64),
            exit_ts=pl.lit(None, pl.Int64),
            parent_utid=pl.lit(None, pl.UInt32),
            prio=pl.lit(None, pl.Int16),
        ),
    }
    info = {"ncpu": 1, "os": "FreeBSD", "release": "15.0-RELEASE", "window": [100, 300]}
    trace = ss.Trace.from_tables(tables, info)
    again = decode(ss.export(trace, tmp_path / "x.pftrace", "perfetto"))
    assert switches(again).select("ts", "prev", "prev_state", "next").rows() == [
        (100, 0, "runnable", 100999),
        (200, 100999, "blocked", 0),
    ]
    # Readers choose state letters by it; the true system is in the version text.
    assert again.info["release"] == "5.0.0"
    assert b"FreeBSD 15.0-RELEASE, written by schedscope" in (tmp_path / "x.pftrace").read_bytes()


def test_chrome_json_holds_every_run(tmp_path: Path) -> None:
    """One slice for each run of a thread, in µs with the nanoseconds as decimals."""
    trace = decode(FIXTURES / "perf-sched.data")
    path = ss.export(trace, tmp_path / "x.json", "chrome")
    events = json.loads(path.read_text(), parse_float=str)["traceEvents"]
    runs = [e for e in events if e["ph"] == "X" and e["pid"] == 1]
    states = trace.states.filter((pl.col("state") == "running") & (pl.col("utid") >= 2))
    expected = states.sort("ts").collect()
    assert len(runs) == len(expected)
    micro = [int(run["dur"].replace(".", "")) for run in runs]
    assert micro == expected["dur"].to_list()


def test_tables_as_parquet_and_csv(tmp_path: Path) -> None:
    trace = decode(FIXTURES / "perf-sched.data")
    parquet = ss.export(trace, tmp_path / "p", "parquet")
    assert pl.read_parquet(parquet / "switches.parquet").equals(trace.switches.collect())
    csv = ss.export(trace, tmp_path / "c", "csv")
    assert pl.read_csv(csv / "waits.csv").height == trace.waits.collect().height


def test_export_never_overwrites_or_leaves_partial_files(tmp_path: Path) -> None:
    """An existing file stays unless forced; a failed export leaves nothing."""
    trace = decode(FIXTURES / "perf-sched.data")
    path = tmp_path / "x.pftrace"
    path.write_text("mine")
    with pytest.raises(UsageError, match="exists"):
        ss.export(trace, path, "perfetto")
    assert path.read_text() == "mine"
    ss.export(trace, path, "perfetto", force=True)
    (tmp_path / "other").mkdir()
    with pytest.raises(UsageError, match="folder that no export made"):
        ss.export(trace, tmp_path / "other", "csv", force=True)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["other", "x.pftrace"]
    with pytest.raises(UsageError, match="one of perfetto"):
        ss.export(trace, tmp_path / "y", "vcd")
