"""Extra load for `whatif`: threads that compute without end, in addition to the recorded ones."""

from __future__ import annotations

from dataclasses import replace

import polars as pl

from schedscope.errors import UsageError
from schedscope.simulator.workloads.groups import GROUPS, PERIOD, WEIGHT
from schedscope.simulator.workloads.workload import STEPS, THREADS, Workload
from schedscope.units import several

NAME = "load"
"""Its threads are load-0, load-1 and so on, and other changes may name them."""

GROUP = "/load"

ENDLESS = 2**51
"""CPU time that no replay of a recording uses up, ns."""

_MOST = 10_000


def with_load(workload: Workload, n: int) -> tuple[Workload, list[str]]:
    """`workload` with `n` further threads of nice 0 that always want a CPU; and the change in
    words.

    Where threads are in control groups or sessions, these are in one of their own, `/load`, of the
    usual weight, as what a new session or service starts would be.
    """
    if isinstance(n, bool) or not isinstance(n, int) or not 1 <= n <= _MOST:
        raise UsageError(f"{n!r} threads of load", f"a number from 1 to {_MOST}")
    groups, group = workload.groups, None
    if workload.threads["group"].is_not_null().any():
        group = GROUP
        if group in groups["path"]:
            raise UsageError(f"added load in {GROUP}", "a trace without a group of that name")
        row = {"path": GROUP, "weight": WEIGHT, "period": PERIOD, "phase": 0}
        groups = pl.concat([groups, pl.DataFrame([row], schema=GROUPS)])
    last = workload.steps["program"].max()
    program = int(last) + 1 if isinstance(last, int) else 0
    threads = pl.DataFrame(
        [
            {
                **dict.fromkeys(THREADS),
                **{"name": f"{NAME}-{i}", "class": "fair", "nice": 0, "rt_prio": 0},
                **{"start": 0, "asleep": False, "program": program, "group": group},
            }
            for i in range(n)
        ],
        schema=THREADS,
    )
    steps = pl.DataFrame(
        [
            {**dict.fromkeys(STEPS), "program": program, "op": "run", "ns": ENDLESS},
            {**dict.fromkeys(STEPS), "program": program, "op": "park"},
        ],
        schema=STEPS,
    )
    more = replace(
        workload,
        threads=pl.concat([workload.threads, threads]),
        steps=pl.concat([workload.steps, steps]),
        groups=groups,
    )
    wants = "wants a CPU" if n == 1 else "want a CPU"
    return more, [f"{several(n, 'more thread')} that {wants} all the time"]
