"""Published results that a policy model must reproduce (V01 to V34 of the design).

Exact and derived ones are tests; where a model gives another number than the
publication, the test holds the number found and says the distance, so that a
change of it is seen. Nothing here is tuned: presets as they are, except where a
source names a setting. V28, V29, V31, V32 and V34 stand beside the policies
(native/src/sim/timelines, ule_score.rs).
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import polars as pl
import pytest

from schedscope.simulator.builder import Builder
from schedscope.simulator.generators import hogs, make, nice_hogs, requests, spinners, web
from schedscope.simulator.run import simulate
from schedscope.simulator.workload import Workload
from schedscope.trace import Trace

PUBLISHED = Path(__file__).parents[1] / "fixtures" / "published"
COUNTER_NS = 151_051_000


def cpu_time(trace: Trace, since: int = 0, until: int | None = None) -> dict[str, int]:
    """CPU ns of each thread by name, from `since` to `until`."""
    end = trace.window[1] if until is None else until
    runs = (
        trace.states.filter(pl.col("state") == "running")
        .filter(pl.col("utid") >= trace.ncpu)
        .select(
            "utid",
            begin=pl.col("ts").clip(since, end),
            end=(pl.col("ts") + pl.col("dur")).clip(since, end),
        )
        .join(trace.threads.select("utid", "comm"), on="utid")
        .group_by(pl.col("comm").cast(pl.String))
        .agg(pl.sum("end") - pl.sum("begin"))
        .collect()
    )
    return dict(runs.rows())


def counter(n: int) -> Workload:
    """A parent forks `n` counting processes and waits for them."""
    b = Builder()
    parent = b.thread("parent")
    children = [b.thread(f"counter-{i}", start=None) for i in range(n)]
    for child in children:
        parent.run("100us").fork(child)
        child.run(COUNTER_NS).signal(parent)
    for _ in children:
        parent.wait_for()
    return b.workload()


@cache
def counter_ratio(policy: str, n: int) -> float:
    """Elapsed time over the ideal of two cores."""
    return simulate(counter(n), policy=policy, machine=2).duration / (COUNTER_NS * max(1, n / 2))


@cache
def spread_ratio(policy: str, n: int, cpus: int) -> float:
    """Wall clock over CPU time of `n` equal hogs of 4 s, for its share of the CPUs."""
    trace = simulate(hogs(n, time="4s"), policy=policy, machine=cpus, seed=n)
    return trace.duration / (4_000_000_000 * max(1, n / cpus))


def static_split(n: int, cpus: int) -> float:
    return -(-n // cpus) * cpus / max(n, cpus)


GRID = (8, 15, 16, 17, 18, 20, 24, 31, 32, 33, 40, 48)


def test_v01_4bsd_spreads_any_number_of_hogs() -> None:
    """One queue: wall clock is CPU time from 1 to 48 processes on 16 CPUs, within 10 %."""
    ratios = {n: spread_ratio("4bsd", n, 16) for n in GRID}
    assert max(ratios.values()) <= 1.1, ratios


def test_v02_ule_of_2011_shows_the_saw_tooth() -> None:
    """1 to N = 16, peak at 17 to 20, 1 again at 32 and 48; never above the static split."""
    ratios = {n: spread_ratio("ule-2011", n, 16) for n in GRID}
    assert all(ratios[n] <= 1.01 for n in (8, 15, 16)), ratios
    assert max(ratios, key=lambda n: ratios[n]) in (17, 18, 20), ratios
    assert max(ratios.values()) > 1.3, ratios
    assert max(ratios[32], ratios[48]) < 1.05, ratios
    assert ratios[33] > ratios[32], ratios
    assert all(r <= static_split(n, 16) + 0.01 for n, r in ratios.items()), ratios


def test_v03_the_later_steal_threshold_takes_the_teeth_out() -> None:
    """ULE as of 2013 and later on 8 CPUs: well below the peak of the form of 2011."""
    later = max(spread_ratio("ule-14", n, 8) for n in (9, 10, 12))
    earlier = max(spread_ratio("ule-2011", n, 8) for n in (9, 10, 12))
    assert later < 1 + (earlier - 1) * 0.6, (later, earlier)


def test_v06_bfs_runs_the_counters_in_ideal_time() -> None:
    """Published: mean 1.007 of the ideal over N = 1..32 on 2 cores."""
    ratios = [counter_ratio("bfs", n) for n in range(1, 33)]
    assert sum(ratios) / len(ratios) <= 1.02
    assert max(ratios) <= 1.047


def test_v07_cfs_2_6_31_wastes_time_at_small_odd_numbers() -> None:
    """Sign only: the model is nearer to the ideal than the machine was.

    Published 1.46 at N = 2 and 1.37 at 3; the model finds both, at about 1.08
    and 1.11: its idle CPU waits up to 64 ms for its next balancing, the
    measured one longer.
    """
    worst = {n: counter_ratio("cfs-2.6.31", n) for n in (2, 3, 4, 5)}
    assert all(1.03 < r < 1.34 for r in worst.values()), worst
    assert all(counter_ratio("cfs-2.6.31", n) < 1.06 for n in (23, 31, 32))


def test_v08_cfs_2_6_32_has_no_odd_even_pattern() -> None:
    """Published: 1.02 to 1.056 over all N."""
    assert max(counter_ratio("cfs-2.6.32", n) for n in range(1, 33)) < 1.08


def test_v09_bfs_is_fastest_of_the_three() -> None:
    """Where the publication has a gap of more than 2 %, the model has its sign."""
    table = pl.read_csv(PUBLISHED / "bfs-cfs-counter.csv")
    checked = 0
    for row in table.iter_rows(named=True):
        n = row["processes"]
        if n >= 2 and row["cfs_2_6_31_s"] > 1.1 * row["bfs_304_s"]:
            assert counter_ratio("bfs", n) <= counter_ratio("cfs-2.6.31", n), n
            checked += 1
    assert checked >= 3


def test_v10_make_is_no_slower_under_bfs_than_under_cfs_2_6_31() -> None:
    """`make -j2` on two cores: BFS ahead (published: by 14 %)."""
    elapsed = {p: simulate(make(2), policy=p, machine=2).duration for p in ("bfs", "cfs-2.6.31")}
    assert elapsed["bfs"] <= elapsed["cfs-2.6.31"]


@cache
def responses(policy: str) -> pl.Series:
    """ns from request to answer of 30 clients without think time, on one CPU."""
    trace = simulate(requests(30, requests=60, service="4ms", think=0), policy=policy)
    clients = trace.threads.filter(pl.col("comm").cast(pl.String).str.starts_with("client"))
    gaps = (
        trace.states.filter(pl.col("state") == "running")
        .join(clients.select("utid"), on="utid")
        .sort("utid", "ts")
        .select(gap=pl.col("ts") - (pl.col("ts") + pl.col("dur")).shift().over("utid"))
        .drop_nulls()
        .collect()
    )
    return gaps["gap"]


def test_v11_staircase_has_the_smaller_spread_at_the_same_throughput() -> None:
    """Published: completion within 0.4 %, longest less shortest response 32 % smaller."""
    o1, staircase = responses("o1"), responses("staircase-server")
    assert int(staircase.max()) - int(staircase.min()) < int(o1.max()) - int(o1.min())


def test_v12_o1_is_best_at_95_percent_and_compute_mode_best_of_staircase() -> None:
    """Order of p95 less minimum; compute mode pays with its longest response."""
    late = {p: responses(p) for p in ("o1", "staircase-server", "staircase-compute")}
    p95 = {p: float(s.quantile(0.95)) - float(s.min()) for p, s in late.items()}
    assert sorted(p95, key=lambda p: p95[p]) == ["o1", "staircase-compute", "staircase-server"]
    assert late["staircase-compute"].max() > late["staircase-server"].max()


def test_v16_staircase_gives_nice_19_a_twentieth() -> None:
    """1:19 to 1:20 of the CPU of nice 0."""
    trace = simulate(nice_hogs("0 19", time="60s"), policy="staircase", until="40s")
    share = cpu_time(trace)
    assert 19 <= share["nice0"] / share["nice19"] <= 20.5, share


def test_v19_ule_starves_a_hog_beside_interactive_threads_and_cfs_does_not() -> None:
    """One core, a hog and 80 request threads that keep it busy: nothing for the hog under ULE."""
    b = Builder()
    b.thread("fibo").run("1s").repeat()
    clients = b.threads("sysbench", 80)
    clients.run("2ms").sleep("100ms").repeat()
    mix = b.workload()
    share = {}
    for policy in ("ule-14", "cfs-2.6.32"):
        trace = simulate(
            mix,
            policy=policy,
            until="30s",
            set={"wake_preempt": "none"} if policy == "ule-14" else None,
        )
        share[policy] = cpu_time(trace, since=20_000_000_000)["fibo"] / 10_000_000_000
    assert share["ule-14"] < 0.01, share
    assert share["cfs-2.6.32"] > 0.01, share


def test_v20_a_master_that_turns_batch_forks_two_classes_of_threads() -> None:
    """Threads forked while the master is interactive stay so; those forked later starve."""
    b = Builder()
    master = b.thread("master")
    workers = [b.thread(f"worker-{i:03}", start=None) for i in range(128)]
    # It slept before: interactive. Each fork costs it 20 ms of its own time.
    master.run("1ms").sleep("4s")
    for worker in workers:
        master.run("20ms").fork(worker)
        worker.run("3ms").sleep("40ms").repeat()
    trace = simulate(b.workload(), policy="ule-14", until="40s", set={"wake_preempt": "none"})
    share = cpu_time(trace, since=30_000_000_000)
    ran = [share.get(f"worker-{i:03}", 0) for i in range(128)]
    assert sum(x > 50_000_000 for x in ran) >= 10, ran
    assert sum(x == 0 for x in ran) >= 10, ran


def test_v21_ab_is_preempted_under_cfs_and_never_under_the_port_of_ule() -> None:
    """ab and its servers on one core: wakeups preempt under CFS."""
    workload = web(20, requests=2000)
    counts = {
        "cfs-2.6.32": simulate(workload, policy="cfs-2.6.32").info["simulation"]["preemptions"],
        "ule-14": simulate(workload, policy="ule-14", set={"wake_preempt": "none"}).info[
            "simulation"
        ]["preemptions"],
    }
    assert counts["cfs-2.6.32"] > 10 * counts["ule-14"], counts


def test_v23_ule_moves_one_thread_a_balancer_run_and_cfs_many() -> None:
    """512 spinners unpinned from CPU 0 of 32.

    ULE: the 31 idle CPUs take one each at once, then each run of the balancer
    moves one. CFS: hundreds are gone within a fifth of a second.
    """
    unpin = 200_000_000
    on_cpu_0 = {}
    for policy in ("ule-14", "cfs-2.6.32"):
        trace = simulate(
            spinners(512, unpin="200ms"),
            policy=policy,
            machine="2x16",
            until="10s",
            set={"idle_poll": "on"} if policy == "ule-14" else None,
        )
        moved = trace.migrations.filter(pl.col("from_cpu") == 0).select("ts").collect()
        moves = moved["ts"]
        on_cpu_0[policy] = {
            "first": moves.filter(moves < unpin + 200_000_000).len(),
            "all": moves.len(),
        }
    ule, cfs = on_cpu_0["ule-14"], on_cpu_0["cfs-2.6.32"]
    assert 31 <= ule["first"] <= 34, ule
    # Runs come every 0.5 to 1.5 s: about ten in the ten seconds.
    assert 5 <= ule["all"] - ule["first"] <= 25, ule
    assert cfs["first"] > 300, cfs


@pytest.mark.parametrize(("nices", "share"), [("0 10", 0.63), ("-1 19", 0.75)])
def test_v30_4bsd_shares_by_nice(nices: str, share: float) -> None:
    """Toy model of the decay, load average 2: 63 % and 75 %, within 3 points."""
    trace = simulate(
        nice_hogs(nices, time="200s"), policy="4bsd", until="100s", set={"load_average": 2}
    )
    ran = cpu_time(trace, since=20_000_000_000)
    first = ran[f"nice{nices.split()[0]}"]
    assert abs(first / sum(ran.values()) - share) < 0.03, ran
