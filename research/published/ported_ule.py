"""ULE ported to Linux, against CFS (V19 to V25)."""

from __future__ import annotations

from functools import cache

import polars as pl

from research.published.claims import Claim, Row, per_cent
from research.published.measures import cpu_time, moved_from
from schedscope.simulator.runs.run import simulate
from schedscope.simulator.workloads.builder import Builder
from schedscope.simulator.workloads.generators import cascade, hackbench, spinners, web
from schedscope.simulator.workloads.workload import Workload
from schedscope.store.trace import Trace

ULE, CFS = "ule-14", "cfs-2.6.32"
PORT = {"wake_preempt": "none", "idle_poll": "on"}
"""The port has no preemption among timeshare threads, and its idle CPUs poll."""


def _run(load: Workload, policy: str, machine: str = "1", **options: object) -> Trace:
    settings = PORT if policy == ULE else None
    return simulate(load, policy=policy, machine=machine, set=settings, **options)  # type: ignore[arg-type]


@cache
def mix(policy: str) -> Trace:
    """A hog and 80 threads that would fill one CPU more than once, 30 s.

    Each application has a group of its own, as autogroup makes them; ULE knows none.
    """
    b = Builder()
    b.thread("fibo", group=b.group("/fibo")).run("1s").repeat()
    sysbench = b.threads("sysbench", 80, group=b.group("/sysbench"))
    sysbench.run("2ms").sleep("100ms").repeat()
    return _run(b.workload(), policy, until="30s")


def mix_shares(policy: str) -> dict[str, float]:
    """CPU share of the hog and of the threads, from 20 s on."""
    ran = cpu_time(mix(policy), since=20_000_000_000)
    fibo = ran.get("fibo", 0) / 1e10
    return {"fibo": fibo, "sysbench": sum(ran.values()) / 1e10 - fibo}


def _starved() -> list[Row]:
    ule, cfs = mix_shares(ULE), mix_shares(CFS)
    return [
        Row("the hog's share under ULE", 0.0, 100 * ule["fibo"], "%"),
        Row("the hog's share under CFS", 50.0, 100 * cfs["fibo"], "%"),
        Row("sysbench's throughput, ULE over CFS", 1.8, ule["sysbench"] / cfs["sysbench"]),
    ]


@cache
def forked_by_a_master() -> list[int]:
    """CPU ns of 128 workers from 30 to 40 s; their master turned batch while forking them."""
    b = Builder()
    master = b.thread("master")
    workers = [b.thread(f"worker-{i:03}", start=None) for i in range(128)]
    # It slept before: interactive. Each fork costs it 20 ms of its own time.
    master.run("1ms").sleep("4s")
    for worker in workers:
        master.run("20ms").fork(worker)
        worker.run("3ms").sleep("40ms").repeat()
    share = cpu_time(_run(b.workload(), ULE, until="40s"), since=30_000_000_000)
    return [share.get(f"worker-{i:03}", 0) for i in range(128)]


def _two_classes() -> list[Row]:
    ran = forked_by_a_master()
    fed, starved = sum(x > 50_000_000 for x in ran), sum(x == 0 for x in ran)
    return [
        Row("workers that run", None, fed, "", "the first forked", all(ran[:10]), whole=True),
        Row(
            "workers that got nothing in 10 s",
            None,
            starved,
            said="those forked later",
            agrees=starved > 0 and not any(ran[-10:]),
            whole=True,
        ),
    ]


@cache
def preemptions(policy: str) -> tuple[int, int]:
    """ab and 20 servers on one CPU: preemptions, and ns taken."""
    trace = _run(web(20, requests=2000), policy)
    return trace.info["simulation"]["preemptions"], trace.duration


def _ab() -> list[Row]:
    (ule, ule_ns), (cfs, cfs_ns) = preemptions(ULE), preemptions(CFS)
    costly = {
        p: _run(web(20, requests=2000), p, costs={"switch": "100us"}).duration for p in (ULE, CFS)
    }
    return [
        Row("preemptions under ULE", 0, ule, whole=True),
        Row("preemptions under CFS in 2000 requests", None, cfs, "", "many", cfs > ule, whole=True),
        Row("ULE faster by", 40.0, per_cent(cfs_ns, ule_ns), "%"),
        Row(
            "the same with the cost model, switch=100us",
            40.0,
            per_cent(costly[CFS], costly[ULE]),
            "%",
        ),
    ]


def _service_threads() -> list[Row]:
    b = Builder()
    b.thread("scimark").run("60s")
    b.threads("service", 8).run("1ms").sleep("7ms").repeat()
    load = b.workload()
    got = {p: cpu_time(_run(load, p, until="60s"))["scimark"] / 6e8 for p in (ULE, CFS)}
    less = got[ULE] < got[CFS]
    return [
        Row("the computation's share under ULE", None, got[ULE], "%", "a third less", less),
        Row("its share under CFS", None, got[CFS], "%"),
    ]


UNPIN = 200_000_000


@cache
def spread_after_unpinning(policy: str, seconds: int) -> pl.Series:
    """When 512 spinners left CPU 0 of 32, ns after they might."""
    trace = _run(spinners(512, unpin=UNPIN), policy, "2x16", until=f"{seconds}s")
    return moved_from(trace, 0) - UNPIN


def _spinners() -> list[Row]:
    ule, cfs = spread_after_unpinning(ULE, 20), spread_after_unpinning(CFS, 20)
    soon = ule.filter(ule < 200_000_000).len()
    later = ule.filter(ule >= 200_000_000)
    return [
        Row("ULE: threads taken at once", 31, soon, whole=True),
        Row(
            "ULE: threads moved by a later run of the balancer", 1.0, later.len() / later.n_unique()
        ),
        Row("ULE: runs until all have 16 (512 - 16 - taken at once)", 450, 496 - soon, whole=True),
        Row("CFS: threads gone within 0.2 s", 380, cfs.filter(cfs < 200_000_000).len(), whole=True),
    ]


def _cascade() -> list[Row]:
    rows, total = [], {}
    for policy, published in ((ULE, 11.0), (CFS, 2.0)):
        trace = _run(cascade(512), policy, "2x16")
        total[policy] = trace.duration
        last = trace.threads.filter(pl.col("comm").cast(pl.String) == "ray-511").select("utid")
        begun = (
            trace.states.filter(pl.col("state") == "running")
            .join(last, on="utid")
            .select(pl.col("ts").min())
            .collect()
            .item()
        )
        rows.append(Row(f"{policy}: the last of 512 threads runs after, s", published, begun / 1e9))
    same = per_cent(total[ULE], total[CFS])
    rows.append(Row("completion, ULE over CFS", 0.0, same, "%"))
    return rows


def _barriers(n: int, rounds: int) -> Workload:
    """`n` threads that compute 5 ms and wait for all, and a daemon beside each CPU's."""
    b = Builder()
    all_ = b.thread("barrier")
    workers = [b.thread(f"mg-{i}") for i in range(n)]
    for worker in workers:
        for _ in range(rounds):
            worker.run("5ms").signal(all_).wait_for(all_)
    for _ in range(rounds):
        for _ in workers:
            all_.wait_for()
        for worker in workers:
            all_.signal(worker)
    b.threads("daemon", 4).run("1ms").sleep("30ms").repeat(rounds // 6)
    return b.workload()


def _parallel() -> list[Row]:
    talk = hackbench(4, loops=50)
    hack = {p: _run(talk, p, "2x16").duration for p in (ULE, CFS)}
    grid = _barriers(32, 60)
    mg = {p: _run(grid, p, "2x16").duration for p in (ULE, CFS)}
    over = per_cent(hack[ULE], hack[CFS])
    faster = per_cent(mg[CFS], mg[ULE])
    return [
        Row("hackbench, ULE's time over CFS's", None, over, "%", "slightly more", agrees=over > 0),
        Row("MG: ULE faster by", 73.0, faster, "%"),
    ]


CLAIMS = [
    Claim(
        "V19",
        "A hog beside 80 interactive threads on one CPU",
        "atc",
        "1 CPU, 80 threads of 2 ms run and 100 ms sleep; a group for each application, as "
        "autogroup makes them; wake_preempt=none, idle_poll=on",
        "sysbench does more than compute and sleep; what else it does is not described",
        _starved,
    ),
    Claim(
        "V20",
        "A master that turns batch while it forks 128 workers",
        "atc",
        "1 CPU, 20 ms of the master's time for each fork; workers run 3 ms, sleep 40 ms",
        "the application itself is not described well enough to repeat its 40 to 70 % speedup",
        _two_classes,
    ),
    Claim(
        "V21",
        "ab and httpd on one CPU",
        "atc",
        "1 CPU, 20 servers, 2000 requests",
        "without a cost of preemption nothing is lost by it; 100 us stands for switch and caches",
        _ab,
    ),
    Claim(
        "V22",
        "Scimark beside the JVM's service threads",
        "atc",
        "1 CPU, a computation and 8 threads of 1 ms run and 7 ms sleep: a guess",
        "what the JVM's threads do is not described. In the port a computation that has the CPU "
        "keeps it for its slice, so threads that leave the CPU free now and then cost it "
        "little; to slow it down they must fill the CPU, as in V19",
        _service_threads,
    ),
    Claim(
        "V23",
        "512 spinning threads unpinned from CPU 0 of 32",
        "atc",
        "2 nodes of 16 CPUs, 20 s",
        "seconds are not compared: the balancer's mean interval of 1 s gives 460 s, the "
        "publication about 240",
        _spinners,
    ),
    Claim(
        "V24",
        "c-ray: 512 threads that start one another",
        "atc",
        "2 nodes of 16 CPUs, 0.1 ms before a thread wakes the next, then 1 s of work",
        "the true length of the chain's links is not published",
        _cascade,
    ),
    Claim(
        "V25",
        "Hackbench, and NAS MG",
        "atc",
        "2 nodes of 16 CPUs; 4 groups of hackbench; 32 threads with a barrier every 5 ms beside 4 "
        "daemons",
        "ULE's search over all CPUs costs nothing here, which is what made its hackbench slower; "
        "MG's spinning barriers are sleeping ones here",
        _parallel,
    ),
]
