"""Where EEVDF's rules put a woken thread whose own CPU is busy."""

from __future__ import annotations

import polars as pl
import pytest

from schedscope.simulator.runs.run import simulate
from schedscope.simulator.workloads.builder import Builder


@pytest.mark.parametrize(("wa_weight", "cpu"), [("on", 0), ("off", 1)])
def test_woken_thread_goes_to_the_less_loaded_cpu_where_loads_are_compared(
    wa_weight: str, cpu: int
) -> None:
    """CPU 0 has the waker and a hog, CPU 1, where the woken thread was, five hogs."""
    b = Builder()
    for i in range(6):
        b.thread(f"hog{i}", cpus="0" if i == 0 else "1").run("20ms")
    waker = b.thread("waker", cpus="0")
    woken = b.thread("woken", cpu=1, asleep=True).wait_for(waker).run("1ms")
    waker.run("1ms").signal(woken).run("1ms")
    settings = {"wa_weight": wa_weight, "balance": "off", "balance_newidle": "off"}
    trace = simulate(b.workload(), policy="eevdf-6.18", cpus=2, set=settings)
    waits = trace.waits.join(trace.threads.select("utid", "comm"), on="utid")
    assert waits.filter(pl.col("comm") == "woken").collect()["queue_cpu"][0] == cpu


def cpu_of_woken(flips: int, *, helped: bool, born: bool = False, timer: bool = False) -> int:
    """As above; the waker may first wake a helper, be the child of another thread, and run while a
    timer wakes a sleeper.
    """
    b = Builder()
    for i in range(1 if timer else 0, 6):
        b.thread(f"hog{i}", cpus="0" if i == 0 else "1").run("20ms")
    waker = b.thread("waker", cpus="0", start=None if born else "0")
    helper = b.thread("helper", cpu=0, asleep=True).wait_for(waker).run("1us")
    woken = b.thread("woken", cpu=1, asleep=True).wait_for(waker).run("1ms")
    if born:
        parent = b.thread("parent", cpus="0")
        child = b.thread("child", cpu=0, asleep=True).wait_for(parent).run("1us")
        parent.run("1ms").signal(child).fork(waker)
    if timer:
        b.thread("sleeper", cpu=0, asleep=True).sleep("500us").run("1us")
    waker.run("1ms")
    if helped:
        waker.signal(helper)
    waker.signal(woken).run("1ms")
    if not helped:
        waker.signal(helper)
    settings = {"wakee_flips": flips, "balance": "off", "balance_newidle": "off"}
    trace = simulate(b.workload(), policy="eevdf-6.18", cpus=2, set=settings)
    waits = trace.waits.join(trace.threads.select("utid", "comm"), on="utid")
    return int(waits.filter(pl.col("comm") == "woken").collect()["queue_cpu"][0])


def test_waker_of_many_threads_pulls_none_to_its_cpu() -> None:
    """The cache has two CPUs: wake_wide needs 2 flips of one thread, and twice as many of the
    other.
    """
    assert cpu_of_woken(0, helped=True) == 0
    assert cpu_of_woken(2, helped=False) == 0
    assert cpu_of_woken(2, helped=True) == 1


def test_new_thread_inherits_wakee_flips() -> None:
    """With the child that its parent has woken the waker reaches the four flips that it needs."""
    assert cpu_of_woken(2, helped=False, born=True) == 1


def test_interrupt_wakeup_counts_for_the_interrupted_thread() -> None:
    """The timer's wake is the third flip of the waker, which is the running thread then."""
    assert cpu_of_woken(0, helped=False, timer=True) == 0
    assert cpu_of_woken(2, helped=False, timer=True) == 1
