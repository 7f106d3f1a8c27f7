"""Conversion by one thread and by several, in one run.

    python research/benchmarks/jobs.py [--jobs 1,2,3] [--events N] [--cpus N] [TRACE ...]

Without TRACE it writes two made-up trace.dat files with the package's own writer, plain and zstd.
Each TRACE is converted to Parquet in a process of its own, by each number of threads in turn, and
again, `--rounds` times. Wall and CPU seconds (user plus system, all threads) are the least of the
rounds, MB the greatest peak of memory. `busiest` is the CPU time of the thread that had most, the
caller's or all others together where there is one: the wall time that an idle host could show, and
the only one that a busy host can show. Ratios are to the first of `--jobs`. What is written must be
the same.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

CHILD = """
import hashlib, json, os, resource, sys, tempfile, time
from schedscope import _native
path, jobs, folder = sys.argv[1], int(sys.argv[2]), sys.argv[3]
def clocks():
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_THREAD)]
    return [time.perf_counter(), *(usage.ru_utime + usage.ru_stime for usage in usages)]
out = tempfile.TemporaryDirectory(dir=folder)
before = clocks()
_native.convert(path, out.name, jobs=jobs)
wall, cpu, own = (now - then for now, then in zip(clocks(), before))
with open("/proc/self/status") as status:
    peak = next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
digest = hashlib.sha256()
for name in sorted(os.listdir(out.name)):
    with open(os.path.join(out.name, name), "rb") as file:
        digest.update(file.read())
print(json.dumps([wall, cpu, max(own, cpu - own), peak / 1000, digest.hexdigest()]))
"""


def main() -> None:
    """Print one table for the traces made, or for those given."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("traces", nargs="*", type=Path)
    parser.add_argument("--jobs", default="1,2")
    parser.add_argument("--events", type=int, default=5_000_000)
    parser.add_argument("--cpus", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path, default=Path("/tmp"), help="where files are made")
    arguments = parser.parse_args()
    jobs = [int(number) for number in arguments.jobs.split(",")]
    with tempfile.TemporaryDirectory(prefix="jobs-", dir=arguments.folder) as folder:
        traces = arguments.traces or made(Path(folder), arguments.events, arguments.cpus)
        print(f"{'file':<20}{'jobs':>5}{'wall s':>16}{'CPU s':>16}{'busiest s':>16}{'MB':>8}")
        for path in traces:
            compare(path, jobs, arguments.rounds, folder)


def made(folder: Path, events: int, cpus: int) -> list[Path]:
    """One trace, plain and compressed."""
    from schedscope import _native

    paths = []
    for compression in ("none", "zstd"):
        paths.append(folder / f"{compression}.dat")
        options = {"compression": compression}
        _native.synthesize_trace_dat(paths[-1], events, cpus, 400, 1, options)
    return paths


def compare(path: Path, jobs: list[int], rounds: int, folder: str) -> None:
    """Print a line for each number of threads."""
    best: dict[int, list[float]] = {}
    digests = set()
    for _ in range(rounds):
        for number in jobs:
            words = [sys.executable, "-c", CHILD, str(path), str(number), folder]
            done = subprocess.run(words, capture_output=True, check=True)
            *measured, peak, digest = json.loads(done.stdout)
            digests.add(digest)
            known = best.setdefault(number, [*measured, peak])
            best[number] = [*map(min, known, measured), max(known[3], peak)]
    if len(digests) > 1:
        sys.exit(f"{path}: not every number of threads writes the same")
    for number in jobs:
        pairs = zip(best[number][:3], best[jobs[0]][:3], strict=True)
        ratios = "".join(f"{value:>9.2f} ({value / first:.2f})" for value, first in pairs)
        print(f"{path.name:<20}{number:>5}{ratios}{best[number][3]:>8.0f}", flush=True)


if __name__ == "__main__":
    main()
