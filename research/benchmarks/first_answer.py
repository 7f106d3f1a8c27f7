"""What does the first answer cost beside `perf sched latency` on the same seconds?

    sudo python research/benchmarks/first_answer.py --work /tmp/first  records, then prints it
    python research/benchmarks/first_answer.py --work /tmp/first   measures what was recorded there

`perf sched record` and an instance of ftrace, which trace-cmd makes a plain trace.dat of, watch the
same run of `perf bench sched messaging`. Each command then runs in turns, and the least CPU time of
all rounds is printed: whole commands, the start of Python and the reading of modules included.
Modules are compiled to bytecode first, as after an installation. SCHEDSCOPE_TOOLS may name a tree
with newer tools (tests/tools.py); it sees only paths below /tmp.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))
from tools import tool

# What `perf sched record` asks for, where the kernel has it.
EVENTS = (
    "switch", "waking", "wakeup_new", "migrate_task", "process_fork",
    "stat_runtime", "stat_wait", "stat_sleep", "stat_iowait",
)  # fmt: skip
GROUPS = "10"
TRACING = Path("/sys/kernel/tracing/instances")


def record(work: Path, loops: int) -> None:
    """Both recordings of one run, as `perf.data` and `trace.dat` in `work`."""
    perf, trace_cmd = tool("perf"), tool("trace-cmd")
    if not perf or not trace_cmd:
        raise SystemExit("perf and trace-cmd are needed to record: install both")
    work.mkdir(parents=True, exist_ok=True)
    load = ["perf", "bench", "sched", "messaging", "-g", GROUPS, "-l", str(loops)]
    target = str(work / "perf.data")
    # Use an instance: not every kernel lets `trace-cmd record` write all its settings.
    instance = TRACING / f"first-answer-{os.getpid()}"
    instance.mkdir()
    try:
        (instance / "buffer_size_kb").write_text("65536")
        for event in EVENTS:
            if (switch := instance / f"events/sched/sched_{event}/enable").exists():
                switch.write_text("1")
        recorder = [*perf, "sched", "record", "-q", "-m", "4096", "-o", target, "--"]
        subprocess.run([*recorder, *load], check=True, stdout=subprocess.DEVNULL)
        (instance / "tracing_on").write_text("0")
        packed, plain = str(work / "packed.dat"), str(work / "trace.dat")
        for words in (
            ["extract", "-B", instance.name, "-o", packed],
            ["convert", "--file-version", "6", "-i", packed, "-o", plain],
        ):
            subprocess.run([*trace_cmd, *words], check=True, stdout=subprocess.DEVNULL)
        os.unlink(packed)
    finally:
        if instance.exists():  # trace-cmd removes the one that it has extracted
            instance.rmdir()


def cost(command: list[str], environment: dict[str, str]) -> tuple[float, float]:
    """CPU and wall seconds of one run of `command`."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(
        command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment
    )
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--work", type=Path, required=True, help="a folder below /tmp")
    parser.add_argument("--loops", type=int, default=4000, help="messages of each sender")
    parser.add_argument("--rounds", type=int, default=7)
    args = parser.parse_args()
    work = args.work.resolve()
    if not (work / "trace.dat").exists():
        record(work, args.loops)
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPYCACHEPREFIX"] = str(work / "bytecode")
    ours = [sys.executable, "-m", "schedscope", "latency", "--cache", str(work / "cache")]
    perf = tool("perf")
    commands = {
        f"schedscope latency {name}, {when}": ([*ours, str(work / name)], when == "first")
        for name in ("trace.dat", "perf.data")
        for when in ("first", "again")
    }
    if perf:
        asked = [*perf, "sched", "latency", "-i", str(work / "perf.data")]
        commands = {"perf sched latency perf.data": (asked, False), **commands}
    best: dict[str, tuple[float, float]] = {}
    for turn in range(args.rounds + 1):
        for name, (command, forget) in commands.items():
            if forget:
                shutil.rmtree(work / "cache", ignore_errors=True)
            taken = cost(command, environment)
            if turn:  # the first turn compiles modules and warms the page cache
                best[name] = min(best.get(name, taken), taken)
    print(f"{'least of ' + str(args.rounds):<44} {'CPU s':>6} {'wall s':>7}")
    for name, (cpu, wall) in best.items():
        print(f"{name:<44} {cpu:6.3f} {wall:7.3f}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
