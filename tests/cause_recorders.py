"""One load, recorded by perf, by Perfetto and into an instance of tracefs at once.

    # python tests/cause_recorders.py OUTPUT.tar.xz

records once and packs the files: so was fixtures/causes.tar.xz made. All three are on, and ready,
before the load begins. SCHEDSCOPE_TOOLS may name a tree with newer tools (tests/tools.py).
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tarfile
import time
from contextlib import ExitStack
from pathlib import Path
from select import select
from tempfile import TemporaryDirectory

from tools import tool

LOAD = Path(__file__).parents[1] / "fixtures" / "cause_load.c"
PROGRAMS = ("cc", "perf", "trace-cmd", "traced", "traced_probes", "perfetto")
"""What must be there to record."""
FILES = {
    "perf.data": "perf.data",
    "`perf script`": "script.txt",
    "trace.dat": "trace.dat",
    "`trace-cmd report`": "report.txt",
    "tracefs text": "trace.txt",
    "Perfetto": "perfetto.pftrace",
}
EVENTS = [
    "sched/sched_switch",
    "sched/sched_waking",
    "sched/sched_wakeup",
    "sched/sched_wakeup_new",
    "sched/sched_migrate_task",
    "sched/sched_pi_setprio",
    "sched/sched_process_fork",
    "sched/sched_process_exec",
    "sched/sched_process_exit",
    "task/task_newtask",
    "task/task_rename",
    "irq/irq_handler_entry",
    "irq/irq_handler_exit",
    "irq/softirq_entry",
    "irq/softirq_exit",
    "raw_syscalls/sys_enter",
    "raw_syscalls/sys_exit",
    "syscalls/sys_enter_sched_yield",
    "lock/contention_begin",
    "lock/contention_end",
    "block/block_io_start",
    "block/block_rq_issue",
    "block/block_rq_complete",
    "cgroup/cgroup_attach_task",
]
_PERFETTO = """
buffers {{ size_kb: 32768 fill_policy: DISCARD }}
data_sources {{ config {{ name: "linux.ftrace" ftrace_config {{
  {events} compact_sched {{ enabled: false }}
  buffer_size_kb: 8192 drain_period_ms: 250 }} }} }}
data_sources {{ config {{ name: "linux.system_info" }} }}
"""
_INSTANCE = Path("/sys/kernel/tracing/instances")


def hierarchy() -> tuple[int, Path] | None:
    """The number and mount point of the cgroup hierarchy that shares out CPU time."""
    groups = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
    mounts = [line.split()[:4] for line in Path("/proc/mounts").read_text().splitlines()]
    of_cpu = {int(number) for number, names, _ in groups if "cpu" in names.split(",")}
    number = min(of_cpu, default=0)
    for _, where, kind, options in mounts:
        one = kind == "cgroup" and "cpu" in options.split(",")
        if one if number else kind == "cgroup2":
            return number, Path(where)
    return None


def other_hierarchy() -> Path | None:
    """Where cgroup 2 is mounted, if CPU time is shared out by cgroup 1."""
    found = hierarchy()
    if not found or not found[0]:
        return None
    mounts = [line.split()[:3] for line in Path("/proc/mounts").read_text().splitlines()]
    return next((Path(where) for _, where, kind in mounts if kind == "cgroup2"), None)


def record(folder: Path) -> dict[str, Path]:
    """Runs the load below `folder`, which every tool must see under that path."""
    program, disk = folder / "cause_load", folder / "disk"
    subprocess.run(["cc", "-O1", "-pthread", str(LOAD), "-o", str(program)], check=True)
    disk.write_bytes(os.urandom(1 << 16))
    os.sync()
    with ExitStack() as stack:
        found = hierarchy()
        assert found, "no hierarchy shares CPU time out"
        command = [str(program), str(disk)]
        for where in filter(None, (found[1], other_hierarchy())):
            group = where / f"schedscope-causes-{os.getpid()}"
            group.mkdir()
            stack.callback(group.rmdir)
            # Without this, kernels with CONFIG_RT_GROUP_SCHED allow the group no real-time threads.
            if (allowed := group / "cpu.rt_runtime_us").exists():
                allowed.write_text("100000")
            command.append(str(group / "cgroup.procs"))
        instance = stack.enter_context(_Instance(folder))
        perf = stack.enter_context(_Perf(folder))
        perfetto = stack.enter_context(_Perfetto(folder))
        instance.say("tracing_on", "1")
        perf.say("enable")
        subprocess.run(command, check=True)
        # Wait until the disk requests and the last exits are done, too.
        time.sleep(0.02)
        perf.say("disable")
        instance.say("tracing_on", "0")
        perfetto.end()
        perf.end()
        instance.end()
    return {name: folder / file for name, file in FILES.items()}


def _run(name: str, *words: str) -> bytes:
    done = subprocess.run([*(tool(name) or (name,)), *words], capture_output=True)
    if done.returncode:
        raise RuntimeError(f"{name} {words[0]}: {done.stderr[-1000:].decode(errors='replace')}")
    return done.stdout


class _Instance:
    """An instance of tracefs, extracted by trace-cmd and printed by the kernel."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.path = folder, _INSTANCE / f"causes-{os.getpid()}"

    def __enter__(self) -> _Instance:
        self.path.mkdir()
        self.say("tracing_on", "0")
        self.say("trace_clock", "mono")
        self.say("buffer_size_kb", "8192")
        for event in EVENTS:
            self.say(f"events/{event}/enable", "1")
        return self

    def say(self, file: str, text: str) -> None:
        (self.path / file).write_text(text)

    def end(self) -> None:
        (self.folder / "trace.txt").write_bytes((self.path / "trace").read_bytes())
        target = str(self.folder / "trace.dat")
        _run("trace-cmd", "extract", "-B", self.path.name, "-o", target)
        (self.folder / "report.txt").write_bytes(_run("trace-cmd", "report", "-t", "-i", target))

    def __exit__(self, *_: object) -> None:
        self.path.rmdir()


class _Perf:
    """`perf record`, switched on and off through a fifo."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __enter__(self) -> _Perf:
        control, answer = self.folder / "control", self.folder / "answer"
        for fifo in (control, answer):
            os.mkfifo(fifo)
        events = []
        for event in EVENTS:
            events += ["-e", event.replace("/", ":")]
            # perf would otherwise record its own writes, endlessly.
            events += ["--exclude-perf"] * event.startswith("raw_syscalls")
        options = ["-q", "-a", "-R", "-c1", "-k", "CLOCK_MONOTONIC", "-m", "8M", "-D", "-1"]
        target = str(self.folder / "perf.data")
        words = ["record", *options, *events, "--control", f"fifo:{control},{answer}", "-o", target]
        # Held open at both ends, so that opening it never blocks.
        self.control, self.answer = (os.open(fifo, os.O_RDWR) for fifo in (control, answer))
        self.process = subprocess.Popen([*(tool("perf") or ("perf",)), *words])
        return self

    def say(self, word: str) -> None:
        os.write(self.control, f"{word}\n".encode())
        ready, _, _ = select([self.answer], [], [], 60)
        if not ready or b"ack" not in os.read(self.answer, 64):
            raise RuntimeError(f"perf did not {word}")

    def end(self) -> None:
        self.process.send_signal(signal.SIGINT)
        self.process.wait(60)
        text = _run("perf", "script", "--ns", "-i", str(self.folder / "perf.data"))
        (self.folder / "script.txt").write_bytes(text)

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.control)
        os.close(self.answer)


class _Perfetto:
    """A session of traced and traced_probes on their own sockets."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.started: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> _Perfetto:
        environment = {
            **os.environ,
            "PERFETTO_PRODUCER_SOCK_NAME": str(self.folder / "producer"),
            "PERFETTO_CONSUMER_SOCK_NAME": str(self.folder / "consumer"),
        }
        for name in ("traced", "traced_probes"):
            words, null = tool(name) or (name,), subprocess.DEVNULL
            self.started.append(subprocess.Popen(words, env=environment, stdout=null, stderr=null))
            time.sleep(0.5)
        config = self.folder / "config"
        events = " ".join(f'ftrace_events: "{event}"' for event in EVENTS)
        config.write_text(_PERFETTO.format(events=events))
        target = str(self.folder / FILES["Perfetto"])
        words = (*(tool("perfetto") or ("perfetto",)), "--background-wait", "--txt")
        begun = subprocess.run(
            [*words, "-c", str(config), "-o", target],
            env=environment, check=True, capture_output=True, text=True,
        )  # fmt: skip
        self.session = int(begun.stdout)
        return self

    def end(self) -> None:
        os.kill(self.session, signal.SIGTERM)
        try:
            while True:
                os.kill(self.session, 0)
                time.sleep(0.02)
        except ProcessLookupError:
            pass

    def __exit__(self, *_: object) -> None:
        for process in reversed(self.started):
            process.terminate()
            process.wait(30)


def without_symbols(trace: Path) -> None:
    """Blanks the list of functions, which is most of a trace.dat, and undoes its compression."""
    plain = trace.with_suffix(".6")
    _run("trace-cmd", "convert", "--file-version", "6", "-i", str(trace), "-o", str(plain))
    text = plain.read_bytes()
    for found in re.finditer(rb"(?:[0-9a-f]{16} \w [^\n]*\n){50,}", text):
        text = text.replace(found[0], b"\n" * len(found[0]))
    trace.write_bytes(text)


def main(output: Path) -> None:
    """Record and pack."""
    with TemporaryDirectory(prefix="causes-", dir="/tmp") as name:
        paths = record(Path(name))
        without_symbols(paths["trace.dat"])
        with tarfile.open(output, "w:xz", preset=9) as packed:
            for path in paths.values():
                packed.add(path, arcname=path.name)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
