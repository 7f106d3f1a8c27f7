"""The cache under faults: the right answer or one sentence, and nothing left behind."""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import schedscope as ss
from schedscope.errors import FormatError, StorageError
from schedscope.parsers import trace_json
from schedscope.store import stored

FIXTURES = Path(__file__).parents[2] / "fixtures"
FILE = FIXTURES / "linux-trace-cmd-yield.dat"
ASK = (
    "import sys, schedscope as ss\n"
    "t = ss.open(sys.argv[1], refresh=len(sys.argv) > 2)\n"
    "print(ss.latency(t)['n'].item(), ss.fairness(t).height)\n"
)


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("SCHEDSCOPE_CACHE", raising=False)
    path = tmp_path / "data" / "x[1].dat"
    path.parent.mkdir()
    shutil.copy(FILE, path)
    return path


def ask(source: Path, *more: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", ASK, str(source), *more],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def only_the_copy_is_there(source: Path) -> None:
    assert sorted(path.name for path in source.parent.iterdir()) == [
        source.name,
        f"{source.name}.sched",
    ]


@pytest.mark.parametrize("refresh", [(), ("refresh",)])
@pytest.mark.release
def test_ten_concurrent_readers_get_the_answer(source: Path, refresh: tuple[str, ...]) -> None:
    """Whichever is first; with `refresh` each replaces another's copy while a third reads it."""
    running = [ask(source, *refresh) for _ in range(10)]
    answers = [(process.communicate()[0], process.returncode) for process in running]
    trace = ss.open(FILE, cache=source.parent / "other")
    expected = f"{ss.latency(trace)['n'].item()} {ss.fairness(trace).height}\n"
    assert answers == [(expected, 0)] * 10
    shutil.rmtree(source.parent / "other")
    only_the_copy_is_there(source)


@pytest.mark.release
def test_process_killed_at_any_time_leaves_only_what_the_next_removes(
    source: Path,
) -> None:
    rng = random.Random(1)
    for _ in range(6):
        process = ask(source, "refresh")
        time.sleep(rng.uniform(0.3, 1.5))
        process.send_signal(signal.SIGKILL)
        process.communicate()
    out, err = ask(source, "refresh").communicate()
    assert out == f"{ss.latency(ss.open(source))['n'].item()} 41\n" or out, err
    only_the_copy_is_there(source)


def test_leftovers_of_a_killed_process_are_removed_at_once(source: Path) -> None:
    """Its lock ended with it: the folder can be removed at once."""
    left = source.parent / f".{source.name}.0badf00d.sched.partial"
    left.mkdir()
    (left / "states.parquet").write_bytes(b"half")
    ss.open(source)
    only_the_copy_is_there(source)


def test_flipped_bit_in_any_table_is_reported(source: Path) -> None:
    """Every byte counts, including those of a page's values, which no Parquet reader checks."""
    folder = ss.open(source).path
    assert folder is not None
    about = json.loads((folder / "trace.json").read_text())
    rng = random.Random(2)
    for name in ("states", "waits", "switches", "threads"):
        path = folder / f"{name}.parquet"
        whole = path.read_bytes()
        recorded = about["files"][path.name]
        assert (recorded["bytes"], recorded["crc32"]) == (len(whole), stored.checksum(path))
        for _ in range(10):
            data = bytearray(whole)
            data[rng.randrange(4, len(data) - 8)] ^= 1 << rng.randrange(8)
            path.write_bytes(data)
            said = rf"{name}\.parquet .*damaged.* trace\.json records"
            with pytest.raises(FormatError, match=said):
                getattr(ss.open(source), name).collect()
            with pytest.raises(FormatError, match="damaged"):
                ss.open(source).folder_of(name)
        path.write_bytes(whole)
    assert ss.open(source, refresh=True).states.collect().height


def test_other_content_of_the_same_size_and_mtime_is_converted_again(source: Path) -> None:
    before = ss.open(source)
    times = source.stat().st_mtime_ns
    source.write_bytes(source.read_bytes().replace(b"decode-fixture", b"DECODE-fixture"))
    os.utime(source, ns=(times, times))
    assert before.info["trace_dat"]["buffer"] != ss.open(source).info["trace_dat"]["buffer"]


@pytest.mark.needs("root", "linux")
def test_full_disk_prints_one_sentence_and_leaves_nothing(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from schedscope import cli

    small = tmp_path / "small"
    small.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k,nr_inodes=64", "tmpfs", str(small)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("no tmpfs can be mounted here")
    try:
        with pytest.raises(StorageError, match=r"No space left on device.*free some space"):
            ss.open(source, cache=small)
        assert list(small.iterdir()) == []
        for words in (
            ["latency", str(source), "--cache", str(small)],
            ["convert", str(source), "-o", str(small / "x.sched")],
            ["export", str(source), "--to", "csv", "-o", str(small / "csv")],
            ["export", str(source), "--to", "chrome", "-o", str(small / "x.json")],
            ["report", str(source), "-o", str(small / "x.html")],
            ["timeline", str(source), "-o", str(small / "x.html")],
            ["simulate", str(source), "-o", str(small / "x.sched")],
            ["simulate", "hogs:3", "--save-workload", str(small / "x.workload"), "--save-rtapp",
             str(small / "x.json")],
        ):  # fmt: skip
            (small / "filler").write_bytes(bytes(40_000))
            code = cli.main(words)
            err = capsys.readouterr().err
            if code:
                assert (code, err.count("\n")) == (1, 1), (words, err)
                assert os.strerror(errno.ENOSPC) in err, (words, err)
                assert [path.name for path in small.iterdir()] == ["filler"], words
            for path in small.iterdir():
                shutil.rmtree(path) if path.is_dir() else path.unlink()
    finally:
        subprocess.run(["umount", str(small)], check=True)


@pytest.mark.needs("root", "linux")
def test_read_only_folder_puts_the_copy_into_the_user_cache(source: Path, tmp_path: Path) -> None:
    place = source.parent
    mount = ["mount", "--bind", "-o", "ro", str(place), str(place)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("nothing can be mounted read-only here")
    try:
        trace = ss.open(source)
        assert trace.path is not None
        assert trace.path.parent == tmp_path / "home" / "schedscope"
        assert ss.open(source).path == trace.path
        assert [path.name for path in place.iterdir()] == [source.name]
    finally:
        subprocess.run(["umount", str(place)], check=True)


@pytest.mark.needs("root")
@pytest.mark.parametrize("linked", [False, True])
def test_copy_of_another_user_is_not_served(source: Path, tmp_path: Path, linked: bool) -> None:
    """Where everybody may write, anyone who can see the source can make a copy that matches it."""
    path = ss.open(source).path
    assert path is not None
    about = json.loads((path / "trace.json").read_bytes())
    (path / "trace.json").write_text(trace_json.written(about | {"hostname": "forged"}))
    assert ss.open(source).info["hostname"] == "forged"
    theirs = path
    if linked:
        theirs = path.rename(tmp_path / "elsewhere")
        path.symlink_to(theirs)
    for one in (path, theirs, *theirs.iterdir()):
        os.chown(one, 12345, 12345, follow_symlinks=False)
    mine = ss.open(source)
    assert mine.info["hostname"] != "forged"
    assert mine.path is not None
    assert mine.path.parent == tmp_path / "home" / "schedscope"
    assert json.loads((theirs / "trace.json").read_bytes())["hostname"] == "forged"
    # The owner of the source may decide its content.
    os.chown(source, 12345, 12345)
    assert ss.open(source).path == path
