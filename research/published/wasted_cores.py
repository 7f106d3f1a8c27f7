"""Idle CPUs beside waiting threads under CFS, and the faults behind them (V26, V27)."""

from __future__ import annotations

from functools import cache

import polars as pl

from research.published.claims import Claim, Row, per_cent
from schedscope.simulator.runs.run import simulate
from schedscope.simulator.runs.summary import summary
from schedscope.simulator.workloads.builder import Builder
from schedscope.simulator.workloads.workload import Workload
from schedscope.store.trace import Trace

CFS = "cfs-2.6.32"
NODES = "4x8"


def _build_beside_heavy() -> Workload:
    """64 compilers, and two computations that weigh as 70 of them."""
    b = Builder()
    for i in (0, 8):
        # A group's whole weight in one thread: what autogroups did.
        b.thread(f"r-{i}", nice=-19, cpus=f"{i}-{i + 7}").run("1s").repeat()
    parent = b.thread("make")
    jobs = [b.thread(f"cc-{i}", start=None) for i in range(64)]
    for job in jobs:
        parent.run("200us").fork(job)
        job.run("10ms").sleep("1ms", disk=True).repeat(60).signal(parent)
    for _ in jobs:
        parent.wait_for()
    return b.workload()


@cache
def build(group_load: str) -> tuple[float, float]:
    """Seconds that the build took, and CPU-seconds wasted meanwhile."""
    load = _build_beside_heavy()
    trace = simulate(load, policy=CFS, machine=NODES, until="20s", set={"group_load": group_load})
    done = trace.threads.filter(_named("make")).collect()["exit_ts"][0]
    upto = simulate(
        load, policy=CFS, machine=NODES, until=f"{int(done)}ns", set={"group_load": group_load}
    )
    return done / 1e9, summary(upto)["wasted"] / 1e9


def _named(comm: str) -> pl.Expr:
    return pl.col("comm").cast(pl.String) == comm


def _group_imbalance() -> list[Row]:
    (faulty, wasted), (mended, left) = build("average"), build("least")
    return [
        Row("build slower by", 13.0, per_cent(faulty, mended), "%"),
        Row("CPU time wasted beside waiting threads, s", None, wasted, "", "much", wasted > left),
        Row("the same, groups compared by their least load, s", None, left, "", "little"),
    ]


@cache
def queries(wake_cpu: str) -> Trace:
    """12 threads of a pool that slept on one node of two and wake one another."""
    b = Builder()
    pool = [b.thread(f"worker-{i}", cpu=i % 8, asleep=True) for i in range(12)]
    for i, worker in enumerate(pool):
        worker.sleep("1ms")
        for _ in range(300):
            worker.run("2ms").signal(pool[(i + 1) % len(pool)]).wait_for()
    return simulate(b.workload(), policy=CFS, machine="2x8", set={"wake_cpu": wake_cpu})


def _overload_on_wakeup() -> list[Row]:
    near, far = queries("idle_sibling"), queries("longest_idle")
    return [
        Row("queries slower by", 22.0, per_cent(near.duration, far.duration), "%"),
        Row(
            "CPU time wasted, woken on the node only, s",
            None,
            summary(near)["wasted"] / 1e9,
            said="much",
            agrees=summary(near)["wasted"] > summary(far)["wasted"],
        ),
        Row(
            "the same, woken on the CPU idle for longest, s",
            None,
            summary(far)["wasted"] / 1e9,
            said="little",
        ),
    ]


def _missing_domains() -> list[Row]:
    b = Builder()
    first = b.thread("lu-0")
    others = [b.thread(f"lu-{i}", start=None) for i in range(1, 16)]
    for other in others:
        first.run("100us").fork(other)
        other.run("2s")
    first.run("2s")
    load = b.workload()
    took = {
        span: simulate(load, policy=CFS, machine="2x8", set={"balance_span": span})
        for span in ("machine", "node")
    }
    used = {s: sum(c > 0 for c in _busy(t)) for s, t in took.items()}
    return [
        Row("CPUs used of 16", 8, used["node"], whole=True),
        Row("times slower, 16 threads", 138.0, took["node"].duration / took["machine"].duration),
    ]


def _busy(trace: Trace) -> list[int]:
    busy = trace.states.filter((pl.col("state") == "running") & (pl.col("utid") >= trace.ncpu))
    frame = busy.group_by("cpu").agg(pl.sum("dur")).collect()
    return frame["dur"].to_list()


CLAIMS = [
    Claim(
        "V26",
        "Idle CPUs beside waiting threads: a build beside two heavy computations",
        "wasted",
        "4 nodes of 8 CPUs, 64 compilers, two threads at nice -19 on two of the nodes; "
        "group_load=average (the fault) and least (the repair)",
        "weights of autogroups are imitated by nice; kernels 2.6.38 to 4.3 are not modelled, "
        "2.6.32 is",
        _group_imbalance,
    ),
    Claim(
        "V27",
        "Wakeups that stay on a loaded node; domains missing after hotplug",
        "wasted",
        "2 nodes of 8 CPUs; wake_cpu=idle_sibling and longest_idle; balance_span=node",
        "lu spins at its barriers, which multiplies a twofold shortage of CPUs; a program that "
        "only computes shows the factor 2. The fault in building groups (27 times) needs a "
        "machine of nodes at several distances, which the machine model does not have",
        lambda: _overload_on_wakeup() + _missing_domains(),
    ),
]
