"""Where EEVDF's rules put a woken thread whose own CPU is busy."""

from __future__ import annotations

import polars as pl
import pytest

from schedscope.simulator.builder import Builder
from schedscope.simulator.run import simulate


@pytest.mark.parametrize(("wa_weight", "cpu"), [("on", 0), ("off", 1)])
def test_the_less_loaded_cpu_of_its_waker_takes_it_where_loads_are_compared(
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
