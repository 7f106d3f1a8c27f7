"""Extreme workloads, costs and tunables: a trace or one sentence, never else.

`python tests/fuzz_simulator.py [--seconds N] [--seed N]`; pytest runs it for
SCHEDSCOPE_FUZZ_SECONDS (10 by default) in tests/decode/test_fuzz.py. Built with overflow checks
(`cargo build --profile quick`), a sum that overflows shows as a panic.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import time
import warnings
from typing import Any

MEMORY = 4 << 30
SLOW_SECONDS = 20
MOST_EVENTS = 20_000

EDGES = [-(2**63), -1, 0, 1, 2, 7, 1000, 10**6, 10**9, 10**12, 2**31 - 1, 2**31, 2**32 - 1]
EDGES += [2**50 - 1, 2**52 - 1, 2**52, 2**53, 2**62, 2**63 - 1, 2**64]
USUAL = [1, 1000, 10**6, 3 * 10**6, 10**7, 10**9]


def number(chance: random.Random) -> int:
    """A number that is mostly a valid one."""
    return chance.choice(USUAL if chance.random() < 0.9 else EDGES)


def workload(chance: random.Random) -> Any:
    """Up to six threads of up to eight steps."""
    from schedscope.simulator.workloads.builder import Builder

    b = Builder()
    programs = []
    unborn = []
    for n in range(chance.randrange(1, 7)):
        sched = chance.choice(["fair", "fair", "fifo", "rr", "batch", "idle"])
        realtime = sched in {"fifo", "rr"}
        forked = n > 0 and chance.random() < 0.2
        programs.append(
            b.thread(
                f"t{n}",
                sched=sched,
                nice=0 if realtime else chance.choice([0, 0, -20, 19, 5]),
                rt_prio=chance.choice([1, 50, 99]) if realtime else 0,
                start=None if forked else chance.choice([0, 0, 0, number(chance)]),
                cpus=chance.choice([None, None, None, None, "0", "0,2", "1-3"]),
            )
        )
        if forked:
            unborn.append(programs[-1])
    for program in programs:
        for _ in range(chance.randrange(1, 9)):
            other = chance.choice(programs)
            match chance.randrange(10):
                case 0 | 1 | 2:
                    program.run(number(chance))
                case 3 | 4:
                    program.sleep(number(chance))
                case 5:
                    program.signal(other)
                case 6 if chance.random() < 0.5:
                    program.wait_for(chance.choice([other, None]))
                case 7:
                    program.yield_()
                case 8:
                    program.fork(unborn.pop() if unborn else other)
                case _:
                    times = chance.choice([None, 1, 5, 1000, 2**32 - 1, 2**32])
                    program.run("1ms")
                    program.repeat(*([] if times is None else [times]))
    return b.workload()


def rtapp(chance: random.Random) -> Any:
    """An rt-app document with extreme numbers and names."""
    from schedscope.simulator.runs.rtapp import from_rtapp

    def value() -> Any:
        return chance.choice([number(chance), 1e300, float("nan"), "x", None, [], {}, True])

    tasks: dict[str, Any] = {}
    for n in range(chance.randrange(1, 4)):
        task: dict[str, Any] = {}
        for key in chance.sample(
            ["run", "sleep", "runtime", "timer", "loop", "instance", "priority", "delay"], 4
        ):
            odd = chance.random() < 0.07
            task[key] = value() if odd else chance.choice([1, 5, 1000, 100_000])
        if chance.random() < 0.3:
            task["phases"] = {"p0": {"run": number(chance), "loop": number(chance)}}
        if chance.random() < 0.2:
            task["cpus"] = [chance.choice([0, 1, -1, 65535, 2**40])]
        if chance.random() < 0.2:
            task["policy"] = chance.choice(["SCHED_FIFO", "SCHED_RR", "SCHED_IDLE", "x"])
        tasks[f"task{n}"] = task
    return from_rtapp(json.dumps({"tasks": tasks}))


def settings(chance: random.Random, policies: list[Any]) -> dict[str, Any]:
    """A policy with some of its tunables set, a machine and its costs."""
    policy = chance.choice(policies)
    tunables = chance.sample(policy["tunables"], min(len(policy["tunables"]), 3))
    given: dict[str, Any] = {}
    for tunable in tunables:
        if tunable["choices"]:
            given[tunable["name"]] = chance.choice(tunable["choices"])
        elif tunable["kind"] == "switch":
            given[tunable["name"]] = chance.choice(["on", "off"])
        else:
            # Defaults are valid; so are many numbers of their size.
            usual = [tunable["default"], 1, 2, 3, 10, 99, 100, 1000, 10**6]
            edges = [0, 10**9, 10**12, number(chance), 0.001, -1]
            given[tunable["name"]] = chance.choice(usual if chance.random() < 0.8 else edges)
    names = ["switch", "migration_smt", "ipi", "idle_exit", "preempt", "enqueue", "tick"]
    names.append("smt_speed")
    costs = {
        name: chance.choice(
            [0, 1, 1000, 10**6, 10**9, 0.5] * 3 + [-1, 10**9 + 1, 1e300, float("nan")]
        )
        for name in chance.sample(names, chance.choice([0, 0, 0, 1, 2]))
    }
    return {
        "policy": policy["name"],
        "set": given,
        "machine": chance.choice([1, 2, 4, "2x2x2", 64]),
        "costs": costs or None,
        "until": chance.choice(["1s", "10s", "1000s", None, 2**52, number(chance)]),
        "seed": chance.randrange(1000),
        "record": chance.random() < 0.3,
        "max_events": MOST_EVENTS,
    }


def child(seconds: float, seed: int) -> int:
    """Simulates until the time is over; returns how many runs there were."""
    import schedscope as ss
    from schedscope import _native
    from schedscope.errors import SchedscopeError

    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    warnings.simplefilter("ignore")
    policies = _native.policies()
    chance = random.Random(seed)
    end = time.monotonic() + seconds
    tried = finished = 0
    while time.monotonic() < end:
        state = chance.getstate()
        options = settings(chance, policies)
        begin = time.process_time()
        try:
            load = rtapp(chance) if chance.random() < 0.3 else workload(chance)
            trace = ss.simulate(load, **options)
            if options["policy"]:
                ss.check(trace)
            finished += 1
        except SchedscopeError as error:
            if "\n" in str(error) or not str(error):
                raise
        except BaseException:
            print(f"{options}", file=sys.stderr)
            raise
        if time.process_time() - begin > SLOW_SECONDS:
            raise TimeoutError(f"{time.process_time() - begin:.0f} s: {options} {state[1][:2]}")
        tried += 1
    print(f"{finished} of", end=" ")
    return tried


def run(seconds: float, seed: int) -> str | None:
    """Fuzzes in a child; returns what broke, or None."""
    words = [sys.executable, __file__, "--child", "1"]
    words += ["--seconds", str(seconds), "--seed", str(seed)]
    # Threads of Polars cost more than they gain here.
    environment = {**os.environ, "POLARS_MAX_THREADS": "1"}
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=environment)
    if done.returncode == 0:
        print(f"seed {seed}: {done.stdout.strip()} extreme simulations ended well")
        return None
    return f"seed {seed}:\n{done.stderr[-3000:]}"


def main() -> int:
    """Fuzzes with one seed, or acts as the child."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        print(child(arguments.seconds, arguments.seed))
        return 0
    broken = run(arguments.seconds, arguments.seed)
    if broken:
        print(broken, file=sys.stderr)
    return int(broken is not None)


if __name__ == "__main__":
    sys.exit(main())
