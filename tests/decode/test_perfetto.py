"""Perfetto traces compared with Google's protobuf classes, and hand-made packets."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import polars as pl
import pytest
from decoded import FIXTURES, decode, lives, migrations, switches, wakeups
from hypothesis import given, strategies as st
from perfetto_packets import (
    IDLE,
    RELEASE,
    A,
    B,
    bundle,
    compact,
    event,
    field,
    packed,
    service_stats,
    switch,
    waking,
)

from schedscope import _native
from schedscope.errors import FormatError, SchedscopeError
from schedscope.parsers.schema import TABLES

COMPACT = FIXTURES / "perfetto-compact.pftrace"
DEFLATE = FIXTURES / "perfetto-deflate.pftrace"
ZSTD = FIXTURES / "perfetto-zstd.pftrace"


def test_full_events_are_read(tmp_path: Path) -> None:
    """Two CPUs, bundles in the order in which they were drained, not of time."""
    path = tmp_path / "x.pftrace"
    path.write_bytes(
        RELEASE
        + bundle(0, switch(100, IDLE, 0, A), switch(300, A, 256, B), waking(350, 22, A, 1, flags=8))
        + bundle(1, waking(150, 0, B, 0), switch(320, IDLE, 0, A))
    )
    trace = decode(path)
    assert switches(trace).rows() == [
        (100, 0, 0, "runnable", None, 120, 11, 120),
        (300, 0, 11, "runnable", True, 120, 22, 100),
        (320, 1, 0, "runnable", None, 120, 11, 120),
    ]
    # Raised in an interrupt (flags 8): no waker.
    assert wakeups(trace).rows() == [
        (150, 1, 0, "waking", 22, 100, 0),
        (350, 0, None, "waking", 11, 120, 1),
    ]


def test_handlers_requests_calls_and_reasons_are_read(tmp_path: Path) -> None:
    """A wakeup inside a recorded handler belongs to the interrupt; a loss resets handlers."""
    path = tmp_path / "x.pftrace"
    disk = field(1, 259 << 8 | 3) + field(2, 4096) + field(3, 8)
    path.write_bytes(
        RELEASE
        + bundle(
            0,
            switch(100, IDLE, 0, A),
            event(110, 11, 329, field(1, 17), *(field(2, number) for number in (3, 2**63, 0, 9))),
            event(120, 11, 546, disk),
            event(125, 11, 330, field(1, 17) + field(2, -11)),
            event(130, 11, 36, field(1, 36)),
            event(135, 11, 45, disk),
            event(140, 11, 24, field(1, 4)),
            event(145, 11, 125, disk),
            waking(150, 11, B, 0),
            event(155, 11, 18, field(1, 22) + field(2, 5) + field(3, 1)),
            event(160, 11, 25, field(1, 4)),
        )
        # The handler continues in the next bundle.
        + bundle(0, waking(165, 11, B, 0), event(170, 11, 37, field(1, 36)))
        + bundle(0, waking(180, 11, B, 0), event(185, 11, 24, field(1, 9)))
        + bundle(0, field(3, 1), waking(190, 11, B, 0), event(195, 11, 25, field(1, 9)))
    )
    trace = decode(path)
    assert trace.irqs.select("ts", "kind", "id", "dur").collect().rows() == [
        (140, "soft", 4, 20),
        (130, "hard", 36, 40),
    ]
    tids = trace.threads.select("utid", "tid")
    wakes = trace.wakeups.join(tids, left_on="waker_utid", right_on="utid", how="left").sort("ts")
    assert wakes.select("ts", "tid").collect().rows() == [
        (150, None),
        (165, None),
        (180, 11),
        (190, 11),
    ]
    requests = trace.disk_requests.join(tids, on="utid", how="left").sort("ts")
    assert requests.select("ts", "tid", "step", "device", "sector").collect().rows() == [
        (120, 11, "start", 259 << 20 | 3, 4096),
        (135, None, "issue", 259 << 20 | 3, 4096),
        (145, None, "complete", 259 << 20 | 3, 4096),
    ]
    calls = trace.system_calls.select("step", "number", "value", "arg0", "arg1", "arg2")
    assert calls.collect().rows() == [
        ("enter", 17, None, 3, 2**63, 0),
        ("exit", 17, -11, None, None, None),
    ]
    reasons = trace.sleep_reasons.join(tids, on="utid").select("ts", "tid", "io_wait", "function")
    assert reasons.collect().rows() == [(155, 22, True, None)]


def test_sleep_function_is_named_by_its_sequence(
    tmp_path: Path,
) -> None:
    """Until the sequence is reset, when the same number stands for another name."""

    def packet(sequence: int, ts: int, *names: tuple[int, str], cleared: bool = False) -> bytes:
        asleep = event(ts, 11, 18, field(1, 22) + field(2, 1) + field(3, 0))
        symbols = (field(26, field(1, number) + field(2, name)) for number, name in names)
        # Another data source, active at the same time on another CPU.
        cpu = int(sequence == 6)
        parts = field(1, field(1, cpu) + asleep) + field(10, sequence) + field(13, int(cleared))
        return field(1, parts + (field(12, b"".join(symbols)) if names else b""))

    path = tmp_path / "x.pftrace"
    path.write_bytes(
        RELEASE
        + bundle(0, switch(100, IDLE, 0, A))
        + packet(5, 110, (1, "f2fs_wait_on_block_writeback"), cleared=True)
        + packet(6, 120, (1, "do_exit"), cleared=True)
        + packet(5, 130)
        + packet(5, 140, (1, "ffffff80081a2b3c"), (2, "pipe_read"), cleared=True)
        + packet(7, 150)
    )
    found = decode(path).sleep_reasons.select("ts", "function").sort("ts").collect().rows()
    assert found == [
        (110, "f2fs_wait_on_block_writeback"),
        (120, "do_exit"),
        (130, "f2fs_wait_on_block_writeback"),
        (140, None),
        (150, None),
    ]


def described(number: int, name: str, **fields: int) -> bytes:
    """The bundle's descriptors of events without a message: their names and field numbers."""
    parts = (field(2, field(1, of) + field(3, at)) for of, at in fields.items())
    return field(11, field(1, number) + field(2, field(1, name) + b"".join(parts)))


def test_events_that_the_bundle_describes_are_read_by_name(tmp_path: Path) -> None:
    """A small number as a lock's address is only a temporary name; a true address is kept."""
    path = tmp_path / "x.pftrace"
    path.write_bytes(
        RELEASE
        + bundle(
            0,
            switch(100, IDLE, 0, A),
            event(110, 11, 65536, field(2, 0x20) + field(7, 3)),
            event(120, 11, 65536, field(2, 2) + field(7, 0xFFFF_8888_0000_1000)),
            event(125, 11, 65536, field(2, 1) + field(7, 4), flags=8),
            event(130, 11, 65537, field(1, 3) + field(2, 0)),
            event(140, 11, 65538, field(1, 24)),
            event(145, 11, 65539, field(1, 22) + field(2, 77)),
            event(150, 11, 65540, field(1, 1)),
            event(160, 11, 67, field(1, 0) + field(3, 22) + field(7, "/a")),
            described(65536, "contention_begin", lock_addr=7, flags=2),
            described(65537, "contention_end", lock_addr=1, ret=2),
            described(65538, "sys_enter_sched_yield", __syscall_nr=1),
            described(65539, "sched_stat_iowait", pid=1, delay=2),
            described(65540, "something_else", lock_addr=1),
        )
    )
    trace = decode(path)
    rows = trace.locks.select("ts", "step", "address", "kind", "value").collect().rows()
    assert rows == [
        (110, "begin", None, "mutex", None),
        (120, "begin", 0xFFFF_8888_0000_1000, "rwsem", None),
        (130, "end", None, None, 0),
    ]
    assert trace.yields.select("ts").collect()["ts"].to_list() == [140]
    assert trace.sleep_reasons.select("ts", "io_wait").collect().rows() == [(145, True)]
    moves = [{"ts": 160, "tid": 22, "from": None, "cgroup": "/a"}]
    assert trace.info["group_moves"] == moves
    assert sum(trace.info["events"]["other"].values()) == 1


def test_entries_of_handlers_alone_do_not_make_every_waker_an_interrupt(tmp_path: Path) -> None:
    path = tmp_path / "x.pftrace"
    events = [switch(100, IDLE, 0, A)]
    for at in range(200, 1000, 100):
        events += [event(at, 11, 36, field(1, 36)), waking(at + 50, 11, B, 0)]
    path.write_bytes(RELEASE + bundle(0, *events))
    wakes = decode(path).wakeups.sort("ts").collect()
    assert wakes["waker_utid"].null_count() == 2
    assert wakes.height == 8


def test_compact_switches_name_only_the_next_thread(tmp_path: Path) -> None:
    """prev is the previous next; at first, and after X to X, it is unknown."""
    path = tmp_path / "x.pftrace"
    names = ["swapper/0", "a", "b"]
    path.write_bytes(
        RELEASE + bundle(0, compact([(100, 0, 11, 1), (50, 1, 22, 2), (50, 0, 22, 2)], names))
    )
    trace = decode(path)
    assert switches(trace).select("ts", "prev", "prev_state", "next").rows() == [
        (100, 0, "unknown", 11),
        (150, 11, "sleeping", 22),
        (200, 0, "unknown", 22),
    ]
    unknown = trace.threads.filter(pl.col("comm") == "<unknown>").collect()
    assert unknown["tid"].to_list() == [None]
    breaks = trace.losses.select("ts_begin", "ts_end", "reason").collect().rows()
    assert breaks == [(150, 200, "chain_break")]


def test_full_events_supply_prev_of_compact_switches(tmp_path: Path) -> None:
    """The switch to b is not recorded, but b runs: that is one mismatch, not two."""
    path = tmp_path / "x.pftrace"
    names = ["swapper/0", "a", "b"]
    seen = waking(170, 22, A, 0)
    path.write_bytes(
        RELEASE
        + bundle(0, compact([(100, 0, 11, 1), (50, 1, 0, 0)], names), seen)
        + bundle(0, compact([(200, 1, 0, 0), (100, 0, 22, 2)], names))
        + bundle(0, compact([(400, 2, 11, 1)], names), waking(410, 11, B, 0))
    )
    trace = decode(path)
    assert switches(trace).select("ts", "prev", "prev_state", "next").rows() == [
        (100, 0, "unknown", 11),
        (150, 11, "sleeping", 0),
        (200, 22, "sleeping", 0),
        (300, 0, "runnable", 22),
        (400, 22, "blocked", 11),
    ]
    breaks = trace.losses.select("ts_begin", "ts_end", "reason").collect().rows()
    assert breaks == [(150, 170, "chain_break")]


def test_lost_events_and_missing_bundles_are_losses(tmp_path: Path) -> None:
    """The kernel's flag, and a bundle whose predecessor is not in the file."""
    path = tmp_path / "x.pftrace"
    lost, previous_end = field(3, 1), field(10, 450)
    path.write_bytes(
        RELEASE
        + bundle(0, switch(100, IDLE, 0, A))
        + bundle(0, lost, switch(300, A, 1, IDLE))
        + bundle(0, previous_end, switch(500, A, 1, IDLE))
    )
    losses = decode(path).losses.filter(pl.col("reason") == "overrun").collect()
    assert losses.select("cpu", "ts_begin", "ts_end").rows() == [(0, 100, 300), (0, 300, 500)]


def kernel_stats(*, end: bool, overrun: int = 0, dropped: int = 0) -> bytes:
    """What the kernel counted of CPU 0 at the recording's beginning or end."""
    cpu = field(2, field(1, 0) + field(3, overrun) + field(8, dropped))
    return field(1, field(34, field(1, 2 if end else 1) + cpu))


TWO_CPUS = bundle(0, switch(100, IDLE, 0, A), switch(900, A, 1, IDLE)) + bundle(
    1, switch(200, IDLE, 0, B), switch(400, B, 1, IDLE)
)


@pytest.mark.parametrize(
    ("before", "holes"),
    [
        (b"", []),  # older Perfettos do not say
        (field(10, 0), []),
        (field(10, 50), []),
        (field(10, 150), [(1, 100, 150)]),
        (field(3, 1) + field(10, 0), [(1, 100, 400)]),
    ],
    ids=["older", "the first", "before all", "cut", "lost"],
)
def test_cpu_idle_at_the_start_has_no_loss(
    before: bytes, holes: list[tuple[int, int, int]], tmp_path: Path
) -> None:
    """A bundle has the end of the one before it, 0 if there was none: nothing is missing since
    then.
    """
    path = tmp_path / "x.pftrace"
    path.write_bytes(
        RELEASE
        + bundle(0, field(10, 0), switch(100, IDLE, 0, A), switch(900, A, 1, IDLE))
        + bundle(1, before, switch(400, IDLE, 0, B), switch(500, B, 1, IDLE))
    )
    losses = decode(path).losses.filter(pl.col("reason") == "late_start").collect()
    assert losses.select("cpu", "ts_begin", "ts_end").rows() == holes


def test_recording_of_four_cpus_has_no_loss() -> None:
    """One of them was idle for 29 ms: a loss there would make each wait in that time doubtful."""
    trace = decode(FIXTURES / "perfetto-4cpu.pftrace")
    assert trace.switches.collect().height == 578
    assert trace.losses.collect().is_empty()
    assert set(trace.waits.collect()["censored"]) == {"none"}


def test_packets_lost_before_a_bundle_are_a_hole(tmp_path: Path) -> None:
    """Without the end of the previous bundle events may be missing before each of them."""
    path = tmp_path / "x.pftrace"
    first = RELEASE + bundle(0, switch(100, IDLE, 0, A))
    second = field(1, field(1, 0) + switch(300, A, 1, IDLE))
    for dropped, expected in ((0, []), (1, [(0, 100, 300)])):
        path.write_bytes(first + field(1, second + field(42, dropped)))
        losses = decode(path).losses.filter(pl.col("reason") == "overrun").collect()
        assert losses.select("cpu", "ts_begin", "ts_end").rows() == expected


@pytest.mark.parametrize("how", [{"discarded": 7}, {"flushed": False}])
def test_a_full_buffer_and_a_failed_flush_end_every_cpu_early(
    tmp_path: Path, how: dict[str, int]
) -> None:
    """Chunks of CPU 1 may be among the missing ones: it is not idle until the end."""
    path = tmp_path / "x.pftrace"
    path.write_bytes(RELEASE + TWO_CPUS + service_stats())
    assert decode(path).losses.collect().is_empty()
    assert decode(path).info["warnings"] == []
    path.write_bytes(RELEASE + TWO_CPUS + service_stats(**how))
    losses = decode(path).losses.select("cpu", "ts_begin", "ts_end", "reason").collect()
    assert losses.rows() == [(1, 400, 900, "early_end")]
    assert any("Perfetto's" in said for said in decode(path).info["warnings"])


def test_a_file_that_was_cut_ends_every_cpu_early(tmp_path: Path) -> None:
    """The packets after the cut are unknown, and may have had CPU 1's next bundle."""
    path = tmp_path / "x.pftrace"
    path.write_bytes((RELEASE + TWO_CPUS + TWO_CPUS)[: -len(TWO_CPUS) + 3])
    losses = decode(path).losses.filter(pl.col("reason") == "early_end").collect()
    assert losses.select("cpu", "ts_begin", "ts_end").rows() == [(1, 400, 900)]


def test_events_overwritten_before_the_ring_are_not_losses(tmp_path: Path) -> None:
    """A bundle in the ring reports a loss before it; dropped ones have no mark."""
    path = tmp_path / "x.pftrace"
    counts = kernel_stats(end=False), kernel_stats(end=True, overrun=50)
    for overwritten, lost in ((0, 50), (9, 0)):
        stats = service_stats(overwritten=overwritten)
        path.write_bytes(RELEASE + counts[0] + TWO_CPUS + counts[1] + stats)
        assert sum(row["count"] for row in decode(path).info["unplaced_losses"]) == lost
    dropped = kernel_stats(end=True, overrun=50, dropped=3)
    path.write_bytes(RELEASE + counts[0] + TWO_CPUS + dropped + service_stats(overwritten=9))
    assert [row["count"] for row in decode(path).info["unplaced_losses"]] == [3]


def columns(**values: list[int]) -> bytes:
    """Compact switches and wakings by the names of their columns."""
    names = ("ts", "state", "tid", "prio", "", "name", "w_ts", "w_tid", "w_cpu", "w_prio", "w_name")
    interned = b"".join(field(5, name) for name in ("swapper", "a", "b"))
    return field(4, interned + b"".join(packed(names.index(k) + 1, v) for k, v in values.items()))


GOOD = {
    "ts": [1000, 100, 100, 100],
    "state": [1, 1, 1, 1],
    "tid": [2000, 2001, 2000, 2001],
    "prio": [120] * 4,
    "name": [1, 2, 1, 2],
}


def losses(path: Path) -> list[tuple[int, int]]:
    """Where events are damaged."""
    found = decode(path).losses.filter(pl.col("reason") == "truncated")
    rows: list[tuple[int, int]] = found.select("ts_begin", "ts_end").collect().rows()
    return rows


@pytest.mark.parametrize(
    ("damage", "end"),
    [
        ({"ts": [1000, 100, 612, 100]}, 1300),
        ({"ts": [1000, 100, 36, 100]}, 1300),
        ({"prio": [120] * 3}, 1300),
        ({"name": [1, 2, 1, 3]}, 1300),
        # The running thread is woken again and again.
        ({"w_ts": [1350, 100], "w_tid": [2000, 2001], "w_cpu": [0, 0], "w_prio": [120, 120],
          "w_name": [1, 2]}, 1300),
        ({}, 1308),
    ],
)  # fmt: skip
def test_a_compact_bundle_that_contradicts_itself_or_the_next_is_a_hole(
    tmp_path: Path, damage: dict[str, list[int]], end: int
) -> None:
    path = tmp_path / "x.pftrace"

    def written(values: dict[str, list[int]], end: int) -> bytes:
        return (
            RELEASE
            + bundle(0, field(10, 0), columns(**GOOD))
            + bundle(0, field(10, 1300), columns(**(values | {"ts": [1300, *values["ts"][1:]]})))
            + bundle(0, field(10, end + 300), columns(**(GOOD | {"ts": [1700, 100, 100, 100]})))
        )

    path.write_bytes(written(GOOD, 1300))
    assert losses(path) == []
    path.write_bytes(written(GOOD | damage, end))
    assert losses(path) == [(1300, 1700)]


def test_events_in_a_lost_packet_are_not_damage(tmp_path: Path) -> None:
    """Its last events are in the lost packet."""
    path = tmp_path / "x.pftrace"
    later = field(1, 0) + field(10, 1500) + columns(**(GOOD | {"ts": [1700, 100, 100, 100]}))
    first = RELEASE + bundle(0, field(10, 0), columns(**GOOD))
    path.write_bytes(first + field(1, field(1, later) + field(42, 1)))
    assert losses(path) == []
    path.write_bytes(first + field(1, field(1, later)))
    assert decode(path).switches.collect().height == 4
    assert any("contradict" in said for said in decode(path).info["warnings"])


def test_thread_with_the_same_name_and_a_near_tid_is_the_same_thread(tmp_path: Path) -> None:
    """2000 was preempted; 2000 ^ 128 is switched in, without any other event."""
    path = tmp_path / "x.pftrace"
    states = {"ts": [1000, 100, 100, 100, 100], "prio": [120] * 5, "state": [1, 0, 1, 1, 1]}

    def written(tid: int, name: int = 1) -> bytes:
        rows = {"tid": [2000, 2001, tid, 2001, 2000], "name": [1, 2, name, 2, 1]}
        return RELEASE + bundle(0, field(10, 0), columns(**(states | rows)))

    path.write_bytes(written(2000 ^ 128))
    assert losses(path) == [(1200, 1300)]
    waits = decode(path).waits.filter(pl.col("censored") == "none").collect()
    assert waits.is_empty()
    # A child, another name.
    for whole in (written(2000), written(2008), written(2000 ^ 128, 2)):
        path.write_bytes(whole)
        assert losses(path) == []


def test_a_full_event_out_of_order_is_a_hole_between_its_neighbours(tmp_path: Path) -> None:
    path = tmp_path / "x.pftrace"

    def written(*times: int) -> bytes:
        both = [(A, B), (B, A)] * 3
        return RELEASE + bundle(
            0,
            field(10, 50),
            *(switch(ts, one, 1, other) for ts, (one, other) in zip(times, both, strict=True)),
        )

    path.write_bytes(written(100, 200, 300, 400, 500, 600))
    assert losses(path) == []
    path.write_bytes(written(100, 200, 900, 400, 500, 600))
    assert losses(path) == [(200, 500)]
    path.write_bytes(written(100, 200, 150, 400, 500, 600))
    assert losses(path) == [(100, 400)]
    path.write_bytes(written(100, 200, 300, 400, 500, 40))
    # Before its bundle begins, and the last one.
    assert losses(path) == [(500, 500)]


def test_switch_whose_writer_is_not_prev_is_damaged(
    tmp_path: Path,
) -> None:
    """Each event has the thread that ran; traced_probes writes every field."""
    path = tmp_path / "x.pftrace"
    head = field(10, 50)
    good = switch(200, A, 1, B)
    short = field(1, "a") + field(2, 11) + field(4, 1) + field(5, "b") + field(6, 22) + field(7, 9)
    for bad in (good.replace(field(2, 11), field(2, 13), 1), event(200, 11, 4, short)):
        around = (switch(100, IDLE, 0, A), bad, switch(300, B, 1, IDLE))
        path.write_bytes(RELEASE + bundle(0, head, *around))
        assert losses(path) == [(100, 300)]
        # Another writer may omit it.
        path.write_bytes(RELEASE + bundle(0, *around))
        assert losses(path) == []


def test_generic_events_are_read_by_name(tmp_path: Path) -> None:
    """Events without a message have the names of their fields."""

    def named(name: str, value: int | str) -> bytes:
        return field(2, field(1, name) + field(3 if isinstance(value, str) else 4, value))

    parts = [field(1, "sched_waking"), named("comm", "b"), named("pid", 22), named("prio", 100)]
    path = tmp_path / "x.pftrace"
    path.write_bytes(
        RELEASE
        + bundle(0, switch(100, IDLE, 0, A), event(200, 11, 327, *parts, named("target_cpu", 1)))
    )
    assert wakeups(decode(path)).rows() == [(200, 0, 11, "waking", 22, 100, 1)]


def test_states_follow_the_kernels_release(tmp_path: Path) -> None:
    """128 is a parked kernel thread since Linux 4.14, and was another flag before."""
    path = tmp_path / "x.pftrace"
    for release, state in [("6.1.0", "parked"), ("4.9.0", "unknown")]:
        host = field(1, field(45, field(1, field(1, "Linux") + field(3, release))))
        path.write_bytes(host + bundle(0, switch(100, A, 128, B)))
        assert switches(decode(path))["prev_state"].to_list() == [state]


def test_process_tree_gives_parents_and_command_lines(tmp_path: Path) -> None:
    """Threads are linked to processes; a name alone is not a command line."""
    nginx = field(1, 11) + field(2, 1) + field(3, "/usr/sbin/nginx") + field(3, "-g")
    kernel = field(1, 22) + field(2, 2) + field(3, "kworker/0") + field(8, 1) + field(9, 1)
    worker = field(1, 12) + field(2, "worker") + field(3, 11)
    tree = field(1, field(2, field(1, nginx) + field(1, kernel) + field(2, worker)))
    path = tmp_path / "x.pftrace"
    path.write_bytes(RELEASE + tree + bundle(0, switch(100, IDLE, 0, A), switch(300, A, 1, B)))
    trace = decode(path)
    columns = ["tid", "pid", "ppid", "process_name", "cmdline"]
    rows = trace.threads.filter(pl.col("tid").is_in([11, 12, 22])).select(columns).collect()
    assert rows.sort("tid").rows() == [
        (11, 11, 1, "a", "/usr/sbin/nginx -g"),
        (12, 11, 1, "a", "/usr/sbin/nginx -g"),
        (22, 22, 2, "b", None),
    ]


def test_zstd_and_deflate_packets_give_the_same_trace() -> None:
    """The same packets in either compression give the same trace, to the last row."""
    pb = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")
    trace = pb.Trace()
    trace.ParseFromString(ZSTD.read_bytes())
    assert sum(bool(packet.zstd_compressed_packets) for packet in trace.packet) == 2
    deflate, zstd = decode(DEFLATE), decode(ZSTD)
    for name in TABLES:
        ours, theirs = (getattr(one, name).collect() for one in (deflate, zstd))
        assert ours.equals(theirs), name
    assert zstd.switches.collect().height > 300


def test_a_zstd_packet_that_does_not_expand_is_named(tmp_path: Path) -> None:
    """Damage inside the stream, and a truncated stream: the error has the place and a hint."""
    whole = ZSTD.read_bytes()
    begin = whole.index(b"\x28\xb5\x2f\xfd")  # zstd's magic number
    path = tmp_path / "x.pftrace"
    for damaged in (bytes(4), whole[begin : begin + 4] + bytes(12)):
        path.write_bytes(whole[:begin] + damaged + whole[begin + len(damaged) :])
        with pytest.raises(FormatError, match=r"compressed packet at byte \d+ does not expand"):
            decode(path)


def test_deflate_packets_give_the_same_trace_as_plain_ones(tmp_path: Path) -> None:
    import zlib

    plain = RELEASE + bundle(0, switch(100, IDLE, 0, A), switch(300, A, 1, IDLE))
    path = tmp_path / "x.pftrace"
    path.write_bytes(plain)
    expected = switches(decode(path))
    path.write_bytes(RELEASE + field(1, field(50, zlib.compress(plain))))
    assert switches(decode(path)).equals(expected, null_equal=True)


# --- Real traces. ---


def test_every_event_equals_the_official_parser() -> None:
    """Decoded by Google's generated Python classes, event by event."""
    pb = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")
    import zlib

    trace = pb.Trace()
    trace.ParseFromString(DEFLATE.read_bytes())
    packets = []
    for packet in trace.packet:
        if packet.compressed_packets:
            inner = pb.Trace()
            inner.ParseFromString(zlib.decompress(packet.compressed_packets))
            packets += inner.packet
        else:
            packets.append(packet)
    theirs: list[tuple[int, ...]] = []
    woken: list[tuple[int, ...]] = []
    for packet in packets:
        for one in packet.ftrace_events.event:
            cpu = packet.ftrace_events.cpu
            if one.HasField("sched_switch"):
                s = one.sched_switch
                numbers = (s.prev_pid, s.prev_prio, s.next_pid, s.next_prio)
                theirs.append((one.timestamp, cpu, *numbers))
            for kind in ("sched_waking", "sched_wakeup", "sched_wakeup_new"):
                if one.HasField(kind):
                    w = getattr(one, kind)
                    woken.append((one.timestamp, cpu, w.pid, w.prio, w.target_cpu))
    ours = decode(DEFLATE)
    columns = ["ts", "cpu", "prev", "prev_prio", "next", "next_prio"]
    assert switches(ours).select(columns).rows() == sorted(theirs)
    rows = wakeups(ours).select("ts", "cpu", "tid", "prio", "target_cpu").rows()
    assert sorted(rows) == sorted(woken)
    assert len(theirs) > 300


def test_both_forms_have_the_host() -> None:
    """Release, clock and process names are in both."""
    for path in (COMPACT, DEFLATE):
        trace = decode(path)
        assert trace.info["release"].startswith("6.18.")
        assert trace.info["clock"]["name"] == "boot"
        assert trace.ncpu == 2
        assert {"sched-pipe", "traced_probes"} <= set(trace.threads.collect()["comm"])
        assert migrations(trace).height > 0
        assert lives(trace)["start_ts"].drop_nulls().len() > 0


def test_mismatches_of_compact_form_are_counted_in_a_warning() -> None:
    """A fifth of this trace's switches cannot name prev: reported, not guessed."""
    trace = decode(COMPACT)
    unknown = switches(trace).filter(pl.col("prev_state") == "unknown")
    # For the first switch of each CPU a full event before it names prev.
    said = sum(int(text.split()[2]) for text in trace.info["warnings"])
    assert said == len(unknown)
    # Other evidence (a waker that cannot have run) causes mismatches elsewhere, too.
    assert trace.losses.filter(pl.col("reason") == "chain_break").collect().height >= said


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("perfetto")


@given(st.data())
def test_any_cut_is_an_error_or_a_part_of_the_whole(folder: Path, data: st.DataObject) -> None:
    """Packets are complete or missing; nothing is invented."""
    source = data.draw(st.sampled_from([COMPACT, DEFLATE, ZSTD]))
    whole = source.read_bytes()
    cut = data.draw(st.integers(0, len(whole) - 1))
    path = folder / "cut.pftrace"
    path.write_bytes(whole[:cut])
    try:
        trace = decode(path)
    except SchedscopeError:
        return
    rest, full = switches(trace), switches(decode(source))
    assert rest["ts"].is_in(full["ts"].implode()).all()


@given(st.data())
def test_any_flipped_bytes_are_an_error_or_a_trace(folder: Path, data: st.DataObject) -> None:
    damaged = bytearray(data.draw(st.sampled_from([COMPACT, DEFLATE, ZSTD])).read_bytes())
    for _ in range(data.draw(st.integers(1, 8))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    path = folder / "bad.pftrace"
    path.write_bytes(bytes(damaged))
    with suppress(SchedscopeError):
        _native.decode(str(path))


def test_a_trace_without_ftrace_says_how_to_record_it(tmp_path: Path) -> None:
    path = tmp_path / "x.pftrace"
    path.write_bytes(RELEASE * 3)
    with pytest.raises(FormatError, match="no ftrace events") as caught:
        decode(path)
    assert "sched/sched_switch" in caught.value.hint


def packets(data: bytes) -> list[bytes]:
    """The packets of a trace, without their tags."""
    found, at = [], 0
    while at < len(data):
        assert data[at] == 0x0A
        size, shift, at = 0, 0, at + 1
        while True:
            byte = data[at]
            size |= (byte & 0x7F) << shift
            shift, at = shift + 7, at + 1
            if byte < 0x80:
                break
        found.append(data[at : at + size])
        at += size
    return found


def test_only_one_of_two_data_sources_is_read(tmp_path: Path) -> None:
    """Each event is twice in the file; a warning reports the excluded source."""
    data = COMPACT.read_bytes()
    # A later field of the same number wins: trusted_packet_sequence_id.
    again = b"".join(field(1, packet + field(10, 4711)) for packet in packets(data))
    path = tmp_path / "twice.pftrace"
    for text in (data + again, again + data):
        path.write_bytes(text)
        both, one = decode(path), decode(COMPACT)
        assert switches(both).equals(switches(one), null_equal=True)
        assert wakeups(both).equals(wakeups(one), null_equal=True)
        assert migrations(both).equals(migrations(one), null_equal=True)
        (warning,) = set(both.info["warnings"]) - set(one.info["warnings"])
        assert "several data sources of ftrace" in warning


def test_a_writer_that_follows_on_another_is_read(tmp_path: Path) -> None:
    """traced_probes was restarted: the second half has its own sequence."""
    (first, second) = (
        field(1, field(1, field(1, 0) + switch(ts, ("a", 7, 120), 1, ("b", 8, 120))) + field(10, n))
        for ts, n in ((1000, 3), (9000, 4))
    )
    path = tmp_path / "restarted.pftrace"
    path.write_bytes(first + second)
    trace = decode(path)
    assert switches(trace)["ts"].to_list() == [1000, 9000]
    assert not any("data sources" in warning for warning in trace.info["warnings"])
