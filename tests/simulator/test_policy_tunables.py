"""Whatever is set, a workload still runs to its end and every thread gets its CPU time."""

from __future__ import annotations

import polars as pl
import pytest

from schedscope.analysis.asking.policies import resolve
from schedscope.simulator.policies.policy import policies, series, tunables
from schedscope.simulator.runs.run import simulate
from schedscope.simulator.workloads.builder import Builder
from schedscope.simulator.workloads.workload import Workload

RUN = {"hog": 200_000_000, "nice": 60_000_000, "sleeper": 20_000_000, "child": 30_000_000}


def mixed() -> Workload:
    """Hogs of two nice values, a sleeper, a child and a real-time thread on two CPUs."""
    b = Builder()
    b.thread("hog").run(RUN["hog"])
    b.thread("nice", nice=10).run(RUN["nice"])
    b.thread("sleeper").run("1ms").sleep("3ms").repeat(20)
    child = b.thread("child", start=None)
    child.run(RUN["child"])
    b.thread("parent").run("2ms").fork(child).run("5ms").yield_().run("5ms")
    b.thread("rt", sched="rr", rt_prio=10).sleep("4ms").run("3ms").sleep("9ms").run("3ms")
    return b.workload()


def values(row: dict[str, object]) -> list[str]:
    """Every choice; for numbers, small and large ones."""
    if row["kind"] == "choice":
        return list(row["choices"])  # type: ignore[call-overload]
    if row["kind"] == "switch":
        return ["on", "off"]
    if row["kind"] == "time":
        return ["200us", "100s"]
    return ["1", "1000"]


CASES = [
    (policy, row["name"], value)
    for policy in policies()["name"]
    for row in tunables(policy).iter_rows(named=True)
    for value in values(row)
]


@pytest.mark.parametrize("policy", policies()["name"].to_list())
def test_every_setting_runs_the_workload_to_its_end(policy: str) -> None:
    """One tunable at a time; a value out of range is refused, never a panic."""
    from schedscope.errors import UsageError

    workload = mixed()
    refused: list[str] = []
    for _, name, value in (case for case in CASES if case[0] == policy):
        try:
            trace = simulate(workload, policy=policy, cpus=2, set={name: value}, until="1000s")
        except UsageError as error:
            refused.append(str(error))
            continue
        assert trace.info["simulation"]["ended"] == "finished", f"{name}={value}"
        ran = dict(
            trace.states.filter(pl.col("state") == "running")
            .join(trace.threads, on="utid")
            .group_by(pl.col("comm").cast(pl.String))
            .agg(pl.sum("dur"))
            .collect()
            .rows()
        )
        assert {k: ran[k] for k in RUN} == RUN, f"{name}={value}"
    assert all("tunable" in text for text in refused), refused


def test_the_name_of_a_family_means_its_newest_policy() -> None:
    assert tunables("eevdf").equals(tunables(resolve("eevdf")))
    assert series("ule").equals(series("ule-14"))
