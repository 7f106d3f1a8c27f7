"""Files made to break a reader: one sentence, bounded memory, no wrong number."""

from __future__ import annotations

import json
import re
import resource
import shutil
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

import schedscope as ss
from schedscope import _native
from schedscope.errors import FormatError

FIXTURES = Path(__file__).parents[2] / "fixtures"
FAR = 2**62


def copy_of(name: str, folder: Path) -> Path:
    target = folder / name
    shutil.copytree(FIXTURES / name, target)
    return target


def varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


@pytest.mark.parametrize("seconds", [FAR // 10**9 + 1, 2**63 // 10**9 - 1])
def test_impossible_timestamps_are_refused_in_text(tmp_path: Path, seconds: int) -> None:
    lines = (FIXTURES / "text-tracefs.txt").read_text().splitlines(keepends=True)
    at = next(n for n, line in enumerate(lines) if ": sched_switch:" in line)
    head, rest = lines[at].split(": sched_switch:")
    where = head.rindex(" ")
    lines[at] = f"{head[:where]} {seconds}.000000: sched_switch:{rest}"
    path = tmp_path / "trace.txt"
    path.write_text("".join(lines))
    with pytest.raises(FormatError, match="146 years"):
        _native.decode(path)


@pytest.mark.parametrize("member", ["begin", "end"])
def test_impossible_window_is_refused(tmp_path: Path, member: str) -> None:
    path = copy_of("linux-bpftrace.capture", tmp_path)
    about = json.loads((path / "capture.json").read_text())
    about["window"][member] = 2**63 - 1
    (path / "capture.json").write_text(json.dumps(about))
    with pytest.raises(FormatError, match=r"capture: its recording is said to .*146 years"):
        _native.decode(path)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda text: text[:300], r"capture\.json is cut short \(.* at line \d+ column \d+\)"),
        (lambda text: text.replace(":", "", 1), r"capture\.json is damaged \(.* at line \d+ "),
        (lambda text: text.replace('"name": "ftrace"', '"name": "x"'), r"its recorder is \"x\""),
        (lambda text: text.replace('"version": 1', '"version": 9', 1), r"json: version 9"),
    ],
)
def test_a_damaged_capture_json_is_named_with_the_place(
    tmp_path: Path, damage: Callable[[str], str], message: str
) -> None:
    """The file exists: reporting it as missing would mislead."""
    path = copy_of("linux-ftrace-mixed.capture", tmp_path)
    text = (path / "capture.json").read_text()
    assert damage(text) != text
    (path / "capture.json").write_text(damage(text))
    with pytest.raises(FormatError, match=message) as refused:
        _native.decode(path)
    assert "has no capture.json" not in str(refused.value)
    assert "Hint: " in str(refused.value)


def test_ktr_with_an_impossible_cpu_is_refused(tmp_path: Path) -> None:
    line = (
        '{cpu} {ts} KTRGRAPH group:"thread", id:"a/a tid 7", state:"running", attributes: prio:1\n'
    )
    path = tmp_path / "ktr.txt"
    path.write_text("".join(line.format(cpu=cpu, ts=ts) for ts, cpu in enumerate([0, 65535, 0])))
    with pytest.raises(FormatError, match="line 2: CPU 65535"):
        _native.decode(path)


def test_cpus_of_a_trace_dat_that_share_bytes_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "trace.dat"
    flavour = {"version": "7", "compression": "none"}
    _native.synthesize_trace_dat(path, 300, 2, 8, 1, flavour)
    data = bytearray(path.read_bytes())
    # The option's entries: CPU, offset, size, one after the other.
    at = next(
        at
        for at in range(len(data) - 40)
        if struct.unpack_from("<I", data, at)[0] == 0
        and struct.unpack_from("<I", data, at + 20)[0] == 1
        and 0 < struct.unpack_from("<Q", data, at + 4)[0] < len(data)
        and struct.unpack_from("<Q", data, at + 24)[0]
        == sum(struct.unpack_from("<QQ", data, at + 4))
    )
    data[at + 24 : at + 40] = data[at + 4 : at + 20]
    path.write_bytes(data)
    with pytest.raises(FormatError, match="the data of one CPU lie within those of another"):
        _native.decode(path)


def test_packet_expanding_beyond_the_limit_is_refused(tmp_path: Path) -> None:
    bomb = zlib.compress(bytes(128 << 20), 9)
    packet = varint(50 << 3 | 2) + varint(len(bomb)) + bomb
    path = tmp_path / "bomb.pftrace"
    path.write_bytes(b"\x0a" + varint(len(packet)) + packet)
    with pytest.raises(FormatError, match="expands to more than 88 MB"):
        _native.decode(path)


def test_too_many_open_files_is_reported_with_a_hint(tmp_path: Path) -> None:
    path = copy_of("linux-slice-default-1.capture", tmp_path)
    for cpu in range(2, 80):
        (path / "raw" / f"cpu{cpu}.zst").write_bytes((path / "raw" / "cpu1.zst").read_bytes())
    code = (
        "import resource, sys; from schedscope import _native\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))\n"
        "_native.decode(sys.argv[1])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "allow more open files (ulimit -n)" in done.stderr.splitlines()[-1]


def test_a_capture_of_8192_cpus_takes_one_descriptor_and_little_memory(tmp_path: Path) -> None:
    path = copy_of("linux-bpftrace.capture", tmp_path)
    about = json.loads((path / "capture.json").read_text())
    _, before = _native.decode(path)
    about["ncpu"] = 8192
    (path / "capture.json").write_text(json.dumps(about))
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    code = (
        "import json, resource, sys; from schedscope import _native\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))\n"
        "_, about = _native.decode(sys.argv[1])\n"
        "use = resource.getrusage(resource.RUSAGE_SELF)\n"
        # Not ru_maxrss, which starts at the parent's value at the fork.
        "peak = next(int(l.split()[1]) for l in open('/proc/self/status') if 'VmHWM' in l) >> 10\n"
        "print(json.loads(about)['rows']['switches'], peak, round(use.ru_utime))\n"
    )
    assert limits[1] >= 64
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True
    )
    rows, peak, seconds = map(int, done.stdout.split())
    assert rows == json.loads(before)["rows"]["switches"]
    assert peak < 300
    # Of 8,192 CPUs, 8,188 have no event: they are skipped.
    assert seconds < 10


def test_time_going_back_at_every_line_takes_little_memory(tmp_path: Path) -> None:
    lines = (FIXTURES / "linux-dtrace.capture" / "events.txt").read_text().splitlines(True)
    waking = next(line for line in lines if line.startswith("W\t"))
    fields = waking.split("\t")
    switch = next(line for line in lines if line.startswith("S\t")).split("\t")
    switch[1] = str(10**12 + 1)
    path = tmp_path / "events.txt"
    with path.open("w") as out:
        out.write(lines[0])
        out.write("\t".join(switch))
        for n in range(40_000):
            fields[1] = str(10**12 - n)
            out.write("\t".join(fields))
    code = (
        "import sys; from schedscope import _native\n"
        "_native.decode(sys.argv[1])\n"
        "status = open('/proc/self/status')\n"
        # Not ru_maxrss, which starts at the parent's value at the fork.
        "print(next(int(l.split()[1]) for l in status if l.startswith('VmHWM')) >> 10)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) < 200 + 10 * (path.stat().st_size >> 20)


def test_numbers_that_fit_no_thread_or_priority_are_damaged_lines(tmp_path: Path) -> None:
    lines = (FIXTURES / "linux-dtrace.capture" / "events.txt").read_text().splitlines(True)
    header = lines[0]
    ts = int(header.split("\t")[3])
    switch = next(line for line in lines if line.startswith("S\t")).split("\t")
    switch[1] = str(ts + 6)
    bad = [
        f"Y\t{ts + 1}\t0\t-5\n",
        f"Y\t{ts + 2}\t0\t{2**32 + 7}\n",
        f"M\t{ts + 3}\t0\t1\t{2**40}\t0\t1\n",
        f"C\t{ts + 4}\t0\t1\t7\t120\t70000\t0\n",
    ]
    path = tmp_path / "events.txt"
    good = f"Y\t{ts + 5}\t0\t7\n" + "\t".join(switch)
    path.write_text(header + "".join(bad) + good + f"#end\t{ts + 9}\t1\n")
    _, about = _native.decode(path)
    assert "4 lines begin like events but cannot be read" in about
    assert json.loads(about)["rows"]["yields"] == 1


def test_a_bpftrace_line_earlier_than_the_one_before_it_is_damaged(tmp_path: Path) -> None:
    path = copy_of("linux-bpftrace.capture", tmp_path)
    events = path / "events.txt"
    lines = events.read_text().splitlines(True)
    cpu0 = [n for n, line in enumerate(lines) if line[:2] == "S " and line.split()[2] == "0"]
    fields = lines[cpu0[5]].split(" ")
    fields[1] = "12"
    lines[cpu0[5]] = " ".join(fields)
    events.write_text("".join(lines))
    kinds, _ = _native.count_events(path)
    assert kinds["out_of_order"] == 0
    _, about = _native.decode(path)
    assert "1 lines are not from the script" in about


def test_counts_of_lost_events_that_add_up_to_more_than_fits(tmp_path: Path) -> None:
    path = copy_of("linux-dtrace.capture", tmp_path)
    about = json.loads((path / "capture.json").read_text())
    about["lost"] = [{"cpu": cpu, "count": 2**64 - 1, "reason": "dropped"} for cpu in (0, 1)]
    (path / "capture.json").write_text(json.dumps(about))
    _, text = _native.decode(path)
    assert f"dtrace dropped {2**64 - 1} records" in text


@pytest.mark.parametrize(
    ("folder", "name", "other"),
    [
        ("raw", "cpu1.zst", "cpu1"),
        ("raw", "cpu1.zst", "cpu01.zst"),
        ("raw", "cpu1.zst", "cpu+1"),
        ("stats", "cpu1", "cpu001"),
    ],
)
def test_two_files_of_one_cpu_are_refused(
    tmp_path: Path, folder: str, name: str, other: str
) -> None:
    """Which of them belongs to the recording is unknown."""
    path = copy_of("linux-ftrace-placement.capture", tmp_path)
    shutil.copy(path / folder / name, path / folder / other)
    one, two = sorted([name, other])
    said = f"{folder} has two files of CPU 1, {one} and {two}; expected one file for each CPU"
    with pytest.raises(FormatError, match=re.escape(said)):
        _native.decode(path)


@pytest.mark.parametrize("cpu", [16384, 65534, 65535])
def test_a_wakeup_on_a_cpu_that_no_machine_has_is_on_an_unknown_one(
    tmp_path: Path, cpu: int
) -> None:
    """The fuzzer found it, with a wakeup recorded a second time."""
    waking = f"sched_waking: comm=b pid=7 prio=120 target_cpu={cpu}"
    lines = [waking, f"sched_wakeup: b:7 [120] CPU:{cpu}", waking]
    lines.append(
        "sched_switch: prev_comm=swapper/0 prev_pid=0 prev_prio=120 prev_state=R ==> "
        "next_comm=b next_pid=7 next_prio=120"
    )
    lines = [f"  a-5 [000] d..2 10.00000{at}: {line}\n" for at, line in enumerate(lines)]
    (tmp_path / "trace.txt").write_text("".join(lines))
    trace = ss.open(tmp_path / "trace.txt", cache=tmp_path / "cache")
    assert trace.ncpu <= 16384
    assert set(trace.waits.collect()["queue_cpu"]) <= {None, 0}
