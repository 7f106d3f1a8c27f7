"""Fact tables without a reconstruction; facts at one instant; losses of length zero."""

from __future__ import annotations

import json
import shutil
import struct
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import schedscope as ss
from schedscope import _native

FIXTURES = Path(__file__).parents[2] / "fixtures"
LOSSY = FIXTURES / "linux-ftrace-lossy.capture"
INPUTS = [
    LOSSY,
    FIXTURES / "linux-ftrace-mixed.capture",
    FIXTURES / "linux-trace-cmd-yield.dat",
    FIXTURES / "linux-trace-cmd-overrun.dat",
    FIXTURES / "perf-lost.data",
    FIXTURES / "freebsd-ule-synthetic.capture",
]
MISSED = 1 << 31
PAGE = 4096


@pytest.mark.parametrize("path", INPUTS, ids=lambda path: path.name)
def test_stored_facts_are_those_used_by_the_reconstruction(path: Path) -> None:
    tables, text = _native.decode(str(path))
    names = [name for name in tables if name not in ("states", "waits", "losses")]
    for name, frame in ss.read_tables(path, *names).items():
        assert_frame_equal(frame, pl.DataFrame(tables[name]))
    whole, about = json.loads(text), json.loads(_native.decode(str(path), only=names)[1])
    assert about["window"] == whole["window"]
    assert about["per_cpu"] == []
    assert about["reconstruction"] is None
    whole["rows"] = {name: whole["rows"][name] for name in about["rows"]}
    inferred = ("per_cpu", "reconstruction")
    assert {k: v for k, v in about.items() if k not in inferred} == {
        k: v for k, v in whole.items() if k not in inferred
    }


def test_reading_losses_runs_the_reconstruction() -> None:
    """Prev/next mismatches are losses, too."""
    tables, _ = _native.decode(str(LOSSY))
    assert_frame_equal(ss.read_tables(LOSSY, "losses")["losses"], pl.DataFrame(tables["losses"]))


def switch_record(number: int, delta: int, prev: int, following: int) -> bytes:
    """A sched_switch as a 64-bit little-endian kernel writes it, `delta` ns after the last."""
    data = struct.pack("<HBBi", number, 0, 0, prev)
    data += struct.pack("<16siiq", b"one", prev, 120, 1) + struct.pack(
        "<16sii", b"two", following, 120
    )
    return struct.pack("<I", len(data) // 4 | delta << 5) + data


def page(ts: int, records: bytes, flags: int = 0) -> bytes:
    return (struct.pack("<QQ", ts, len(records) | flags) + records).ljust(PAGE, b"\0")


def capture_of(pages: dict[int, bytes], folder: Path) -> Path:
    """A capture of a real host with the sub-buffers given."""
    capture = Path(shutil.copytree(LOSSY, folder / "made.capture"))
    shutil.rmtree(capture / "stats", ignore_errors=True)
    for file in (capture / "raw").iterdir():
        file.unlink()
    about = json.loads((capture / "capture.json").read_text())
    del about["window"]
    (capture / "capture.json").write_text(json.dumps(about))
    for cpu, content in pages.items():
        (capture / "raw" / f"cpu{cpu}").write_bytes(content)
    return capture


def number_of_switch() -> int:
    text = (LOSSY / "events/sched/sched_switch/format").read_text()
    return int(text.split("ID: ")[1].split()[0])


def losses_of(path: Path) -> list[tuple[int, int, int, str]]:
    found = ss.read_tables(path, "losses")["losses"].select(
        "cpu", "ts_begin", "ts_end", pl.col("reason").cast(pl.String)
    )
    return found.rows()


def test_a_loss_between_two_events_of_one_instant_lasts_to_the_next(tmp_path: Path) -> None:
    """With length zero it would affect no interval, though events are missing."""
    switch = number_of_switch()
    first = page(1000, switch_record(switch, 0, 0, 7))
    second = switch_record(switch, 0, 7, 0) + switch_record(switch, 50, 0, 8)
    capture = capture_of({0: first + page(1000, second, MISSED)}, tmp_path)
    # This recording has no recorded end: the last CPU's end is a loss, too.
    assert losses_of(capture) == [(0, 1000, 1050, "overrun"), (0, 1050, 1050, "early_end")]


def test_loss_is_ordered_after_events_at_its_start(tmp_path: Path) -> None:
    """CPU 1 wakes no thread, but thread 7 is switched in there when CPU 0's loss starts.

    The fact tables, merged again, have the same order.
    """
    switch = number_of_switch()
    blind = page(1000, switch_record(switch, 0, 7, 0)) + page(
        2000, switch_record(switch, 0, 0, 8), MISSED
    )
    seen = page(1000, switch_record(switch, 0, 0, 7) + switch_record(switch, 30, 7, 0))
    capture = capture_of({0: blind, 1: seen}, tmp_path)
    tables, text = _native.decode(str(capture))
    frames = {name: pl.DataFrame(table) for name, table in tables.items()}
    about = json.loads(text)
    again = _native.reconstruct(
        {name: frames[name] for name in ("switches", "wakeups", "migrations", "yields", "losses")},
        about["ncpu"],
        tuple(about["window"]),
    )
    for name in ("states", "waits", "losses"):
        assert_frame_equal(frames[name], pl.DataFrame(again[name]))


def test_file_truncated_at_the_end_of_the_trace_has_a_loss(tmp_path: Path) -> None:
    """The loss has length zero, and unfinished intervals end `lost`, not with the window."""
    switch = number_of_switch()
    content = page(1000, switch_record(switch, 0, 0, 7) + switch_record(switch, 40, 7, 8))
    capture = capture_of({0: content + b"\1" * 10}, tmp_path)
    assert losses_of(capture) == [(0, 1040, 1040, "truncated")]
    assert ss.read_tables(capture, "switches")["switches"].height == 2
