"""Real recordings in version 2 of the lines: fewer bytes, the same tables."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import polars as pl
import pytest
from freebsd.compact import Translator
from freebsd.reading import decode
from freebsd.writer import Machine

import schedscope as ss

FIXTURES = Path(__file__).parents[2] / "fixtures"
TABLES = ["switches", "wakeups", "sleeps", "queue_load", "migrations", "waits", "states"]


def compact(capture: Path, folder: Path) -> Path:
    """A copy of the capture with lines of version 2."""
    copy = folder / f"compact-{capture.name}"
    shutil.copytree(capture, copy)
    events = copy / "events.txt"
    text = events.read_text(errors="surrogateescape")
    events.write_text(Translator(text).text(), errors="surrogateescape")
    (copy / "checksums").unlink(missing_ok=True)
    return copy


def test_compact_lines_give_the_same_tables(genuine: Path, tmp_path: Path) -> None:
    old, new = ss.open(genuine), ss.open(compact(genuine, tmp_path))
    for name in TABLES:
        one, other = getattr(old, name).collect(), getattr(new, name).collect()
        assert one.height > 0 or name in ("migrations",), name
        assert one.equals(other), name
    assert old.threads.drop("comm").collect().equals(new.threads.drop("comm").collect())
    assert [old.info[key] for key in ("window", "warnings")] == [
        new.info[key] for key in ("window", "warnings")
    ]


def test_a_switch_costs_fewer_bytes_and_a_third_of_the_writes(
    genuine: Path,
) -> None:
    """FreeBSD's dtrace writes each field, and each text between two, separately."""
    text = (genuine / "events.txt").read_text(errors="surrogateescape")
    switches = text.count("\nS\t")
    # The names printed at the start are excluded: 400 threads in half a second.
    compacted = re.sub(r"(?m)^N .*\n", "", Translator(text).text())
    assert len(compacted) / len(text) < 0.6
    before = sum(2 * line.count("\t") + 1 for line in text.splitlines() if line[1:2] == "\t")
    after = sum(
        line.count(" ") + 2 + (line[0] in "SX")
        for line in compacted.splitlines()
        if line[1:2] == " "
    )
    assert after / switches < 0.35 * before / switches


@pytest.fixture(params=["freebsd-ule", "freebsd-4bsd"])
def genuine(request: pytest.FixtureRequest) -> Path:
    return FIXTURES / f"{request.param}.capture"


def machine() -> Machine:
    world = Machine(2)
    world.thread(100402, "make")
    world.wake(1_100_000, 0, 100402, target=1)
    world.switch(1_200_000, 1, 100402, "preempt")
    world.switch(1_300_000, 1, None, "sleep", "a b\tc")
    return world


def test_a_nice_value_and_the_kernels_sums_are_read(tmp_path: Path) -> None:
    """Changed by renice: recorded with the next switch-in. 5000 of 50,000 is a score of 5."""
    text = Translator(machine().text(2_000_000)).text()
    text = text.replace("100402 1402 3 0 20 4 make", "100402 1402 3 0 25 4 make", 1)
    extra = (
        "N 350000 1 100402 1402 3 0 30 4 make\n"
        "V 350000 1 100402 5000 50000\nV 400000 1 100402 50000 5000\n"
    )
    text = text.replace("#count", extra + "#count", 1)
    info = decode(tmp_path, text).about
    assert info["nice"] == [{"tid": 100402, "nice": 5}]
    assert [row["nice"] for row in info["nice_changes"]] == [10]
    [row] = info["kernel_scores"]
    assert (row["score_min"], row["score"], row["n"]) == (15, 60, 2)
    assert (row["is_interactive"], row["interactive"], row["transitions"]) == (False, 50_000, 2)


def test_unreadable_line_loses_only_itself(tmp_path: Path) -> None:
    text = Translator(machine().text(2_000_000)).text()
    spoilt = text.replace("S 300003", "S 300003 x", 1)
    got = decode(tmp_path, spoilt)
    assert got.tables["switches"].height == decode(tmp_path, text).tables["switches"].height - 1
    assert any("cannot be read" in text for text in got.about["warnings"])


def test_an_unknown_thread_has_no_name_and_no_process(tmp_path: Path) -> None:
    """Its N was dropped."""
    text = Translator(machine().text(2_000_000)).text()
    lines = [line for line in text.splitlines(True) if not re.match(r"N \d+ \d 100402 ", line)]
    got = decode(tmp_path, "".join(lines))
    row = got.tables["threads"].filter(pl.col("tid") == 100402).row(0, named=True)
    assert (row["pid"], row["comm"] or None) == (None, None)


def test_ring_reports_what_it_kept(tmp_path: Path) -> None:
    text = Translator(machine().text(2_000_000), ring=True).text()
    head, *lines = text.splitlines(True)
    kept = [line for line in lines if line[0] in "#\n" or int(line.split()[1]) > 150_000]
    got = decode(tmp_path, "".join([head, *kept, "#ring\n"]))
    assert got.about["window"][0] == 1_200_000 + 3 or got.about["window"][0] >= 1_150_000
    assert any("flight recorder" in text for text in got.about["warnings"])
