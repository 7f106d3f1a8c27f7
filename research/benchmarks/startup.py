"""How long do `import schedscope` and `schedscope --help` take?

    python research/benchmarks/startup.py            prints the table
    python research/benchmarks/startup.py --check    and fails above the limits

The best of several runs in fresh interpreters: the machine's noise only ever adds. Figures are CPU
time, which is the wall time of an idle host: none of this waits or uses a second thread. Machines
differ by more than twice, so the limits are parts of what `import polars` takes on the same one,
which neither of the two may need. An empty interpreter is part of all figures.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time

YARDSTICK = "import polars"
LIMITS = {"import schedscope": 0.3, "schedscope --help": 1.0}
"""Parts of the yardstick's CPU time."""

COMMANDS = {
    "empty interpreter": [sys.executable, "-c", "pass"],
    "import schedscope": [sys.executable, "-c", "import schedscope"],
    "schedscope --help": [sys.executable, "-m", "schedscope", "--help"],
    "schedscope latency --help": [sys.executable, "-m", "schedscope", "latency", "--help"],
    "import polars": [sys.executable, "-c", "import polars"],
}


def best(runs: int) -> dict[str, tuple[float, float]]:
    """CPU and wall seconds of each command, the least of all runs; they take turns."""
    took: dict[str, list[tuple[float, float]]] = {name: [] for name in COMMANDS}
    for _ in range(runs):
        for name, command in COMMANDS.items():
            start = time.perf_counter()
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            took[name].append((cpu, time.perf_counter() - start))
    return {name: (min(c for c, _ in each), min(w for _, w in each)) for name, each in took.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="fail above the limits")
    parser.add_argument("--runs", type=int, default=9)
    args = parser.parse_args()
    took = best(args.runs)
    yardstick = took[YARDSTICK][0]
    slow = []
    print(f"{'best of ' + str(args.runs):<28} {'CPU s':>6} {'wall s':>6}  of {YARDSTICK}  limit")
    for name, (cpu, wall) in took.items():
        part, limit = cpu / yardstick, LIMITS.get(name)
        print(f"{name:<28} {cpu:6.3f} {wall:6.3f}  {part:15.2f}  {limit or ''}".rstrip())
        if limit is not None and part > limit:
            slow.append(f"{name}: {part:.2f} of {YARDSTICK}, limit {limit}")
    if args.check and slow:
        print("too slow: " + "; ".join(slow), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
