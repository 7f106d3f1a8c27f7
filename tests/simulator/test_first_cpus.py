"""Where FreeBSD's threads are woken in replays: all wakes of one interrupt, and kernel threads of a
recording under the other scheduler.
"""

from __future__ import annotations

import polars as pl
import pytest

import schedscope as ss
from schedscope.simulator.recorded.extract import _at_once
from schedscope.simulator.runs.first_cpus import begun_under
from schedscope.simulator.workloads.workload import Workload


def machine(recorded_under: str) -> Workload:
    b = ss.workload.Builder()
    b.thread("daemon", sched="kernel", asleep=True, cpu=1).sleep("10ms").run("1ms")
    b.thread("bound", sched="kernel", asleep=True, cpu=1, cpus="1").sleep("10ms").run("1ms")
    b.thread("busy", sched="kernel", cpu=1).run("5ms")
    b.thread("user", asleep=True, cpu=1).sleep("20ms").run("1ms")
    return b.workload(extraction={"recorded_under": recorded_under})


@pytest.mark.parametrize(
    ("recorded", "policy", "cpus"),
    [
        ("ULE", "4bsd-13", [0, 1, 1, 1]),
        ("ULE", "ule-13", [1, 1, 1, 1]),
        ("4BSD", "4bsd-13", [1, 1, 1, 1]),
        ("4BSD", "ule-13", [1, 1, 1, 1]),
    ],
)
def test_only_sleeping_kernel_threads_of_ule_begin_elsewhere_under_4bsd(
    recorded: str, policy: str, cpus: list[int]
) -> None:
    assert begun_under(machine(recorded), policy).threads["cpu"].to_list() == cpus


def test_kernel_thread_wakes_on_the_first_cpu_under_4bsd() -> None:
    """It stays there, as the CPU idles."""
    for policy, cpu in (("4bsd-13", 0), ("ule-13", 1)):
        trace = ss.simulate(machine("ULE"), policy=policy, cpus=2)
        daemon = trace.threads.filter(pl.col("comm") == "daemon").collect()["utid"].item()
        onto = trace.switches.filter(pl.col("next_utid") == daemon).collect()
        assert onto["cpu"].to_list() == [cpu], policy


def test_wakes_of_one_interrupt_are_one_instant() -> None:
    """On CPU 0 the second comes 20 us after the first, the third after another switch, the fourth
    from a thread, the fifth later. CPU 1 has one of its own.
    """
    wakeups = pl.DataFrame(
        {
            "ts": [10, 20_000, 30_000, 45_000, 46_000, 200_000],
            "cpu": [0, 0, 1, 0, 0, 0],
            "waker_utid": [None, None, None, None, 7, None],
            "utid": [1, 2, 3, 4, 5, 6],
        }
    )
    switches = pl.DataFrame({"ts": [40_000, 41_000], "cpu": [0, 1]})
    found = _at_once(wakeups, switches)
    assert found.columns == wakeups.columns
    assert found.select("utid", "ts").rows() == [
        (1, 10), (2, 10), (3, 30_000), (4, 45_000), (5, 46_000), (6, 200_000)
    ]  # fmt: skip
