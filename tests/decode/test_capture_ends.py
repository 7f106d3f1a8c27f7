"""The kernel's counts in a capture folder: lost, missing, read before, unknown."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import polars as pl
import pytest
from test_ftrace import LOSSY, decode, losses, records, rewrite

import schedscope


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    return Path(shutil.copytree(LOSSY, tmp_path / "copy.capture"))


def restat(capture: Path, cpu: int, **changes: int) -> None:
    """Sets counts in a CPU's statistics."""
    path = capture / "stats" / f"cpu{cpu}"
    lines = [line.split(":", 1) for line in path.read_text().splitlines()]
    names = {name.replace(" ", "_"): value for name, value in lines}
    names |= {name: f" {value}" for name, value in changes.items()}
    text = "".join(f"{name.replace('_', ' ')}:{value}\n" for name, value in names.items())
    path.write_text(text)


def test_unread_entries_in_the_file_are_not_lost(capture: Path) -> None:
    """Counted before the buffer was saved, all events are unread, but they are all in the file."""
    there = sum(record.cpu == 1 for record in records(LOSSY))
    restat(capture, 1, entries=there, read_events=0)
    tables, about = decode(capture)
    assert losses(tables).filter(pl.col("cpu") == 1).is_empty()
    assert about["unplaced_losses"] == []


def test_events_taken_by_another_reader_are_reported(capture: Path) -> None:
    there = sum(record.cpu == 1 for record in records(LOSSY))
    restat(capture, 1, entries=there, read_events=70)
    _, about = decode(capture)
    assert about["unplaced_losses"] == [{"cpu": 1, "count": 70, "reason": "late_start"}]
    assert "taken by another reader" in about["warnings"][0]


def test_each_lost_event_is_counted_once(capture: Path) -> None:
    """Placed and unplaced losses add up to the kernel's counts."""
    restat(capture, 0, overrun=1630 + 25, dropped_events=3, entries=4)
    tables, about = decode(capture)
    placed = losses(tables)["count"].sum()
    assert placed + sum(loss["count"] for loss in about["unplaced_losses"]) == 1630 + 25 + 3 + 4


@pytest.mark.parametrize("how", ["missing", "empty"])
def test_cpu_without_kernel_counts_ends_unknown(capture: Path, how: str) -> None:
    stats = capture / "stats" / "cpu1"
    stats.unlink()
    if how == "empty":
        stats.touch()
    tables, about = decode(capture)
    last = max(record.ts for record in records(LOSSY) if record.cpu == 1)
    recorded = losses(tables).filter(pl.col("cpu") == 1)
    end = json.loads((capture / "capture.json").read_text())["window"]["end"]
    expected = [(last, end, None, "early_end")]
    assert recorded.select("ts_begin", "ts_end", "count", "reason").rows() == expected
    assert any("lacks the kernel's counts of CPU 1" in text for text in about["warnings"])


def test_every_cpu_ends_unknown_without_an_end_mark(capture: Path) -> None:
    window = json.loads((capture / "capture.json").read_text())["window"]
    rewrite(capture, window=window | {"end": None})
    tables, about = decode(capture)
    recorded = losses(tables).filter(pl.col("reason") == "early_end")
    assert sorted(recorded["cpu"].to_list()) == [0, 1]
    assert any("does not say when recording ended" in text for text in about["warnings"])


def test_a_capture_that_ended_early_ends_every_cpu_unknown(capture: Path) -> None:
    """The recorder reports this, whatever window and counts it could still write."""
    about = json.loads((capture / "capture.json").read_text())
    end = about["window"]["end"]
    loss = {"cpu": None, "count": None, "reason": "early_end", "ts_begin": None, "ts_end": end}
    rewrite(capture, complete=False, lost=[*about["lost"], loss])
    tables, _ = decode(capture)
    recorded = losses(tables).filter(pl.col("reason") == "early_end")
    assert sorted(recorded["cpu"].to_list()) == [0, 1]
    assert set(recorded["ts_end"].to_list()) == {end}


@pytest.mark.parametrize("recorder", ["bpftrace", "dtrace"])
def test_interrupted_capture_of_any_recorder_is_reported(recorder: str, tmp_path: Path) -> None:
    """Even where the lines themselves have an end mark."""
    fixture = LOSSY.parent / f"linux-{recorder}.capture"
    capture = Path(shutil.copytree(fixture, tmp_path / "copy.capture"))
    before = losses(decode(capture)[0])
    assert before.filter(pl.col("reason") == "early_end").is_empty()
    loss = {"cpu": None, "count": None, "reason": "early_end", "ts_begin": None, "ts_end": None}
    rewrite(capture, complete=False, lost=[loss])
    recorded = losses(decode(capture)[0]).filter(pl.col("reason") == "early_end")
    # A CPU whose last event is at the window's end has no unknown time after it.
    assert not recorded.is_empty()
    assert (recorded["ts_begin"] < recorded["ts_end"]).all()


def test_a_cpu_whose_file_is_empty_is_absent(capture: Path) -> None:
    """The kernel counted its events, and none of them is in the file."""
    there = sum(record.cpu == 1 for record in records(LOSSY))
    (capture / "raw" / "cpu1").write_bytes(b"")
    tables, about = decode(capture)
    recorded = losses(tables).filter(pl.col("cpu") == 1)
    begin, end = about["window"]
    assert recorded.select("ts_begin", "ts_end", "count", "reason").rows() == [
        (begin, end, there, "absent")
    ]


def test_events_missing_inside_the_file_may_be_in_any_gap(
    capture: Path,
) -> None:
    """The file ends where the kernel's last sub-buffer does, so it was not truncated."""
    there = sum(record.cpu == 1 for record in records(LOSSY))
    restat(capture, 1, read_events=there + 40)
    tables, about = decode(capture)
    assert {"cpu": 1, "count": 40, "reason": "overrun"} in about["unplaced_losses"]
    assert any("does not show where they are missing" in text for text in about["warnings"])
    recorded = losses(tables).filter(pl.col("cpu") == 1)
    assert recorded.height > 3
    assert (recorded["ts_end"] - recorded["ts_begin"]).min() >= 32 * 250


@pytest.mark.parametrize("early", [False, True])
def test_truncated_file_ends_with_a_loss(capture: Path, early: bool) -> None:
    """It ends before the kernel's last sub-buffer, and its loss starts with the last event.

    This holds for any CPU: the window that a recorder states may end before its events do.
    """
    whole = records(LOSSY)
    own = [record.ts for record in whole if record.cpu == 1]
    window = json.loads((capture / "capture.json").read_text())["window"]
    end = window["end"]
    if early:
        rewrite(capture, window=window | {"end": own[-1]})
        end = max(record.ts for record in whole)
        assert end > own[-1]
    restat(capture, 1, read_events=len(own) + 40)
    path = capture / "stats" / "cpu1"
    now = f"oldest event ts: {own[-1] // 10**9}.{own[-1] % 10**9 // 1000 + 1:06d}"
    text = path.read_text().splitlines()
    path.write_text("\n".join(now if "oldest" in line else line for line in text) + "\n")
    tables, about = decode(capture)
    assert about["unplaced_losses"] == []
    (loss,) = (
        losses(tables).filter(pl.col("cpu") == 1, pl.col("reason") == "early_end").rows(named=True)
    )
    assert (loss["ts_begin"], loss["ts_end"], loss["count"]) == (own[-1], end, 40)


def test_more_events_than_the_kernel_counted_are_reported(capture: Path) -> None:
    there = sum(record.cpu == 1 for record in records(LOSSY))
    restat(capture, 1, read_events=there - 5)
    _, about = decode(capture)
    assert any("the file has 5 more events than the kernel counted" in w for w in about["warnings"])


@pytest.mark.parametrize("part", ["pages", "pages and counts", "a second time"])
def test_two_recordings_in_one_folder_are_refused(part: str, tmp_path: Path) -> None:
    """Timestamps of one are outside the time of the other."""
    one, other = (LOSSY.parent / f"linux-slice-default-{n}.capture" for n in (4, 3))
    mixed = shutil.copytree(one, tmp_path / "mixed.capture")
    pages = mixed / "raw" / "cpu1.zst"
    theirs = (other / "raw" / "cpu1.zst").read_bytes()
    pages.write_bytes((pages.read_bytes() if part == "a second time" else b"") + theirs)
    if part == "pages and counts":
        shutil.copy(other / "stats" / "cpu1", mixed / "stats" / "cpu1")
    with pytest.raises(schedscope.FormatError, match=r"expected events of one recording"):
        schedscope.read_tables(mixed, "switches")
    assert schedscope.read_tables(mixed, "switches", options={"salvage": "1"})


def test_recording_switched_off_late_is_read_up_to_the_kernels_count(
    tmp_path: Path,
) -> None:
    """On a busy host the process that stops the tracing waits for a CPU; without a count this is
    damage.
    """
    late = Path(shutil.copytree(LOSSY.parent / "linux-ftrace-starved.capture", tmp_path / "x"))
    begin = json.loads((late / "capture.json").read_text())["window"]["begin"]
    rewrite(late, window={"begin": begin, "end": begin + 300_000_000})
    tables, about = decode(late)
    assert about["window"][1] > begin + 2_000_000_000
    assert tables["switches"]["ts"].max() > begin + 2_000_000_000
    for stats in (late / "stats").iterdir():
        stats.write_text(stats.read_text().replace("now ts:", "since:"))
    with pytest.raises(schedscope.FormatError, match=r"outside the time of the recording"):
        schedscope.read_tables(late, "switches")


def test_overwritten_window_is_distinguished_from_mixed_recordings(tmp_path: Path) -> None:
    """The process that stops the tracing waits for a CPU, and the buffer is too small for that
    time.
    """
    late = Path(shutil.copytree(LOSSY.parent / "linux-ftrace-starved.capture", tmp_path / "x"))
    begin = json.loads((late / "capture.json").read_text())["window"]["begin"]
    rewrite(late, window={"begin": begin - 60_000_000_000, "end": begin - 58_000_000_000})
    with pytest.raises(schedscope.FormatError, match=r"two recordings were mixed"):
        schedscope.read_tables(late, "switches")
    for stats in (late / "stats").iterdir():
        stats.write_text(stats.read_text().replace("overrun: 0", "overrun: 70000", 1))
    with pytest.raises(schedscope.FormatError, match=r"58\.\d s after the end .* overwritten"):
        schedscope.read_tables(late, "switches")
    assert schedscope.read_tables(late, "switches", options={"salvage": "1"})


def test_overwritten_events_of_a_ring_start_a_cpu_late_without_a_loss(capture: Path) -> None:
    """A flight recorder's snapshot: no loss, nothing outside its window, no invented time."""
    there = [record for record in records(LOSSY) if record.cpu == 0]
    others = [record.ts for record in records(LOSSY) if record.cpu != 0]
    begin, first = min(others) - 5_000_000, there[0].ts
    end = there[len(there) // 2].ts
    held = [{"cpu": 0, "begin": first}, {"cpu": 1, "begin": None}]
    rewrite(capture, ring={"cpus": held}, window={"begin": begin, "end": end})
    tables, about = decode(capture)
    late = losses(tables).filter(pl.col("reason") == "late_start")
    assert late.select("cpu", "ts_end", "count").rows() == [(0, first, None)]
    assert about["unplaced_losses"] == []
    assert about["warnings"] == []
    for name in ("switches", "wakeups", "migrations"):
        assert tables[name]["ts"].is_between(begin, end).all()
    running = tables["states"].filter((pl.col("cpu") == 0) & (pl.col("state") == "running"))
    assert running["ts"].min() >= first
