"""What the scheduler of `schedscope fleet` costs: its workers against bare processes.

    python research/benchmarks/fleet.py   500 traces of a simulated minute, 1 and 2 workers
    python research/benchmarks/fleet.py --traces 100 --jobs 2 --of PATH

Copies of one trace (links to one, which cost no disk) are summarised in blocks, each block by every
way in turn, so that a busy host disturbs all alike: bare processes, which share the traces out
beforehand and have no scheduler, and as many workers of a local cluster. Both summarise by the same
function. The start of processes is not in the times of blocks, and is printed by itself. Prints the
table of `docs/fleet.md`.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path

import psutil

import schedscope as ss
from schedscope.fleets.cluster import workers
from schedscope.fleets.task import task

LIMIT = 1 << 30


@dataclass
class Way:
    """One way to work: a function of a block of traces that returns CPU seconds."""

    name: str
    processes: int
    work: Callable[[list[str]], float]
    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)


def minute(target: Path) -> Path:
    """A minute of a server on two CPUs."""
    load = ss.workload.web(6, requests=160_000, seed=1)
    ss.simulate(load, policy="eevdf-6.12", cpus=2).to_sched(target)
    return target


def alone(traces: list[str], scratch: str) -> float:
    """In one process, one after the other."""
    before = time.process_time()
    for trace in traces:
        answer = task(trace, scratch, False, {}, LIMIT)
        assert "summary" in answer, answer
    return time.process_time() - before


def bare(pools: list[ProcessPoolExecutor], scratch: Path) -> Callable[[list[str]], float]:
    def work(traces: list[str]) -> float:
        n = len(pools)
        shares = [
            pool.submit(alone, traces[i::n], str(scratch / str(i))) for i, pool in enumerate(pools)
        ]
        return sum(share.result() for share in shares)

    return work


def dask(stack: ExitStack, jobs: int, scratch: Path) -> Callable[[list[str]], float]:
    scratch.mkdir()
    at_work = stack.enter_context(workers(None, jobs, scratch))

    processes = [psutil.Process(pid) for pid in at_work.pids()]

    def spent() -> float:
        # With this process, in which the scheduler runs.
        theirs = [process.cpu_times() for process in processes]
        return float(sum(cpu.user + cpu.system for cpu in theirs)) + time.process_time()

    def work(traces: list[str]) -> float:
        before = spent()
        for _, answer in at_work.summaries(traces, keep=False, options={}, limit=LIMIT):
            assert "summary" in answer, answer
        return spent() - before

    return work


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--traces", type=int, default=500)
    parser.add_argument("--blocks", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--of", type=Path, help="the trace (default: a minute, simulated)")
    args = parser.parse_args()
    os.environ["POLARS_MAX_THREADS"] = "1"  # as the workers have it
    with tempfile.TemporaryDirectory(prefix="fleet-") as folder, ExitStack() as stack:
        place = Path(folder)
        original = args.of or minute(place / "minute.sched")
        info = ss.open(original, cache=place / "cache")
        traces = []
        for number in range(args.traces):
            copy = place / f"{number:04d}{original.suffix}"
            if original.is_dir():
                shutil.copytree(original, copy, copy_function=os.link)
            else:
                os.link(original, copy)
            traces.append(str(copy))
        ways = []
        for n in sorted({1, args.jobs}):
            started = time.perf_counter()
            pools = [
                stack.enter_context(ProcessPoolExecutor(1, get_context("spawn"))) for _ in range(n)
            ]
            ways.append(Way("bare", n, bare(pools, place / f"bare{n}")))
            ways[-1].work(traces[: 2 * n])
            middle = time.perf_counter()
            ways.append(Way("fleet", n, dask(stack, n, place / f"dask{n}")))
            ways[-1].work(traces[: 2 * n])
            ended = time.perf_counter()
            print(
                f"{n} at a time: started, first traces done after {middle - started:.1f} s (bare)"
                f" and {ended - middle:.1f} s (fleet)",
                flush=True,
            )
        for block in range(args.blocks):
            mine = traces[block :: args.blocks]
            # Rotate the order, so that no way always comes first.
            for way in ways[block % len(ways) :] + ways[: block % len(ways)]:
                before = time.perf_counter()
                way.cpu.append(way.work(mine) / len(mine))
                way.wall.append((time.perf_counter() - before) / len(mine))
        print(
            f"\n{args.traces} times {original.name}, {info.duration / 1e9:.1f} s and"
            f" {info.events:,} events, in {args.blocks} blocks\n"
        )
        print("| processes | way | traces/s | each | CPU ms a trace | overhead, wall | CPU |")
        print("|---|---|---|---|---|---|---|")
        for way in ways:
            other = next(w for w in ways if w.name == "bare" and w.processes == way.processes)
            wall = statistics.median(a / b for a, b in zip(way.wall, other.wall, strict=True)) - 1
            cpu = statistics.median(a / b for a, b in zip(way.cpu, other.cpu, strict=True)) - 1
            rate = 1 / statistics.mean(way.wall)
            over = (
                "|".join(f" {100 * x:+.1f} % " for x in (wall, cpu)) if way is not other else " | "
            )
            print(
                f"| {way.processes} | {way.name} | {rate:.2f} | {rate / way.processes:.2f} |"
                f" {1000 * statistics.mean(way.cpu):.0f} |{over}|"
            )


if __name__ == "__main__":
    main()
