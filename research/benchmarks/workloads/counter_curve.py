"""The counter experiment: wall time over N, measured here and simulated.

    cc -O2 -o counter research/benchmarks/workloads/counter.c
    python research/benchmarks/workloads/counter_curve.py ./counter --upto 12 --policy bfs

For N = 1 .. UPTO counting processes: the real program's wall time on this host
(the best of `--repeat` runs), the simulated one on a machine of as many CPUs,
the ideal WORK * max(1, N / P), all as multiples of one process's CPU time. The last
line is the root mean square distance of each simulated curve from the real one.
"""

from __future__ import annotations

import argparse
import math
import os
import subprocess

from schedscope.simulator.runs.run import simulate
from schedscope.simulator.workloads.generators import hogs


def real(program: str, n: int, work: float, repeat: int) -> float:
    best = math.inf
    for _ in range(repeat):
        out = subprocess.run(
            [program, str(n), str(work)], check=True, capture_output=True, text=True
        ).stdout.split()
        # A host's speed changes with its neighbours' load: in units of the CPU
        # time that one process really took.
        best = min(best, float(out[1]) * n / float(out[2]))
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", nargs="?", help="the compiled counter; none: simulate only")
    parser.add_argument("--upto", type=int, default=12)
    parser.add_argument("--work", type=float, default=0.15)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--cpus", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--policy", default="eevdf-6.17,cfs-2.6.31,bfs")
    args = parser.parse_args()
    policies = args.policy.split(",")
    print("\t".join(["n", "ideal", "real", *policies]))
    square = dict.fromkeys(policies, 0.0)
    for n in range(1, args.upto + 1):
        measured = real(args.program, n, args.work, args.repeat) if args.program else math.nan
        row = [max(1.0, n / args.cpus), measured]
        for policy in policies:
            load = hogs(n, time=round(args.work * 1e9))
            trace = simulate(load, policy=policy, cpus=args.cpus)
            row.append(trace.duration / 1e9 / args.work)
            square[policy] += (row[-1] - measured) ** 2
        print("\t".join([str(n), *(f"{value:.3f}" for value in row)]), flush=True)
    if args.program:
        distances = (f"{math.sqrt(square[p] / args.upto):.3f}" for p in policies)
        print("\t".join(["rms", "", "", *distances]))


if __name__ == "__main__":
    main()
