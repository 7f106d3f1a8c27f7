"""Converted traces: found again, never stale, never half written."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import schedscope as ss
from schedscope.errors import FormatError, StorageError, UsageError
from schedscope.store import cache
from schedscope.store.in_use import Lease

FIXTURES = Path(__file__).parents[2] / "fixtures"


class Converter:
    """Writes the source's text into the folder, and counts how often."""

    def __init__(self, source: Path) -> None:
        self.source = source
        self.calls = 0

    def __call__(self, folder: Path) -> str:
        self.calls += 1
        (folder / "waits.parquet").write_bytes(self.source.read_bytes())
        return json.dumps({"schema_version": 1, "source": {"name": self.source.name}})


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "user-cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    monkeypatch.delenv("SCHEDSCOPE_CACHE", raising=False)
    return folder


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "data" / "trace.dat"
    path.parent.mkdir()
    path.write_text("one")
    return path


def test_pipe_is_refused_without_blocking(tmp_path: Path) -> None:
    pipe = tmp_path / "trace.txt"
    os.mkfifo(pipe)
    for read in (ss.open, ss.convert, lambda path: ss.read_tables(path, "waits")):
        with pytest.raises(StorageError, match="is a pipe or device"):
            read(pipe)


def test_the_second_opening_converts_nothing(source: Path) -> None:
    convert = Converter(source)
    first = cache.find_or_build(source, convert)
    assert first == source.parent / "trace.dat.sched"
    assert cache.find_or_build(source, convert) == first
    assert convert.calls == 1


def test_a_changed_source_is_converted_again(source: Path) -> None:
    convert = Converter(source)
    cache.find_or_build(source, convert)
    source.write_text("two")
    folder = cache.find_or_build(source, convert)
    assert (folder / "waits.parquet").read_text() == "two"


def test_change_with_the_same_size_and_mtime_is_detected(source: Path) -> None:
    """Same length, same mtime: content or ctime, which no program can set, reveals it."""
    convert = Converter(source)
    stat = source.stat()
    cache.find_or_build(source, convert)
    source.write_text("two")
    os.utime(source, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    folder = cache.find_or_build(source, convert)
    assert (folder / "waits.parquet").read_text() == "two"


def test_settled_source_is_not_hashed_again(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the same stat content is not compared, except for a recently written file."""
    convert = Converter(source)
    folder = cache.find_or_build(source, convert)
    about = cache.read_about(folder)
    assert about is not None
    assert about["cache"]["stat"] is None  # written a moment ago
    monkeypatch.setattr(cache, "_SETTLED_NS", 0)
    folder = cache.find_or_build(source, convert, refresh=True)
    monkeypatch.setattr(cache, "_content", lambda *_: pytest.fail("content was read"))
    assert cache.find_or_build(source, convert) == folder
    assert convert.calls == 2


def test_a_large_source_with_another_stat_is_converted_again(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond the limit the stat alone is not trusted."""
    monkeypatch.setattr(cache, "_CONTENT_LIMIT", 2)
    convert = Converter(source)
    cache.find_or_build(source, convert)
    cache.find_or_build(source, convert)
    assert convert.calls == 2


@pytest.mark.parametrize("what", ["schema_version", "build", "options"])
def test_copy_of_another_schema_build_or_option_is_not_served(source: Path, what: str) -> None:
    convert = Converter(source)
    folder = cache.find_or_build(source, convert)
    about = json.loads((folder / cache.METADATA).read_text())
    about["cache"][what] = {"schema_version": 0, "build": "older", "options": {"a": "b"}}[what]
    (folder / cache.METADATA).write_text(json.dumps(about))
    cache.find_or_build(source, convert)
    assert convert.calls == 2


def test_decoder_options_have_separate_folders(source: Path) -> None:
    convert = Converter(source)
    plain = cache.find_or_build(source, convert)
    other = cache.find_or_build(source, convert, options={"instance": "judge"})
    assert plain != other
    assert cache.find_or_build(source, convert) == plain
    assert convert.calls == 2


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: (folder / "waits.parquet").unlink(),
        lambda folder: (folder / "waits.parquet").write_text(""),
        lambda folder: (folder / cache.METADATA).write_text("{"),
        lambda folder: (folder / cache.METADATA).unlink(),
    ],
    ids=["file gone", "file cut", "about cut", "about gone"],
)
def test_a_damaged_copy_is_not_served(source: Path, damage: Callable[[Path], object]) -> None:
    """Without its own trace.json it might be another's folder: the user's cache is used."""
    convert = Converter(source)
    damage(cache.find_or_build(source, convert))
    folder = cache.find_or_build(source, convert)
    assert (folder / "waits.parquet").read_text() == "one"
    assert convert.calls == 2


def test_a_foreign_folder_of_that_name_is_left_alone(source: Path, home: Path) -> None:
    """What the user converted or created there is never overwritten."""
    foreign = source.parent / "trace.dat.sched"
    foreign.mkdir()
    (foreign / "precious").write_text("mine")
    folder = cache.find_or_build(source, Converter(source))
    assert home in folder.parents
    assert (foreign / "precious").read_text() == "mine"


def test_sources_of_one_name_do_not_share_the_users_cache(tmp_path: Path, home: Path) -> None:
    folders = []
    for name in ("a", "b"):
        source = tmp_path / name / "trace.dat"
        source.parent.mkdir()
        source.write_text(name)
        (source.parent / "trace.dat.sched").mkdir()
        (source.parent / "trace.dat.sched" / "x").touch()
        folders.append(cache.find_or_build(source, Converter(source)))
    assert [(f / "waits.parquet").read_text() for f in folders] == ["a", "b"]


def test_an_explicit_cache_folder_is_made_and_used(source: Path, tmp_path: Path) -> None:
    place = tmp_path / "deep" / "cache"
    folder = cache.find_or_build(source, Converter(source), folder=place)
    assert folder.parent == place
    assert folder.name.endswith("-trace.dat.sched")
    assert not (source.parent / "trace.dat.sched").exists()


def test_sources_of_one_name_do_not_share_a_chosen_cache_folder(tmp_path: Path) -> None:
    sources = [tmp_path / name / "trace.dat" for name in ("a", "b")]
    for source in sources:
        source.parent.mkdir()
        source.write_text(source.parent.name)
    converters = [Converter(source) for source in sources]
    for _ in range(2):
        for source, convert in zip(sources, converters, strict=True):
            folder = cache.find_or_build(source, convert, folder=tmp_path / "cache")
            assert (folder / "waits.parquet").read_text() == source.parent.name
    assert [convert.calls for convert in converters] == [1, 1]


@pytest.mark.parametrize("chosen", [False, True], ids=["beside the source", "a chosen folder"])
def test_a_copy_that_an_open_trace_uses_is_not_replaced(
    source: Path, tmp_path: Path, chosen: bool
) -> None:
    place = tmp_path / "cache" if chosen else None
    versions = []
    leases = []
    for text in ("one", "two", "three"):
        source.write_text(text)
        folder = cache.find_or_build(source, Converter(source), folder=place)
        leases.append(Lease(folder))
        versions.append(folder)
        again = Converter(source)
        assert cache.find_or_build(source, again, folder=place) == folder
        assert not again.calls
    read = [(folder / "waits.parquet").read_text() for folder in versions]
    assert read == ["one", "two", "three"]
    leases.clear()
    source.write_text("four")
    assert cache.find_or_build(source, Converter(source), folder=place) == versions[0]
    assert [folder.exists() for folder in versions] == [True, False, False]


def test_a_trace_that_was_opened_can_be_read_when_its_source_was_recorded_again(
    tmp_path: Path,
) -> None:
    capture = tmp_path / "web.capture"
    shutil.copytree(FIXTURES / "linux-bpftrace.capture", capture)
    before = ss.open(capture)
    expected = ss.open(FIXTURES / "linux-bpftrace.capture", cache=tmp_path / "c").events
    shutil.rmtree(capture)
    shutil.copytree(FIXTURES / "linux-dtrace.capture", capture)
    after = ss.open(capture)
    assert ss.latency(before, by="all")["n"][0] != ss.latency(after, by="all")["n"][0]
    assert before.events == expected


def test_explicit_cache_folder_blocked_by_a_file_is_reported(source: Path, tmp_path: Path) -> None:
    cache.find_or_build(source, Converter(source), folder=tmp_path).rename(tmp_path / "aside")
    (tmp_path / cache._distinct(source, "trace.dat.sched")).write_text("mine")
    with pytest.raises(UsageError, match="not a converted copy"):
        cache.find_or_build(source, Converter(source), folder=tmp_path)


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), StorageError),
        (KeyboardInterrupt(), KeyboardInterrupt),
        (ValueError("broken"), ValueError),
    ],
    ids=["disk full", "Ctrl-C", "error"],
)
def test_failed_conversion_leaves_no_partial_folder(
    source: Path, error: BaseException, raised: type[BaseException]
) -> None:
    """After any failure no folder, partial or complete, stays behind."""

    def convert(folder: Path) -> str:
        (folder / "waits.parquet").write_text("half")
        raise error

    with pytest.raises(raised):
        cache.find_or_build(source, convert)
    assert [path.name for path in source.parent.iterdir()] == ["trace.dat"]


def test_a_failed_refresh_keeps_the_old_copy(source: Path) -> None:
    folder = cache.find_or_build(source, Converter(source))

    def convert(folder: Path) -> str:
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(StorageError, match="No space left"):
        cache.find_or_build(source, convert, refresh=True)
    assert (folder / "waits.parquet").read_text() == "one"


def test_source_growing_during_conversion_is_refused(source: Path) -> None:
    def convert(folder: Path) -> str:
        source.write_text("one and more")
        return "{}"

    with pytest.raises(StorageError, match="changed while it was being read"):
        cache.find_or_build(source, convert)
    assert not (source.parent / "trace.dat.sched").exists()


def test_concurrent_conversions_all_get_a_whole_copy(source: Path) -> None:
    """The first to finish wins, and the other takes the winner's copy."""
    barrier = threading.Barrier(4)
    folders: list[Path] = []

    def convert(folder: Path) -> str:
        barrier.wait(timeout=10)
        return Converter(source)(folder)

    threads = [
        threading.Thread(target=lambda: folders.append(cache.find_or_build(source, convert)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=20)
    assert folders == [source.parent / "trace.dat.sched"] * 4
    assert (folders[0] / "waits.parquet").read_text() == "one"
    assert len(list(source.parent.iterdir())) == 2


def test_the_folder_of_a_killed_process_is_cleared_away(source: Path) -> None:
    """The folder of a living process is kept."""
    script = f"""
import os, sys, time
from pathlib import Path
from schedscope.store import cache
def convert(folder):
    print(folder, flush=True)
    time.sleep(60)
cache.find_or_build(Path({str(source)!r}), convert)
"""
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    partial = Path(process.stdout.readline().strip())
    old = time.time() - 3600
    os.utime(partial, (old, old))
    cache.find_or_build(source, Converter(source), refresh=True)
    assert partial.is_dir()
    process.kill()
    process.wait()
    cache.find_or_build(source, Converter(source), refresh=True)
    assert not partial.exists()


def test_unwritable_folder_puts_the_copy_into_the_user_cache(
    source: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # By a patch, not by chmod: root may write everywhere.
    monkeypatch.setattr(cache, "_writable", lambda folder: folder != source.parent)
    convert = Converter(source)
    folder = cache.find_or_build(source, convert)
    assert home in folder.parents
    assert cache.find_or_build(source, convert) == folder
    assert convert.calls == 1


def test_the_folder_has_the_permissions_of_the_umask(source: Path) -> None:
    before = os.umask(0o027)
    try:
        folder = cache.find_or_build(source, Converter(source))
    finally:
        os.umask(before)
    assert folder.stat().st_mode & 0o777 == 0o750


def test_a_capture_folder_counts_as_a_whole(tmp_path: Path) -> None:
    """A change in any of its files is a change; its copy drops the suffix .capture."""
    capture = tmp_path / "web.capture"
    (capture / "raw").mkdir(parents=True)
    (capture / "capture.json").write_text("{}")
    (capture / "raw" / "cpu0").write_text("pages")
    convert = Converter(capture / "raw" / "cpu0")

    def build(folder: Path) -> str:
        return convert(folder)

    folder = cache.find_or_build(capture, build)
    assert folder == tmp_path / "web.sched"
    (capture / "raw" / "cpu1").write_text("more")
    cache.find_or_build(capture, build)
    assert convert.calls == 2
    shutil.rmtree(capture / "raw")
    (capture / "raw").mkdir()
    (capture / "raw" / "cpu0").write_text("pages")
    cache.find_or_build(capture, build)
    assert convert.calls == 3


def test_empty_folder_is_refused(tmp_path: Path) -> None:
    empty = tmp_path / "x.capture"
    empty.mkdir()
    with pytest.raises(StorageError, match="empty folder"):
        cache.find_or_build(empty, Converter(empty))


@pytest.mark.parametrize("act", [ss.open, ss.convert])
def test_folder_that_is_not_a_capture_is_refused_before_reading_its_files(
    act: Callable[[Path], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "letter.txt").write_text("dear")
    monkeypatch.setattr(cache, "_stat", lambda source: pytest.fail(f"looked at all of {source}"))
    with pytest.raises(FormatError, match="home is a folder, but not a capture"):
        act(tmp_path / "home")
    assert [path.name for path in tmp_path.iterdir()] == ["home"]


def test_trace_from_stdin_keeps_the_name_of_its_file(tmp_path: Path) -> None:
    capture = tmp_path / "yield.dat"
    shutil.copyfile(FIXTURES / "linux-trace-cmd-yield.dat", capture)
    program = "import schedscope as ss; t = ss.open('/dev/stdin'); print(t.name, t.path)"
    with capture.open("rb") as stdin:
        words = [sys.executable, "-c", program]
        done = subprocess.run(words, stdin=stdin, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["yield.dat", str(tmp_path / "yield.dat.sched")]
