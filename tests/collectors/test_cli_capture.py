"""`schedscope capture`: the real program on the real kernel, then the first summary."""

from __future__ import annotations

import argparse
import fcntl
import os
import pwd
import re
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest
from collector_runs import eventually, meta

from schedscope import collectors
from schedscope.cli import capture as command
from schedscope.invoking_user import FORGOTTEN

pytestmark = pytest.mark.needs("linux", "root", "tracefs")


def capture(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "schedscope", "capture", *words],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_capture_records_summarises_and_returns_the_exit_status(tmp_path: Path) -> None:
    """A shell waits for its sleeping child: both are in the table."""
    done = capture(
        "-o", "x.capture", "-t", "ftrace", "--", "sh", "-c", "sleep 0.2; exit 7", cwd=tmp_path
    )
    assert done.returncode == 7, done.stderr
    assert (tmp_path / "x.capture" / "capture.json").is_file()
    assert (tmp_path / "x.sched" / "trace.json").is_file()
    assert done.stdout.startswith("x.capture · Linux")
    alone, rest = done.stdout.split("above: sh -c 'sleep 0.2; exit 7' alone; below: the whole host")
    assert "waits" in alone
    rows = alone.splitlines()
    start = next(number for number, line in enumerate(rows) if line.startswith("comm "))
    names = {line.split()[0] for line in rows[start + 1 :] if line and not line.startswith("(")}
    # The shell that became COMMAND ran `true` before.
    assert names <= {"sh", "sleep", "true", "unfinished:"}
    assert "comm " in rest
    assert rest.endswith(
        "\nWhat was wrong, and what to try: schedscope findings x.capture --workload\n"
    )


def test_no_summary_converts_nothing(tmp_path: Path) -> None:
    done = capture("-o", "x.capture", "-q", "--no-summary", "--", "true", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    assert [path.name for path in tmp_path.iterdir()] == ["x.capture"]


def test_capture_command_has_the_options_of_the_program() -> None:
    """All but `--version` and those that `schedscope doctor` and `top` use."""
    said = subprocess.run(["sh", collectors.path(), "--help"], capture_output=True, text=True)
    wanted = set(re.findall(r"--[a-z][a-z-]*", said.stdout)) - {"--clean", "--once", "--version"}
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    assert "--of" in wanted
    assert wanted <= {*parser._option_string_actions}


def test_option_of_is_passed_to_the_recorder(tmp_path: Path) -> None:
    words = ["--no-summary", "--with", "syscalls", "--of", "all"]
    done = capture("-o", "x.capture", *words, "--", "true", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    recorder = meta(tmp_path / "x.capture")["recorder"]
    # One instance records everything: the command is not singled out.
    assert "; of command" not in recorder["command"]
    assert "raw_syscalls" in recorder["command"]
    done = capture("-o", "y", "--no-summary", "--with", "syscalls", "--of", "x", cwd=tmp_path)
    assert done.returncode == 125
    assert "--of x is neither all, command nor pids" in done.stderr


def test_an_existing_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.capture").mkdir()
    done = capture("-o", "x.capture", "-d", "1", "--no-summary", cwd=tmp_path)
    assert done.returncode not in (0, 1)
    assert "x.capture" in done.stderr
    assert list((tmp_path / "x.capture").iterdir()) == []


def test_an_older_capture_is_not_summarised_as_the_new_one(tmp_path: Path) -> None:
    assert capture("-o", "x", "-q", "--no-summary", "--", "true", cwd=tmp_path).returncode == 0
    for words, code in ((["-d", "0.1"], 125), (["--", "/no/such/command"], 127)):
        done = capture("-o", "x", *words, cwd=tmp_path)
        assert done.returncode == code
        assert done.stdout == ""


def test_the_summary_follows_a_name_without_its_ending(tmp_path: Path) -> None:
    done = capture("-o", "x/", "-q", "--", "true", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("x.capture · Linux")


def test_a_table_without_rows_is_refused_before_recording(tmp_path: Path) -> None:
    done = capture("-o", "x", "--top", "0", "--", "true", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (125, "")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_ends_the_recording_and_keeps_the_summary(
    tmp_path: Path, number: signal.Signals
) -> None:
    """The capture is complete and readable, and no tracing instance is left."""
    process = subprocess.Popen(
        [sys.executable, "-m", "schedscope", "capture", "-t", "ftrace", "-o", "x.capture"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stderr is not None
    assert "recording with ftrace" in process.stderr.readline()
    eventually(lambda: list(tmp_path.glob("*.partial/.scratch/recording")))
    os.kill(process.pid, number)
    out, err = process.communicate(timeout=60)
    assert "wrote x.capture" in err
    assert out.startswith("x.capture · Linux")
    assert process.returncode in (0, 128 + number)


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--no-such-option"], 125),
        (["-d", "soon"], 125),
        (["--max-size", "much"], 125),
        (["--", "/no/such/command"], 127),
        (["--", "/etc/passwd"], 126),
        (["--", "sh", "-c", "exit 125"], 125),
    ],
)
def test_capture_failure_has_its_own_exit_status(
    words: list[str], code: int, tmp_path: Path
) -> None:
    done = capture("-o", "x", "--no-summary", *words, cwd=tmp_path)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr


def recording(tmp_path: Path, *words: str) -> subprocess.Popen[bytes]:
    """`schedscope capture` at its own terminal, once it records."""
    leader, terminal = os.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "schedscope", "capture", "-o", "x", *words],
        cwd=tmp_path,
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )
    os.close(terminal)
    said = b""
    while b"recording with" not in said:
        said += os.read(leader, 1000)
    time.sleep(0.5)
    process.leader = leader  # type: ignore[attr-defined]
    return process


def finished(folder: Path) -> bool:
    return (folder / "capture.json").is_file()


RECORDERS = ["ftrace"] + [
    pytest.param(name, marks=pytest.mark.needs(name)) for name in ("perf", "bpftrace")
]


@pytest.mark.parametrize("recorder", RECORDERS)
def test_a_lost_connection_ends_the_recording(recorder: str, tmp_path: Path) -> None:
    """The terminal hangs up, as with `ssh -t` after a network failure."""
    process = recording(tmp_path, "-t", recorder)
    os.close(process.leader)  # type: ignore[attr-defined]
    process.wait(30)
    eventually(lambda: finished(tmp_path / "x.capture"), 20)
    content = meta(tmp_path / "x.capture")
    assert (content["complete"], content["interrupted"]) == (True, "HUP")


@pytest.mark.parametrize("recorder", RECORDERS)
def test_sigkill_of_the_python_parent_ends_the_recording(recorder: str, tmp_path: Path) -> None:
    process = recording(tmp_path, "-t", recorder, "--", "sleep", "100")
    process.kill()
    process.wait(30)
    eventually(lambda: finished(tmp_path / "x.capture"), 20)
    content = meta(tmp_path / "x.capture")
    assert (content["complete"], content["interrupted"]) == (True, "HUP")
    os.close(process.leader)  # type: ignore[attr-defined]


@pytest.mark.parametrize("by", ["sudo", "doas", "pkexec"])
def test_summary_belongs_to_the_invoking_user_under_sudo(by: str, tmp_path: Path) -> None:
    """Root converts nothing where another user could place a link."""
    folder = tmp_path / "open"
    folder.mkdir()
    for path in (tmp_path, tmp_path.parent, tmp_path.parent.parent, folder):
        path.chmod(path.stat().st_mode | 0o755)
    folder.chmod(0o777)
    victim = tmp_path / "victim"
    victim.write_text("root's own")
    nobody = pwd.getpwnam("nobody")
    uid, gid = str(nobody.pw_uid), str(nobody.pw_gid)
    says = {
        "sudo": {"SUDO_USER": "nobody", "SUDO_UID": uid, "SUDO_GID": gid},
        "doas": {"DOAS_USER": "nobody"},
        "pkexec": {"PKEXEC_UID": uid},
    }[by]
    others = {name: text for name, text in os.environ.items() if name not in FORGOTTEN}
    environment = {**others, **says}
    link = f"ln -s {tmp_path} x.sched"
    done = subprocess.run(
        [sys.executable, "-m", "schedscope", "capture", "-o", "x", "--", "sh", "-c", link],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (folder / "x.capture").stat().st_uid == nobody.pw_uid, done.stderr
    assert victim.read_text() == "root's own"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["open", "victim"]
    assert "Traceback" not in done.stderr


@pytest.mark.needs("root", "tracefs", "linux", "perf")
def test_unsupported_with_names_the_recorder_that_supports_it(tmp_path: Path) -> None:
    """`--list` names what each recorder adds; asking the wrong recorder names the right one."""
    listed = capture("--list", cwd=tmp_path).stdout
    assert "; --with irq,yield,syscalls,locks,block,stacks,scx\n" in listed
    done = capture("-t", "perf", "--with", "locks", "-d", "1", "-o", "x", cwd=tmp_path)
    assert done.returncode == 125
    assert "--with locks is unknown to perf; it needs -t ftrace" in done.stderr
