"""Raw sub-buffers of a capture folder: compared with a naive reader, and damaged."""

from __future__ import annotations

import json
import shutil
import struct
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from ftrace_pages import records
from tools import tool

from schedscope import _native
from schedscope.errors import FormatError, SchedscopeError

FIXTURES = Path(__file__).parents[2] / "fixtures"
LOSSY = FIXTURES / "linux-ftrace-lossy.capture"
PAGE = 4096

Tables = dict[str, pl.DataFrame]


def decode(path: Path, **options: str) -> tuple[Tables, dict[str, Any]]:
    tables, text = _native.decode(path, options)
    return {name: pl.DataFrame(table) for name, table in tables.items()}, json.loads(text)


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    """A copy of a small real capture, to be damaged."""
    return Path(shutil.copytree(LOSSY, tmp_path / "copy.capture"))


def losses(tables: Tables) -> pl.DataFrame:
    """What the recorder and the file recorded, without inferred values."""
    return tables["losses"].filter(pl.col("reason") != "chain_break")


def rewrite(path: Path, **changes: object) -> None:
    about = json.loads((path / "capture.json").read_text())
    (path / "capture.json").write_text(json.dumps(about | changes))


def test_every_record_is_where_a_naive_reader_finds_it() -> None:
    """Counts by event and CPU; every field of every switch and wakeup."""
    expected = records(LOSSY)
    tables, about = decode(LOSSY)
    tids = dict(tables["threads"].select("utid", "tid").iter_rows())
    counts = Counter((record.event, str(record.cpu)) for record in expected)
    assert counts == {
        (name, cpu): count for name, cpus in about["events"].items() for cpu, count in cpus.items()
    }
    switches = [
        (row["ts"], row["cpu"], tids[row["prev_utid"]], row["prev_prio"], tids[row["next_utid"]])
        for row in tables["switches"].iter_rows(named=True)
    ]
    assert sorted(switches) == sorted(
        (r.ts, r.cpu, r.fields["prev_pid"], r.fields["prev_prio"], r.fields["next_pid"])
        for r in expected
        if r.event == "sched_switch"
    )
    kinds = {"waking": "sched_waking", "enqueued": "sched_wakeup", "new": "sched_wakeup_new"}
    wakeups = [
        (row["ts"], row["cpu"], tids[row["utid"]], row["target_cpu"], kinds[row["kind"]])
        for row in tables["wakeups"].iter_rows(named=True)
    ]
    assert sorted(wakeups) == sorted(
        (r.ts, r.cpu, r.fields["pid"], r.fields["target_cpu"], r.event)
        for r in expected
        if r.event in kinds.values()
    )


def test_a_wakeup_from_an_interrupt_has_no_waker() -> None:
    """common_flags has hard or soft interrupt: then the running thread is not the waker."""
    expected = [r for r in records(LOSSY) if r.event == "sched_waking"]
    tables, _ = decode(LOSSY)
    wakings = tables["wakeups"].filter(pl.col("kind") == "waking")
    without = wakings["waker_utid"].null_count()
    assert without == sum(bool(int(r.fields["common_flags"]) & 0x58) for r in expected)
    assert 0 < without < wakings.height


def test_overruns_are_placed_by_the_sub_buffers() -> None:
    """Their counts add up to the kernel's, and each lies between two events."""
    tables, about = decode(LOSSY)
    recorded = losses(tables).filter(pl.col("cpu") == 0)
    assert recorded["count"].sum() == 1630
    assert about["unplaced_losses"] == []
    times = {r.ts for r in records(LOSSY) if r.cpu == 0}
    for begin, end, reason in recorded.select("ts_begin", "ts_end", "reason").iter_rows():
        assert end in times
        assert not any(begin < ts < end for ts in times)
        assert reason in ("overrun", "late_start")


def test_dropped_events_make_the_whole_window_doubtful(capture: Path) -> None:
    """`dropped events` have no place in the trace: the CPU's whole window is doubtful.

    They are counted once, among the losses without a place.
    """
    stats = capture / "stats" / "cpu1"
    stats.write_text(stats.read_text().replace("dropped events: 0", "dropped events: 9"))
    tables, about = decode(capture)
    recorded = losses(tables).filter(pl.col("cpu") == 1)
    assert recorded.select("count", "reason").rows() == [(None, "overrun")]
    assert recorded["ts_begin"].item() <= tables["switches"]["ts"].min()
    assert recorded["ts_end"].item() >= tables["switches"]["ts"].max()
    assert about["unplaced_losses"] == [{"cpu": 1, "count": 9, "reason": "overrun"}]


def test_events_left_in_the_kernel_are_an_early_end(capture: Path) -> None:
    """`entries` that were never read are missing after the CPU's last event."""
    stats = capture / "stats" / "cpu1"
    stats.write_text(stats.read_text().replace("entries: 0", "entries: 4"))
    tables, about = decode(capture)
    recorded = losses(tables).filter(pl.col("reason") == "early_end")
    last = max(r.ts for r in records(LOSSY) if r.cpu == 1)
    assert recorded.select("cpu", "ts_begin", "count").rows() == [(1, last, 4)]
    assert recorded["ts_end"].item() == max(last, about["window"][1])


@pytest.mark.parametrize("cut", [1, 100, 2000, 4095])
def test_torn_last_sub_buffer_is_read_in_part(capture: Path, cut: int) -> None:
    """An interrupted recorder: complete records are read, the rest is a loss."""
    raw = capture / "raw" / "cpu1"
    content = raw.read_bytes()
    # Cut inside the last sub-buffer that is nearly full.
    pages = [at for at in range(0, len(content), PAGE) if _used(content, at) > 3900]
    at = pages[-1]
    raw.write_bytes(content[: at + PAGE - cut])
    tables, _ = decode(capture)
    whole, _ = decode(LOSSY)
    here = pl.col("cpu") == 1
    found, expected = tables["switches"].filter(here)["ts"], whole["switches"].filter(here)["ts"]
    assert found.to_list() == expected.head(len(found)).to_list()
    used = 16 + _used(content, at)
    recorded = losses(tables).filter(pl.col("reason") == "truncated")
    assert recorded.height == (1 if PAGE - cut < used else 0)


def _used(content: bytes, at: int) -> int:
    return int(struct.unpack_from("<Q", content, at + 8)[0]) & 0x7FFFFFF


def test_invalid_sub_buffer_is_an_error_with_its_offset(capture: Path) -> None:
    """More bytes used than it has; with salvage, a loss in its place."""
    raw = capture / "raw" / "cpu1"
    content = bytearray(raw.read_bytes())
    content[2 * PAGE + 8 : 2 * PAGE + 16] = struct.pack("<Q", 5000)
    raw.write_bytes(content)
    with pytest.raises(FormatError, match=f"byte {2 * PAGE}"):
        decode(capture)
    tables, about = decode(capture, salvage="1")
    assert losses(tables).filter(pl.col("cpu") == 1)["reason"].to_list() == ["truncated"]
    assert any("1 damaged" in warning for warning in about["warnings"])


def test_larger_sub_buffers_are_read_at_their_recorded_size(capture: Path) -> None:
    """`sub_buffer_bytes` is used, not the header_page of the top instance."""
    for raw in (capture / "raw").iterdir():
        content = raw.read_bytes()
        pages = [content[at : at + PAGE] + bytes(3 * PAGE) for at in range(0, len(content), PAGE)]
        # A lost count follows the records wherever they end.
        raw.write_bytes(b"".join(pages))
    about = json.loads((capture / "capture.json").read_text())
    rewrite(capture, ftrace=about["ftrace"] | {"sub_buffer_bytes": 4 * PAGE})
    tables, _ = decode(capture)
    whole, _ = decode(LOSSY)
    assert tables["switches"].equals(whole["switches"])
    assert losses(tables).equals(losses(whole))


def test_a_clock_that_counts_no_time_is_refused(capture: Path) -> None:
    """`counter` counts events; cycles need their rate."""
    about = json.loads((capture / "capture.json").read_text())
    rewrite(capture, ftrace=about["ftrace"] | {"clock": "counter"})
    with pytest.raises(FormatError, match="counter"):
        decode(capture)
    rewrite(capture, ftrace=about["ftrace"] | {"clock": "x86-tsc"})
    with pytest.raises(FormatError, match="tsc_hz"):
        decode(capture)
    rewrite(capture, ftrace=about["ftrace"] | {"clock": "x86-tsc"}, window={})
    halved, _ = decode(capture, tsc_hz="2000000000")
    whole, _ = decode(LOSSY)
    assert halved["switches"]["ts"].to_list() == [ts // 2 for ts in whole["switches"]["ts"]]


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("events/sched/sched_switch/format", "sched_switch"),
        ("events/header_page", "header_page"),
        ("capture.json", "capture"),
    ],
)
def test_a_damaged_description_is_named(capture: Path, what: str, message: str) -> None:
    """The error names the file to look at."""
    (capture / what).write_text("nonsense\n")
    with pytest.raises(SchedscopeError, match=message):
        decode(capture)


def test_capture_without_sub_buffers_is_refused(capture: Path) -> None:
    shutil.rmtree(capture / "raw")
    (capture / "raw").mkdir()
    with pytest.raises(FormatError, match="raw"):
        decode(capture)


def test_prev_state_follows_the_format_file(capture: Path) -> None:
    """The bit that means S here means D in another kernel: the format file decides."""
    path = capture / "events/sched/sched_switch/format"
    text = path.read_text()
    swapped = text.replace('{ 0x00000001, "S" }', '{ 0x00000001, "D" }').replace(
        '{ 0x00000002, "D" }', '{ 0x00000002, "S" }'
    )
    assert swapped != text
    path.write_text(swapped)
    other = {"sleeping": "blocked", "blocked": "sleeping"}
    tables, _ = decode(capture)
    whole, _ = decode(LOSSY)
    states = [other.get(state, state) for state in whole["switches"]["prev_state"].to_list()]
    assert tables["switches"]["prev_state"].to_list() == states


@pytest.mark.needs("trace-cmd")
def test_the_sub_buffers_of_a_trace_dat_are_those_of_a_capture(
    capture: Path, tmp_path: Path
) -> None:
    """Sub-buffers cut out of an uncompressed trace.dat, read as a capture folder."""
    source = tmp_path / "plain.dat"
    _native.synthesize_trace_dat(source, 5_000, 2, 20, 9, {"version": "6"})
    command = tool("trace-cmd")
    assert command is not None
    listed = subprocess.run(
        [*command, "dump", "--flyrecord", str(source)], capture_output=True, check=True
    ).stdout.decode()
    places = [
        (int(words[0]), int(words[1]))
        for line in listed.splitlines()
        if "size of cpu" in line and (words := line.split())
    ]
    assert len(places) == 2
    content = source.read_bytes()
    for cpu, (at, size) in enumerate(places):
        (capture / "raw" / f"cpu{cpu}").write_bytes(content[at : at + size])
        (capture / "stats" / f"cpu{cpu}").unlink()
    # The capture's events have the kernel's numbers, the file its own; and this kernel's
    # sched_migrate_task has another layout than the file's.
    shutil.rmtree(capture / "events/sched/sched_migrate_task")
    numbers = {300: "sched_switch", 301: "sched_waking", 302: "sched_wakeup"}
    for number, name in numbers.items():
        path = capture / "events/sched" / name / "format"
        lines = path.read_text().splitlines(keepends=True)
        lines[1] = f"ID: {number}\n"
        path.write_text("".join(lines))
    rewrite(capture, window={"begin": None, "end": None}, recorder_tids=[])
    (capture / "threads.tsv").unlink()
    found, _ = decode(capture)
    expected, _ = decode(source)
    assert found["switches"].equals(expected["switches"])
    assert found["wakeups"].equals(expected["wakeups"])


def _first(capture: Path, event: str, cpu: int = 0) -> tuple[Path, int]:
    """Where the first record of an event begins in a CPU's file."""
    path = capture / "raw" / f"cpu{cpu}"
    text = (capture / "events" / "sched" / event / "format").read_text()
    number = int(text.split("ID: ")[1].split()[0])
    content = path.read_bytes()
    at = content.index(struct.pack("<H", number), 20)
    while at % 4:
        at = content.index(struct.pack("<H", number), at + 1)
    return path, at


@pytest.mark.parametrize(
    ("event", "byte", "bit"),
    # prev_pid is not common_pid; next_pid and pid are beyond all thread ids; two states at once,
    # and one that no kernel has.
    [
        ("sched_switch", 24, 3),
        ("sched_switch", 59, 6),
        ("sched_waking", 27, 0),
        ("sched_switch", 32, 3),
        ("sched_switch", 38, 0),
    ],
)
def test_impossible_record_is_damage(capture: Path, event: str, byte: int, bit: int) -> None:
    whole, _ = decode(capture)
    path, at = _first(capture, event)
    content = bytearray(path.read_bytes())
    content[at + byte] ^= 1 << bit
    path.write_bytes(content)
    with pytest.raises(FormatError, match="a thread or state that cannot be"):
        decode(capture)
    tables, about = decode(capture, salvage="yes")
    assert any("damaged sub-buffers were left out" in text for text in about["warnings"])
    assert 0 < tables["switches"].height < whole["switches"].height
    assert "truncated" in tables["losses"]["reason"].cast(pl.String).to_list()
