"""How fast traces become events and tables, beside trace-cmd and perf, and in how much memory.

    python research/benchmarks/decode.py [--events N] [--long N] [TRACE ...]

Without TRACE it writes made-up trace.dat files with the package's own writer. Each TRACE
(trace.dat, a capture folder, perf.data, anything we decode) is read in a process of its own.
CPU seconds are user plus system of all threads, the least of `--rounds`; RSS is the peak of
the reading process. Columns, in million events per CPU second:

* events: decoded and counted, no tables
* facts: the fact tables in memory, nothing inferred (`schedscope.read_tables`)
* memory: those, and losses, states and waits inferred
* convert: all of it, to Parquet on disk
* beside: `trace-cmd report` (prints the events) of trace.dat, `perf sched latency` (one table)
  of perf.data, with the release that did it

`limits` are what facts and convert would be if the file only had to be read and the tables written,
at the speed at which this machine copies memory (compressed files: as they are stored).
SCHEDSCOPE_TOOLS may name a tree with newer tools (tests/tools.py); it sees only paths below /tmp.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from tools import tool  # noqa: E402

KINDS = {
    "v7 plain": {"version": "7", "compression": "none"},
    "v7 zstd": {"version": "7", "compression": "zstd"},
    "v7 zlib": {"version": "7", "compression": "zlib"},
    "v6": {"version": "6"},
}
HOWS = ("events", "facts", "memory", "convert")

CHILD = """
import json, os, resource, sys, tempfile
from schedscope import _native
from schedscope.parsers.schema import TABLES
how, path = sys.argv[1:]
def spent():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
size = 0
folder = tempfile.TemporaryDirectory()
before = spent()
if how == "events":
    counts = _native.count_events(path)[1]
    size = sum(counts.values())
elif how == "convert":
    _native.convert(path, folder.name, jobs=1)
else:
    inferred = {"states", "waits", "losses"}
    only = sorted(set(TABLES) - inferred) if how == "facts" else None
    tables = _native.decode(path, only=only, jobs=1)[0]
cpu = spent() - before
if how == "facts":
    import polars as pl
    size = sum(pl.DataFrame(table).estimated_size() for table in tables.values())
elif how == "convert":
    size = sum(os.path.getsize(file.path) for file in os.scandir(folder.name))
# Not ru_maxrss, which begins at what the parent had when it forked.
with open("/proc/self/status") as status:
    peak = next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))
print(json.dumps([cpu, peak, size]))
"""

COPY = """
import time, numpy
source = numpy.ones(1 << 25)
target = numpy.zeros(1 << 25)
def copied():
    before = time.process_time()
    numpy.copyto(target, source)
    return time.process_time() - before
print(source.nbytes / min(copied() for _ in range(5)))
"""


@dataclass
class Reading:
    """The best of some rounds: CPU seconds, peak RSS in bytes; events, or bytes of tables made."""

    cpu: float
    rss: int
    size: int


def measure(how: str, path: Path, rounds: int) -> Reading:
    results = []
    for _ in range(rounds):
        words = [sys.executable, "-c", CHILD, how, str(path)]
        done = subprocess.run(words, capture_output=True, check=True)
        results.append(json.loads(done.stdout))
    return Reading(min(r[0] for r in results), max(r[1] for r in results), results[0][2])


def other(path: Path, rounds: int) -> tuple[str, float] | None:
    """A tool that reads `path` and its CPU seconds; None where there is none."""
    with path.open("rb") if path.is_file() else open(os.devnull, "rb") as file:
        head = file.read(10)
    if head == b"\x17\x08Dtracing":
        program, arguments = "trace-cmd", ["report", "-t", "-i", str(path)]
    elif head.startswith(b"PERFILE2"):
        program, arguments = "perf", ["sched", "-i", str(path), "latency"]
    else:
        return None
    words = tool(program)
    if words is None:
        return None
    best = float("inf")
    for _ in range(rounds):
        before = os.times()
        done = subprocess.run([*words, *arguments], capture_output=True, check=False)
        after = os.times()
        if done.returncode:
            return None
        user = after.children_user - before.children_user
        best = min(best, user + after.children_system - before.children_system)
    told = subprocess.run([*words, "--version"], capture_output=True, text=True, check=False)
    lines = (told.stdout + told.stderr).split("\n")
    version = next((word for line in lines for word in line.split() if word[:1].isdigit()), "")
    return f"{program} {version}", best


def table(traces: dict[str, Path], rounds: int, bandwidth: float) -> None:
    heads = "".join(f"{how:>9}" for how in HOWS)
    print(f"{'file':<24}{'events':>11}{'B/event':>9}{heads}{'limits':>12}  beside")
    for name, path in traces.items():
        readings = {how: measure(how, path, rounds) for how in HOWS}
        events = readings["events"].size
        files = path.rglob("*") if path.is_dir() else [path]
        stored = sum(file.stat().st_size for file in files if file.is_file())
        rates = "".join(f"{events / readings[how].cpu / 1e6:>9.1f}" for how in HOWS)
        moved = [stored + readings[how].size for how in ("facts", "convert")]
        limits = "/".join(f"{bandwidth * events / size / 1e6:.0f}" for size in moved)
        line = f"{name:<24}{events:>11,}{stored / events:>9.1f}{rates}{limits:>12}"
        if (beside := other(path, rounds)) is not None:
            line += f"  {beside[0]}: {events / beside[1] / 1e6:.2f}"
        print(line, flush=True)


def main() -> None:
    """Print one table for the kinds of file, or for the traces given, and one for a long trace."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("traces", nargs="*", type=Path)
    parser.add_argument("--events", type=int, default=2_000_000)
    parser.add_argument("--long", type=int, default=0, help="also a trace of so many events")
    parser.add_argument("--cpus", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, default=Path("/tmp"), help="where traces are made")
    arguments = parser.parse_args()

    from schedscope import _native

    copied = subprocess.run([sys.executable, "-c", COPY], capture_output=True, check=True)
    bandwidth = float(copied.stdout)
    print(f"million events per CPU second; memory is copied at {bandwidth / 1e9:.1f} GB/s")
    with tempfile.TemporaryDirectory(prefix="decode-", dir=arguments.folder) as folder:
        traces = {path.name: path for path in arguments.traces}
        if not traces:
            for kind, options in KINDS.items():
                traces[kind] = path = Path(folder) / f"{kind.replace(' ', '-')}.dat"
                made = (arguments.events, arguments.cpus, 200, 1, options)
                _native.synthesize_trace_dat(path, *made)
        table(traces, arguments.rounds, bandwidth)
        if arguments.long:
            path = Path(folder) / "long.dat"
            options = {"compression": "zstd"}
            _native.synthesize_trace_dat(path, arguments.long, arguments.cpus, 200, 1, options)
            print(f"\n{arguments.long:,} events, {path.stat().st_size / 1e6:,.0f} MB, zstd")
            for how in ("events", "convert"):
                reading = measure(how, path, 1)
                rate = arguments.long / reading.cpu / 1e6
                print(f"{how:<10}{rate:>9.1f} M/CPU-s{reading.rss / 1e6:>9.0f} MB peak RSS")


if __name__ == "__main__":
    main()
