"""Speed of the foreign formats, beside the tools that made them.

    # python benchmarks/formats.py [--switches 300000]

Records one load with perf, converts it into every format we write or perf
prints, and times decode and reconstruction (the native `convert` into Parquet)
in CPU seconds, median of three, next to `perf sched latency` on the same file.
SCHEDSCOPE_TOOLS may name a tree with perf 7 (tests/tools.py).
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import schedscope as ss
from schedscope import _native

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from tools import tool  # noqa: E402


def cpu_seconds(work: Callable[[], object]) -> float:
    """User and system time of this process and its children, median of three."""

    def spent() -> float:
        parts = [
            resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
        ]
        return sum(part.ru_utime + part.ru_stime for part in parts)

    taken = []
    for _ in range(3):
        before = spent()
        work()
        taken.append(spent() - before)
    return median(taken)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--switches", type=int, default=300_000)
    arguments = parser.parse_args()
    perf = tool("perf")
    if perf is None or os.geteuid() != 0:
        sys.exit("formats: needs perf and root to record the load")
    with tempfile.TemporaryDirectory(prefix="formats-", dir="/tmp") as name:
        folder = Path(name)
        data = folder / "load.data"
        load = [
            "perf",
            "bench",
            "-f",
            "simple",
            "sched",
            "pipe",
            "-l",
            str(arguments.switches // 4),
        ]
        record = [*perf, "sched", "record", "-m", "16M", "-k", "CLOCK_MONOTONIC", "-o", str(data)]
        subprocess.run([*record, *load], check=True, capture_output=True)
        trace = ss.open(data, cache=folder)
        text = folder / "load.txt"
        with text.open("wb") as out:
            script = [*perf, "script", "--ns", "-i", str(data)]
            subprocess.run(script, stdout=out, stderr=subprocess.DEVNULL, check=True)
        protobuf = ss.export(trace, folder / "load.pftrace", "perfetto", waits=False)
        print(f"{trace.events:,} events, {data.stat().st_size / 1e6:.0f} MB of perf.data")
        print(f"{'job':42} {'CPU s':>7} {'M events/CPU-s':>15}")
        jobs: list[tuple[str, Callable[[], object]]] = [
            ("perf sched latency", lambda: _quiet([*perf, "sched", "latency", "-i", str(data)])),
            ("perf.data -> tables, states, waits", lambda: _convert(data)),
            ("pftrace -> tables, states, waits", lambda: _convert(protobuf)),
            ("perf script text -> tables, states, waits", lambda: _convert(text)),
        ]
        for what, job in jobs:
            seconds = cpu_seconds(job)
            events = trace.events
            if "pftrace" in what:
                events = _native_events(protobuf)
            print(f"{what:42} {seconds:7.3f} {events / seconds / 1e6:15.2f}")


def _quiet(command: list[str]) -> None:
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)


def _convert(path: Path) -> None:
    with tempfile.TemporaryDirectory(dir=path.parent) as out:
        _native.convert(str(path), out)


def _native_events(path: Path) -> int:
    import json

    _, about = _native.decode(str(path))
    return sum(sum(cpus.values()) for cpus in json.loads(about)["events"].values())


if __name__ == "__main__":
    begin = time.monotonic()
    main()
    print(f"({time.monotonic() - begin:.0f} s)")
