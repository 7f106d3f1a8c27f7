"""How far a replay moves when next to nothing changes: smaller differences mean nothing.

A capture's workload runs under each policy as it was extracted; with every thread started a
little later, from 1 us to 5 ms, which changes where clock ticks fall and nothing else; and once
more as extracted from the first simulation. Lengths, and p99 and sum of the waits.

    python research/benchmarks/simulator_shift.py CAPTURE [--policies rr,ule-14]
"""

from __future__ import annotations

import argparse
from dataclasses import replace

import polars as pl

from schedscope import open as open_trace
from schedscope.analysis.latency import latency
from schedscope.simulator.policies.policy import policies
from schedscope.simulator.recorded.extract import extract
from schedscope.simulator.runs.run import simulate
from schedscope.simulator.workloads.workload import Workload
from schedscope.store.trace import Trace

SHIFTS_US = (1, 3, 10, 30, 100, 300, 1000, 2000, 5000)


def later(workload: Workload, us: int) -> Workload:
    """The same threads, all started later."""
    moved = workload.threads.with_columns(pl.col("start") + 1000 * us)
    return replace(workload, threads=moved)


def measures(trace: Trace) -> tuple[float, float, float]:
    """From the first start on: length and sum of waits in s, p99 in ms."""
    first = trace.states.filter(pl.col("utid") >= trace.ncpu).select(pl.col("ts").min()).collect()
    waits = latency(trace).row(0, named=True)
    length = (trace.window[1] - first.item()) / 1e9
    return length, waits["total"] / 1e9, (waits["p99"] or 0) / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("capture")
    parser.add_argument("--policies", default=",".join(policies()["name"]))
    args = parser.parse_args()
    trace = open_trace(args.capture)
    workload, ncpu = extract(trace), trace.ncpu
    heads = ("policy", "length s", "shifted", "again", "waits s", "shifted", "p99 ms", "shifted")
    print("{:<18} {:>8} {:>13} {:>7} {:>8} {:>13} {:>7} {:>13}".format(*heads))
    for policy in args.policies.split(","):
        first = simulate(workload, policy=policy, cpus=ncpu)
        shifted = [
            measures(simulate(later(workload, us), policy=policy, cpus=ncpu)) for us in SHIFTS_US
        ]
        again = measures(simulate(extract(first), policy=policy, cpus=ncpu))
        length, total, p99 = measures(first)
        lengths, totals, p99s = (
            f"{min(values):.2f} to {max(values):.2f}" for values in zip(*shifted, strict=True)
        )
        print(
            f"{policy:<18} {length:8.2f} {lengths:>13} {again[0]:7.2f}"
            f" {total:8.2f} {totals:>13} {p99:7.2f} {p99s:>13}",
            flush=True,
        )


if __name__ == "__main__":
    main()
