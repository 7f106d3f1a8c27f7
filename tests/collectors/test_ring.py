"""The flight recorder: contents of a snapshot, triggers, and what remains afterwards."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from collector_runs import CAPTURE, INSTANCES, ROOT, Run, checksums_are_right, meta, table

import schedscope

needs_ftrace = pytest.mark.needs("root", "tracefs", "linux")
READY = "capture --snapshot"
SWITCHES = "import time\nfor _ in range({}): time.sleep(0.0001)"


def snapshots(run: Run, name: str = "x") -> list[Path]:
    return sorted((run.cwd / f"{name}.ring").glob("*.capture"))


def gone(run: Run) -> None:
    """No instance, no process, and only snapshots in the folder."""
    assert run.instance() == []
    run.eventually(lambda: not run.leftovers(), 10)
    assert not list(run.cwd.glob("*.ring/.*")) + list(run.cwd.glob("*.ring/*.partial"))


def asked(run: Run, count: int = 1, name: str = "x") -> list[Path]:
    """Requests snapshots until there are so many."""
    os.kill(run.process.pid, signal.SIGUSR1)
    run.eventually(lambda: len(snapshots(run, name)) >= count)
    return snapshots(run, name)


def ring_of(capture: Path) -> dict[str, Any]:
    return meta(capture)["ring"]


def load(loops: int) -> None:
    subprocess.run([sys.executable, "-c", SWITCHES.format(loops)], check=True)


@needs_ftrace
@pytest.mark.records
def test_ring_without_a_trigger_writes_nothing(tmp_path: Path) -> None:
    run = Run("--ring", "5s", "-o", "x", cwd=tmp_path)
    run.until(READY)
    assert not snapshots(run)
    run.process.send_signal(signal.SIGINT)
    assert run.wait() == 0
    assert "no trigger came" in run.said
    assert not (tmp_path / "x.ring").exists()
    gone(run)


@needs_ftrace
@pytest.mark.records
def test_a_snapshot_holds_the_last_seconds_of_every_cpu(tmp_path: Path) -> None:
    """A CPU starts after its overwritten events, without a loss; nothing is after the trigger."""
    run = Run("--ring", "3s", "-b", "1024K", "-o", "x", cwd=tmp_path)
    run.until(READY)
    for _ in range(4):
        load(8000)
    (capture,) = asked(run)
    assert run.process.poll() is None
    run.process.send_signal(signal.SIGTERM)
    assert run.wait() == 0
    gone(run)

    about, ring = meta(capture), ring_of(capture)
    assert about["complete"] is True
    checksums_are_right(capture)
    assert about["lost"] == []
    begin, end = about["window"]["begin"], about["window"]["end"]
    assert ring["at"] == end
    assert any(cpu["overwritten"] for cpu in ring["cpus"])
    trace = schedscope.open(capture, cache=tmp_path / "cache")
    assert trace.window == (begin, end)
    losses = trace.losses.collect()
    losses_found = losses.filter(losses["reason"] != "chain_break")
    held = {cpu["cpu"]: cpu for cpu in ring["cpus"]}
    # On a very busy host the ring may wrap before a CPU is copied.
    nothing = {number for number, cpu in held.items() if cpu["held_ns"] == 0}
    reasons = dict(losses_found.select("cpu", "reason").iter_rows())
    assert set(reasons.values()) <= {"late_start", "absent"}
    assert {number for number, reason in reasons.items() if reason == "absent"} <= nothing
    assert losses_found["count"].drop_nulls().is_empty()
    for loss in losses_found.iter_rows(named=True):
        assert loss["ts_begin"] == begin
        # No time is claimed before the first event of the CPU.
        assert loss["ts_end"] >= held[loss["cpu"]]["begin"]
    for cpu in ring["cpus"]:
        assert cpu["held_ns"] == end - (cpu["begin"] or begin)
    checks = dict(schedscope.check(trace).select("check", "level").iter_rows())
    assert "violated" not in checks.values()


@needs_ftrace
@pytest.mark.records
def test_nothing_is_missing_between_two_snapshots(tmp_path: Path) -> None:
    """A ring that overwrites nothing: each event in the kernel's count is in one of the two."""
    run = Run("--ring", "64M", "-o", "x", cwd=tmp_path)
    run.until(READY)
    load(2000)
    (first,) = asked(run)
    load(2000)
    _, second = asked(run, 2)
    run.process.send_signal(signal.SIGTERM)
    assert run.wait() == 0
    assert meta(second)["window"]["begin"] >= meta(first)["window"]["end"]
    for capture in (first, second):
        assert all(cpu["begin"] is None for cpu in ring_of(capture)["cpus"])
        trace = schedscope.open(capture, cache=tmp_path / "cache")
        assert (
            trace.losses.collect()
            .filter(trace.losses.collect()["reason"] != "chain_break")
            .is_empty()
        )


@needs_ftrace
@pytest.mark.records
def test_events_recorded_during_a_snapshot_are_in_the_next(tmp_path: Path) -> None:
    """Under heavy load all counted events are in the files, some before the window."""
    run = Run("--ring", "64M", "-o", "x", cwd=tmp_path)
    run.until(READY)
    words = [sys.executable, "-c", "import time\nwhile True: time.sleep(5e-5)"]
    storm = [subprocess.Popen(words) for _ in range(6)]
    try:
        time.sleep(0.3)
        asked(run)
        time.sleep(0.3)
        _, second = asked(run, 2)
    finally:
        for process in storm:
            process.kill()
    run.process.send_signal(signal.SIGTERM)
    assert run.wait() == 0
    # As if its window had no borders.
    shutil.copytree(second, whole := tmp_path / "y.capture")
    (whole / "checksums").unlink()
    about = meta(whole)
    assert all(cpu["begin"] is None for cpu in about["ring"]["cpus"])
    about["window"] = {"begin": 0, "end": about["window"]["end"] + 10**12}
    (whole / "capture.json").write_text(json.dumps(about))
    found = dict.fromkeys((cpu["cpu"] for cpu in about["ring"]["cpus"]), 0)
    for cpus in schedscope.open(whole, cache=tmp_path / "cache").info["events"].values():
        for cpu, events in cpus.items():
            found[int(cpu)] += events
    for cpu, events in found.items():
        assert f"read events: {events}\n" in (second / f"stats/cpu{cpu}").read_text()


@needs_ftrace
@pytest.mark.records
@pytest.mark.parametrize(("until", "status"), [("exit != 0", 0), ("exit != 0", 3), ("exit = 3", 3)])
def test_the_exit_status_of_the_command(until: str, status: int, tmp_path: Path) -> None:
    command = ["sh", "-c", f"sleep 0.3; exit {status}"]
    run = Run("--ring", "5s", "-o", "x", "--trigger", until, "--", *command, cwd=tmp_path)
    assert run.wait() == status
    found = snapshots(run)
    assert len(found) == (1 if status else 0)
    for capture in found:
        assert capture.name.endswith("-1-exit.capture")
        assert ring_of(capture)["snapshot"] == 1
        assert meta(capture)["workload"]["exit_status"] == 3
        assert ring_of(capture)["trigger"] == "the command ended with status 3"
        names = {row["comm"] for row in table(capture / "threads.tsv")}
        assert "sh" in names
    gone(run)


@needs_ftrace
@pytest.mark.records
def test_files_and_log_lines(tmp_path: Path) -> None:
    """Each ends a recording without --keep; with it, --pause skips the second of two."""
    log, flag = tmp_path / "app.log", tmp_path / "flag"
    log.write_text("an ERROR of yesterday\n")
    run = Run("--ring", "5s", "-o", "x", "--trigger", f"log {log} ERROR", cwd=tmp_path)
    run.until(READY)
    # tail starts at the current end of the file.
    run.eventually(lambda: "tail" in " ".join(run.leftovers()), 10)
    with log.open("a") as lines:
        lines.write("all is well\nan ERROR of today\n")
    assert run.wait() == 0
    (capture,) = snapshots(run)
    assert capture.name.endswith("-log.capture")
    gone(run)

    words = ["--trigger", f"file {flag}", "--keep", "200M", "--pause", "3000"]
    run = Run("--ring", "5s", "-b", "1024K", "-o", "y", *words, cwd=tmp_path)
    run.until(READY)
    flag.touch()
    run.eventually(lambda: len(snapshots(run, "y")) == 1, 20)
    run.eventually(lambda: "snapshot y.ring" in run.said, 20)
    flag.unlink()
    run.eventually(lambda: flag.touch() or not (tmp_path / "y.ring/.scratch/trigger").exists(), 10)
    os.kill(run.process.pid, signal.SIGUSR1)
    run.eventually(lambda: len(snapshots(run, "y")) == 2, 20)
    run.process.send_signal(signal.SIGTERM)
    assert run.wait() == 0
    gone(run)


@needs_ftrace
@pytest.mark.records
@pytest.mark.needs("bpftrace")
@pytest.mark.parametrize("until", ["wait > 1us", "p50 > 1ns for 500ms"])
def test_predicates_in_the_kernel(until: str, tmp_path: Path) -> None:
    run = Run("--ring", "5s", "-o", "x", "--trigger", until, cwd=tmp_path)
    assert run.wait(120) == 0
    (capture,) = snapshots(run)
    assert capture.name.endswith("-wait.capture")
    gone(run)


def test_the_oldest_snapshot_has_the_lowest_number(tmp_path: Path) -> None:
    """Whatever the clock was; names of the user's, of any characters, go before all others.

    A link is none: what it points to stays.
    """
    earlier = ["20260101-000000-7-file.capture", "20260102-000000-8-file.capture"]
    made = ["20370101-000000-9-signal.capture", "20010101-000000-10-wait.capture"]
    users = ["0-0-0-a\n0-0-1-b.capture", "1-1-1x-c.capture", "9-9-99999999999999999999-d.capture"]
    high = "1-1-9999999999-wait.capture"
    for name in (*made, *earlier, *users, high):
        (tmp_path / name).mkdir()
    (tmp_path / "0-0-0-link.capture").symlink_to(tmp_path)
    script = (
        f'. {ROOT}/collectors/ring.sh; ring_order; printf "%s\\n%s" $ring_highest "$ring_oldest"'
    )
    found = []
    for number in range(9):
        words = ["sh", "-uc", script]
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True)
        highest, _, oldest = done.stdout.partition("\n")
        assert int(highest) == (10 if number < 7 else 0)
        found.append(oldest)
        if oldest:
            (tmp_path / oldest).rmdir()
    assert found == [*users, *earlier, *made, high, ""]


@pytest.mark.needs("busybox")
def test_trigger_reason_names_the_thread_with_small_tools(tmp_path: Path) -> None:
    """Busybox's `tr` may take [:print:] for its literal characters."""
    (tmp_path / ".scratch").mkdir()
    (tmp_path / ".scratch/reading").touch()
    said = "thread 812 (worker) waited 61380 us"
    hit = said.replace("worker", "\u00f6worker\x1b")
    (tmp_path / "bpftrace").write_text(f"echo '#on'\necho 'hit {hit}'\n")
    script = f"""
        . {ROOT}/collectors/linux/ring-watch.sh
        tr() {{ busybox tr "$@"; }}
        ring_post() {{ echo "$1: $2"; rm -f .scratch/reading; }}
        SCHEDSCOPE_BPFTRACE='sh ./bpftrace' ring_watch_waits 1 'wait 50000000 50ms'
    """
    done = subprocess.run(
        ["sh", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout == f"wait: a wait longer than 50ms: {said}\n"


@pytest.mark.parametrize(("present", "cpus"), [("0", 1), ("0-3", 4), ("0-1,4-5", 6), ("0,7", 8)])
def test_quantile_trigger_covers_all_cpus(present: str, cpus: int, tmp_path: Path) -> None:
    """Also of those after an offline or missing CPU."""
    (tmp_path / "present").write_text(f"{present}\n")
    script = f". {ROOT}/collectors/linux/ring-watch.sh; ring_cpus {tmp_path}/present"
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == f"{cpus}\n"


@needs_ftrace
@pytest.mark.records
def test_predicate_without_bpftrace_is_refused(tmp_path: Path) -> None:
    environment = {"SCHEDSCOPE_BPFTRACE": "no-such-bpftrace"}
    words = ["--ring", "5s", "-o", "x", "--trigger", "wait > 50ms"]
    run = Run(*words, cwd=tmp_path, environment=environment)
    assert run.wait() == 125
    assert "triggers about waits need bpftrace: there is no no-such-bpftrace" in run.said


@needs_ftrace
@pytest.mark.records
def test_snapshot_command_triggers_the_ring(tmp_path: Path) -> None:
    run = Run("--ring", "5s", "-o", "x", cwd=tmp_path)
    run.until(READY)
    words = ["sh", str(CAPTURE), "--snapshot", "-o", str(tmp_path / "x.ring")]
    answer = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    (capture,) = snapshots(run)
    assert answer.strip() == str(capture)
    run.process.send_signal(signal.SIGTERM)
    assert run.wait() == 0
    answer = subprocess.run(words, capture_output=True, text=True, check=False)
    assert answer.returncode == 125
    assert "no flight recorder (capture --ring) is running here" in answer.stderr


@needs_ftrace
@pytest.mark.records
def test_snapshot_command_reaches_the_ring_of_its_folder(tmp_path: Path) -> None:
    """Two recorders with folders of one name in different places."""
    runs = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        run = Run("--ring", "512K", "-o", "x", cwd=tmp_path / name)
        run.until(READY)
        runs.append(run)
    for cwd, folder, run in [(tmp_path, "b/x", runs[1]), (tmp_path / "a", "x.ring", runs[0])]:
        words = ["sh", str(CAPTURE), "--snapshot", "-o", folder]
        answer = subprocess.run(words, capture_output=True, text=True, check=True, cwd=cwd).stdout
        assert [answer.strip()] == [str(path) for path in snapshots(run)]
    words = ["sh", str(CAPTURE), "--snapshot", "-o", "x"]
    answer = subprocess.run(words, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert answer.returncode == 125
    assert "no flight recorder (capture --ring) is running here for x" in answer.stderr


@needs_ftrace
@pytest.mark.records
@pytest.mark.needs("unshare")
def test_snapshot_command_reaches_a_ring_in_a_container(tmp_path: Path) -> None:
    """There it has a pid that means another process here; one here in the same second stays."""
    here = Run("--ring", "512K", "-o", "here", cwd=tmp_path)
    container = ("unshare", "-pf", "--mount-proc", "--kill-child", "sh")
    inside = Run("--ring", "512K", "-o", "inside", cwd=tmp_path, shell=container)
    here.until(READY)
    inside.until(READY)
    for name, run in (("inside", inside), ("here", here)):
        words = ["sh", str(CAPTURE), "--snapshot", "-o", name]
        done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert [done.stdout.strip()] == [str(path) for path in snapshots(run, name)]
    # Its init is killed, and with it everything inside: the next recorder continues in the folder.
    inside.process.kill()
    inside.eventually(lambda: not inside.leftovers(), 10)
    again = Run("--ring", "512K", "-o", "inside", "-d", "1", cwd=tmp_path)
    assert again.wait() == 0, again.said
    assert len(snapshots(inside, "inside")) == 1
    assert not (tmp_path / "inside.ring/.scratch").exists()
    here.process.send_signal(signal.SIGTERM)
    assert here.wait() == 0


@needs_ftrace
@pytest.mark.records
def test_snapshots_within_one_second_have_different_names(tmp_path: Path) -> None:
    """Whatever else has the name that one would get."""
    run = Run("--ring", "512K", "-o", "x", cwd=tmp_path)
    run.until(READY)
    for later in range(40):
        stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(time.time() + later))
        (tmp_path / "x.ring" / f"{stamp}-1-signal.capture").mkdir()
    os.kill(run.process.pid, signal.SIGUSR1)
    run.until("-2-signal.capture: asked for")
    (made,) = (tmp_path / "x.ring").glob("*-2-signal.capture")
    assert meta(made)["complete"] is True
    assert not list((tmp_path / "x.ring").glob("*-1-*/*"))


COUNTS = """
    ftrace_dir=$2
    . "$1/collectors/ring-snapshot.sh"
    for round in 1 2 3 4 5 6 7 8 9 10; do
        : >"$ftrace_dir/trace"
        for turn in 1 2 3 4 5 6 7 8 9 10 11 12; do
            ring_count 0 || echo none
            echo "$round $((ring_entries + ring_overrun + ring_read))"
        done
    done
"""


@needs_ftrace
@pytest.mark.records
def test_kernel_counts_are_read_at_one_instant(tmp_path: Path) -> None:
    """While events arrive and numbers grow: the sum only grows until the ring is emptied."""
    instance = INSTANCES / f"schedscope-test-{os.getpid()}"
    instance.mkdir()
    busy = subprocess.Popen([sys.executable, "-c", "import time\nwhile 1: time.sleep(5e-5)"])
    try:
        (instance / "buffer_size_kb").write_text("8192")
        (instance / "events/sched/enable").write_text("1")
        words = ["sh", "-c", 5 * COUNTS, "sh", str(ROOT), str(instance)]
        said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    finally:
        busy.kill()
        busy.wait()
        instance.rmdir()
    counts = [tuple(map(int, line.split())) for line in said.splitlines()]
    assert len(counts) == 5 * 10 * 12
    for before, after in pairwise(counts):
        assert before[0] != after[0] or before[1] <= after[1]


@needs_ftrace
@pytest.mark.records
def test_oldest_snapshots_are_removed_first(tmp_path: Path) -> None:
    """--keep applies to all snapshots together, including those of an earlier recorder."""
    words = ["--ring", "512K", "-o", "x", "--trigger", f"file {tmp_path}/never", "--keep", "20M"]
    old = tmp_path / "x.ring" / "20200101-000000-1-wait.capture"
    run = Run(*words, cwd=tmp_path)
    run.until(READY)
    old.mkdir(mode=0o700)
    (old / "raw").write_bytes(bytes(16 << 20))
    os.kill(run.process.pid, signal.SIGUSR1)
    run.until("snapshot x.ring")
    assert not old.exists()
    assert len(snapshots(run)) == 1
    run.process.send_signal(signal.SIGTERM)
    assert run.wait() == 0
    again = Run(*words, cwd=tmp_path)
    again.until(READY)
    assert [path.name.split("-")[2] for path in asked(again, 2)] == ["1", "2"]
    again.process.send_signal(signal.SIGTERM)
    assert again.wait() == 0
    gone(again)


@needs_ftrace
@pytest.mark.records
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_finished_snapshots_stay_after_any_end(number: signal.Signals, tmp_path: Path) -> None:
    run = Run("--ring", "5s", "-o", "x", cwd=tmp_path)
    run.until(READY)
    (capture,) = asked(run)
    run.process.send_signal(number)
    run.wait()
    run.eventually(lambda: not run.leftovers() and not run.instance(), 30)
    assert snapshots(run) == [capture]
    assert meta(capture)["complete"] is True
    gone(run)


@needs_ftrace
@pytest.mark.records
def test_second_ring_in_one_folder_is_refused(tmp_path: Path) -> None:
    run = Run("--ring", "5s", "-o", "x", cwd=tmp_path)
    run.until(READY)
    other = Run("--ring", "5s", "-o", "x", cwd=tmp_path)
    assert other.wait() == 125
    assert "another capture --ring records into" in other.said
    assert run.process.poll() is None
    asked(run)
    run.process.send_signal(signal.SIGTERM)
    assert run.wait() == 0


@needs_ftrace
@pytest.mark.records
def test_a_folder_that_others_may_write_to_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.ring").mkdir()
    (tmp_path / "x.ring").chmod(0o777)
    run = Run("--ring", "5s", "-o", "x", cwd=tmp_path)
    assert run.wait() == 125
    assert "not a folder that only root can write to" in run.said
    assert (tmp_path / "x.ring").exists()


@needs_ftrace
@pytest.mark.records
def test_a_file_in_the_folders_place_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "x.ring").write_text("mine")
    run = Run("--ring", "5s", "-o", "x", cwd=tmp_path)
    assert run.wait() == 125
    assert run.said.endswith("exists and is not a folder; give another name with -o\n")
    assert run.said.count("\n") == 1
    assert (tmp_path / "x.ring").read_text() == "mine"


@needs_ftrace
@pytest.mark.records
@pytest.mark.needs("setpriv")
def test_a_snapshot_belongs_to_the_user_behind_sudo(tmp_path: Path) -> None:
    environment = {"SUDO_USER": "nobody"}
    tmp_path.chmod(0o755)
    run = Run("--ring", "5s", "-o", "x", cwd=tmp_path, environment=environment)
    run.until(READY)
    (capture,) = asked(run)
    assert {path.owner() for path in [capture, *capture.rglob("*")]} == {"nobody"}
    assert oct(capture.stat().st_mode & 0o777) == "0o700"
    # Only root can write beside it while recording.
    assert capture.parent.owner() == "root"
    assert oct(capture.parent.stat().st_mode & 0o777) == "0o755"
    run.process.send_signal(signal.SIGTERM)
    assert run.wait() == 0
    assert capture.parent.owner() == "nobody"


@needs_ftrace
@pytest.mark.records
@pytest.mark.needs("setpriv")
def test_ring_continues_in_the_folder_of_the_sudo_user(tmp_path: Path) -> None:
    """Root neither follows nor waits for anything that the user put there."""
    environment = {"SUDO_USER": "nobody"}
    tmp_path.chmod(0o755)
    words = ("--ring", "2M", "--trigger", "exit", "-o", "x", "--", "true")
    first = Run(*words, cwd=tmp_path, environment=environment)
    assert first.wait() == 0, first.said
    (one,) = snapshots(first)
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "file").write_text("root's own")
    planted = """
        cd x.ring; ln -s ../victim/file .reserve; ln -s ../victim 1.capture.partial
        mkdir -p .scratch/deep; ln -s ../../victim .scratch/deep/link; mkfifo .scratch/ring
        chown -hR nobody .scratch .reserve 1.capture.partial"""
    subprocess.run(["sh", "-ec", planted], cwd=tmp_path, check=True)
    second = Run(*words, cwd=tmp_path, environment=environment)
    assert second.wait() == 0, second.said
    assert len(snapshots(second)) == 2
    assert one.is_dir()
    gone(second)
    assert (victim / "file").read_text() == "root's own"
    assert [path.name for path in victim.iterdir()] == ["file"]
    assert one.parent.owner() == "nobody"
    other = Run(*words, cwd=tmp_path, environment={"SUDO_USER": "daemon"})
    assert other.wait() == 125
    assert "is not a folder that only root can write to" in other.said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--ring", "20x"], "--ring 20x is neither a time nor a size; try --ring 20s"),
        (["--ring", "0s"], "--ring 0s is neither"),
        (["--ring", "5s", "--trigger", "wait 50ms"], "--trigger 'wait 50ms' is not a trigger"),
        (["--ring", "5s", "--trigger", "p99 > 5ms"], "--trigger 'p99 > 5ms' is not a trigger"),
        (["--ring", "5s", "--trigger", "p99 > 5ms for 700ms"], "700ms is not a multiple of 500ms"),
        (["--ring", "5s", "--trigger", "file x"], "give the absolute path"),
        (["--ring", "5s", "--trigger", "log /nowhere x"], "there is no file /nowhere"),
        (["--ring", "64M", "-b", "100K"], "both say how much memory"),
        (["--ring", "5s", "--max-size", "1G"], "--keep limits all snapshots"),
        (["--ring", "5s", "-t", "perf"], "perf cannot record into a ring"),
        (["--ring", "5s", "--pause", "x"], "--pause x is not a duration"),
        (["--then", "true"], "are for a flight recorder"),
        (["--trigger", "exit"], "are for a flight recorder"),
        (["--ring", "5s", "--trigger", "exit != 0"], "--trigger exit needs a COMMAND"),
        (["--systemd-unit", "--ring", "5s", "-d", "5"], "leave out COMMAND and -d"),
        (["--systemd-unit", "--ring", "5s", "--", "true"], "leave out COMMAND and -d"),
    ],
)
@pytest.mark.needs("linux")
def test_conflicting_options_are_refused(words: list[str], said: str, tmp_path: Path) -> None:
    run = Run("-o", "x", *words, cwd=tmp_path)
    assert run.wait() == 125
    assert said in run.said
    assert run.said.count("\n") == 1
    assert not list(tmp_path.glob("*.ring"))


@pytest.mark.needs("linux")
def test_the_unit_is_one_that_systemd_takes(tmp_path: Path) -> None:
    words = ["--systemd-unit", "--ring", "20s", "--keep", "2G", "--trigger", "wait > 50ms"]
    log = tmp_path / "log"
    log.touch()
    words += ["--trigger", f'log {log} 100% "$HOME"', "--then", "/usr/bin/page me"]
    made = subprocess.run(
        ["sh", str(CAPTURE), *words], capture_output=True, text=True, check=True
    ).stdout
    assert '"--trigger" "wait > 50ms"' in made
    assert '"--then" "/usr/bin/page me"' in made
    assert "PrivateNetwork" not in made, "it may have to reach somebody"
    assert '100%% \\\\"$$HOME\\\\""' in made.replace("\\", "\\\\")
    unit = tmp_path / "flight.service"
    unit.write_text(made)
    if shutil.which("systemd-analyze") is None:
        pytest.skip("there is no systemd-analyze")
    done = subprocess.run(
        ["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
