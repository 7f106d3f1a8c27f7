"""However `capture` ends, it leaves no trace instance, no process and no half-written folder."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from collector_runs import CAPTURE, INSTANCES, ROOT, Run, eventually, meta

import schedscope
from schedscope import collectors

needs_ftrace = pytest.mark.needs("root", "tracefs", "linux")
SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT]
RECORDERS = ["ftrace", pytest.param("bpftrace", marks=pytest.mark.needs("bpftrace"))]
FOREVER = [sys.executable, "-c", "import time; time.sleep(600)"]


def nothing_left(run: Run) -> None:
    assert run.instance() == []
    assert run.leftovers() == []
    assert not list(run.cwd.glob("*.partial"))


@needs_ftrace
@pytest.mark.parametrize("recorder", RECORDERS)
@pytest.mark.parametrize("number", SIGNALS, ids=lambda s: s.name)
def test_signal_ends_capture_with_a_command(
    number: signal.Signals, recorder: str, tmp_path: Path
) -> None:
    run = Run("-t", recorder, "-o", "x", "--", *FOREVER, cwd=tmp_path)
    run.until("recording with")
    run.process.send_signal(number)
    # The command did not get the signal (only a terminal sends it to both): TERM ends it.
    assert run.wait() == 128 + signal.SIGTERM
    content = meta(tmp_path / "x.capture")
    assert content["complete"] is True
    assert content["interrupted"] == number.name.removeprefix("SIG")
    nothing_left(run)


@needs_ftrace
@pytest.mark.parametrize("recorder", RECORDERS)
def test_ctrl_c_at_a_terminal_reaches_command_and_recorder(recorder: str, tmp_path: Path) -> None:
    code = "import time\ntry: time.sleep(600)\nexcept KeyboardInterrupt: raise SystemExit(9)"
    run = Run("-t", recorder, "-o", "x", "--", sys.executable, "-c", code, cwd=tmp_path)
    run.until("recording with")
    eventually(lambda: any("KeyboardInterrupt" in line for line in run.leftovers()))
    time.sleep(0.5)
    os.killpg(run.process.pid, signal.SIGINT)
    assert run.wait() == 9
    assert meta(tmp_path / "x.capture")["interrupted"] == "INT"
    nothing_left(run)


@needs_ftrace
@pytest.mark.parametrize("status", [9, 130, 200])
def test_signal_at_the_end_of_the_command_keeps_its_status(status: int, tmp_path: Path) -> None:
    for attempt in range(4):
        command = ["sh", "-c", f"kill -s INT $PPID; exit {status}"]
        run = Run("-o", f"x{attempt}", "--", *command, cwd=tmp_path)
        assert run.wait() == status
        assert meta(tmp_path / f"x{attempt}.capture")["workload"]["exit_status"] == status
        nothing_left(run)


@needs_ftrace
@pytest.mark.parametrize("recorder", RECORDERS)
@pytest.mark.parametrize("number", SIGNALS, ids=lambda s: s.name)
def test_signal_ends_capture_without_a_command(
    number: signal.Signals, recorder: str, tmp_path: Path
) -> None:
    run = Run("-t", recorder, "-o", "x", cwd=tmp_path)
    run.until("Ctrl-C ends the recording")
    os.killpg(run.process.pid, number)
    assert run.wait() == 0
    content = meta(tmp_path / "x.capture")
    # Ctrl-C is the intended end of such a recording.
    expected = None if number == signal.SIGINT else number.name.removeprefix("SIG")
    assert content["interrupted"] == expected
    assert content["complete"] is True
    nothing_left(run)


@needs_ftrace
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda s: s.name)
@pytest.mark.parametrize(
    "shell",
    [
        pytest.param(words, id=words[0], marks=pytest.mark.needs(words[0]))
        for words in (("busybox", "sh"), ("posh",), ("yash",), ("bash",))
    ],
)
def test_signal_ends_capture_in_every_shell(
    shell: tuple[str, ...], number: signal.Signals, tmp_path: Path
) -> None:
    run = Run("-o", "x", "--", *FOREVER, cwd=tmp_path, shell=shell)
    run.until("recording with")
    run.process.send_signal(number)
    assert run.wait() == 128 + signal.SIGTERM
    content = meta(tmp_path / "x.capture")
    assert content["interrupted"] == number.name.removeprefix("SIG")
    assert content["workload"]["exit_status"] == 128 + signal.SIGTERM
    nothing_left(run)


@needs_ftrace
def test_a_signal_ends_the_timer_too(tmp_path: Path) -> None:
    run = Run("-o", "x", "-d", "600", cwd=tmp_path)
    run.until("recording with")
    run.process.send_signal(signal.SIGINT)
    assert run.wait() == 0
    assert meta(tmp_path / "x.capture")["interrupted"] == "INT"
    nothing_left(run)


@needs_ftrace
def test_crashing_command_returns_its_status(tmp_path: Path) -> None:
    run = Run("-o", "x", "--", "sh", "-c", "kill -SEGV $$", cwd=tmp_path)
    assert run.wait() == 128 + signal.SIGSEGV
    content = meta(tmp_path / "x.capture")
    assert content["workload"]["exit_status"] == 128 + signal.SIGSEGV
    assert content["complete"] is True
    nothing_left(run)


@needs_ftrace
@pytest.mark.parametrize("recorder", RECORDERS)
@pytest.mark.parametrize("group", [False, True], ids=["program", "group"])
def test_sigkill_leaves_what_was_recorded(group: bool, recorder: str, tmp_path: Path) -> None:
    """The watchdog notices, ends the recording and completes the folder, which records this."""
    run = Run("-t", recorder, "-o", "x", cwd=tmp_path)
    run.until("Ctrl-C ends the recording")
    time.sleep(0.5)
    (os.killpg if group else os.kill)(run.process.pid, signal.SIGKILL)
    run.wait()
    eventually(lambda: not run.instance() and not run.leftovers(), 15)
    assert not (tmp_path / "x.capture").exists()
    partial = tmp_path / "x.capture.partial"
    content = meta(partial)
    assert content["complete"] is False
    assert content["interrupted"] == "capture was killed while it recorded"
    assert content["window"]["end"] - content["window"]["begin"] > 400_000_000
    assert not (partial / ".scratch").exists()
    trace = schedscope.open(partial)
    assert trace.states.collect().height > 0


@needs_ftrace
def test_signal_before_recording_is_reported(tmp_path: Path) -> None:
    """While its folder exists and it does not record yet it prints nothing else."""
    run = Run("-o", "x", "--", *FOREVER, cwd=tmp_path)
    eventually((tmp_path / "x.capture.partial").is_dir)
    run.process.send_signal(signal.SIGTERM)
    status = run.wait()
    if "recording with" not in run.said:
        assert status == 125
        assert "ended by SIGTERM before the recording began; nothing was recorded" in run.said
    nothing_left(run)


@needs_ftrace
@pytest.mark.parametrize("ring", [False, True])
def test_signal_right_after_creating_the_folder_leaves_nothing(ring: bool, tmp_path: Path) -> None:
    """While `capture` still checks whether the folder is the one that it created."""
    name, options = ("x.ring", ["--ring", "1s"]) if ring else ("x.capture.partial", [])
    for _ in range(5):
        run = Run(*options, "-o", "x", "--", *FOREVER, cwd=tmp_path)
        until = time.monotonic() + 20
        while not (tmp_path / name).is_dir() and time.monotonic() < until:
            pass
        run.process.send_signal(signal.SIGTERM)
        run.wait()
        nothing_left(run)
        assert not (tmp_path / name).exists()
        shutil.rmtree(tmp_path / "x.capture", ignore_errors=True)


@needs_ftrace
def test_sigkill_before_recording_leaves_nothing(tmp_path: Path) -> None:
    for attempt in range(6):
        run = Run("-o", "x", cwd=tmp_path)
        time.sleep(0.05 + attempt * 0.06)
        if "recording with" in run.said:
            run.process.terminate()
            break
        os.killpg(run.process.pid, signal.SIGKILL)
        run.wait()
        eventually(lambda run=run: not run.instance() and not run.leftovers(), 15)
        for path in tmp_path.glob("x.capture*"):
            shutil.rmtree(path)


@pytest.mark.needs("root", "tracefs", "linux", "bpftrace")
@pytest.mark.parametrize("delay", [0.0, 0.4])
def test_sigkill_while_bpftrace_prepares_leaves_nothing(delay: float, tmp_path: Path) -> None:
    """It has no probe yet that could end it, and receives no signal."""
    run = Run("-t", "bpftrace", "-o", "x", cwd=tmp_path)
    eventually(lambda: any("bpftrace -q" in line for line in run.leftovers()), 30)
    time.sleep(delay)
    run.process.kill()
    run.wait()
    eventually(lambda: not run.leftovers(), 15)


@pytest.mark.needs("root", "tracefs", "linux", "bpftrace")
def test_removed_folder_leaves_no_tool_running(tmp_path: Path) -> None:
    run = Run("-t", "bpftrace", "-o", "x", cwd=tmp_path)
    run.until("Ctrl-C ends the recording")
    shutil.rmtree(tmp_path / "x.capture.partial")
    run.process.kill()
    run.wait()
    eventually(lambda: not run.leftovers(), 15)


@needs_ftrace
@pytest.mark.parametrize("command", [(), ("--", "sleep", "60")], ids=["alone", "command"])
@pytest.mark.parametrize("ring", [(), ("--ring", "4M", "--trigger", "log {} BOOM")], ids=len)
def test_removed_folder_is_reported_at_once(
    ring: tuple[str, ...], command: tuple[str, ...], tmp_path: Path
) -> None:
    """Also while a command runs; nothing is left, and the folder is not created again."""
    (tmp_path / "log").touch()
    words = [word.format(tmp_path / "log") for word in ring]
    run = Run(*words, "-o", "x", *command, cwd=tmp_path)
    run.until("capture --snapshot" if ring else "recording with")
    run.eventually(lambda: list(tmp_path.glob("x.*/.scratch/recording")))
    for folder in tmp_path.glob("x.*"):
        shutil.rmtree(folder)
    run.until("was removed while it recorded")
    run.process.terminate()
    assert run.wait() == 125
    assert run.said.count("removed") == 1
    assert run.instance() == []
    run.eventually(lambda: not run.leftovers(), 15)
    assert not list(tmp_path.glob("x.*"))


@needs_ftrace
def test_killed_recorder_is_reported_while_the_command_runs(tmp_path: Path) -> None:
    run = Run("-o", "x", "--", "sleep", "60", cwd=tmp_path)
    run.until("recording with")
    for pid, line in run.processes():
        if "schedscope-watchdog" in line:
            parent = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[1]
            if int(parent) == run.process.pid:
                os.kill(pid, signal.SIGKILL)
    run.until("the process that records was killed; waiting for the command to end")
    run.process.terminate()
    assert run.wait() == 125
    assert meta(tmp_path / "x.capture")["complete"] is False
    assert run.instance() == []
    run.eventually(lambda: not run.leftovers(), 15)


@pytest.fixture
def pids_group() -> Iterator[Path]:
    """A control group that can limit how many processes there are."""
    for root in (Path("/sys/fs/cgroup/pids"), Path("/sys/fs/cgroup")):
        if not (root / "cgroup.procs").exists():
            continue
        group = root / f"schedscope-test-{os.getpid()}"
        group.mkdir()
        if (group / "pids.max").exists():
            break
        group.rmdir()
    else:
        pytest.skip("no control group can limit the number of processes")
    yield group
    (group / "pids.max").write_text("max")
    eventually(lambda: not (group / "cgroup.procs").read_text(), 30)
    group.rmdir()


@needs_ftrace
def test_recording_is_kept_when_no_process_can_be_started(pids_group: Path, tmp_path: Path) -> None:
    """As when a fork bomb fills the limit of processes that the recorder is under.

    What the kernel's buffers still hold is lost, as no process can read them.
    """
    entered = f'echo $$ >{pids_group}/cgroup.procs; exec sh "$@"'
    words = ["-t", "ftrace", "-b", "64K", "-o", "x"]
    run = Run(*words, cwd=tmp_path, shell=("sh", "-c", entered, "-"))
    run.until("Ctrl-C ends the recording")
    partial = tmp_path / "x.capture.partial"
    run.eventually(lambda: any(path.stat().st_size for path in partial.glob("raw/cpu*")))
    (pids_group / "pids.max").write_text("1")
    assert run.wait() == 125
    assert run.said.splitlines()[-1].startswith("capture: the shell gave up"), run.said
    eventually(lambda: not run.leftovers(), 15)
    (pids_group / "pids.max").write_text("max")
    subprocess.run(["sh", str(CAPTURE), "--clean"], check=True, timeout=60)
    assert run.instance() == []
    assert meta(partial)["complete"] is False
    assert schedscope.open(partial).states.collect().height > 0


@pytest.mark.needs("linux", "mksh")
def test_a_shell_that_keeps_descriptors_is_refused(tmp_path: Path) -> None:
    """The recorder's process could not see the end of this program."""
    run = Run("--list", cwd=tmp_path, shell=("mksh",))
    assert run.wait() == 125
    assert run.said.startswith("capture: this shell keeps its descriptors")
    assert run.said.count("\n") == 1


@pytest.mark.parametrize(("value", "whole"), [('"x"', True), ("", False), ("null", True)])
def test_value_missing_from_awk_output_is_detected(value: str, whole: bool, tmp_path: Path) -> None:
    (tmp_path / "json").write_text(f'{{\n  "version": 1,\n  "hostname": {value},\n  "x": 2\n}}\n')
    code = f". {ROOT}/collectors/metadata.sh; json_whole json"
    done = subprocess.run(["sh", "-c", code], cwd=tmp_path, check=False)
    assert (done.returncode == 0) == whole


@needs_ftrace
def test_next_run_cleans_up_after_sigkill(tmp_path: Path) -> None:
    """Without its watchdog the instance stays, but the kernel ends the tracing in it."""
    run = Run("-o", "x", cwd=tmp_path)
    run.until("Ctrl-C ends the recording")
    watchdogs = run.pids()
    for pid in watchdogs:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    run.wait()
    eventually(lambda: not run.leftovers())
    (instance,) = run.instance()
    assert (instance / "tracing_on").read_text() == "0\n"
    assert int((instance / "buffer_total_size_kb").read_text().split()[0]) < 1000
    following = Run("-o", "y", "--", "true", cwd=tmp_path)
    assert following.wait() == 0
    assert "removed the trace instance" in following.said
    assert run.instance() == []
    assert list(tmp_path.glob("y.capture"))


@needs_ftrace
def test_processes_of_a_killed_watchdog_end_by_themselves(tmp_path: Path) -> None:
    run = Run("-t", "ftrace", "-o", "x", cwd=tmp_path)
    run.until("Ctrl-C ends the recording")
    lines = run.processes()
    (watchdog,) = {os.getsid(pid) for pid, line in lines if "schedscope-watchdog" in line}
    os.kill(watchdog, signal.SIGKILL)
    run.process.kill()
    run.wait()
    run.eventually(lambda: not run.leftovers(), 15)


@needs_ftrace
def test_the_instance_of_a_living_capture_is_left_alone(tmp_path: Path) -> None:
    first = Run("-o", "x", cwd=tmp_path)
    first.until("Ctrl-C ends the recording")
    assert Run("-o", "y", "--", "true", cwd=tmp_path).wait() == 0
    assert first.instance() != []
    first.process.send_signal(signal.SIGINT)
    assert first.wait() == 0
    assert meta(tmp_path / "x.capture")["complete"] is True


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    options = ["mount", "-t", "tmpfs", "-o", "size=6m,nr_inodes=4k", "none", str(disk)]
    if subprocess.run(options, capture_output=True, check=False).returncode != 0:
        pytest.skip("cannot mount a small tmpfs")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


@needs_ftrace
@pytest.mark.needs("hackbench")
def test_disk_filling_up_ends_the_recording(small_disk: Path, tmp_path: Path) -> None:
    """Without --min-free what fits is kept, and the exit status reports the early end."""
    words = ["--min-free", "0", "-o", f"{small_disk}/x", "--"]
    run = Run(*words, "hackbench", "-g", "8", "-l", "1000", cwd=tmp_path)
    assert run.wait() == 125, run.said
    content = meta(small_disk / "x.capture")
    assert content["complete"] is False
    assert "no space left" in content["interrupted"]
    assert "no space left" in run.said
    size = content["ftrace"]["sub_buffer_bytes"]
    raw = [path.stat().st_size for path in (small_disk / "x.capture/raw").iterdir()]
    assert sum(raw) > 1_000_000
    assert all(length % size == 0 for length in raw)
    assert not list(small_disk.glob("*.partial"))
    assert run.instance() == []
    assert run.leftovers() == []


@needs_ftrace
def test_full_disk_is_reported_before_recording(small_disk: Path, tmp_path: Path) -> None:
    (small_disk / "ballast").write_bytes(b"x" * 5_900_000)
    run = Run("-o", f"{small_disk}/x", "--", "true", cwd=tmp_path)
    assert run.wait() == 125
    assert "no space left" in run.said
    assert {path.name for path in small_disk.iterdir()} == {"ballast"}
    assert run.instance() == []


@needs_ftrace
@pytest.mark.needs("bpftrace")
def test_tool_dying_while_recording_is_reported(tmp_path: Path) -> None:
    run = Run("-t", "bpftrace", "-o", "x", "--", *FOREVER, cwd=tmp_path)
    run.until("recording with")
    tool = [line for line in run.leftovers() if line.startswith("bpftrace ")]
    assert len(tool) == 1
    pid = tool[0].split()[-2]
    os.kill(int(pid), signal.SIGKILL)
    eventually(lambda: run.process.poll() is not None or "waiting for" in run.said, 20)
    os.killpg(run.process.pid, signal.SIGTERM)
    assert run.wait() == 125
    content = meta(tmp_path / "x.capture")
    assert content["complete"] is False
    assert "bpftrace" in content["interrupted"]
    nothing_left(run)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["-o"], "needs a value"),
        (["--colour"], "unknown option --colour"),
        (["-d", "soon"], "soon is not a duration"),
        (["-b", "0K"], "-b 0K is not a size"),
    ],
)
def test_invalid_arguments_are_reported_in_one_sentence(
    words: list[str], sentence: str, tmp_path: Path
) -> None:
    run = Run(*words, cwd=tmp_path)
    assert run.wait() == 125
    assert sentence in run.said
    assert run.said.count("\n") == 1
    assert not list(tmp_path.glob("*.capture*"))


@needs_ftrace
@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["-t", "crystal-ball", "--", "true"], "there is no recorder crystal-ball"),
        (["-o", "/no/such/folder/x", "--", "true"], "cannot make the folder"),
        (["-o", "taken", "--", "true"], "exists; give another name"),
    ],
)
def test_unsupported_request_is_reported_in_one_sentence(
    words: list[str], sentence: str, tmp_path: Path
) -> None:
    (tmp_path / "taken.capture").mkdir()
    run = Run(*words, cwd=tmp_path)
    assert run.wait() == 125
    assert sentence in run.said
    nothing_left(run)
    assert list((tmp_path / "taken.capture").iterdir()) == []


@pytest.mark.needs("root", "linux", "setpriv")
def test_capture_without_root_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    text = CAPTURE.read_text()
    assert text.startswith("#!/bin/sh")
    program = Path("/tmp") / f"capture-for-nobody-{os.getpid()}"
    program.write_text(collectors.bundle())
    try:
        done = subprocess.run(
            [*nobody, "sh", str(program), "--", "true"],
            capture_output=True,
            text=True,
            check=False,
            cwd="/tmp",
        )
    finally:
        program.unlink()
    assert done.returncode == 125
    assert "needs root" in done.stderr
    assert done.stderr.count("\n") == 1


@needs_ftrace
@pytest.mark.needs("unshare")
def test_capture_without_tracefs_names_the_mount_command(tmp_path: Path) -> None:
    hidden = (
        "umount -l /sys/kernel/debug/tracing /sys/kernel/tracing /sys/kernel/debug 2>/dev/null; "
        f"exec sh {CAPTURE} -t ftrace -o x -- true"
    )
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", hidden],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 125
    assert "mount -t tracefs nodev /sys/kernel/tracing" in done.stderr
    assert list(tmp_path.iterdir()) == []


@needs_ftrace
def test_top_level_tracing_is_not_touched(tmp_path: Path) -> None:
    root = INSTANCES.parent
    watched = ["trace_clock", "buffer_size_kb", "tracing_on", "current_tracer", "trace_options"]
    before = {name: (root / name).read_text() for name in watched}
    assert Run("-o", "x", "--", "true", cwd=tmp_path).wait() == 0
    assert {name: (root / name).read_text() for name in watched} == before


@needs_ftrace
def test_reason_of_a_tool_failure_is_its_error_line(tmp_path: Path) -> None:
    """bpftrace prints the part of the script that it could not compile, and underlines it."""
    fake = tmp_path / "bpftrace"
    fake.write_text(
        "#!/bin/sh\n"
        'case $1 in --version) echo "bpftrace v0.23.0"; exit ;; esac\n'
        "cat >/dev/null\n"
        'echo "stdin:3:1-20: ERROR: unknown field" >&2\n'
        'echo "    $x = curtask.nothing" >&2\n'
        'echo "    ~~~~~~~~~~~~~~~~~~~~" >&2\n'
        "exit 1\n"
    )
    fake.chmod(0o755)
    # The tool is gone before the watchdog waits for it: its status is still the tool's.
    slow = tmp_path / "slow" / "mv"
    slow.parent.mkdir()
    slow.write_text(f'#!/bin/sh\nsleep 0.3\nexec {shutil.which("mv")} "$@"\n')
    slow.chmod(0o755)
    env = {
        "SCHEDSCOPE_BPFTRACE": str(fake),
        "PATH": f"{slow.parent}:{os.environ['PATH']}",
    }
    run = Run("-t", "bpftrace", "-o", "x", "-d", "1", cwd=tmp_path, environment=env)
    assert run.wait() == 125
    said = "bpftrace ended by itself with status 1: stdin:3:1-20: ERROR: unknown field"
    assert said in run.said
    nothing_left(run)
