"""Whatever writes a file: it is as private as its source, and root is not led elsewhere."""

from __future__ import annotations

import argparse
import os
import pwd
import re
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sources import ROOT

import schedscope as ss
from schedscope import cli, outputs, workload
from schedscope.errors import StorageError
from schedscope.invoking_user import acting_as

FIXTURE = Path(__file__).parents[2] / "fixtures" / "linux-trace-cmd-yield.dat"


@pytest.fixture(autouse=True)
def usual_umask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path.parent / "cache"))
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "in" / "web.dat"
    path.parent.mkdir()
    shutil.copyfile(FIXTURE, path)
    return path


def modes(folder: Path) -> dict[str, int]:
    return {
        str(path.relative_to(folder)): path.stat().st_mode & 0o777
        for path in sorted(folder.rglob("*"))
    }


# What each option that names a file or folder to write is tried with. `fleet` takes its folder
# from the caller, so what it puts there is tried; `capture` is POSIX sh and has its own tests.
COMMANDS: dict[tuple[str, str], list[str]] = {
    ("convert", "output"): ["convert", "{source}", "-o", "{out}/x.sched"],
    ("export", "output"): ["export", "{source}", "--to", "csv", "-o", "{out}/csv"],
    ("fleet", "output"): ["fleet", "{source}", "--keep-converted", "-o", "{out}/fleet"],
    ("report", "figures"): [
        *("report", "{source}", "--no-timeline", "-o", "{out}/x.html", "--figures", "{out}/png"),
    ],
    ("simulate", "output"): ["simulate", "{source}", "-o", "{out}/x.sched"],
    ("simulate", "save_workload"): [
        *("simulate", "{source}", "--save-workload", "{out}/x.workload"),
    ],
    ("simulate", "save_rtapp"): ["simulate", "{source}", "--save-rtapp", "{out}/x.json"],
    ("simulate", "figure"): [
        *("simulate", "{source}", "--policy", "rr,eevdf", "--figure", "{out}/x.png"),
    ],
    ("timeline", "output"): ["timeline", "{source}", "-o", "{out}/x.html"],
    ("latency", "cache"): ["latency", "{source}", "--cache", "{out}/cache"],
}
ELSEWHERE = {("capture", "output"), ("collectors", "bundle"), ("report", "output")}


def test_every_option_that_names_what_is_written_is_tried() -> None:
    found = set()
    for command, entry in cli.commands().items():
        parser = argparse.ArgumentParser()
        entry.add_arguments(parser)
        for action in parser._actions:
            if re.match("output$|figure|bundle$|save_|cache$", action.dest):
                found.add((command, action.dest))
    caches = {pair for pair in found if pair[1] == "cache"}
    assert ("latency", "cache") in caches
    assert found - caches == (COMMANDS.keys() | ELSEWHERE) - caches


# All of them with a private source; the quick ones with others, too.
_TRIED = [
    *((pair, 0o600) for pair in COMMANDS),
    *((pair, mode) for pair in COMMANDS if pair[0] in ("convert", "export", "latency")
      for mode in (0o640, 0o644)),
]  # fmt: skip


@pytest.mark.parametrize(("pair", "mode"), _TRIED)
def test_a_command_writes_nothing_more_readable_than_its_source(
    pair: tuple[str, str], mode: int, source: Path, tmp_path: Path
) -> None:
    source.chmod(mode)
    out = tmp_path / "out"
    out.mkdir()
    words = [word.format(source=source, out=out) for word in COMMANDS[pair]]
    assert cli.main(words) == 0
    found = {**modes(out), **modes(source.parent)}
    assert len(found) > 1
    given = {"cache", "fleet", "fleet/summaries"}  # folders for several traces
    for name, there in found.items():
        if name not in given:
            assert there & 0o066 & ~mode == 0, f"{name} is {there:o}"
            assert there & 0o044 == mode & 0o044, f"{name} is {there:o}"


def _sched(trace: ss.Trace, out: Path) -> None:
    trace.to_sched(out / "x.sched")


def _part(trace: ss.Trace, out: Path) -> None:
    trace.between(0, trace.duration / 2e9).to_sched(out / "x.sched")


def _in_memory(trace: ss.Trace, out: Path) -> None:
    trace.in_memory("states").to_sched(out / "x.sched")


def _exported(to: str) -> Callable[[ss.Trace, Path], object]:
    return lambda trace, out: ss.export(trace, out / "x", to)


def _simulated(trace: ss.Trace, out: Path) -> None:
    ss.simulate(workload.extract(trace), policy="rr", output=out / "x.sched")


def _simulated_later(trace: ss.Trace, out: Path) -> None:
    ss.simulate(workload.extract(trace), policy="rr").to_sched(out / "x.sched")


def _workload(trace: ss.Trace, out: Path) -> None:
    workload.extract(trace).save(out / "x.workload")
    workload.read_workload(out / "x.workload").save(out / "y.workload")


def _notes(trace: ss.Trace, out: Path) -> None:
    from schedscope.timelines.notes import Notes

    trace.to_sched(out / "x.sched")
    Notes(ss.Trace.read(out / "x.sched")).keep([{"at": 1, "lane": None, "text": "here"}])
    assert (out / "x.notes.json").exists()


def _kept(trace: ss.Trace, out: Path) -> None:
    from schedscope.store import checked_file

    trace.to_sched(out / "x.sched")
    checked_file.keep(out / "x.sched" / "kept.bin", [b"1"])


FUNCTIONS: dict[str, Callable[[ss.Trace, Path], object]] = {
    "to_sched": _sched,
    "between": _part,
    "in_memory": _in_memory,
    **{f"export {to}": _exported(to) for to in ("perfetto", "trace.dat", "chrome", "parquet")},
    "simulate": _simulated,
    "simulate in memory": _simulated_later,
    "workload": _workload,
    "notes": _notes,
    "checked_file": _kept,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_writes_nothing_more_readable_than_its_source(
    name: str, source: Path, tmp_path: Path
) -> None:
    source.chmod(0o600)
    out = tmp_path / "out"
    out.mkdir()
    FUNCTIONS[name](ss.open(source), out)
    assert modes(out)
    assert all(mode & 0o077 == 0 for mode in modes(out).values()), modes(out)


def test_package_writes_only_through_outputs() -> None:
    """A writer that is not in this list has to use `outputs`, and to be tried above."""
    writes = re.compile(
        r"open\([^)]*[\"'][wxa]b?[\"']|\.write_text\(|\.write_bytes\(|mkdtemp|\.mkdir\(|savefig\("
        r"|\.write_parquet\(|sink_parquet\(|os\.replace\(|\.write_csv\(path|_native\.write_"
    )
    found = {
        path.relative_to(ROOT).as_posix()
        for path in ROOT.rglob("*.py")
        if writes.search(path.read_text(encoding="utf-8"))
    }
    mechanism = re.compile(r"\boutputs\.|import .*\bwhole\b|cache\.write\(")
    ours = {path for path in found if not mechanism.search((ROOT / path).read_text("utf-8"))}
    assert ours == {
        "outputs.py",
        "exports/chrome.py",  # fills what `export` made
        "store/overview_writer.py",  # fills what `cache` made
        "live/recorder.py",  # in a temporary folder that only root can enter
        "timelines/sql.py",  # likewise, that only we can enter
        "fleets/task.py",  # in the scratch folder, as the two below
        "fleets/sources.py",
        "cli/fleet.py",  # by `fleets.store`
        "fleets/fleet.py",
    }


def test_a_copy_made_earlier_becomes_as_private_as_its_source(source: Path) -> None:
    source.chmod(0o644)
    folder = ss.open(source).path
    assert folder is not None
    assert folder.stat().st_mode & 0o777 == 0o755
    source.chmod(0o600)
    assert ss.open(source).path == folder
    assert folder.stat().st_mode & 0o777 == 0o700
    assert set(modes(folder).values()) == {0o600}


def test_the_strictest_of_several_sources_and_of_the_umask_holds(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    for path, mode in ((one, 0o644), (two, 0o640)):
        path.touch()
        path.chmod(mode)
    for sources, umask, expected in (
        ([], 0o022, 0o644),
        ([one], 0o022, 0o644),
        ([one], 0o027, 0o640),
        ([one, two], 0o022, 0o640),
        ([tmp_path / "not there"], 0o022, 0o600),
    ):
        os.umask(umask)
        with outputs.whole(tmp_path / "made", sources) as made:
            made.write_text("x")
        assert (tmp_path / "made").stat().st_mode & 0o777 == expected
        assert os.umask(0o022) == umask


def test_two_threads_that_write_at_once_leave_the_umask_as_it_was(tmp_path: Path) -> None:
    """The first to end must not give the other's files away."""
    private = tmp_path / "private"
    private.touch(0o600)
    inside, ended = threading.Event(), threading.Event()

    def other() -> None:
        with outputs.private([private], tmp_path):
            inside.set()
            ended.wait(10)
            (tmp_path / "made").touch()

    thread = threading.Thread(target=other)
    with outputs.private([], tmp_path):
        thread.start()
        assert inside.wait(10)
    ended.set()
    thread.join(10)
    assert (tmp_path / "made").stat().st_mode & 0o777 == 0o600
    assert os.umask(0o022) == 0o022


def test_a_link_that_waits_for_the_writer_is_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    target = tmp_path / "x.html"
    for name in (".x.html.partial", "x.html.partial", f".x.html.{os.getpid()}.partial"):
        (tmp_path / name).symlink_to(victim)
    target.symlink_to(victim)
    with outputs.whole(target) as made:
        made.write_text("page")
    assert (victim.read_text(), target.read_text()) == ("mine", "page")
    assert not target.is_symlink()


# ------------------------------------------------------------------ root


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    """A folder of a user, who can reach it."""
    for path in (tmp_path, *tmp_path.parents[:3]):
        path.chmod(path.stat().st_mode | 0o711)
    folder = tmp_path / "home-of-daemon"
    folder.mkdir()
    shutil.chown(folder, "daemon", "daemon")
    return folder


DAEMON = pwd.getpwnam("daemon")
needs_root = pytest.mark.needs("root")


@needs_root
@pytest.mark.parametrize("below", ["", "root's own"])
def test_root_keeps_no_copy_below_a_users_folder(below: str, theirs: Path, tmp_path: Path) -> None:
    """The same in a folder of root's there, which that user can replace."""
    place = theirs / below
    place.mkdir(exist_ok=True)
    source = place / "web.dat"
    shutil.copyfile(FIXTURE, source)
    before = sorted(theirs.rglob("*"))
    path = ss.open(source).path
    assert path is not None
    assert not path.is_relative_to(theirs)
    assert sorted(theirs.rglob("*")) == before
    assert ss.open(source).path == path


@needs_root
@pytest.mark.parametrize("command", ["timeline", "export", "convert"])
def test_files_in_a_users_folder_are_written_as_the_user(command: str, theirs: Path) -> None:
    source = theirs / "web.dat"
    shutil.copyfile(FIXTURE, source)
    shutil.chown(source, "daemon", "daemon")
    source.chmod(0o600)
    target = theirs / {"timeline": "x.html", "export": "csv", "convert": "x.sched"}[command]
    more = ["--to", "csv"] if command == "export" else []
    assert cli.main([command, str(source), *more, "-o", str(target)]) == 0
    made = [target, *target.rglob("*")]
    assert {(path.stat().st_uid, path.stat().st_gid) for path in made} == {
        (DAEMON.pw_uid, DAEMON.pw_gid)
    }
    assert {path.stat().st_mode & 0o077 for path in made} == {0}
    assert sorted(path.name for path in theirs.iterdir()) == sorted(["web.dat", target.name])
    assert (os.geteuid(), os.getegid()) == (0, 0)


@needs_root
def test_a_user_cannot_lead_root_into_a_folder_of_roots(theirs: Path, tmp_path: Path) -> None:
    """The folder is replaced by a link while root makes the page."""
    source = theirs / "web.dat"
    shutil.copyfile(FIXTURE, source)
    victim = tmp_path / "victim"
    victim.mkdir(0o755)
    place = theirs / "pages"
    place.mkdir()
    shutil.chown(place, "daemon")

    def fill(made: Path) -> None:
        made.write_text("page")
        place.rename(theirs / "moved")
        place.symlink_to(victim)

    with pytest.raises(PermissionError), outputs.whole(place / "x.html", [source]) as made:
        fill(made)
    assert not list(victim.iterdir())
    assert os.geteuid() == 0


@needs_root
def test_root_gives_a_user_no_copy_of_what_that_user_cannot_read(
    theirs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "web.dat"
    shutil.copyfile(FIXTURE, source)
    source.chmod(0o600)
    assert cli.main(["timeline", str(source), "-o", str(theirs / "x.html")]) == 1
    said = capsys.readouterr().err
    assert f"below a folder of daemon, who cannot read {source}" in said
    assert not list(theirs.iterdir())


@needs_root
def test_root_keeps_temporary_files_out_of_a_users_folder(
    theirs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TMPDIR may still be that of the user who calls."""
    monkeypatch.setattr(tempfile, "tempdir", str(theirs))
    assert outputs.temporary() in (Path("/var/tmp"), Path("/tmp"))
    with acting_as(DAEMON.pw_uid):
        assert outputs.temporary() == theirs


@needs_root
def test_root_writes_no_file_where_anybody_can_replace_it(tmp_path: Path) -> None:
    place = tmp_path / "open"
    place.mkdir()
    place.chmod(0o777)
    with pytest.raises(StorageError, match="writable by others"), outputs.whole(place / "x"):
        raise AssertionError("not reached")
    place.chmod(0o1777)
    with outputs.whole(place / "x") as made:
        made.write_text("x")
    assert (place / "x").read_text() == "x"


@needs_root
def test_output_from_a_users_trace_belongs_to_the_user(source: Path, tmp_path: Path) -> None:
    shutil.chown(source, "daemon", "daemon")
    source.chmod(0o640)
    out = tmp_path / "x.html"
    assert cli.main(["timeline", str(source), "-o", str(out)]) == 0
    for path in (out, ss.open(source).path, *modes(tmp_path / "in")):
        assert path is not None
        there = (tmp_path / "in" / path).stat()
        assert (there.st_uid, there.st_gid) == (DAEMON.pw_uid, DAEMON.pw_gid)
        assert there.st_mode & 0o027 == 0


@needs_root
def test_acting_as_a_user_sets_and_restores_groups(tmp_path: Path) -> None:
    before = (os.geteuid(), os.getegid(), os.getgroups())
    with acting_as(DAEMON.pw_uid):
        assert (os.geteuid(), os.getegid()) == (DAEMON.pw_uid, DAEMON.pw_gid)
        assert 0 not in os.getgroups()
    assert (os.geteuid(), os.getegid(), os.getgroups()) == before


@pytest.mark.parametrize("command", ["export --to perfetto", "report", "timeline"])
def test_force_never_replaces_the_trace_that_is_read(
    command: str, source: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = source.read_bytes()
    assert cli.main([*command.split(), str(source), "-o", str(source), "--force"]) == 2
    assert capsys.readouterr().err == (
        f"schedscope: {source} is what is read; expected another name for what is written\n"
    )
    assert source.read_bytes() == before
