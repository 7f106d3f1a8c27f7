"""FreeBSD's interrupt threads: they preempt at once, and give the CPU back to the same thread."""

from __future__ import annotations

import itertools
from pathlib import Path

import polars as pl
import pytest
from freebsd.writer import Machine

import schedscope as ss
from schedscope.errors import UsageError

FIXTURES = Path(__file__).parents[2] / "fixtures"
KERNEL_THREADS = [
    ("freebsd-ule", "rand_harvestq", ("kernel", 89)),
    ("freebsd-ule", "swi4: clock (0)", ("interrupt", 15)),
]


def followed_by(policy: str, sched: str) -> tuple[int, int]:
    """Switches from a thread that wakes every 10 ms: back to the same hog, or to another."""
    b = ss.workload.Builder()
    for i in (0, 1):
        b.thread(f"hog{i}").run("500ms")
    b.thread("swi", sched=sched, rt_prio=50).sleep("10ms").run("20us").repeat(90)
    trace = ss.simulate(b.workload(), policy=policy, cpus=1)
    names = dict(trace.threads.select("utid", "comm").collect().iter_rows())
    rows = trace.switches.sort("ts").select("prev_utid", "next_utid").collect().rows()
    switches = [(names[prev], names[next_]) for prev, next_ in rows]
    same = other = 0
    for (before, to), (came, after) in itertools.pairwise(switches):
        if to == came == "swi" and before.startswith("hog") and after.startswith("hog"):
            same, other = same + (before == after), other + (before != after)
    return same, other


@pytest.mark.parametrize("policy", ["4bsd", "4bsd-13", "ule-14", "ule-13"])
def test_interrupt_thread_returns_the_cpu(policy: str) -> None:
    """maybe_preempt and sched_switch: the preempted thread is at the head of its list."""
    same, other = followed_by(policy, "interrupt")
    assert same > 80
    # Its slice may end at the same moment.
    assert other <= 5


@pytest.mark.parametrize("policy", ["4bsd-13", "ule-13"])
def test_kernel_thread_requests_preemption(policy: str) -> None:
    """Its priority is above `kern.sched.preempt_thresh`: a user thread leaves at its return to user
    mode, and goes to the tail.
    """
    same, other = followed_by(policy, "kernel")
    assert other > 80
    assert same <= 5


@pytest.mark.parametrize(("name", "thread", "expected"), KERNEL_THREADS)
def test_recorded_kernel_priorities_are_kept(
    name: str, thread: str, expected: tuple[str, int]
) -> None:
    """Of 80 to 119, 84 is 4 of 40 below the best, 10 of 99; of 0 to 47, 40 is 84 of 100."""
    trace = ss.open(FIXTURES / f"{name}.capture")
    threads = ss.workload.extract(trace).threads.filter(pl.col("name") == thread)
    assert threads.select(pl.col("class").cast(pl.String), "rt_prio").rows() == [expected]
    wanted = 84 if expected[0] == "kernel" else 40
    kept = set(trace.threads.filter(pl.col("comm") == thread).collect()["utid"])
    replayed = ss.simulate(trace, policy="ule-13")
    shown = replayed.threads.filter(pl.col("comm") == thread).collect()["utid"]
    rows = replayed.switches.filter(pl.col("next_utid").is_in(shown.implode())).collect()
    assert kept
    assert set(rows["next_prio"]) == {wanted}


def test_an_interrupt_comes_on_the_cpu_on_which_it_mostly_came(tmp_path: Path) -> None:
    """Its thread came onto CPU 0 first, as ULE's do where their own CPU is busy: three interrupts
    on CPU 1, one on CPU 0.
    """
    world = Machine(2)
    world.thread(100010, "swi4: clock (1)", process="intr", pri_class=1, kind=2)
    for i, (raised, ran) in enumerate([(1, 0), (1, 1), (0, 0), (1, 1)]):
        at = 1_000_000 + i * 10_000_000
        world.wake(at, raised, 100010, target=ran, interrupts=1)
        world.switch(at + 10_000, ran, 100010, "preempt")
        world.switch(at + 30_000, ran, None, "iwait")
    (tmp_path / "events.txt").write_text(world.text(50_000_000))
    threads = ss.workload.extract(ss.open(tmp_path / "events.txt")).threads
    assert threads.filter(pl.col("name") == "swi4: clock (1)")["cpu"].to_list() == [1]


def test_realtime_thread_requests_preemption_under_4bsd() -> None:
    """The thread that it preempted goes to the tail."""
    same, other = followed_by("4bsd", "fifo")
    assert other > 80
    assert same <= 5


def test_interrupt_threads_run_before_realtime_threads() -> None:
    b = ss.workload.Builder()
    b.thread("swi", sched="interrupt", rt_prio=1, start="5ms").run("1ms")
    b.thread("rt", sched="fifo", rt_prio=99).run("10ms")
    for policy in ("4bsd", "ule-14"):
        trace = ss.simulate(b.workload(), policy=policy, cpus=1)
        names = trace.threads.select(utid="utid", name="comm").collect()
        states = trace.states.filter(pl.col("state") == "running").collect().join(names, on="utid")
        begun = states.filter(pl.col("name") == "swi")["ts"].min()
        assert begun == trace.window[0] + 5_000_000, policy


def test_class_of_a_thread_is_set_by_sched() -> None:
    with pytest.raises(UsageError, match="sched='fifo'"):
        ss.workload.Builder().thread("x", **{"class": "fifo"})
