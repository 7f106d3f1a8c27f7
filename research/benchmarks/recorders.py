"""What recording costs, and what it loses: every recorder present, side by side in one run.

    sudo python3 research/benchmarks/recorders.py --rounds 7 --keep recorder-cost

Four questions to each recorder, with its default buffers:

* pipe: slowdown of `perf bench sched pipe` with both ends pinned to the last CPU (with its ends
  on two CPUs it would measure idle wake-ups, which a recorder makes faster);
* hackbench: slowdown of `hackbench -g 4 -l 1000`, more runnable threads than CPUs;
* own events: the recorder's share of all switches and wakings under `fixtures/mixed_load.py`,
  counted by a tracefs instance with no reader that records every recorder alike;
* lost: events lost at `stress-ng --switch 4` for three seconds, as the recorder itself reports.

Where others use the machine too, start it in a scheduling group of its own that outweighs them:

    setsid -w sh -c 'echo -20 >/proc/self/autogroup; exec python3 research/benchmarks/recorders.py'

Rounds are interleaved: each visits every recorder and the bare host in turn, a slowdown is the
ratio to the bare host of the same round, and the table has medians. SCHEDSCOPE_TOOLS names a
Debian tree with newer tools, run by chroot; /tmp must be the same folder inside. Standard
library only.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parents[2]))

from research import results

ROOT = Path(__file__).resolve().parents[2]
TRACEFS = Path("/sys/kernel/tracing")
LAST_CPU = max(os.sched_getaffinity(0))
PIPE = ["taskset", "-c", str(LAST_CPU), "perf", "bench", "-f", "simple", "sched", "pipe"]
HACKBENCH = ["hackbench", "-g", "4", "-l", "1000"]
STORM = ["stress-ng", "--switch", "4", "-t", "3", "-q"]
MIXED = [sys.executable, str(ROOT / "fixtures" / "mixed_load.py")]

PERFETTO_CONFIG = """
buffers { size_kb: 65536 fill_policy: RING_BUFFER }
data_sources { config { name: "linux.ftrace" ftrace_config {
  ftrace_events: "sched/sched_switch"
  ftrace_events: "sched/sched_waking"
  ftrace_events: "sched/sched_wakeup"
  ftrace_events: "sched/sched_wakeup_new"
  ftrace_events: "sched/sched_process_exit"
  ftrace_events: "task/task_newtask"
  ftrace_events: "task/task_rename"
} } }
write_into_file: true
file_write_period_ms: 1000
flush_period_ms: 5000
"""


@dataclass
class Recorder:
    """One way to record: how it is started, when it is ready, what it lost."""

    name: str
    commands: list[list[str]]  # the last one is the one to interrupt
    ready: Callable[[Path], bool]
    lost: Callable[[Path], tuple[int, int]]  # (lost, kept)
    environment: dict[str, str] = field(default_factory=dict)


@dataclass
class Result:
    pipe: list[float] = field(default_factory=list)
    hackbench: list[float] = field(default_factory=list)
    own: list[float] = field(default_factory=list)
    lost: list[int] = field(default_factory=list)
    kept: list[int] = field(default_factory=list)


# ------------------------------------------------------------------ recorders


def _capture_lost(folder: Path) -> tuple[int, int]:
    meta = json.loads((folder / "x.capture" / "capture.json").read_text())
    said = (folder / "stderr").read_text()
    kept = re.search(r": (\d+) events on", said)
    return sum(entry["count"] or 0 for entry in meta["lost"]), int(kept[1]) if kept else 0


def _ring_lost(folder: Path) -> tuple[int, int]:
    """Events that the ring overwrote are not lost; nothing is written without a trigger."""
    assert "no trigger came" in (folder / "stderr").read_text()
    return 0, 0


def _perf_lost(words: list[str]) -> Callable[[Path], tuple[int, int]]:
    def lost(folder: Path) -> tuple[int, int]:
        dump = subprocess.Popen(
            [*words, "script", "--show-lost-events", "-F", "comm,tid", "-i", str(folder / "data")],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            errors="replace",
        )
        assert dump.stdout is not None
        gone = kept = 0
        for line in dump.stdout:
            if "PERF_RECORD_LOST" in line:
                number = re.search(r"lost (\d+)", line)
                gone += int(number[1]) if number else 0
            else:
                kept += 1
        dump.wait()
        return gone, kept

    return lost


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Fields of a protobuf message: number and value (varint or bytes)."""
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7

    while at < len(data):
        key = varint()
        match key & 7:
            case 0:
                yield key >> 3, varint()
            case 1:
                at += 8
            case 2:
                size = varint()
                yield key >> 3, data[at : at + size]
                at += size
            case 5:
                at += 4
            case kind:
                raise ValueError(f"protobuf wire type {kind} at byte {at}")


def _perfetto_lost(folder: Path) -> tuple[int, int]:
    """From the last TracePacket.ftrace_stats (34): events read and overrun."""
    lost = kept = 0
    for number, packet in _fields((folder / "data").read_bytes()):
        if number != 1 or not isinstance(packet, bytes):
            continue
        for kind, body in _fields(packet):
            if kind == 34 and isinstance(body, bytes):
                cpus = [
                    dict(_fields(cpu))
                    for key, cpu in _fields(body)
                    if key == 2 and isinstance(cpu, bytes)
                ]
                lost = sum(int(cpu.get(3, 0)) + int(cpu.get(8, 0)) for cpu in cpus)
                kept = sum(int(cpu.get(9, 0)) for cpu in cpus)
    return lost, kept


def _said(text: str) -> Callable[[Path], bool]:
    return lambda folder: text in (folder / "stderr").read_text(errors="replace")


def _has_data(folder: Path) -> bool:
    # perf and Perfetto say nothing when they begin: a second after their file is there, they have.
    if not (folder / "data").exists():
        return False
    mark = folder / "since"
    if not mark.exists():
        mark.touch()
    return time.time() - mark.stat().st_mtime > 1.0


def recorders(folder: Path) -> list[Recorder]:
    """Every recorder that this host has, each writing into `folder`."""
    tree = os.environ.get("SCHEDSCOPE_TOOLS")
    roots: list[list[str]] = [[]]
    if tree:
        roots.append(["chroot", tree])
    capture = ["sh", str(ROOT / "collectors" / "capture"), "-o", str(folder / "x")]
    found = [
        Recorder(
            "schedscope, ftrace", [[*capture, "-t", "ftrace"]], _said("Ctrl-C ends"), _capture_lost
        ),
        Recorder(
            "schedscope, ftrace --with syscalls",
            [[*capture, "-t", "ftrace", "--with", "syscalls"]],
            _said("Ctrl-C ends"),
            _capture_lost,
        ),
        # Calls of this program and the loads that it starts; or of kernel threads, which make none.
        *(
            Recorder(
                f"schedscope, ftrace --with syscalls {name}",
                [[*capture, "-t", "ftrace", "--with", "syscalls", "--of", pid]],
                _said("Ctrl-C ends"),
                _capture_lost,
            )
            for name, pid in (("--of the load", str(os.getpid())), ("--of others", "2"))
        ),
        *(
            Recorder(
                f"schedscope, ftrace --with stacks{name}",
                [[*capture, "-t", "ftrace", "--with", "stacks", *of]],
                _said("Ctrl-C ends"),
                _capture_lost,
            )
            for name, of in (
                ("", []),
                (" --of the load", ["--of", str(os.getpid())]),
                (" --of others", ["--of", "2"]),
            )
        ),
        *(
            Recorder(
                f"schedscope, ftrace --with {extra}",
                [[*capture, "-t", "ftrace", "--with", extra]],
                _said("Ctrl-C ends"),
                _capture_lost,
            )
            for extra in ("block", "locks", "irq", "yield")
        ),
    ]
    ring = [*capture, "--ring", "20s"]
    found.append(
        Recorder("schedscope, --ring 20s", [ring], _said("capture --snapshot"), _ring_lost)
    )
    # Predicates that are computed at every switch and never hold.
    for name, until in (("a wait", "wait > 100s"), ("a quantile", "p99 > 100s for 2s")):
        if shutil.which("bpftrace"):
            found.append(
                Recorder(
                    f"schedscope, --ring 20s, {name} watched",
                    [[*ring, "--trigger", until]],
                    _said("capture --snapshot"),
                    _ring_lost,
                )
            )
    for root in roots:
        if version := _version([*root, "bpftrace", "--version"], r"v([\d.]+)"):
            found.append(
                Recorder(
                    f"schedscope, bpftrace {version}",
                    [[*capture, "-t", "bpftrace"]],
                    _said("Ctrl-C ends"),
                    _capture_lost,
                    {"SCHEDSCOPE_BPFTRACE": " ".join([*root, "bpftrace"])},
                )
            )
    for root in roots:
        words = [*root, "perf"]
        if version := _version([*words, "--version"], r"version (\d+\.\d+)"):
            found.append(
                Recorder(
                    f"perf {version} sched record",
                    [[*words, "sched", "record", "-o", str(folder / "data")]],
                    _has_data,
                    _perf_lost(words),
                )
            )
    for root in roots:
        if version := _version([*root, "perfetto", "--version"], r"v([\d.]+)"):
            config = folder.parent / "perfetto.cfg"
            config.write_text(PERFETTO_CONFIG)
            found.append(
                Recorder(
                    f"Perfetto {version}",
                    [
                        [*root, "traced"],
                        [*root, "traced_probes"],
                        [*root, "perfetto", "--txt", "-c", str(config), "-o", str(folder / "data")],
                    ],
                    _has_data,
                    _perfetto_lost,
                )
            )
            break
    return found


def _version(words: list[str], pattern: str) -> str | None:
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return None
    number = re.search(pattern, done.stdout + done.stderr)
    return number[1] if done.returncode == 0 and number else None


@contextmanager
def recording(recorder: Recorder | None, folder: Path) -> Iterator[list[int]]:
    """Run the recorder around the block; gives its processes' ids."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    if recorder is None:
        yield []
        return
    children: list[subprocess.Popen[bytes]] = []
    try:
        for words in recorder.commands:
            with open(folder / "stderr", "ab") as said:
                children.append(
                    subprocess.Popen(
                        words,
                        stdin=subprocess.DEVNULL,
                        stdout=said,
                        stderr=said,
                        env={**os.environ, **recorder.environment},
                        # A group of its own, but not a session: with autogroups that would be a
                        # scheduling group beside the load's.
                        process_group=0,
                    )
                )
            time.sleep(0.3 if words is not recorder.commands[-1] else 0)
        deadline = time.monotonic() + 60
        while not recorder.ready(folder):
            if children[-1].poll() is not None or time.monotonic() > deadline:
                said_last = (folder / "stderr").read_text(errors="replace")[-400:]
                raise SystemExit(f"{recorder.name} did not start recording: {said_last}")
            time.sleep(0.05)
        yield [child.pid for child in children]
    finally:
        for child in reversed(children):
            child.send_signal(signal.SIGINT)
            try:
                child.wait(60)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()


# ------------------------------------------------------------------ measurements


def _pipe(loops: int) -> float:
    done = subprocess.run([*PIPE, "-l", str(loops)], capture_output=True, text=True, check=True)
    return float(done.stdout.split()[-1])


def _seconds(words: list[str]) -> float:
    begin = time.monotonic()
    subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    return time.monotonic() - begin


@contextmanager
def _observer() -> Iterator[Path]:
    instance = TRACEFS / "instances" / f"recorders-bench-{os.getpid()}"
    instance.mkdir()
    try:
        (instance / "tracing_on").write_text("0")
        (instance / "buffer_size_kb").write_text("65536")
        for event in ("sched_switch", "sched_waking", "sched_process_fork"):
            (instance / "events" / "sched" / event / "enable").write_text("1")
        yield instance
    finally:
        (instance / "tracing_on").write_text("0")
        instance.rmdir()


_SWITCH = re.compile(r" sched_switch: .*prev_pid=(\d+) .* next_pid=(\d+) ")
_WAKING = re.compile(r"-(\d+) +\[\d+\].* sched_waking: comm=.* pid=(\d+) prio=")
_FORK = re.compile(r" sched_process_fork: .* pid=(\d+) child_comm=.* child_pid=(\d+)")


def own_share(instance: Path, own: set[int]) -> float:
    """The share of switches and wakings that concern the recorder's threads and their children."""
    events = mine = 0
    with open(instance / "trace", errors="replace") as lines:
        for line in lines:
            if fork := _FORK.search(line):
                if int(fork[1]) in own:
                    own.add(int(fork[2]))
            elif pair := _SWITCH.search(line) or _WAKING.search(line):
                events += 1
                mine += int(pair[1]) in own or int(pair[2]) in own
    return mine / events if events else 0.0


def _descendants(roots: list[int]) -> set[int]:
    parents: dict[int, int] = {}
    threads: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                stat = (entry / "stat").read_text(errors="replace")
                parents[int(entry.name)] = int(stat.rpartition(")")[2].split()[1])
                threads[int(entry.name)] = [int(t.name) for t in (entry / "task").iterdir()]
    found = set(roots)
    while True:
        more = {pid for pid, parent in parents.items() if parent in found} - found
        if not more:
            return found | {tid for pid in found for tid in threads.get(pid, [])}
        found |= more


def measure(rounds: int, loops: int, only: str = "") -> dict[str, Result]:
    """Measurements of recorders whose names match `only`; the bare host is "" in the result."""
    results: dict[str, Result] = {}
    with tempfile.TemporaryDirectory(prefix="recorders-", dir="/tmp") as temporary:
        folder = Path(temporary) / "run"
        found = [one for one in recorders(folder) if re.search(only, one.name)]
        everyone: list[Recorder | None] = [None, *found]
        for turn in range(rounds):
            bare = Result()
            for recorder in everyone:
                name = recorder.name if recorder else ""
                result = results.setdefault(name, Result())
                print(f"round {turn + 1} of {rounds}: {name or 'bare host'}", file=sys.stderr)
                with recording(recorder, folder):
                    pipe, hack = _pipe(loops), _seconds(HACKBENCH)
                if recorder is None:
                    bare.pipe, bare.hackbench = [pipe], [hack]
                    result.pipe.append(pipe)
                    result.hackbench.append(hack)
                else:
                    result.pipe.append(pipe / bare.pipe[0])
                    result.hackbench.append(hack / bare.hackbench[0])
        for recorder in everyone[1:]:
            assert recorder is not None
            result = results[recorder.name]
            print(f"own events and losses: {recorder.name}", file=sys.stderr)
            with _observer() as instance:
                with recording(recorder, folder) as pids:
                    own = _descendants(pids)
                    (instance / "tracing_on").write_text("1")
                    subprocess.run(MIXED, check=True)
                    (instance / "tracing_on").write_text("0")
                result.own.append(own_share(instance, own))
            with recording(recorder, folder):
                subprocess.run(STORM, check=True, stdout=subprocess.DEVNULL)
            lost, kept = recorder.lost(folder)
            result.lost.append(lost)
            result.kept.append(kept)
    return results


# ------------------------------------------------------------------ the table


def _spread(values: list[float]) -> str:
    return f"{statistics.median(values):.2f} ({min(values):.2f}-{max(values):.2f})"


def table(results: dict[str, Result], rounds: int) -> str:
    """The results as Markdown."""
    bare = results[""]
    lines = [
        f"Measured {time.strftime('%Y-%m-%d')} on Linux {os.uname().release.split('-')[0]}, "
        f"{os.cpu_count()} CPUs; {rounds} interleaved rounds, median (least-most). "
        f"The bare host: pipe {statistics.median(bare.pipe):.2f} s, "
        f"hackbench {statistics.median(bare.hackbench):.2f} s.",
        "",
        "| recorder | pipe | hackbench | own events | lost under load |",
        "|---|---|---|---|---|",
    ]
    for name, result in results.items():
        if not name:
            continue
        lost, kept = result.lost[0], result.kept[0]
        share = f" ({100 * lost / (lost + kept):.1f} %)" if lost else ""
        lines.append(
            f"| {name} | {_spread(result.pipe)} | {_spread(result.hackbench)} "
            f"| {100 * statistics.median(result.own):.2f} % | {lost:,}{share} of {lost + kept:,} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--loops", type=int, default=100_000, help="of perf bench sched pipe")
    parser.add_argument("--only", default="", help="recorders whose names match this pattern")
    parser.add_argument("--keep", metavar="TABLE", help="keep it in research/data by this name")
    args = parser.parse_args()
    if os.geteuid() != 0 or not (TRACEFS / "instances").is_dir():
        raise SystemExit("recorders.py needs root, and tracefs at /sys/kernel/tracing")
    for tool in ("perf", "hackbench", "stress-ng", "taskset"):
        if shutil.which(tool) is None:
            raise SystemExit(f"recorders.py needs {tool}")
    text = table(measure(args.rounds, args.loops, args.only), args.rounds)
    print(text)
    if args.keep:
        rows = results.parse(text.splitlines())
        machine = f"Linux {os.uname().release.split('-')[0]}, {os.cpu_count()} CPUs"
        results.keep(
            args.keep, rows, measured_on=time.strftime("%Y-%m-%d"), commit="", machine=machine
        )


if __name__ == "__main__":
    main()
