"""How fast trace.dat becomes events and tables, beside trace-cmd, and in how much memory.

`python benchmarks/decode.py [--events N] [--keep FOLDER]` writes made-up traces with the
package's own writer and reads each in a process of its own. CPU seconds are user plus
system, the best of three; RSS is the peak of the reading process. Columns:

* events: decoded and counted, no tables
* memory: all fact tables, states and waits in memory
* convert: the same, to Parquet on disk
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

KINDS = {
    "v7 plain": {"version": "7", "compression": "none"},
    "v7 zstd": {"version": "7", "compression": "zstd"},
    "v7 zlib": {"version": "7", "compression": "zlib"},
    "v6": {"version": "6"},
}

CHILD = """
import json, resource, sys, tempfile
from schedscope import _native
how, path = sys.argv[1:]
before = resource.getrusage(resource.RUSAGE_SELF)
if how == "events":
    _native.count_events(path)
elif how == "memory":
    _native.decode(path)
else:
    with tempfile.TemporaryDirectory() as folder:
        _native.convert(path, folder)
after = resource.getrusage(resource.RUSAGE_SELF)
cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
print(json.dumps([cpu, after.ru_maxrss * 1024]))
"""


def measure(how: str, path: Path, rounds: int) -> tuple[float, float]:
    """Best CPU seconds and peak RSS in bytes of reading `path` so."""
    results = []
    for _ in range(rounds):
        words = [sys.executable, "-c", CHILD, how, str(path)]
        done = subprocess.run(words, capture_output=True, check=True)
        results.append(json.loads(done.stdout))
    return min(cpu for cpu, _ in results), max(rss for _, rss in results)


def trace_cmd(path: Path) -> float | None:
    """CPU seconds of `trace-cmd report`, or None where it is absent or cannot read."""
    if not shutil.which("trace-cmd"):
        return None
    words = ["trace-cmd", "report", "-t", str(path)]
    before = os.times()
    done = subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    after = os.times()
    if done.returncode:
        return None
    return (
        after.children_user + after.children_system - before.children_user - before.children_system
    )


def main() -> None:
    """Print one table for the kinds of file, and one for a long trace."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=2_000_000)
    parser.add_argument("--long", type=int, default=0, help="also a trace of so many events")
    parser.add_argument("--cpus", type=int, default=4)
    parser.add_argument("--folder", type=Path, help="where the traces go (default: temporary)")
    arguments = parser.parse_args()

    from schedscope import _native

    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        path = Path(folder) / "trace.dat"
        print(f"{arguments.events:,} events, {arguments.cpus} CPUs; millions per CPU-second")
        print(f"{'file':<10}{'MB':>7}{'events':>9}{'memory':>9}{'convert':>9}{'trace-cmd':>11}")
        for kind, options in KINDS.items():
            _native.synthesize_trace_dat(path, arguments.events, arguments.cpus, 200, 1, options)
            rates = [
                arguments.events / measure(how, path, 3)[0] / 1e6
                for how in ("events", "memory", "convert")
            ]
            other = trace_cmd(path)
            beside = f"{arguments.events / other / 1e6:>11.2f}" if other else f"{'-':>11}"
            size = path.stat().st_size / 1e6
            print(f"{kind:<10}{size:>7.0f}" + "".join(f"{rate:>9.1f}" for rate in rates) + beside)
        if arguments.long:
            options = {"compression": "zstd"}
            _native.synthesize_trace_dat(path, arguments.long, arguments.cpus, 200, 1, options)
            print(f"\n{arguments.long:,} events, {path.stat().st_size / 1e6:,.0f} MB, zstd")
            for how in ("events", "convert"):
                cpu, rss = measure(how, path, 1)
                rate = arguments.long / cpu / 1e6
                print(f"{how:<10}{rate:>9.1f} M/CPU-s{rss / 1e6:>9.0f} MB peak RSS")


if __name__ == "__main__":
    main()
