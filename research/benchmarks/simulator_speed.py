"""How many scheduling events per CPU-second the simulator handles.

A scheduling event is a row of the output: a switch, a step of a wakeup, a
migration. Threads compute 50-150 us and sleep so that the machine is about
90 % busy; time is CPU time of this process, output (facts and reconstruction,
in memory) included.

    python research/benchmarks/simulator_speed.py [--policies rr,ule-14] [--threads N] [--cpus N]
"""

from __future__ import annotations

import argparse
import random
import time

from schedscope.simulator.policies.policy import policies
from schedscope.simulator.runs.run import simulate
from schedscope.simulator.workloads.builder import Builder
from schedscope.simulator.workloads.workload import Workload


def sleepers(n: int, cpus: int, load: float, rounds: int, seed: int = 1) -> Workload:
    """Threads that run and sleep, at `load` of the machine's capacity in all."""
    rng = random.Random(seed)
    b = Builder()
    for i in range(n):
        thread = b.thread(f"t{i}", start=rng.randint(0, 1_000_000))
        run = rng.randint(50_000, 150_000)
        sleep = max(1000, int(run * (n / (cpus * load) - 1)))
        for _ in range(4):
            thread.run(rng.randint(run // 2, run + run // 2))
            thread.sleep(rng.randint(sleep // 2, sleep + sleep // 2))
        thread.repeat(rounds)
    return b.workload()


def measure(workload: Workload, policy: str, cpus: int) -> tuple[int, float]:
    """Scheduling events and CPU seconds of one run."""
    begin = time.process_time()
    trace = simulate(workload, policy=policy, cpus=cpus)
    spent = time.process_time() - begin
    rows = trace.info["rows"]
    return rows["switches"] + rows["wakeups"] + rows["migrations"], spent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--policies", default="")
    parser.add_argument("--threads", default="100,1000,10000,100000")
    parser.add_argument("--cpus", type=int, default=64)
    parser.add_argument("--load", type=float, default=0.9)
    parser.add_argument("--events", type=int, default=3_000_000, help="events a run, about")
    args = parser.parse_args()
    names = args.policies.split(",") if args.policies else policies()["name"].to_list()
    print(f"{'policy':>14} {'threads':>8} {'events':>11} {'CPU s':>7} {'M events/s':>11}")
    for name in names:
        for n in (int(x) for x in args.threads.split(",")):
            rounds = max(1, round(args.events / (4 * 4.5 * n)))
            workload = sleepers(n, args.cpus, args.load, rounds)
            events, spent = measure(workload, name, args.cpus)
            print(f"{name:>14} {n:>8} {events:>11,} {spent:>7.2f} {events / spent / 1e6:>11.2f}")


if __name__ == "__main__":
    main()
