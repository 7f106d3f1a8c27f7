"""`ps` compared with the fluid model that it implements."""

from __future__ import annotations

import random

import polars as pl
import pytest

from schedscope.simulator.runs.run import simulate
from schedscope.simulator.workloads.builder import Builder

MS = 1_000_000
WEIGHTS = {-10: 9548.0, 0: 1024.0, 10: 110.0}
Job = tuple[int, int, int]
"""When it comes, how much CPU time it needs, and its nice value."""


def parts(weights: dict[int, float], cpus: int) -> dict[int, float]:
    """The CPUs' rates by weight, but none gets more than one."""
    if len(weights) <= cpus:
        return dict.fromkeys(weights, 1.0)
    free, rest, found = float(cpus), dict(weights), {}
    while True:
        whole = sum(rest.values())
        full = [job for job, weight in rest.items() if free * weight > whole]
        if not full:
            return found | {job: free * weight / whole for job, weight in rest.items()}
        for job in full:
            found[job] = 1.0
            free -= 1
            del rest[job]


def fluid(jobs: list[Job], cpus: int) -> list[float]:
    """How long each job takes when all are served simultaneously."""
    now, waiting = 0.0, sorted(range(len(jobs)), key=lambda i: jobs[i][0])
    left: dict[int, float] = {}
    took = [0.0] * len(jobs)
    while waiting or left:
        rate = parts({i: WEIGHTS[jobs[i][2]] for i in left}, cpus)
        comes = float(jobs[waiting[0]][0]) if waiting else float("inf")
        ends, first = min(((now + left[i] / rate[i], i) for i in left), default=(comes, -1))
        then = min(comes, ends)
        left = {i: work - (then - now) * rate[i] for i, work in left.items()}
        now = then
        if left and ends <= comes:
            took[first] = now - jobs[first][0]
            del left[first]
        else:
            left[waiting[0]] = float(jobs[waiting[0]][1])
            waiting.pop(0)
    return took


def simulated(jobs: list[Job], cpus: int) -> list[int]:
    b = Builder()
    for start, work, nice in jobs:
        b.thread("job", start=start, nice=nice).run(work)
    threads = simulate(b.workload(), policy="ps", cpus=cpus).threads
    ours = threads.filter(pl.col("utid") >= cpus).sort("utid").collect()
    return (ours["exit_ts"] - ours["start_ts"]).to_list()


@pytest.mark.parametrize("cpus", [1, 2, 4])
@pytest.mark.parametrize("nices", [[0], [-10, 0, 10]])
def test_jobs_take_the_time_of_the_fluid_model(nices: list[int], cpus: int) -> None:
    """Within some quanta of 100 us of the competing threads, which take 1 ms at nice 10."""
    rng = random.Random(cpus)
    now, jobs = 0, []
    for _ in range(300):
        now += round(rng.expovariate(0.7 * cpus / 20) * MS)
        jobs.append((now, round(rng.expovariate(1 / 20) * MS) + 1000, rng.choice(nices)))
    bound = (1.5 if nices == [0] else 8) * MS
    for ours, theirs in zip(simulated(jobs, cpus), fluid(jobs, cpus), strict=True):
        assert abs(ours - theirs) < bound


def test_lone_thread_shares_with_later_ones() -> None:
    """It had both CPUs while they were otherwise idle, which does not count against it."""
    b = Builder()
    b.thread("old").run("10s")
    b.threads("new", 2, start="1s").run("10s")
    trace = simulate(b.workload(), policy="ps", cpus=2, until="1300ms")
    ran = trace.states.filter(pl.col("utid") >= 2, pl.col("state") == "running")
    since = ran.filter(pl.col("ts") + pl.col("dur") > 1000 * MS).with_columns(
        dur=pl.col("ts") + pl.col("dur") - pl.max_horizontal("ts", 1000 * MS)
    )
    shares = since.group_by("utid").agg(pl.col("dur").sum()).collect()["dur"]
    assert shares.sum() == 600 * MS
    assert all(abs(share - 200 * MS) < MS for share in shares)
