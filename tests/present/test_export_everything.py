"""Every target takes every kind of trace; Perfetto's rules are kept."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from decoded import FIXTURES, decode

import schedscope as ss
from schedscope.exports.write import FORMATS
from schedscope.simulator.runs.run import simulate
from schedscope.simulator.workloads.generators import make

KINDS = ("linux", "lossy", "freebsd", "simulated")


def trace_of(kind: str) -> ss.Trace:
    match kind:
        case "linux":
            return decode(FIXTURES / "perf-zstd.data")
        case "lossy":
            return decode(FIXTURES / "perf-lost.data")
        case "freebsd":
            return decode(FIXTURES / "freebsd-ule-synthetic.capture")
        case _:
            return simulate(make(20), policy="cfs-2.6.32", machine="1x2x2")


def first_end() -> pl.Expr:
    return pl.col("ts_begin").filter(pl.col("reason") == "early_end").min()


@pytest.fixture(scope="module")
def traces() -> dict[str, ss.Trace]:
    return {kind: trace_of(kind) for kind in KINDS}


@pytest.mark.parametrize("to", FORMATS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_target_takes_every_kind_of_trace(
    traces: dict[str, ss.Trace], kind: str, to: str, tmp_path: Path
) -> None:
    """The export reads back with as many switches, or has one run for each."""
    trace = traces[kind]
    path = ss.export(trace, tmp_path / "out", to)
    switches = trace.switches.collect()
    if to == "chrome":
        events = json.loads(path.read_text())["traceEvents"]
        runs = trace.states.filter(
            (pl.col("state") == "running") & (pl.col("utid") >= trace.ncpu)
        ).collect()
        assert Counter(e["ph"] for e in events if e["pid"] == 1)["X"] == len(runs)
        return
    again = ss.open(path, cache=tmp_path / "cache")
    # Simulated CPUs often switch in one instant, in any order.
    place = ["ts", "cpu", "prev_state"]
    found = again.switches.collect()
    assert found.select(place).sort(place).equals(switches.select(place).sort(place))
    if to in ("parquet", "csv"):
        # An early end of a CPU is found only at the end of a file, but is known from the start
        # here: a wait that it may cut is then two.
        ran = pl.col("ts_run") < (
            trace.losses.select(first_end()).collect().item() or trace.window[1]
        )
        assert again.waits.filter(ran).collect().height == trace.waits.filter(ran).collect().height


def packets_of(path: Path) -> list[Any]:
    pb = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")
    trace = pb.Trace()
    trace.ParseFromString(path.read_bytes())
    size = trace.ByteSize()
    assert size == path.stat().st_size
    trace.DiscardUnknownFields()
    assert trace.ByteSize() == size
    return list(trace.packet)


@pytest.mark.parametrize("kind", KINDS)
def test_every_packet_keeps_perfettos_rules(
    traces: dict[str, ss.Trace], kind: str, tmp_path: Path
) -> None:
    """According to trace_packet.proto, track_descriptor.proto, ftrace_event_bundle.proto."""
    trace = traces[kind]
    packets = packets_of(ss.export(trace, tmp_path / "x.pftrace", "perfetto"))
    # One sequence, named by every packet; the first packet clears its state.
    assert {p.trusted_packet_sequence_id for p in packets} == {1}
    cleared, needs = 1, 2
    assert packets[0].sequence_flags == cleared
    assert not any(p.sequence_flags & (cleared | needs) for p in packets[1:])
    # Nothing is interned, so nothing may refer to interned data.
    assert not any(p.HasField("interned_data") for p in packets)
    points = [p for p in packets if p.HasField("track_event")]
    assert not any(p.track_event.name_iid or p.track_event.category_iids for p in points)
    # One clock: boot, the default of packets and bundles, given in the snapshot.
    clocks = {c.clock_id: c.timestamp for c in packets[0].clock_snapshot.clocks}
    boot, realtime = 6, 1
    assert boot in clocks
    assert set(clocks) <= {boot, realtime}
    assert not any(p.HasField("timestamp_clock_id") for p in packets)
    assert not any(p.ftrace_events.HasField("ftrace_clock") for p in packets)
    assert sum(p.HasField("system_info") for p in packets) == 1
    assert sum(p.HasField("cpu_info") for p in packets) == 1
    assert len(next(p.cpu_info.cpus for p in packets if p.HasField("cpu_info"))) == trace.ncpu
    _check_tracks(packets, points)
    _check_bundles([p.ftrace_events for p in packets if p.HasField("ftrace_events")], trace)


def _check_tracks(packets: list[Any], points: list[Any]) -> None:
    """Uuids are unique to a track, parents come first, events are in order on described tracks."""
    described: dict[int, Any] = {}
    for packet in packets:
        if packet.HasField("track_descriptor"):
            track = packet.track_descriptor
            assert track.uuid != 0
            assert track.uuid not in described
            assert track.parent_uuid == 0 or track.parent_uuid in described
            assert not (track.HasField("counter") and track.HasField("thread"))
            if track.HasField("thread"):
                assert track.thread.tid > 0
                assert track.thread.pid > 0
            described[track.uuid] = track
        if packet.HasField("track_event"):
            assert packet.track_event.track_uuid in described  # before its first event
    begin, end, counter = 1, 2, 4
    at: dict[int, int] = {}
    deep: Counter[int] = Counter()
    for packet in points:
        event = packet.track_event
        assert packet.timestamp >= at.get(event.track_uuid, packet.timestamp)
        at[event.track_uuid] = packet.timestamp
        assert (event.type == counter) == described[event.track_uuid].HasField("counter")
        assert event.type != begin or event.name
        deep[event.track_uuid] += {begin: 1, end: -1, counter: 0}[event.type]
        assert deep[event.track_uuid] in (0, 1)
    assert not any(deep.values())


def _check_bundles(bundles: list[Any], trace: ss.Trace) -> None:
    """A CPU's events are in order, each with exactly one message, and complete."""
    last: dict[int, int] = {}
    kinds: Counter[str] = Counter()
    for bundle in bundles:
        assert bundle.cpu < trace.ncpu
        assert len(bundle.event) > 0
        for event in bundle.event:
            assert event.timestamp >= last.get(bundle.cpu, event.timestamp)
            last[bundle.cpu] = event.timestamp
            kind = event.WhichOneof("event")
            kinds[kind] += 1
            if kind == "sched_switch":
                tids = event.sched_switch.prev_pid, event.sched_switch.next_pid
                assert all(0 <= tid < 2**31 for tid in tids)
                # The running thread leaves.
                assert event.pid == event.sched_switch.prev_pid
    assert kinds["sched_switch"] == trace.switches.collect().height
    wakes = {"waking": "sched_waking", "enqueued": "sched_wakeup", "new": "sched_wakeup_new"}
    recorded_kinds = trace.wakeups.collect()["kind"].cast(pl.String)
    assert {k: n for k, n in kinds.items() if k in wakes.values()} == {
        wakes[kind]: n for kind, n in Counter(recorded_kinds).items()
    }
    assert kinds["sched_migrate_task"] == trace.migrations.collect().height


@pytest.mark.needs("trace_processor_shell")
@pytest.mark.parametrize("kind", KINDS)
def test_trace_processors_slices_are_our_switches(
    traces: dict[str, ss.Trace], kind: str, tmp_path: Path
) -> None:
    """sched_slice of the exported file: a row for each switch, into the same thread."""
    trace = traces[kind]
    path = ss.export(trace, tmp_path / "x.pftrace", "perfetto")
    slices = ss.open(path, cache=tmp_path / "cache").sql(
        "SELECT s.ts, s.cpu, t.tid FROM sched_slice s JOIN thread t USING (utid) ORDER BY ts, cpu"
    )
    idle = pl.col("utid") < trace.ncpu
    ids = trace.threads.select(next_utid="utid", tid=pl.when(idle).then(0).otherwise("tid"))
    ours = trace.switches.join(ids, on="next_utid").select("ts", "cpu", "tid").collect()
    # Runs of length zero share an instant and a CPU.
    mine = ours.sort(pl.all()).select(pl.all().cast(pl.Int64))
    theirs = slices.sort(pl.all()).select(pl.all().cast(pl.Int64))
    # From a CPU's first switch on: the run before it has no recorded start.
    begun = theirs.join(mine, on=["ts", "cpu"], how="semi")
    assert begun.equals(mine)
    assert len(theirs) - len(begun) <= trace.ncpu
