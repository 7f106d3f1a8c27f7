"""The recorder as root on a production host harms no other capture, file or disk."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest
from collector_runs import CAPTURE, INSTANCES, ROOT, Run, eventually, meta, table

import schedscope
from schedscope import collectors

pytestmark = pytest.mark.needs("root", "tracefs", "linux")
RECORDERS = [
    "ftrace",
    pytest.param("bpftrace", marks=pytest.mark.needs("bpftrace")),
    pytest.param("perf", marks=pytest.mark.needs("perf")),
]
AWKS = [("mawk",), ("gawk",), ("busybox", "awk"), ("original-awk",)]
# A user of the host who is neither root nor the owner of anything here.
SUDO = {"SUDO_USER": "nobody"}


@pytest.fixture
def open_folder(tmp_path: Path) -> Path:
    """A folder that only its owner, `nobody`, may write to; root's files are next to it."""
    folder = tmp_path / "users"
    folder.mkdir()
    for path in (tmp_path, tmp_path.parent, tmp_path.parent.parent):
        path.chmod(path.stat().st_mode | 0o711)
    shutil.chown(folder, "nobody")
    return folder


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    options = ["mount", "-t", "tmpfs", "-o", "size=8m", "none", str(disk)]
    if subprocess.run(options, capture_output=True, check=False).returncode != 0:
        pytest.skip("cannot mount a small tmpfs")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


# ------------------------------------------------------------------ other captures


@pytest.mark.needs("unshare")
def test_a_capture_in_a_container_leaves_live_captures_alone(tmp_path: Path) -> None:
    """It has its own pid namespace, in which owners of other captures are not visible."""
    live = Run("-t", "ftrace", "-o", "live", cwd=tmp_path)
    live.until("Ctrl-C ends the recording")
    inside = f"exec sh {CAPTURE} -t ftrace -o inside -- true"
    words = ["unshare", "-pf", "--mount-proc", "sh", "-c", inside]
    assert subprocess.run(words, cwd=tmp_path, check=False, timeout=60).returncode == 0
    subprocess.run(["sh", str(CAPTURE), "--clean"], check=True, timeout=60)
    assert live.instance() != []
    live.process.send_signal(signal.SIGINT)
    assert live.wait() == 0, live.said
    content = meta(tmp_path / "live.capture")
    assert content["complete"] is True
    assert all((tmp_path / "live.capture/stats").iterdir())


@pytest.mark.parametrize("what", ["off", "event"])
def test_a_recording_switched_off_by_others_is_a_failure(what: str, tmp_path: Path) -> None:
    run = Run("-t", "ftrace", "-o", "x", cwd=tmp_path)
    run.until("Ctrl-C ends the recording")
    time.sleep(0.3)
    (instance,) = run.instance()
    name = "tracing_on" if what == "off" else "events/sched/sched_switch/enable"
    (instance / name).write_text("0")
    run.process.send_signal(signal.SIGINT)
    assert run.wait() == 125
    assert "switched off by somebody else" in run.said
    content = meta(tmp_path / "x.capture")
    assert content["complete"] is False
    assert {entry["reason"] for entry in content["lost"]} == {"early_end"}


def test_a_watchdog_killed_alone_is_a_failure_and_leaves_nothing(tmp_path: Path) -> None:
    run = Run("-t", "ftrace", "-o", "x", "--", "sleep", "1.5", cwd=tmp_path)
    run.until("recording with")
    for pid in run.pids():
        if b"schedscope-watchdog" in Path(f"/proc/{pid}/cmdline").read_bytes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    assert run.wait() == 125, run.said
    assert meta(tmp_path / "x.capture")["complete"] is False
    eventually(lambda: not run.instance() and not run.leftovers())


# ------------------------------------------------------------------ disk and size


@pytest.mark.parametrize("recorder", RECORDERS)
def test_a_size_limit_ends_a_complete_recording(recorder: str, tmp_path: Path) -> None:
    load = "i=0; while [ $i -lt 6000 ]; do true | true; i=$((i+1)); done"
    words = ["-t", recorder, "-b", "512K", "--max-size", "2M", "-o", "x", "--", "sh", "-c", load]
    run = Run(*words, cwd=tmp_path)
    assert run.wait(120) == 0, run.said
    assert "reached 2 MiB (--max-size)" in run.said
    content = meta(tmp_path / "x.capture")
    assert content["complete"] is True
    assert any("--max-size" in text for text in content["notes"])
    size = sum(path.stat().st_size for path in (tmp_path / "x.capture").rglob("*"))
    assert 1_000_000 < size < 40_000_000
    assert run.leftovers() == []


# Three pairs of threads that wake each other as fast as they can, for a given time.
STORM = """
import os, sys, time
end = time.time() + float(sys.argv[1])
for _ in range(3):
    if os.fork() == 0:
        (a, b), (c, d) = os.pipe(), os.pipe()
        if os.fork() == 0:
            os.close(b), os.close(c)
            while os.read(a, 1):
                os.write(d, b"x")
            os._exit(0)
        os.close(a), os.close(d)
        while time.time() < end:
            os.write(b, b"x"), os.read(c, 1)
        os._exit(0)
for _ in range(3):
    os.wait()
"""


@pytest.mark.parametrize("recorder", RECORDERS)
def test_a_storm_of_switches_does_not_outrun_the_size_limit(recorder: str, tmp_path: Path) -> None:
    """Two CPUs write 27 MB/s, plus the contents of the buffers at the end."""
    words = ["-t", recorder, "--max-size", "4M", "-o", "x", "--"]
    run = Run(*words, sys.executable, "-c", STORM, "3", cwd=tmp_path)
    assert run.wait(120) == 0, run.said
    content = meta(tmp_path / "x.capture")
    assert content["complete"] is True
    size = sum(path.stat().st_size for path in (tmp_path / "x.capture").rglob("*"))
    # bpftrace has no limit of its own, and takes up to two seconds to end.
    assert size < (4 << 20) * (3 if recorder == "bpftrace" else 1) + (256 << 10)
    if recorder != "bpftrace":
        assert "reached 4 MiB (--max-size)" in run.said
        assert size > 2_000_000
    assert run.leftovers() == []


@pytest.mark.needs("linux", "root", "perf")
def test_size_limit_is_reported_where_perf_ends_after_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a storm leaves it no CPU to end on: nothing is known of the time without events."""
    slow = tmp_path / "bin" / "perf"
    slow.parent.mkdir()
    slow.write_text(f'#!/bin/sh\n{shutil.which("perf")} "$@"\n[ "$1" != record ] || sleep 3\n')
    slow.chmod(0o755)
    monkeypatch.setenv("PATH", f"{slow.parent}:{os.environ['PATH']}")
    words = ["-t", "perf", "--max-size", "4M", "-o", "x", "--"]
    run = Run(*words, sys.executable, "-c", STORM, "2", cwd=tmp_path)
    assert run.wait(120) == 0, run.said
    assert "reached 4 MiB (--max-size)" in run.said
    assert meta(tmp_path / "x.capture")["complete"] is True
    trace = schedscope.open(tmp_path / "x.capture")
    last = trace.switches.select(pl.col("ts").max()).collect().item()
    # Not with perf, which takes 3 s more. A storm may leave only perf's records of threads at its
    # end: then what happened is unknown.
    ends = trace.losses.filter(reason="early_end", ts_end=trace.window[1]).collect()
    assert trace.window[1] - last < 1_000_000_000 or ends["cpu"].n_unique() == trace.ncpu
    assert run.leftovers() == []


def test_burst_after_a_quiet_time_is_limited_at_once(tmp_path: Path) -> None:
    """With a check every ten seconds after a quiet time it would go on for eight."""
    load = "sleep 4; date +%s >began; head -c 64000000 /dev/zero >x.capture.partial/burst; sleep 30"
    words = ["-t", "ftrace", "-b", "512K", "--max-size", "32M", "-o", "x", "--", "sh", "-c", load]
    run = Run(*words, cwd=tmp_path)
    run.until("waiting for the command")
    ended = time.time()
    run.process.terminate()
    run.wait()
    assert ended - int((tmp_path / "began").read_text()) < 6


def test_size_limit_holds_while_capture_is_suspended(tmp_path: Path) -> None:
    """For example after Ctrl-Z: the watchdog ends the tracing, and the window ends there."""
    words = ["-t", "ftrace", "-b", "512K", "--max-size", "1M", "-o", "x", "--"]
    load = "while :; do true | true; done"
    run = Run(*words, "timeout", "60", "sh", "-c", load, cwd=tmp_path)
    run.until("recording with")
    run.process.send_signal(signal.SIGSTOP)
    (instance,) = run.instance()
    eventually(lambda: (instance / "tracing_on").read_text() == "0\n", 30)
    time.sleep(1)
    run.process.send_signal(signal.SIGCONT)
    run.until("waiting for the command")
    run.process.terminate()
    run.wait()
    content = meta(tmp_path / "x.capture")
    assert content["complete"] is True, content["interrupted"]
    stopped = content["clock"]["pairs"][1][0] - content["window"]["end"]
    assert stopped > 900_000_000


def test_too_little_free_space_ends_the_recording(small_disk: Path, tmp_path: Path) -> None:
    load = "i=0; while [ $i -lt 6000 ]; do true | true; i=$((i+1)); done"
    limit = ["--min-free", "5M", "-b", "256K", "-o", f"{small_disk}/x"]
    run = Run("-t", "ftrace", *limit, "--", "sh", "-c", load, cwd=tmp_path)
    assert run.wait(120) == 125, run.said
    assert "disk space were left (--min-free)" in run.said
    assert meta(small_disk / "x.capture")["complete"] is False
    (small_disk / "ballast").write_bytes(b"x" * 2_000_000)
    refused = Run("-t", "ftrace", *limit[:-1], f"{small_disk}/y", "--", "true", cwd=tmp_path)
    assert refused.wait() == 125
    assert "not enough space" in refused.said


def test_a_storm_of_switches_leaves_the_floor_of_free_space(
    small_disk: Path, tmp_path: Path
) -> None:
    """The contents of the buffers are also written only as far as there is room."""
    words = ["-t", "ftrace", "--min-free", "2M", "-o", f"{small_disk}/x"]
    run = Run(*words, "--", sys.executable, "-c", STORM, "3", cwd=tmp_path)
    assert run.wait(120) == 125, run.said
    assert "disk space were left (--min-free)" in run.said
    assert shutil.disk_usage(small_disk).free > 1_900_000


@pytest.mark.parametrize("recorder", RECORDERS[1:])
def test_full_disk_ends_the_tools_and_is_reported(
    recorder: str, small_disk: Path, tmp_path: Path
) -> None:
    """Time after the last event is neither idle nor running: it is outside the window."""
    load = "i=0; while [ $i -lt 30000 ]; do true | true; i=$((i+1)); done"
    words = ["-t", recorder, "--min-free", "0", "-b", "512K", "-o", f"{small_disk}/x"]
    run = Run(*words, "--", "timeout", "25", "sh", "-c", load, cwd=tmp_path)
    assert run.wait(120) == 125, run.said
    assert run.leftovers() == []
    content = meta(small_disk / "x.capture")
    assert content["complete"] is False
    assert "early_end" in {entry["reason"] for entry in content["lost"]}
    if recorder == "bpftrace":
        stamps = [
            int(line.split()[1])
            for line in (small_disk / "x.capture/events.txt").read_bytes().splitlines()[:-1]
            if line[:2] in {kind + b" " for kind in map(bytes, zip(b"SKENMFCRPX"))}
        ]
        assert content["window"]["end"] <= max(stamps) + 1_000_000
    else:
        assert content["window"]["end"] is None, run.said
        assert (
            schedscope.open(small_disk / "x.capture", cache=tmp_path / "c")
            .switches.collect()
            .height
            > 1000
        )


# ------------------------------------------------------------------ root led astray


def test_command_cannot_redirect_root_to_another_file(open_folder: Path) -> None:
    """The command repeatedly replaces the folder's name by a link to root's files."""
    victim = open_folder.parent / "roots"
    victim.mkdir(mode=0o755)
    for name in ("capture.json", "threads.tsv", "cpus.tsv", "events.txt"):
        (victim / name).write_text("root's own")
    attack = f"""
        mv x.capture.partial elsewhere; ln -s {victim} x.capture.partial
        ln -s {victim} x.capture; sleep 0.3"""
    run = Run(
        "-t", "ftrace", "-o", "x", "--", "sh", "-c", attack, cwd=open_folder, environment=SUDO
    )
    run.wait()
    assert all(path.read_text() == "root's own" for path in victim.iterdir())
    assert len(list(victim.iterdir())) == 4
    assert all(path.stat().st_uid == 0 for path in [victim, *victim.iterdir()])
    assert run.instance() == []
    assert run.leftovers() == []
    assert (open_folder / "elsewhere/capture.json").is_file() or "elsewhere" in run.said
    assert f"wrote {open_folder}/elsewhere: " in run.said
    assert "wrote x.capture" not in run.said


def test_recording_is_readable_only_by_its_owner(open_folder: Path) -> None:
    other = ["setpriv", "--reuid=12345", "--regid=12345", "--clear-groups", "ls"]
    seen = f"{' '.join(other)} {open_folder}/x.capture.partial; true"
    run = Run(
        "-t", "ftrace", "-o", "x", "--", "sh", "-c", "sleep 0.5", cwd=open_folder, environment=SUDO
    )
    run.until("recording with")
    assert (
        "denied"
        in subprocess.run(["sh", "-c", seen], capture_output=True, text=True, check=True).stderr
    )
    assert run.wait() == 0, run.said
    owner = open_folder.stat().st_uid
    for path in [open_folder / "x.capture", *(open_folder / "x.capture").rglob("*")]:
        status = path.stat()
        assert status.st_mode & 0o777 == (0o700 if path.is_dir() else 0o600), path
        assert status.st_uid == owner, path


@pytest.mark.parametrize("recorder", RECORDERS)
def test_command_gets_its_environment_unchanged(recorder: str, tmp_path: Path) -> None:
    """The caller's directory, umask, PATH, locale and descriptors, without the recorder's."""
    show = 'umask; pwd; echo "$PATH" "${LC_ALL-unset}"; ls /proc/self/fd; env | grep OLDPWD'
    show += "; env | grep -c ^watch"
    before = os.umask(0o027)
    try:
        environment = {"PATH": "/opt/none:.:" + os.environ["PATH"], "LC_ALL": "C.UTF-8"}
        environment["OLDPWD"] = "/var/tmp"
        alone = subprocess.run(
            ["sh", "-c", show],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            env={**os.environ, **environment},
            check=False,
        ).stdout
        words = ["-t", recorder, "-o", "x", "--", "sh", "-c", show]
        run = Run(*words, cwd=tmp_path, environment=environment)
    finally:
        os.umask(before)
    run.wait()
    assert run.answer == alone, run.said


def test_tools_are_run_only_from_folders_of_root(tmp_path: Path) -> None:
    """Neither `.` nor another user's folder in PATH provides programs that run as root."""
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    for name in ("awk", "dd", "id", "ls", "cat", "mkfifo", "setsid", "sleep", "date"):
        for folder in (theirs, tmp_path):
            tool = folder / name
            tool.write_text(f"#!/bin/sh\necho {name} >>{tmp_path}/run-as-root\nexit 1\n")
            tool.chmod(0o755)
    shutil.chown(theirs, "nobody")
    path = f".:{theirs}::relative:{os.environ['PATH']}"
    run = Run("-t", "ftrace", "-o", "x", "--", "true", cwd=tmp_path, environment={"PATH": path})
    assert run.wait() == 0, run.said
    assert not (tmp_path / "run-as-root").exists()


def test_recorder_reads_only_its_own_files(tmp_path: Path) -> None:
    copy = tmp_path / "collectors"
    shutil.copytree(ROOT / "collectors", copy)
    for place in (copy, copy / "linux"):
        (place / "evil.sh").write_text(f"touch {tmp_path}/sourced\n")
    run = Run("-t", "ftrace", "-o", "x", "--", "true", cwd=tmp_path, program=copy / "capture")
    assert run.wait() == 0, run.said
    assert not (tmp_path / "sourced").exists()
    (copy / "linux" / "perf.sh").unlink()
    assert Run("--list", cwd=tmp_path, program=copy / "capture").wait() == 125


@pytest.mark.parametrize("name", ["x=y", "a b", "new\nline", "-dash"])
def test_command_and_folder_may_have_any_name(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("#!/bin/sh\nexit 9\n")
    (tmp_path / name).chmod(0o755)
    run = Run("-t", "ftrace", "-o", f"./out {name}", "--", f"./{name}", cwd=tmp_path)
    assert run.wait() == 9, run.said
    assert meta(tmp_path / f"out {name}.capture")["complete"] is True


@pytest.mark.parametrize(
    ("words", "status"), [(["no-such-command-here"], 127), (["/etc/passwd"], 126), (["/"], 126)]
)
def test_command_that_cannot_be_run_is_reported(
    words: list[str], status: int, tmp_path: Path
) -> None:
    run = Run("-o", "x", "--", *words, cwd=tmp_path)
    assert run.wait() == status
    assert run.said.count("\n") == 1
    assert not list(tmp_path.glob("x*"))


# ------------------------------------------------------------------ bare and odd hosts


def tools_with(folder: Path, *, without: tuple[str, ...] = (), **instead: str) -> str:
    """A PATH of links to this host's tools, some missing, some replaced by scripts."""
    folder.mkdir()
    for place in ("/usr/bin", "/usr/sbin", "/bin", "/sbin"):
        for tool in Path(place).iterdir():
            link = folder / tool.name
            if tool.name not in without and tool.name not in instead and not link.is_symlink():
                link.symlink_to(tool)
    for name, script in instead.items():
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)
    return str(folder)


CHURN = (
    "import threading, time\nend = time.monotonic() + 30\n"
    "while time.monotonic() < end:\n"
    " made = [threading.Thread(target=time.sleep, args=(0.0005,)) for _ in range(40)]\n"
    " [t.start() for t in made]; [t.join() for t in made]\n"
)


@pytest.mark.parametrize(
    "awk",
    [pytest.param(words, id=words[0], marks=pytest.mark.needs(words[0])) for words in AWKS],
)
def test_every_awk_survives_threads_that_vanish(awk: tuple[str, ...], tmp_path: Path) -> None:
    path = tools_with(tmp_path / "bin", awk=f'exec {shutil.which(awk[0])} {" ".join(awk[1:])} "$@"')
    script = (
        f"files_shared=; scratch={tmp_path}; . {ROOT}/collectors/linux/host.sh; "
        "i=0; while [ $i -lt 60 ]; do host_threads >out || exit 1; "
        "[ $(wc -l <out) -gt 10 ] || exit 2; i=$((i+1)); done; host_cpus; host_tunables >/dev/null"
    )
    churn = subprocess.Popen([sys.executable, "-c", CHURN])
    try:
        done = subprocess.run(
            ["sh", "-uc", script],
            cwd=tmp_path,
            env={**os.environ, "PATH": path, "LC_ALL": "C"},
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        churn.kill()
        churn.wait()
    assert (done.returncode, done.stderr) == (0, "")
    rows = table(tmp_path / "out")
    assert any(row["comm"] == "kthreadd" and row["kernel"] == "1" for row in rows)
    assert done.stdout.splitlines()[1].startswith("0\t1\t0\t")


def test_no_awk_reads_files_that_may_vanish() -> None:
    """mawk ends with a read error where another awk goes on: files are passed through a pipe."""
    for path in (ROOT / "collectors").glob("**/*.sh"):
        assert not re.search(r"getline\b.*<", path.read_text()), path


def test_a_host_without_getconf_passwd_and_a_date_of_seconds(tmp_path: Path) -> None:
    path = tools_with(
        tmp_path / "bin",
        without=("getconf",),
        date='case $1 in *N*) echo "$(/bin/date +%s)%N";; *) exec /bin/date "$@";; esac',
        id='case $1 in -un) echo "id: unknown ID 0" >&2; exit 1;; *) exec /usr/bin/id "$@";; esac',
    )
    run = Run("-t", "ftrace", "-o", "x", "--", "true", cwd=tmp_path, environment={"PATH": path})
    assert run.wait() == 0, run.said
    assert "unknown ID" not in run.said
    content = meta(tmp_path / "x.capture")
    assert content["page_size"] == os.sysconf("SC_PAGE_SIZE")
    now = time.clock_gettime_ns(time.CLOCK_REALTIME) - time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    for clock, wall in content["clock"]["pairs"]:
        assert abs(wall - clock - now) <= content["clock"]["pair_error_ns"] + 2_000_000


def test_clock_pair_of_whole_seconds_has_its_error_bound(tmp_path: Path) -> None:
    path = tools_with(tmp_path / "bin", date="exec /bin/date +%s")
    script = f"""
        . {ROOT}/collectors/linux/clock.sh; . {ROOT}/collectors/metadata.sh
        clock_pairs='' clock_error=''; clock_pair; echo "$clock_pairs" "$clock_error" """
    done = subprocess.run(
        ["sh", "-uc", script], env={"PATH": path}, capture_output=True, text=True, check=True
    )
    clock, wall, error = (int(word.strip("[],")) for word in done.stdout.split())
    now = time.clock_gettime_ns(time.CLOCK_REALTIME) - time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    assert abs(wall - clock - now) <= error
    assert 500_000_000 <= error < 600_000_000


# ------------------------------------------------------------------ what was left behind


@pytest.mark.needs("setsid")
def test_clean_removes_and_names_leftovers(tmp_path: Path) -> None:
    """An instance without an owner, and a recorder whose session leader is gone."""
    instance = INSTANCES / "schedscope-1-1"
    instance.mkdir(exist_ok=True)
    orphan = "SCHEDSCOPE_RECORDER=1 setsid sh -c 'sleep 1000 >/dev/null 2>&1 & echo $!'"
    pid = int(subprocess.run(["sh", "-c", orphan], stdout=subprocess.PIPE, check=True).stdout)
    done = subprocess.run(
        [sys.executable, "-m", "schedscope", "doctor", "--clean"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert "removed the trace instance schedscope-1-1" in done.stdout
    assert f"removed the process sleep (pid {pid})" in done.stdout
    assert not instance.exists()
    eventually(lambda: not Path(f"/proc/{pid}").exists())


def test_bundle_passes_the_same_safety_checks(open_folder: Path, tmp_path: Path) -> None:
    """From one file on stdin: the watchdog needs no other file."""
    program = tmp_path / "bundle"
    program.write_text(collectors.bundle())
    with program.open() as text:
        process = subprocess.Popen(
            ["sh", "-s", "--", "-t", "ftrace", "-o", "x", "-d", "30"],
            stdin=text,
            cwd=open_folder,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    assert process.stderr is not None
    while b"recording with" not in process.stderr.readline():
        assert process.poll() is None
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    eventually(lambda: not list(INSTANCES.glob(f"schedscope-{process.pid}-*")), 10)
    eventually(lambda: not (open_folder / "x.capture.partial/.scratch").exists(), 10)
    assert schedscope.open(open_folder / "x.capture.partial").states.collect().height > 0


@pytest.mark.parametrize("locale", ["C.UTF-8", "C"])
@pytest.mark.parametrize("shell", ["dash", "bash", "busybox"])
def test_messages_escape_names_beyond_ascii(locale: str, shell: str, tmp_path: Path) -> None:
    """8-bit control characters, and marks that reverse or hide text; letters stay."""
    if not (path := shutil.which(shell)):
        pytest.skip(f"no {shell} here")
    hostile = "\x80\x9b31m\x9d0;a\x9c\u061c\u200b\u200f\u2028\u202e\u2066\u2069\ufeff"
    words = [path, *(["sh"] if shell == "busybox" else []), str(CAPTURE), "-t", f"é…{hostile}ж"]
    environment = {**os.environ, "LC_ALL": locale}
    ran = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, check=False)
    assert ran.returncode == 125
    said = ran.stderr.decode("ascii" if locale == "C" else "utf-8")
    assert said.count("\n") == 1, said
    assert said.strip().isprintable(), said
    assert ("é…??31m?0;a?????????ж" in said) == (locale != "C"), said


@pytest.mark.parametrize(
    "words",
    [["-o", "\x1b[2J/x\ny", "--", "true"], ["-t", "\x1b[2J"], ["-o", "x", "--", "\x1b]0;a\x07\nb"]],
)
def test_messages_escape_names_for_the_terminal(words: list[str], tmp_path: Path) -> None:
    run = Run(*words, cwd=tmp_path)
    assert run.wait() in (125, 127)
    assert run.said.count("\n") == 1, run.said
    assert run.said.strip().isprintable(), run.said


def test_exported_variables_reach_only_the_command(tmp_path: Path) -> None:
    """Under any name that the recorder uses itself: none of its values comes from outside."""
    names = set()
    for path in [CAPTURE, *(ROOT / "collectors").glob("**/*.sh")]:
        names |= set(re.findall(r"(?:^|[\s;({])([a-z_][a-z0-9_]*)=", path.read_text(), re.M))
    assert {"stage", "none_lost", "caller_name", "watch_left"} <= names
    forged = {name: f"FORGED {name}" for name in names} | {"GREP_OPTIONS": "-v"}
    run = Run("-o", "x", "--", "env", "-0", cwd=tmp_path, environment=forged)
    assert run.wait() == 0, run.said
    assert "FORGED" not in run.said
    assert "none lost" in run.said
    got = dict(entry.partition("=")[::2] for entry in run.answer.split("\0")[:-1])
    assert {name: got.get(name) for name in forged} == forged
    text = b"".join(path.read_bytes() for path in (tmp_path / "x.capture").glob("*.[jt]s*"))
    assert b"FORGED" not in text
