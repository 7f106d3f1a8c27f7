"""On which CPU kernel threads begin that were recorded under another scheduler of FreeBSD.

A timer fires on the CPU on which its thread went to sleep. Under 4BSD, what it wakes on an idle CPU
runs there: other CPUs are called only from a busy one (sched_add of sched_4bsd.c). So the kernel's
own threads, which the first CPU made when the machine started, stay with it for as long as it has
nothing else to do. ULE distributes them, so that their CPUs in a recording under it say nothing of
where they would be.
"""

from __future__ import annotations

from dataclasses import replace

import polars as pl

from schedscope.analysis.asking.policies import declared
from schedscope.simulator.policies.policy import Policy
from schedscope.simulator.workloads.workload import Workload


def begun_under(workload: Workload, policy: str | Policy) -> Workload:
    """`workload` with sleeping kernel threads on the first CPU, if it was recorded under ULE and
    `policy` is 4BSD.
    """
    recorded = (workload.info.get("extraction") or {}).get("recorded_under")
    known = declared().get(policy) if isinstance(policy, str) else None
    if recorded != "ULE" or known is None or known["family"] != "4bsd":
        return workload
    # A mask leaves none or one of two.
    moved = (pl.col("class") == "kernel") & pl.col("asleep") & pl.col("cpus").is_null()
    cpu = pl.when(moved).then(pl.lit(0, pl.UInt16)).otherwise("cpu")
    return replace(workload, threads=workload.threads.with_columns(cpu=cpu))
