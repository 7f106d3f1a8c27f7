"""What `capture` writes, in every supported shell, from the folder and from the bundle."""

from __future__ import annotations

import ctypes
import os
import shlex
import shutil
import signal
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest
from collector_runs import CAPTURE, ROOT, Run, checksums_are_right, eventually, meta, table

import schedscope as ss
from schedscope import collectors

SHELLS = [("dash",), ("busybox", "sh"), ("posh",), ("yash",), ("bash",)]
needs_ftrace = pytest.mark.needs("root", "tracefs", "linux")


@pytest.fixture(scope="session")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bundle") / "capture-anywhere"
    path.write_text(collectors.bundle())
    return path


def in_shell(words: tuple[str, ...]) -> pytest.param:
    return pytest.param(words, id=words[0], marks=pytest.mark.needs(words[0]))


@needs_ftrace
@pytest.mark.parametrize("shell", [in_shell(words) for words in SHELLS])
@pytest.mark.parametrize("form", ["folder", "bundle"])
def test_every_shell_writes_a_whole_capture(
    shell: tuple[str, ...], form: str, bundle: Path, tmp_path: Path
) -> None:
    program = CAPTURE if form == "folder" else bundle
    command = [sys.executable, "-c", "import time; time.sleep(0.3); raise SystemExit(7)"]
    run = Run("-o", "x", "--", *command, cwd=tmp_path, shell=shell, program=program)
    assert run.wait() == 7, run.said
    x = tmp_path / "x.capture"
    content = meta(x)
    assert content["complete"] is True
    assert content["interrupted"] is None
    assert content["workload"]["command"] == command
    assert content["workload"]["exit_status"] == 7
    assert content["lost"] == []
    assert content["window"]["end"] - content["window"]["begin"] > 300_000_000
    (begin, wall), (end, wall_end) = content["clock"]["pairs"]
    assert begin <= content["window"]["begin"] < content["window"]["end"] <= end
    assert abs((wall_end - wall) - (end - begin)) < 50_000_000
    sizes = {path.name: path.stat().st_size for path in (x / "raw").iterdir()}
    online = [row["cpu"] for row in table(x / "cpus.tsv") if row["online"] == "1"]
    assert {f"cpu{cpu}" for cpu in online} <= set(sizes)
    assert all(size % content["ftrace"]["sub_buffer_bytes"] == 0 for size in sizes.values())
    assert sum(sizes.values()) > 0
    assert (x / "events/sched/sched_switch/format").read_text().startswith("name: sched_switch")
    assert not list(x.glob(".*"))
    checksums_are_right(x)
    assert run.instance() == []
    assert run.leftovers() == []


@needs_ftrace
def test_events_in_the_pages_are_as_many_as_the_kernel_counted(tmp_path: Path) -> None:
    run = Run("-o", "x", "--", "hackbench", "-l", "100", "-g", "2", cwd=tmp_path)
    if shutil.which("hackbench") is None:
        run.wait()
        pytest.skip("needs hackbench")
    assert run.wait() == 0
    x = tmp_path / "x.capture"
    size = meta(x)["ftrace"]["sub_buffer_bytes"]
    for stats in (x / "stats").iterdir():
        said = dict(line.split(": ") for line in stats.read_text().splitlines())
        counted = sum(events_in(page) for page in pages(x / "raw" / stats.name, size))
        assert counted == int(said["read events"])
        assert said["entries"].strip() == said["overrun"].strip() == "0"


def pages(path: Path, size: int) -> Iterator[bytes]:
    content = path.read_bytes()
    for at in range(0, len(content), size):
        yield content[at : at + size]


def events_in(page: bytes) -> int:
    """Data events of one little-endian 64-bit sub-buffer (Documentation/trace/ring-buffer)."""
    (commit,) = struct.unpack_from("<Q", page, 8)
    at, end, count = 16, 16 + (commit & 0xFFFFFFF), 0
    while at < end:
        (word,) = struct.unpack_from("<I", page, at)
        kind = word & 31
        if kind == 29:  # padding to the end, or a discarded event
            if word >> 5 == 0:
                break
            at += 4 + struct.unpack_from("<I", page, at + 4)[0]
        elif kind in (30, 31):  # time extend, absolute time
            at += 8
        elif kind == 0:
            count += 1
            at += 4 + struct.unpack_from("<I", page, at + 4)[0]
        else:
            count += 1
            at += 4 + 4 * kind
    return count


@needs_ftrace
@pytest.mark.parametrize("kilobytes", [4, 64])
def test_sub_buffers_of_other_sizes(kilobytes: int, tmp_path: Path) -> None:
    if not Path("/sys/kernel/tracing/buffer_subbuf_size_kb").exists():
        pytest.skip("this kernel has only sub-buffers of one page")
    size = {"SCHEDSCOPE_SUBBUF_KB": str(kilobytes)}
    run = Run("-o", "x", "--", "sleep", "0.3", cwd=tmp_path, environment=size)
    assert run.wait() == 0
    x = tmp_path / "x.capture"
    assert meta(x)["ftrace"]["sub_buffer_bytes"] == kilobytes * 1024
    for stats in (x / "stats").iterdir():
        counted = sum(events_in(p) for p in pages(x / "raw" / stats.name, kilobytes * 1024))
        assert f"read events: {counted}\n" in stats.read_text()


@needs_ftrace
@pytest.mark.needs("busybox")
def test_capture_runs_with_busybox_only(tmp_path: Path, bundle: Path) -> None:
    """busybox's dd has no option for non-blocking reads, and its awk is yet another one."""
    tools = tmp_path / "bin"
    tools.mkdir()
    busybox = shutil.which("busybox")
    assert busybox is not None
    applets = subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True)
    for applet in applets.stdout.split():
        (tools / applet).symlink_to(busybox)
    run = Run(
        "-o",
        "x",
        "--",
        "sh",
        "-c",
        "i=0; while [ $i -lt 200 ]; do true | cat; i=$((i+1)); done",
        cwd=tmp_path,
        shell=(busybox, "sh"),
        program=bundle,
        environment={"PATH": str(tools)},
    )
    assert run.wait() == 0, run.said
    x = tmp_path / "x.capture"
    size = meta(x)["ftrace"]["sub_buffer_bytes"]
    for stats in (x / "stats").iterdir():
        counted = sum(events_in(page) for page in pages(x / "raw" / stats.name, size))
        assert f"read events: {counted}\n" in stats.read_text()
        assert "entries: 0\n" in stats.read_text()
    assert len(table(x / "threads.tsv")) > 10
    if "cksum" in applets.stdout.split():
        checksums_are_right(x)
    else:
        assert not list(x.glob("checksums*"))


@needs_ftrace
def test_thread_table_survives_any_name(tmp_path: Path) -> None:
    names = [b"a b)c (d", b"tab\tnl\nbs\\", b")", b"\xff\xfe latin", b"plain"]
    children = [child(name) for name in names]
    try:
        run = Run("-o", "x", "--", "true", cwd=tmp_path)
        assert run.wait() == 0
        rows = {int(row["tid"]): row for row in table(tmp_path / "x.capture" / "threads.tsv")}
        for pid, name in zip(children, names, strict=True):
            escaped = name.replace(b"\\", b"\\\\").replace(b"\t", b"\\t").replace(b"\n", b"\\n")
            assert os.fsencode(rows[pid]["comm"]) == escaped
            assert rows[pid]["pid"] == str(pid)
            assert rows[pid]["ppid"] == str(os.getpid())
            assert rows[pid]["kernel"] == "0"
        assert rows[2]["comm"] == "kthreadd"
        assert rows[2]["kernel"] == "1"
    finally:
        for pid in children:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def child(name: bytes) -> int:
    ready, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        ctypes.CDLL(None).prctl(15, name)
        os.write(tell, b".")
        signal.pause()
    os.read(ready, 1)
    os.close(ready)
    os.close(tell)
    return pid


@needs_ftrace
def test_policy_priority_nice_and_affinity_are_the_kernels(tmp_path: Path) -> None:
    cpu = max(os.sched_getaffinity(0))

    def fifo() -> None:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(7))
        os.sched_setaffinity(0, {cpu})

    realtime = subprocess.Popen(["sleep", "300"], preexec_fn=fifo)
    nice = subprocess.Popen(["sleep", "300"], preexec_fn=lambda: os.nice(5))
    try:
        assert Run("-o", "x", "--", "true", cwd=tmp_path).wait() == 0
        rows = {int(row["tid"]): row for row in table(tmp_path / "x.capture" / "threads.tsv")}
        row = rows[realtime.pid]
        # sched_switch prints SCHED_FIFO 7 as 99 - 7.
        assert (row["policy"], row["prio"], row["affinity"]) == ("fifo", "92", str(cpu))
        row = rows[nice.pid]
        assert (row["policy"], row["prio"], row["nice"]) == ("other", "125", "5")
    finally:
        realtime.kill()
        nice.kill()
        realtime.wait()
        nice.wait()


@needs_ftrace
def test_command_line_of_any_bytes_is_valid_json(tmp_path: Path) -> None:
    words = ["true", 'q"uote', "back\\slash", "new\nline", "\x01", "é€😀", "", "a b"]
    run = Run("-o", "x", "--", *words, cwd=tmp_path)
    assert run.wait() == 0
    assert meta(tmp_path / "x.capture")["workload"]["command"] == words
    broken = Run("-o", "y", "--", "true", os.fsdecode(b"a\xffb\xc3"), cwd=tmp_path)
    assert broken.wait() == 0
    assert meta(tmp_path / "y.capture")["workload"]["command"] == ["true", "a\ufffdb\ufffd"]


@needs_ftrace
def test_command_and_folder_belong_to_the_user_under_sudo(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    run = Run(
        "-o",
        "x",
        "--",
        "sh",
        "-c",
        'id -un; id -u; echo "$HOME"; cat',
        cwd=tmp_path,
        environment={"SUDO_USER": "nobody", "HOME": "/root"},
        stdin="through\n",
    )
    assert run.wait() == 0, run.said
    user, uid, home, passed = run.answer.splitlines()
    assert user == "nobody"
    assert home != "/root"
    assert passed == "through"
    assert (tmp_path / "x.capture" / "capture.json").stat().st_uid == int(uid)
    assert meta(tmp_path / "x.capture")["workload"]["user"] == "nobody"


@needs_ftrace
def test_command_handles_ctrl_c_as_without_capture(tmp_path: Path) -> None:
    """A shell starts background jobs with SIGINT ignored; the command must not inherit that."""
    code = "import signal; print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"
    run = Run("-o", "x", "--", sys.executable, "-c", code, cwd=tmp_path)
    assert run.wait() == 0
    assert run.answer == "True\n"


@needs_ftrace
def test_anonymous_names_neither_host_nor_user(tmp_path: Path) -> None:
    assert Run("-o", "x", "--anonymous-host", "--", "true", cwd=tmp_path).wait() == 0
    content = meta(tmp_path / "x.capture")
    assert content["hostname"] is None
    assert content["workload"]["user"] is None


@needs_ftrace
def test_a_time_limit_ends_the_recording_not_the_command(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import time; time.sleep(1.5); raise SystemExit(4)"]
    run = Run("-o", "x", "-d", "0.5", "--", *command, cwd=tmp_path)
    assert run.wait() == 4
    content = meta(tmp_path / "x.capture")
    recorded = content["window"]["end"] - content["window"]["begin"]
    assert 400_000_000 < recorded < 1_400_000_000
    assert content["interrupted"] is None
    assert content["workload"]["exit_status"] == 4
    assert run.leftovers() == []


@needs_ftrace
def test_command_ending_early_leaves_no_shell_message(
    tmp_path: Path,
) -> None:
    run = Run("-o", "x", "-d", "60", "--", "sleep", "0.3", cwd=tmp_path)
    assert run.wait() == 0
    assert all(line.startswith("capture: ") for line in run.said.splitlines()), run.said
    assert run.leftovers() == []


@needs_ftrace
def test_small_buffer_reports_lost_events(tmp_path: Path) -> None:
    code = (
        "import socket, os\n"
        "a, b = socket.socketpair()\nc, d = socket.socketpair()\n"
        "if os.fork() == 0:\n"
        " while True:\n  d.send(b.recv(1) or os._exit(0))\n"
        "b.close()\n"
        "for _ in range(20000): a.send(b'x'); c.recv(1)\n"
    )
    run = Run("-o", "x", "-b", "64K", "--", sys.executable, "-c", code, cwd=tmp_path)
    assert run.wait() == 0, run.said
    content = meta(tmp_path / "x.capture")
    assert sum(entry["count"] for entry in content["lost"]) > 0
    assert {entry["reason"] for entry in content["lost"]} == {"overrun"}
    assert "LOST" in run.said


@needs_ftrace
@pytest.mark.needs("bpftrace")
def test_bpftrace_lines_are_complete(tmp_path: Path) -> None:
    """No CPU's sequence numbers have a gap in the window; the command's switches are there."""
    run = Run("-t", "bpftrace", "-o", "x", "--", "sleep", "0.5", cwd=tmp_path)
    assert run.wait() == 0, run.said
    x = tmp_path / "x.capture"
    content = meta(x)
    assert content["recorder"]["name"] == "bpftrace"
    assert content["lost"] == []
    lines = (x / "events.txt").read_text(errors="replace").splitlines()
    assert lines[0].startswith("#schedscope bpftrace 2 tid=")
    assert any(line.startswith("#end ") for line in lines)
    following: dict[str, int] = {}
    for line in lines:
        if line[:2] in {f"{kind} " for kind in "SKENMFCRPX"}:
            _, _, cpu, seq = line.split(" ")[:4]
            assert int(seq) == following.get(cpu, 0)
            following[cpu] = int(seq) + 1
    pid = content["workload"]["pid"]
    switches = [line.split(" ") for line in lines if line.startswith("S ")]
    # After bpftrace's own sleep the switch-in has no line; the next one's `since` and prev_tid give
    # it.
    assert any(
        words[9] == str(pid) or (words[4] != "0" and words[7] == str(pid)) for words in switches
    )
    assert any(line.startswith("X ") and line.endswith(f" {pid} {pid}") for line in lines)
    assert run.leftovers() == []


@pytest.mark.needs("bpftrace")
def test_name_with_newlines_loses_no_bpftrace_line(tmp_path: Path) -> None:
    """Neither the decoder nor the recorder's own count takes part of a name for a line."""
    name = "a\nX 1 0 9 7 7"
    program = (
        "import sys, time; open('/proc/self/comm', 'w').write(sys.argv[1])\n"
        "for _ in range(50): time.sleep(0.002)"
    )
    run = Run("-t", "bpftrace", "-o", "x", "--", "python3", "-c", program, name, cwd=tmp_path)
    assert run.wait() == 0, run.said
    content = meta(tmp_path / "x.capture")
    assert content["lost"] == []
    trace = ss.open(tmp_path / "x.capture", cache=tmp_path / "cache")
    assert trace.threads.filter(pl.col("comm") == name).collect().height >= 1
    assert [text for text in trace.info["warnings"] if "lines" in text] == []
    assert run.leftovers() == []


@pytest.mark.needs("shellcheck")
def test_shellcheck_finds_nothing(bundle: Path) -> None:
    files = [CAPTURE, *sorted((ROOT / "collectors").glob("**/*.sh")), bundle]
    done = subprocess.run(
        ["shellcheck", "-s", "sh", *map(str, files)], capture_output=True, text=True, check=False
    )
    assert done.stdout + done.stderr == ""


def test_the_bundle_is_made_of_every_file() -> None:
    text = collectors.bundle()
    for kind in ("*.sh", "*.bt", "*.d"):
        for path in (ROOT / "collectors").glob(f"**/{kind}"):
            assert path.read_text().rstrip("\n") in text, path


def test_the_bundle_hands_out_its_scripts_unchanged(bundle: Path, tmp_path: Path) -> None:
    """`bundle_asset` prints the file exactly, with any quotes and dollars in it."""
    slot = bundle.read_text()
    start = slot.index("bundle_asset() {")
    function = slot[start : slot.index("\nesac\n}\n", start) + len("\nesac\n}\n")]
    for path in (ROOT / "collectors").glob("*/*.[bd]*"):
        if path.suffix in (".bt", ".d"):
            name = path.relative_to(ROOT / "collectors").as_posix()
            done = subprocess.run(
                ["sh", "-c", f"{function}\nbundle_asset {shlex.quote(name)}"],
                capture_output=True,
                text=True,
                check=True,
            )
            assert done.stdout == path.read_text()


@needs_ftrace
def test_a_thousand_threads_do_not_delay_the_recording(tmp_path: Path) -> None:
    code = (
        "import threading, time\n"
        "for _ in range(1000):\n"
        " threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"
        "print('ready', flush=True); time.sleep(60)"
    )
    crowd = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    try:
        assert crowd.stdout is not None
        crowd.stdout.readline()
        run = Run("-o", "x", "--", "true", cwd=tmp_path)
        assert run.wait(30) == 0
        rows = table(tmp_path / "x.capture" / "threads.tsv")
        assert sum(row["pid"] == str(crowd.pid) for row in rows) == 1001
    finally:
        crowd.kill()
        crowd.wait()


@needs_ftrace
def test_the_folder_appears_only_when_it_is_whole(tmp_path: Path) -> None:
    run = Run("-o", "x", "--", "sleep", "1", cwd=tmp_path)
    run.until("recording with")
    assert not (tmp_path / "x.capture").exists()
    assert (tmp_path / "x.capture.partial").is_dir()
    assert run.wait() == 0
    eventually(lambda: not (tmp_path / "x.capture.partial").exists())
    assert (tmp_path / "x.capture" / "capture.json").is_file()
