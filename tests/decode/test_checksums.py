"""Captures whose files changed after they were recorded: refused, or read with a warning."""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import schedscope as ss

FIXTURES = Path(__file__).parents[2] / "fixtures"
RECORDED = {
    "ftrace": "linux-ftrace-lossy.capture",
    "bpftrace": "linux-bpftrace.capture",
    "dtrace": "linux-dtrace.capture",
}


def listed(folder: Path) -> Path:
    """The folder with the list that a recorder writes last."""
    names = sorted(
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.is_file() and path.name not in ("capture.json", "checksums")
    )
    text = subprocess.run(["cksum", *names], cwd=folder, capture_output=True, text=True, check=True)
    (folder / "checksums").write_text(text.stdout)
    return folder


@pytest.fixture(params=RECORDED.values(), ids=RECORDED.keys())
def capture(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return listed(Path(shutil.copytree(FIXTURES / request.param, tmp_path / request.param)))


@pytest.fixture
def ftrace(tmp_path: Path) -> Path:
    return listed(Path(shutil.copytree(FIXTURES / RECORDED["ftrace"], tmp_path / "x.capture")))


def stored_files(capture: Path, **options: str) -> dict[str, object]:
    found = ss.check(ss.open(capture, cache=capture.parent / "cache", options=options))
    return dict(found.row(by_predicate=pl.col("check") == "stored files", named=True))


def test_intact_capture_is_read_the_same_with_checksums(capture: Path) -> None:
    with_list = ss.read_tables(capture, "switches")["switches"]
    assert stored_files(capture)["level"] == "ok"
    (capture / "checksums").unlink()
    assert_frame_equal(with_list, ss.read_tables(capture, "switches")["switches"])
    row = stored_files(capture)
    assert (row["level"], row["total"]) == ("ok", None)
    assert "no checksums" in str(row["text"])


def test_any_flipped_bit_is_detected(capture: Path) -> None:
    chance = random.Random(str(capture.name))
    files = [line.split(" ", 2)[2] for line in (capture / "checksums").read_text().splitlines()]
    for name in files:
        path = capture / name
        content = path.read_bytes()
        if not content:
            continue
        at = chance.randrange(len(content))
        flipped = bytearray(content)
        flipped[at] ^= 1 << chance.randrange(8)
        path.write_bytes(flipped)
        said = rf"{re.escape(name)} is not as it was recorded: its checksum is \d+, and was \d+"
        with pytest.raises(ss.FormatError, match=said):
            ss.read_tables(capture, "switches")
        path.write_bytes(content)
    assert ss.read_tables(capture, "switches")["switches"].height


@pytest.mark.parametrize("length", [0, 1, 255, 256, 65535, 65536, (1 << 18) + 7])
def test_the_sum_is_that_of_cksum(length: int, ftrace: Path) -> None:
    """Lengths whose own bytes are none, one, two and three."""
    (ftrace / "more").write_bytes(random.Random(length).randbytes(length))
    listed(ftrace)
    assert ss.read_tables(ftrace, "switches")["switches"].height


def test_salvage_reads_damaged_captures_with_a_warning(ftrace: Path) -> None:
    threads = ftrace / "threads.tsv"
    threads.write_text(threads.read_text().swapcase())
    (ftrace / "cpus.tsv").unlink()
    row = stored_files(ftrace, salvage="1")
    assert (row["level"], row["found"]) == ("warning", 2)
    assert "cpus.tsv, threads.tsv" in str(row["text"])
    trace = ss.open(ftrace, cache=ftrace.parent / "cache", options={"salvage": "1"})
    assert any("cpus.tsv is missing" in text for text in trace.info["warnings"])
    with pytest.raises(ss.FormatError, match=r"cpus.tsv is missing, and one more file differs"):
        ss.read_tables(ftrace, "switches")


@pytest.mark.parametrize("no", ["no", "0", "off", "FALSE", ""])
def test_declined_salvage_refuses_the_capture(no: str, ftrace: Path) -> None:
    (ftrace / "cpus.tsv").unlink()
    with pytest.raises(ss.FormatError, match=r"cpus.tsv is missing"):
        ss.read_tables(ftrace, "switches", options={"salvage": no})
    assert ss.read_tables(ftrace, "switches", options={"salvage": "yes"})


def test_a_file_that_was_cut_short_is_named_with_its_length(ftrace: Path) -> None:
    pages = ftrace / "raw" / "cpu1"
    whole = pages.stat().st_size
    os.truncate(pages, whole - 4096)
    with pytest.raises(ss.FormatError, match=rf"has {whole - 4096} bytes, of {whole} recorded"):
        ss.read_tables(ftrace, "switches")


def test_a_file_may_be_compressed_since(ftrace: Path) -> None:
    """The list is for the uncompressed content."""
    whole = ss.read_tables(ftrace, "switches")["switches"]
    pages = ftrace / "raw" / "cpu0"
    subprocess.run(["zstd", "-q", "--rm", str(pages)], check=True)
    assert_frame_equal(whole, ss.read_tables(ftrace, "switches")["switches"])
    packed = ftrace / "raw" / "cpu0.zst"
    content = bytearray(packed.read_bytes())
    content[len(content) // 2] ^= 4
    packed.write_bytes(content)
    with pytest.raises(ss.FormatError, match=r"raw/cpu0 (does not expand|is not as it was)"):
        ss.read_tables(ftrace, "switches")


@pytest.mark.parametrize(
    "line",
    [
        "no list at all",
        "12 34 ../../etc/passwd",
        "12 34 /etc/passwd",
        "12 34 ",
        "-1 34 threads.tsv",
        "99999999999 34 threads.tsv",
        "\x1b[31m" * 100,
    ],
)
def test_invalid_list_of_checksums_is_an_error(line: str, ftrace: Path) -> None:
    (ftrace / "checksums").write_text(line + "\n")
    with pytest.raises(ss.FormatError, match="expected a checksum") as raised:
        ss.read_tables(ftrace, "switches")
    assert "\x1b" not in str(raised.value)


def test_a_file_that_is_named_again_and_again_is_read_once(ftrace: Path) -> None:
    """Otherwise a small folder would keep the reader busy for hours."""
    with (ftrace / "big").open("wb") as file:
        file.truncate(64 << 20)
    listed(ftrace)
    line = next(
        line for line in (ftrace / "checksums").read_text().splitlines() if line.endswith(" big")
    )
    (ftrace / "checksums").write_text(f"{line}\n" * 100_000)
    assert ss.read_tables(ftrace, "switches")["switches"].height


def test_pipe_in_the_list_of_checksums_is_refused(ftrace: Path) -> None:
    os.mkfifo(ftrace / "pipe")
    (ftrace / "checksums").write_text("1 2 pipe\n")
    with pytest.raises(ss.SchedscopeError, match="is a pipe or device"):
        ss.read_tables(ftrace, "switches")
