"""`capture --self-test`: it holds for every recorder here, and fails for a broken recording."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from collector_runs import CAPTURE
from freebsd.self_test import write
from tools import tool

COLLECTORS = CAPTURE.parent
STAND_INS = Path(__file__).parents[1] / "freebsd" / "stand-ins"
SHELLS = [("dash",), ("busybox", "sh"), ("posh",), ("yash",), ("bash", "--posix")]
AWKS = [("mawk",), ("gawk",), ("original-awk",), ("busybox", "awk")]


def capture(
    *words: str,
    cwd: Path,
    shell: tuple[str, ...] = ("sh",),
    program: Path = CAPTURE,
    **environment: str,
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*shell, str(program), *words],
        cwd=cwd, capture_output=True, text=True, timeout=300, env={**os.environ, **environment},
    )  # fmt: skip


def checks(report: str) -> dict[str, str]:
    """Each check of a report and its result."""
    found = re.findall(r"^(ok|FAILED) +(.*?)  +expected ", report, re.MULTILINE)
    return {check: result for result, check in found}


def failed(report: str) -> set[str]:
    return {check for check, result in checks(report).items() if result == "FAILED"}


# ---------------------------------------------------------------- real recordings

# At times a kernel omits switches of idle CPUs from its trace events
# (research/notes/recorders-compared.md). The self-test detects this, and neither the recorder nor
# the self-test is at fault. The switches are missing from the counts and the busy time, too.
KERNELS_OWN = {
    "switches out of idle are all there",
    "switches = the kernel's count",
    "busy time of CPUs = the kernel's",
}
# bpftrace 0.17 silently lost 1,849 wakeups of a recording under load, since probes do not nest. In
# about one of ten recordings it has one thread on two CPUs at once; the cause is unknown.
TOOLS_OWN = {
    "bpftrace": {"every sleeper is woken before it runs", "no thread runs on two CPUs"},
}


def environment_of(recorder: str, folder: Path) -> tuple[Path, dict[str, str]]:
    """The program and its environment; a tool in another root sees only paths below /tmp."""
    words = tool(recorder)
    if recorder != "dtrace" or words is None:
        return CAPTURE, {}
    program = shutil.copytree(COLLECTORS, folder / "collectors") / "capture"
    return program, {"DTRACE": " ".join(words), "SCHEDSCOPE_DTRACE_PATIENCE": "1200"}


@pytest.mark.needs("root", "tracefs", "linux", "taskset")
@pytest.mark.parametrize(
    "recorder",
    [
        "ftrace",
        pytest.param("perf", marks=pytest.mark.needs("perf")),
        pytest.param("bpftrace", marks=pytest.mark.needs("bpftrace")),
        pytest.param("dtrace", marks=pytest.mark.needs("dtrace")),
    ],
)
def test_every_check_holds_for_a_real_recorder(recorder: str, tmp_path: Path) -> None:
    """Equal to the kernel's counts, switch for switch, for each thread of the load."""
    program, environment = environment_of(recorder, tmp_path)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    environment["TMPDIR"] = str(temporary)
    words = ("--self-test", "-t", recorder, "-d", "4", "-o", "kept")
    known = KERNELS_OWN | TOOLS_OWN.get(recorder, set())
    # A recorder may really lose events on a busy host: one of three recordings must be complete.
    for _ in range(3):
        shutil.rmtree(tmp_path / "kept", ignore_errors=True)
        done = capture(*words, cwd=tmp_path, program=program, **environment)
        if failed(done.stdout) <= known:
            break
    assert failed(done.stdout) <= known, done.stdout + done.stderr
    assert done.returncode == bool(failed(done.stdout))
    assert len(checks(done.stdout)) >= 30
    assert ("\nresult: ok, every check held\n" in done.stdout) == (done.returncode == 0)
    assert (tmp_path / "kept/report.txt").read_text() == done.stdout
    again = capture("--judge", "kept", cwd=tmp_path, program=program, **environment)
    assert again.stdout == done.stdout
    assert list(temporary.iterdir()) == []


@pytest.mark.needs("root", "tracefs", "linux", "taskset")
def test_the_command_line_passes_it_through(tmp_path: Path) -> None:
    """`schedscope capture --self-test`, report on stdout, nothing left in the folder."""
    words = [sys.executable, "-m", "schedscope", "capture", "--self-test", "-t", "ftrace"]
    done = subprocess.run(
        [*words, "-d", "3"], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert failed(done.stdout) <= KERNELS_OWN, done.stdout + done.stderr
    assert done.returncode == bool(failed(done.stdout))
    assert list(tmp_path.iterdir()) == []


# ---------------------------------------------------------------- broken recordings


def edit(kept: Path, change: Callable[[list[str]], list[str]]) -> None:
    """Changes the lines of the recording."""
    path = kept / "dtrace.capture" / "events.txt"
    path.write_text("".join(change(path.read_text().splitlines(keepends=True))))


def drop(letter: str, nth: int) -> Callable[[list[str]], list[str]]:
    def change(lines: list[str]) -> list[str]:
        at = [n for n, line in enumerate(lines) if line.startswith(f"{letter} ")][nth]
        return lines[:at] + lines[at + 1 :]

    return change


def without(letter: str) -> Callable[[list[str]], list[str]]:
    return lambda lines: [line for line in lines if not line.startswith(f"{letter} ")]


def stretch(lines: list[str]) -> list[str]:
    """A clock that runs 5 % fast."""

    def line(text: str) -> str:
        parts = text.split(" ")
        if len(parts[0]) == 1 and len(parts) > 2:
            parts[1] = str(int(parts[1]) * 21 // 20)
        return " ".join(parts)

    return [line(text) for text in lines]


def asleep(lines: list[str]) -> list[str]:
    """One preemption recorded as a sleep."""
    at = [n for n, line in enumerate(lines) if line.startswith("S ") and " 13 " in line][20]
    lines[at] = lines[at].replace(" 13 ", " 2001 ", 1)
    return lines


def never_preempted(lines: list[str]) -> list[str]:
    return [line.replace(" 13 ", " 3 ", 1) if line[0] == "S" else line for line in lines]


@pytest.mark.parametrize("scheduler", ["ULE", "4BSD"])
def test_a_good_freebsd_recording_passes(scheduler: str, tmp_path: Path) -> None:
    kept = write(tmp_path / "kept", scheduler)
    done = capture("--judge", str(kept), cwd=tmp_path)
    assert (done.returncode, failed(done.stdout)) == (0, set()), done.stdout
    assert list(tmp_path.iterdir()) == [kept]


BROKEN: dict[str, tuple[Callable[[list[str]], list[str]], str]] = {
    "one switch is missing": (drop("S", 60), "prev/next chain unbroken"),
    "one wakeup is missing": (
        lambda lines: [x for x in lines if not x.startswith(("W 2000320", "E 2000320"))],
        "every sleeper is woken before it runs",
    ),
    "a preemption is never recorded": (never_preempted, "hog: involuntary switches"),
    "the exits are missing": (without("X"), "the load is in the recording"),
    "the clock runs fast": (stretch, "sleeper sleeps as long as it asked"),
    "a preemption is recorded as a sleep": (asleep, "hog: involuntary switches"),
    "the end is missing": (lambda lines: lines[: len(lines) // 2], "the load is in the recording"),
    "it is empty": (lambda _: [], "the load is in the recording"),
}


@pytest.mark.parametrize("how", list(BROKEN))
def test_a_broken_recording_fails(how: str, tmp_path: Path) -> None:
    """Each kind of damage fails at least the check for it."""
    kept = write(tmp_path / "kept")
    change, expected = BROKEN[how]
    edit(kept, change)
    done = capture("--judge", "kept", cwd=tmp_path)
    assert done.returncode == 1
    assert expected in failed(done.stdout), done.stdout
    assert "please send this report" in done.stdout
    assert "awk" not in done.stderr


def test_incomplete_capture_fails_the_self_test(tmp_path: Path) -> None:
    kept = write(tmp_path / "kept")
    path = kept / "dtrace.capture" / "capture.json"
    about = json.loads(path.read_text())
    about |= {"complete": False, "lost": [{"cpu": 0, "count": 3, "reason": "overrun"}]}
    lost = json.dumps(about.pop("lost")[0])
    text = json.dumps(about, indent=2)[:-2] + f',\n  "lost": [\n    {lost}\n  ]\n}}\n'
    path.write_text(text)
    (kept / "dtrace.status").write_text("125\n")
    done = capture("--judge", "kept", cwd=tmp_path)
    expected = {
        "the capture ends well",
        "the recording is complete",
        "the recorder reports no loss",
    }
    assert (done.returncode, failed(done.stdout)) == (1, expected)


@pytest.mark.parametrize("role", ["hog", "ping"])
def test_account_off_by_one_switch_fails(role: str, tmp_path: Path) -> None:
    kept = write(tmp_path / "kept")
    path = kept / "dtrace.account"
    lines = [line.split() for line in path.read_text().splitlines()]
    for line in lines:
        if line[:2] == ["end", role]:
            line[2] = str(int(line[2]) + 1)
    path.write_text("\n".join(" ".join(line) for line in lines) + "\n")
    done = capture("--judge", "kept", cwd=tmp_path)
    assert failed(done.stdout) == {f"{role}: voluntary switches"}


def test_yield_without_a_switch_is_not_counted_as_preemption(tmp_path: Path) -> None:
    """Twice the same thread was chosen again, which is counted but has no line; then it was
    preempted.
    """
    kept = write(tmp_path / "kept")
    seen = 0

    def give_way(lines: list[str]) -> list[str]:
        nonlocal seen
        for n, line in enumerate(lines):
            parts = line.split(" ")
            if parts[0] == "S" and parts[3] == "100500":
                seen += 1
                parts[8] = str(int(parts[8]) + 2 * (seen > 20))
                lines[n] = " ".join(parts)
        return lines

    edit(kept, give_way)
    assert seen > 21
    path = kept / "dtrace.account"
    lines = [line.split() for line in path.read_text().splitlines()]
    for line in lines:
        if line[:2] == ["end", "hog"]:
            line[2] = str(int(line[2]) + 2)
        if line[:3] == ["stat", "end", "switches"]:
            line[3] = str(int(line[3]) + 2)
    path.write_text("\n".join(" ".join(line) for line in lines) + "\n")
    done = capture("--judge", "kept", cwd=tmp_path)
    assert (done.returncode, failed(done.stdout)) == (0, set()), done.stdout


# ---------------------------------------------------------------- every shell, every awk


@pytest.mark.parametrize("shell", SHELLS, ids=lambda shell: shell[0])
@pytest.mark.parametrize("awk", AWKS, ids=lambda awk: awk[0])
def test_judge_agrees_in_every_shell_and_awk(
    shell: tuple[str, ...], awk: tuple[str, ...], tmp_path: Path
) -> None:
    paths = [shutil.which(words[0]) for words in (shell, awk)]
    if None in paths:
        pytest.skip(f"needs {shell[0]} and {awk[0]}")
    # Below /tmp no other user may write to it, as the program demands.
    tools = tmp_path / "tools"
    tools.mkdir(mode=0o755)
    (tools / "awk").write_text(f'#!/bin/sh\nexec {paths[1]} {" ".join(awk[1:])} "$@"\n')
    (tools / "awk").chmod(0o755)
    write(tmp_path / "kept")
    words = (str(paths[0]), *shell[1:])
    path = f"{tools}:/usr/bin:/bin"
    done = capture("--judge", "kept", cwd=tmp_path, shell=words, PATH=path)
    assert (done.returncode, failed(done.stdout), done.stderr) == (0, set(), ""), done.stdout
    assert len(checks(done.stdout)) == 30


# ---------------------------------------------------------------- the load on FreeBSD


def test_the_load_reads_the_counts_of_freebsd(tmp_path: Path) -> None:
    """cpuset, procstat -r and kern.cp_times as FreeBSD prints them (stand-ins)."""
    sysctls = tmp_path / "sysctls"
    sysctls.mkdir()
    clock = "{ hz = 1000, tick = 1000, profhz = 8128, stathz = 127 }\n"
    (sysctls / "kern.clockrate").write_text(clock)
    (sysctls / "kern.cp_times").write_text("10 1 20 3 900 30 2 40 5 800\n")
    (sysctls / "vm.stats.sys.v_swtch").write_text("4711\n")
    done = subprocess.run(
        ["sh", str(COLLECTORS / "self-test-load.sh"), "1"],
        env={
            "PATH": f"{STAND_INS}:/usr/bin:/bin",
            "STAND_IN_SYSCTLS": str(sysctls),
            "STAND_IN_STATE": str(tmp_path),
        },
        cwd=tmp_path, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[:3] == ["os FreeBSD", "ticks 127", "cpus 0 1 2 3"]
    assert "bound 3" in lines
    # user nice sys idle 0 intr: idle is the fourth, as on Linux.
    assert "stat begin cpu 0 10 1 20 900 0 3" in lines
    assert "stat end cpu 1 30 2 40 800 0 5" in lines
    assert "stat end switches 4711" in lines
    assert "begin hog 12 7 1500000000" in lines
    roles = [line.split()[1] for line in lines if line.startswith("process ")]
    assert roles == ["hog", "nice", "mover", "ping", "pong", "sleeper"]
    assert int(next(line for line in lines if line.startswith("moves")).split()[1]) == 5
    assert lines[-1] == "whole"


# ---------------------------------------------------------------- a load that cannot end


def load(tmp_path: Path, tools: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    """The load with shell scripts in place of some tools."""
    folder = tmp_path / "tools"
    folder.mkdir()
    for name, text in tools.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    return subprocess.run(
        ["sh", str(COLLECTORS / "self-test-load.sh"), *words],
        env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "TMPDIR": str(tmp_path)},
        cwd=tmp_path, capture_output=True, text=True, timeout=60,
    )  # fmt: skip


@pytest.mark.needs("linux", "taskset")
def test_a_role_that_dies_is_named(tmp_path: Path) -> None:
    """The load waits for its roles for a limited time."""
    kills = f"""case $1 in
    -cp) [ -e {tmp_path}/killed ] || {{ : >{tmp_path}/killed; kill -s KILL "$3"; }} ;;
    *) exec {shutil.which("taskset")} "$@" ;;
    esac"""
    done = load(tmp_path, {"taskset": kills}, "1", "6")
    assert done.returncode == 1
    assert "self-test-load: not done after 6 s: hog\n" in done.stderr
    assert "whole" not in done.stdout
    assert not list(tmp_path.glob("schedscope-self-test.*"))


@pytest.mark.needs("linux", "taskset")
def test_load_without_renice_has_no_nice_role(tmp_path: Path) -> None:
    """Debian's busybox lacks `nice`; others may lack `renice`."""
    done = load(tmp_path, {"renice": "exit 127", "nice": "exit 127"}, "1")
    assert (done.returncode, done.stderr) == (0, "")
    roles = [x.split()[1] for x in done.stdout.splitlines() if x.startswith("process ")]
    assert set(roles) - {"mover"} == {"hog", "ping", "pong", "sleeper"}


def test_judge_accepts_a_load_without_the_nice_role(tmp_path: Path) -> None:
    kept = write(tmp_path / "kept")
    path = kept / "dtrace.account"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(line for line in lines if " nice " not in line))
    done = capture("--judge", "kept", cwd=tmp_path)
    assert (done.returncode, failed(done.stdout)) == (0, set()), done.stdout
    assert not any(check.startswith("nice") or "nice one" in check for check in checks(done.stdout))
