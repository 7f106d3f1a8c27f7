"""What `schedscope top` itself costs: its CPU time and that of its recorder, per table.

Two runs of different length: starting and ending are in both. Needs root.

    sudo python research/benchmarks/top.py --interval 1
    sudo python research/benchmarks/top.py --metrics 600
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

WORDS = [sys.executable, "-m", "schedscope", "top"]


def run(seconds: float, interval: float) -> tuple[int, float, int]:
    """Tables, CPU seconds of it and all that it started, peak KiB of its own memory."""
    with subprocess.Popen(
        [*WORDS, "--every", f"{interval:g}s", "--duration", f"{seconds:g}s"],
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        tables = process.stdout.read().count(" busy")
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"top failed: {process.returncode}")
    return tables, usage.ru_utime + usage.ru_stime, usage.ru_maxrss


def metrics(seconds: float) -> None:
    """The cost and coverage of `--metrics`, by its own account."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"

    def read() -> dict[str, float]:
        with urllib.request.urlopen(f"http://{address}/metrics") as answer:
            lines = answer.read().decode().splitlines()
        return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)
                if not name.startswith("#")}  # fmt: skip

    with subprocess.Popen([*WORDS, "--metrics", address], stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        process.stderr.readline()
        while not (before := read()):
            time.sleep(0.1)
        begin, rate = time.monotonic(), switches()
        time.sleep(seconds)
        after, length = read(), time.monotonic() - begin
        process.send_signal(signal.SIGINT)
    for name in sorted(after):
        if name.startswith(("schedscope_cpu_", "schedscope_observed", "schedscope_unobserved")):
            print(f"{name}: {(after[name] - before.get(name, 0)) / length:.2%} of the time")
    print(f"the host: {(switches() - rate) / length:,.0f} switches/s")


def switches() -> int:
    """CPU time of the whole host so far."""
    lines = Path("/proc/stat").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("ctxt "))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--interval", type=float, default=1)
    parser.add_argument("--tables", type=int, default=20)
    parser.add_argument("--metrics", type=float, metavar="SECONDS")
    args = parser.parse_args()
    if args.metrics:
        metrics(args.metrics)
        return
    few = run(4 * args.interval, args.interval)
    before = switches()
    many = run((4 + args.tables) * args.interval, args.interval)
    rate = (switches() - before) / ((4 + args.tables) * args.interval)
    each = (many[1] - few[1]) / (many[0] - few[0])
    processes = sum(path.name.isdigit() for path in Path("/proc").iterdir())
    print(f"{many[0]} tables: {each * 1000:.0f} ms of CPU time each; start and end")
    print(f"{few[1] - few[0] * each:.1f} s; at most {many[2] / 1024:.0f} MiB")
    print(f"the host: {rate:,.0f} switches/s, {processes} processes, {os.cpu_count()} CPUs")


if __name__ == "__main__":
    main()
