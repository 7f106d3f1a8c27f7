"""`capture --then`: what runs after the flight recorder wrote a snapshot, and as which user."""

from __future__ import annotations

import os
import pwd
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from collector_runs import ROOT, Run

import schedscope as ss

# A snapshot that a fake trigger asks for, without a recorder: as ring.sh calls it.
FIRED = """
set -u
for file in command ring-then; do . "$1/collectors/$file.sh"; done
have() { command -v "$1" >/dev/null 2>&1; }
tell() { echo "capture: $*" >&2; }
caller_path=$PATH caller_umask=022 start_dir=$(pwd) scratch=. lifeline= recorder=ftrace
run_user='' run_uid='' run_gid='' signalled='' broken_wait='' command_environment=''
[ -z "$3" ] || { run_user=$3; run_uid=$(id -u "$3"); run_gid=$(id -g "$3"); }
then_command=$2 then_seconds=${4:-300}
ring_then "/tmp/it's.capture" 'a wait longer than 50ms: "$(x)"' wait
"""


def fired(cwd: Path, command: str, *, user: str = "", limit: str = "", more: str = "") -> str:
    script = f"{FIRED}\n{more}\nring_then_end\n"
    words = ["sh", "-c", script, "sh", str(ROOT), command, user, limit]
    done = subprocess.run(
        words, cwd=cwd, capture_output=True, text=True, check=True, env={**os.environ, "TOKEN": "x"}
    )
    return done.stdout + done.stderr


def test_then_command_gets_snapshot_and_reason_unchanged(tmp_path: Path) -> None:
    said = fired(tmp_path, 'printf "%s|%s|%s" "$SNAPSHOT" "$REASON" "$TRIGGER"')
    assert said == '/tmp/it\'s.capture|a wait longer than 50ms: "$(x)"|wait'


def test_then_command_gets_no_recorder_variables(tmp_path: Path) -> None:
    names = {line.partition("=")[0] for line in fired(tmp_path, "env").splitlines()}
    assert names - {"PWD", "OLDPWD", "SHLVL", "_"} == {
        "PATH", "HOME", "SNAPSHOT", "REASON", "TRIGGER",
    }  # fmt: skip


def test_failing_then_command_is_reported_in_one_line(tmp_path: Path) -> None:
    assert fired(tmp_path, "exit 7") == "capture: --then ended with status 7\n"


def test_then_command_that_does_not_end_is_killed(tmp_path: Path) -> None:
    said = fired(tmp_path, "echo begun; exec sleep 1000", limit="1")
    assert said == "begun\ncapture: --then was killed; it may take 1 seconds\n"


def test_only_one_then_command_runs_at_a_time(tmp_path: Path) -> None:
    second = "ring_then /tmp/second.capture again signal; : >go"
    said = fired(tmp_path, "until [ -e go ]; do sleep 0.01; done; echo $TRIGGER", more=second)
    assert said.splitlines() == [
        "wait",
        "capture: --then is not run for /tmp/second.capture: it still runs for the snapshot before",
    ]


@pytest.mark.needs("root", "setpriv")
def test_then_command_runs_as_the_invoking_user(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    said = fired(tmp_path, 'id -un; echo "$HOME $USER"', user="nobody")
    assert said == f"nobody\n{pwd.getpwnam('nobody').pw_dir} nobody\n"


@pytest.fixture
def open_to_all() -> Iterator[Path]:
    """A folder that every user can enter, unlike pytest's own."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.mark.records
@pytest.mark.needs("root", "tracefs", "linux", "bpftrace", "setpriv")
def test_a_load_spike_ends_in_a_command_that_sees_its_reason(
    open_to_all: Path, tmp_path: Path
) -> None:
    """Threads on one CPU wait for each other; the command reads the snapshot as its user."""
    said = open_to_all / "said"
    said.touch()
    os.chown(said, pwd.getpwnam("nobody").pw_uid, -1)
    command = 'id -un >said; echo "$TRIGGER $REASON" >>said; ls "$SNAPSHOT" >>said'
    words = ["--ring", "5s", "-o", "x", "--trigger", "wait > 60ms", "--then", command]
    run = Run(*words, cwd=open_to_all, environment={"SUDO_USER": "nobody"})
    run.until("capture --snapshot")
    spin = f"taskset -c {min(os.sched_getaffinity(0))} {sys.executable} -c 'while 1: pass'"
    spike = [subprocess.Popen(["sh", "-c", f"exec nice -n {n} {spin}"]) for n in (0, 0, 19, 19)]
    try:
        assert run.wait(120) == 0, run.said
    finally:
        for process in spike:
            process.send_signal(signal.SIGKILL)
            process.wait()
    user, reason, *files = said.read_text().splitlines()
    assert user == "nobody"
    assert reason.startswith("wait a wait longer than 60ms: thread ")
    assert {"capture.json", "raw", "threads.tsv"} <= set(files)
    assert "--then" not in run.said
    run.eventually(lambda: not run.leftovers(), 10)
    (capture,) = open_to_all.glob("x.ring/*.capture")
    first = ss.findings(ss.open(capture, cache=tmp_path / "cache")).row(0, named=True)
    assert first["topic"] == "trigger"
    tid = reason.split("thread ", 1)[1].split()[0]
    assert f"({tid}) waited" in first["text"]
