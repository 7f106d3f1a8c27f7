"""Speed of the foreign formats, beside the tools that made them.

    # python research/benchmarks/formats.py [--switches 300000]

Records one load with perf, converts it into every format we write or perf prints, and times
in CPU seconds, interleaved, median of five: one table read straight into memory
(`schedscope.read_tables`: `waits` as perf prints them, `states` as trace_processor's slices),
and everything into Parquet (what `schedscope.open` does once). Next to them `perf sched latency`
and, if it is here, trace_processor on the same files. SCHEDSCOPE_TOOLS may name a tree with
perf 7 (tests/tools.py).

    # python research/benchmarks/formats.py --perf FILE --pftrace FILE --text FILE

does the same with existing files.
"""

from __future__ import annotations

import argparse
import json
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

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from tools import tool  # noqa: E402

ROUNDS = 5


def cpu_seconds(work: Callable[[], object]) -> float:
    """User and system time of this process and its children."""

    def spent() -> float:
        parts = [
            resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
        ]
        return sum(part.ru_utime + part.ru_stime for part in parts)

    before = spent()
    work()
    return spent() - before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--switches", type=int, default=300_000)
    for name in ("perf", "pftrace", "text"):
        parser.add_argument(f"--{name}", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="formats-", dir="/tmp") as name:
        folder = Path(name)
        given = {key: getattr(arguments, key) for key in ("perf", "pftrace", "text")}
        files = {key: path for key, path in given.items() if path}
        report(files or recorded(folder, arguments.switches), folder)


def recorded(folder: Path, switches: int) -> dict[str, Path]:
    """A load of so many switches as perf.data, its text, and a Perfetto trace made from it."""
    perf = tool("perf")
    if perf is None or os.geteuid() != 0:
        sys.exit("formats: needs perf and root to record the load")
    data, text = folder / "load.data", folder / "load.txt"
    load = ["perf", "bench", "-f", "simple", "sched", "pipe", "-l", str(switches // 4)]
    record = [*perf, "sched", "record", "-m", "16M", "-k", "CLOCK_MONOTONIC", "-o", str(data)]
    subprocess.run([*record, *load], check=True, capture_output=True)
    with text.open("wb") as out:
        script = [*perf, "script", "--ns", "-i", str(data)]
        subprocess.run(script, stdout=out, stderr=subprocess.DEVNULL, check=True)
    trace = ss.open(data, cache=folder)
    protobuf = ss.export(trace, folder / "load.pftrace", "perfetto", waits=False)
    return {"perf": data, "pftrace": protobuf, "text": text}


def report(files: dict[str, Path], folder: Path) -> None:
    """Times every job on the files that are there."""
    events = {key: _events(path) for key, path in files.items()}
    for key, path in files.items():
        print(f"{key}: {events[key]:,} events, {path.stat().st_size / 1e6:.0f} MB")
    jobs: list[tuple[str, str, Callable[[], object]]] = []
    if data := files.get("perf"):
        if perf := tool("perf"):
            command = [*perf, "sched", "latency", "-i", str(data)]
            jobs.append(("perf", "perf sched latency", lambda: _quiet(command)))
        jobs.append(("perf", "perf.data -> waits", lambda: ss.read_tables(data, "waits")))
        jobs.append(("perf", "perf.data -> all, Parquet", lambda: _convert(data, folder)))
    if pftrace := files.get("pftrace"):
        if program := tool("trace_processor_shell"):
            query = [*program, "-Q", "select count(*) from sched_slice", str(pftrace)]
            jobs.append(("pftrace", "trace_processor, load", lambda: _quiet(query)))
        jobs.append(("pftrace", "pftrace -> states", lambda: ss.read_tables(pftrace, "states")))
        jobs.append(("pftrace", "pftrace -> all, Parquet", lambda: _convert(pftrace, folder)))
    if text := files.get("text"):
        jobs.append(("text", "text -> states", lambda: ss.read_tables(text, "states")))
        jobs.append(("text", "text -> all, Parquet", lambda: _convert(text, folder)))
    taken: dict[str, list[float]] = {what: [] for _, what, _ in jobs}
    for _ in range(ROUNDS):
        for _, what, job in jobs:
            taken[what].append(cpu_seconds(job))
    print(f"{'job':28} {'CPU s':>7} {'M events/CPU-s':>15}")
    for key, what, _ in jobs:
        seconds = median(taken[what])
        print(f"{what:28} {seconds:7.3f} {events[key] / seconds / 1e6:15.2f}")


def _quiet(command: list[str]) -> None:
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)


def _convert(path: Path, folder: Path) -> None:
    with tempfile.TemporaryDirectory(dir=folder) as out:
        _native.convert(str(path), out, jobs=1)


def _events(path: Path) -> int:
    _, about = _native.decode(str(path), only=["threads"])
    return sum(sum(cpus.values()) for cpus in json.loads(about)["events"].values())


if __name__ == "__main__":
    begin = time.monotonic()
    main()
    print(f"({time.monotonic() - begin:.0f} s)")
