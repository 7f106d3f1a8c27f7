"""How a trace is replayed: one extraction, one set of costs, one cut and one end for every use.

`simulate`, `fidelity` and `whatif` all replay through here, so that their results agree. The
workload is all that `extract` finds, a thread that wants a CPU when the recording ends continues
to want one, wakes and preemptions take the time that they took (`measured_costs`), and the
replay lasts as long as the recording. The clock rate and the slice of the recorded kernel are the
policy's where it has such a tunable.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from schedscope.analysis.asking.policies import declaration
from schedscope.analysis.threads.of_threads import some_threads
from schedscope.simulator.policies.policy import Policy
from schedscope.simulator.policies.scx_object import SchedExt
from schedscope.simulator.recorded.background_load import has_stand_ins
from schedscope.simulator.recorded.extract import extract_with_utids
from schedscope.simulator.recorded.scheduler import recorded_policy
from schedscope.simulator.recorded.tunables import recorded_tunables
from schedscope.simulator.workloads.machine import Costs
from schedscope.simulator.workloads.workload import Workload
from schedscope.store.trace import Trace

AT_ONCE = 100_000
"""A woken thread that waited longer for a busy CPU did not preempt it at once, ns."""

LONGER = 4
"""What ended in the recording may take this many times its length to end in a replay."""

_AT_START = {"first_load", "first_decay"}
"""Tunables of what a replay begins with."""

_LIMITS = {"rt_runtime", "fair_server_runtime"}
"""Tunables of how much of a CPU real-time threads may use."""

ENOUGH = 10
"""So many wakes on other CPUs tell how long one takes."""


@dataclass(frozen=True)
class Replay:
    """What a replay of `trace` runs, and how.

    `origins`: which thread of `trace` each thread of `workload` is, its utid; null for background
    load. `utids`: the same of those that the answer is about, null for all others.
    """

    trace: Trace
    workload: Workload
    origins: pl.Series
    utids: pl.Series
    costs: Costs
    until: str

    @property
    def selected(self) -> pl.Series | None:
        """The utids of the threads that the answer is about; None if those are all."""
        return self.utids.drop_nulls() if self.workload.info["threads_left_out"] else None

    @property
    def policy(self) -> str:
        """The model of the recorded scheduler; raises `UsageError` if there is none."""
        return recorded_policy(self.trace)

    def settings(
        self, policy: str | Policy, given: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """The tunables of `policy` that were recorded, overridden by those `given`."""
        if isinstance(policy, SchedExt):
            hz = self.trace.info.get("hz")
            return {**({"hz": int(hz)} if hz else {}), **dict(given or {})}
        if isinstance(policy, Policy):
            return dict(given or {})
        return {**recorded_settings(self.trace, self.workload, policy), **dict(given or {})}


def replay(
    trace: Trace,
    *,
    where: pl.Expr | None = None,
    others: str = "occupy",
    external: str = "relative",
    cut: str = "extend",
    costs: Costs | Mapping[str, Any] | None = None,
) -> Replay:
    """How `trace` is replayed; the options are those of `extract`.

    `costs` of None are those measured in the trace. With `others` "replay" all threads are
    replayed, and `utids` marks those of `where`.
    """
    everyone = others == "replay"
    workload, origins = extract_with_utids(
        trace,
        external=external,
        cut=cut,
        where=None if everyone else where,
        others="drop" if everyone else others,
    )
    utids = origins
    if everyone and where is not None:
        asked = origins.is_in(some_threads(trace, where).implode())
        info = {"threads_left_out": int((~asked).sum()), "others": others}
        workload = replace(workload, info={**workload.info, **info})
        utids = origins.to_frame("utid").select(pl.when(asked).then("utid"))["utid"]
    return Replay(
        trace,
        workload,
        origins,
        utids,
        charged(measured_costs(trace) if costs is None else Costs.of(costs), workload),
        # The last rows of a trace are at its end instant, which a limit would exclude.
        f"{trace.duration + 1}ns",
    )


def charged(costs: Costs, workload: Workload) -> Costs:
    """`costs` with those of a switch that extraction took out of the running times."""
    taken = workload.info["extraction"]["switch_cost"]
    return replace(costs, switch=costs.switch + taken)


def recorded_settings(trace: Trace, workload: Workload, policy: str) -> dict[str, Any]:
    """The tunables of `policy` that were recorded; the clock rate as shown by its events."""
    row = declaration(policy)
    tunables = {one["name"] for one in row["tunables"]}
    recorded = trace.metadata("scheduler", "tunables") or {}
    if trace.metadata("scheduler", "name") == policy:  # a simulated trace has all of them
        return {name: value for name, value in recorded.items() if name in tunables}
    found = recorded_tunables(trace, policy)
    hz = (workload.info.get("extraction") or {}).get("clock_hz")
    if hz is not None and "hz" in tunables:
        found["hz"] = hz
    extraction = workload.info.get("extraction") or {}
    found |= {name: extraction[name] for name in _AT_START & tunables & set(extraction)}
    if has_stand_ins(workload):
        # They take the time that other threads took, and are real-time only for that purpose.
        found.update(dict.fromkeys(_LIMITS & tunables, 0))
    return found


def measured_costs(trace: Trace) -> Costs:
    """How long it took from a wake until the thread ran, where nothing delayed it.

    `idle_exit`: the median wait of wakes that found the CPU they ran on idle; `preempt`: of those
    that preempted the CPU on which they were raised; `ipi`: how much longer it took on another one;
    `enqueue`: the median time of all until the woken thread was queued. Running times of a trace
    contain the kernel's share of a switch, so none is charged again.
    """
    onto = trace.switches.filter(pl.col("next_utid") >= trace.ncpu).select(
        ts_run="ts",
        utid="next_utid",
        idle=pl.col("prev_utid") < trace.ncpu,
        preempts=pl.col("prev_state") == "runnable",
    )
    waits = (
        trace.waits.filter(
            (pl.col("cause") == "wake")
            & (pl.col("censored") == "none")
            & pl.col("ts_enqueued").is_not_null()
        )
        .join(onto, on=["ts_run", "utid"])
        .select("wait", "placement", "idle", "preempts", here=pl.col("waker_cpu") == pl.col("cpu"))
        .collect()
    )
    at_once = pl.col("preempts") & ~pl.col("idle") & (pl.col("wait") < AT_ONCE)

    def median(which: pl.Expr, of: str = "wait") -> int:
        found = waits.filter(which)[of].median()
        return round(found) if isinstance(found, float) else 0

    preempt = median(at_once & pl.col("here"))
    elsewhere = at_once & ~pl.col("here")
    # A few waits may be chance, and their cost would be charged to every wake.
    enough = waits.filter(elsewhere).height >= ENOUGH
    return Costs(
        idle_exit=median(pl.col("idle")),
        preempt=preempt,
        enqueue=median(pl.lit(True), "placement"),
        ipi=max(0, median(elsewhere) - preempt) if enough else 0,
    )
