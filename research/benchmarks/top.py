"""What `schedscope top` itself costs: its CPU time and that of its recorder, per table.

Two runs of different length: starting and ending are in both. Needs root.

    sudo python research/benchmarks/top.py --interval 1
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
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


def switches() -> int:
    """Of the whole host so far."""
    lines = Path("/proc/stat").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("ctxt "))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--interval", type=float, default=1)
    parser.add_argument("--tables", type=int, default=20)
    args = parser.parse_args()
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
