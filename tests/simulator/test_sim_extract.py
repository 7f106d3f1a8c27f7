"""Extraction beyond the basic rules: costs, ticks, background load, masks, on drawn traces."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from schedscope import open as open_trace, workload as w
from schedscope.errors import UsageError
from schedscope.parsers.schema import TABLES
from schedscope.simulator.policies.policy import policies
from schedscope.simulator.recorded.extract import extract, report
from schedscope.simulator.recorded.tick_phase import measured_clock
from schedscope.simulator.runs.run import simulate
from schedscope.simulator.workloads.builder import Builder
from schedscope.simulator.workloads.machine import machine
from schedscope.store.trace import Trace

FIXTURES = Path(__file__).parents[2] / "fixtures"
US, MS = 1_000, 1_000_000

Row = tuple[Any, ...]


def trace_of(switches: list[Row], wakeups: list[Row], end: int, ncpu: int = 1) -> Trace:
    """Rows (ts, cpu, prev, state, next) and (ts, cpu, waker, utid, kind); idle is utid < ncpu."""
    known = sorted({row[2] for row in switches} | {row[4] for row in switches} | set(range(ncpu)))
    rows = [(ts, cpu, p, state, 120, None, n, 120) for ts, cpu, p, state, n in switches]
    threads = pl.DataFrame({"utid": known, "comm": [f"t{u}" for u in known]}).with_columns(
        pl.lit(None, dtype).alias(name)
        for name, dtype in TABLES["threads"].schema.items()
        if name not in ("utid", "comm")
    )
    names = ("ts", "cpu", "waker_utid", "utid", "kind")
    tables = {
        "switches": pl.DataFrame(rows, schema=TABLES["switches"].schema, orient="row"),
        "wakeups": pl.DataFrame(
            [
                {**dict(zip(names, row, strict=True)), "target_cpu": row[1], "prio": 120}
                for row in wakeups
            ],
            schema=TABLES["wakeups"].schema,
        ),
        "threads": threads.cast({"utid": pl.UInt32}),
    }
    return Trace.from_tables(tables, {"ncpu": ncpu, "window": [0, end]})


def program(load: w.Workload, name: str) -> list[tuple[str, int | None]]:
    number = load.threads.row(by_predicate=pl.col("name") == name, named=True)["program"]
    rows = load.steps.filter(pl.col("program") == number)
    return list(zip(rows["op"].cast(pl.String).to_list(), rows["ns"].to_list(), strict=True))


def stream() -> Trace:
    """CPU 0 writes to CPU 1, whose reader is on its way to sleep each time it is woken.

    cpu0 | writer 0 ............................... 40
    cpu1 | reader 0 . 12 | idle | reader 15 . 27 | idle
    wakes:         10-13 (it leaves at 12)   25-28 (at 27)
    """
    return trace_of(
        [
            (0, 0, 0, "runnable", 2),
            (0, 1, 1, "runnable", 3),
            (12, 1, 3, "sleeping", 1),
            (15, 1, 1, "runnable", 3),
            (27, 1, 3, "sleeping", 1),
            (30, 1, 1, "runnable", 3),
            (34, 1, 3, "sleeping", 1),
            (40, 0, 2, "dead", 0),
        ],
        [
            (10, 0, 2, 3, "waking"),
            (13, 0, 2, 3, "enqueued"),
            (25, 0, 2, 3, "waking"),
            (28, 0, 2, 3, "enqueued"),
        ],
        40,
        ncpu=2,
    )


def test_wake_before_the_switch_out_ends_a_wait_already_started() -> None:
    """Only a thread that has decided to sleep is woken: the wait is before the wake, the rest is
    cost.
    """
    load = extract(stream())
    assert program(load, "t3")[:4] == [("run", 10), ("wait_for", 2), ("run", 10), ("wait_for", 2)]
    assert program(load, "t2") == [
        ("run", 10),
        ("signal", 3),
        ("run", 27),  # It ends with the last wake: steps after it are moved before it.
        ("signal", None),
        ("exit", None),
    ]
    counted = report(load)
    assert counted["wakes_before_sleep"] == 2
    assert counted["wake_time"] == 6
    assert counted["sleep_time"] == 4
    # Nothing is lost: conditional steps count, too.
    assert load.cpu_time == counted["cpu_time"] == 40 + 12 + 12 + 4


def test_unneeded_wakes_and_sleeps_take_no_time() -> None:
    b = w.Builder()
    reader = b.thread("reader")
    writer = b.thread("writer").run(10 * MS).signal(reader).run(1 * MS)
    reader.wait_for(writer).run(1 * MS)
    load = b.workload()
    costly = w.Workload(
        load.threads,
        load.steps.with_columns(
            ns=pl.when(pl.col("op") == "signal")
            .then(2 * MS)
            .when(pl.col("op") == "wait_for")
            .then(3 * MS)
            .otherwise(pl.col("ns"))
        ),
    )

    def ran(load: w.Workload, cpus: int) -> dict[str, int]:
        trace = simulate(load, policy="fifo", cpus=cpus)
        rows = (
            trace.states.filter(pl.col("state") == "running")
            .join(trace.threads.filter(pl.col("utid") >= cpus), on="utid")
            .group_by("comm")
            .agg(pl.col("dur").sum())
        )
        return dict(rows.collect().iter_rows())

    # The reader waits before the signal comes: it sleeps, and the writer wakes it.
    assert ran(costly, 2) == {"reader": 4 * MS, "writer": 13 * MS}
    # On one CPU the writer is first (it alone starts with a `run`): no thread sleeps.
    late = costly.threads.with_columns(start=pl.when(name="reader").then(MS).otherwise("start"))
    assert ran(w.Workload(late, costly.steps), 1) == {"reader": 1 * MS, "writer": 11 * MS}


def test_parent_waits_for_whichever_child_ends_first() -> None:
    """A parent of three children: the scheduler decides which of them ends first."""
    b = w.Builder()
    parent = b.thread("parent")
    for i, time in enumerate((30 * MS, 20 * MS, 10 * MS)):
        child = b.thread(f"child-{i}", start=None)
        parent.fork(child)
        child.run(time).signal(parent)
    for _ in range(3):
        parent.wait_for().run(1 * MS)
    real = simulate(b.workload(), policy="fifo", cpus=4)
    load = extract(real)
    waits = load.steps.filter(pl.col("op") == "wait_for")
    assert waits["thread"].to_list() == [None] * 3
    assert report(load)["waits_for_anyone"] == 3

    def wakes(trace: Trace) -> list[tuple[int, str]]:
        rows = (
            trace.wakeups.filter(pl.col("kind") == "waking")
            .join(trace.threads.select("utid", "comm"), left_on="waker_utid", right_on="utid")
            .select(pl.col("ts") // MS, "comm")
        )
        return sorted(rows.collect().rows())

    assert wakes(real) == [(10, "child-2"), (20, "child-1"), (30, "child-0")]
    assert wakes(simulate(load, policy="fifo", cpus=4)) == wakes(real)
    # On two CPUs child-2 has to wait for a CPU until child-1 has ended.
    assert wakes(simulate(load, policy="fifo", cpus=2))[0] == (20, "child-1")


def test_background_load_takes_its_recorded_time() -> None:
    """t2 shares the CPU with t3, which is left out: 2 ran 0-10 and 14-30, 3 ran 10-14 and 30-33."""
    trace = trace_of(
        [
            (0, 0, 0, "runnable", 2),
            (10, 0, 2, "runnable", 3),
            (14, 0, 3, "sleeping", 2),
            (30, 0, 2, "runnable", 3),
            (33, 0, 3, "sleeping", 2),
            (40, 0, 2, "dead", 0),
        ],
        [(9, 0, None, 3, "waking"), (29, 0, None, 3, "waking")],
        40,
    )
    load = extract(trace, where=pl.col("comm") == "t2", others="occupy")
    assert load.threads["name"].to_list() == ["t2", "others/0"]
    assert program(load, "others/0") == [
        ("wait_until", 10),
        ("run", 4),
        ("wait_until", 30),
        ("run", 3),
        ("park", None),
    ]
    for policy in ("fifo", "rr", "eevdf-6.17", "ule-14", "4bsd", "bfs", "o1"):
        again = simulate(load, policy=policy)
        runs = (
            again.states.filter((pl.col("state") == "running") & (pl.col("utid") >= 1))
            .join(again.threads.filter(pl.col("comm") == "t2"), on="utid")
            .select(pl.col("ts"), end=pl.col("ts") + pl.col("dur"))
            .sort("ts")
            .collect()
        )
        assert runs.rows() == [(0, 10), (14, 30), (33, 40)], policy
    with pytest.raises(UsageError, match="others"):
        extract(trace, others="watch")


def test_tick_phase_is_found_from_preemptions() -> None:
    """Two hogs on one CPU at 250 Hz with ticks at 1.7 ms: they alternate there."""
    shape = machine(1)
    ticking = type(shape)(shape.cpus, shape.costs, tick_phase=1_700_000)
    trace = simulate(w.hogs(2, time="400ms"), policy="eevdf-6.17", machine=ticking)
    clock = measured_clock(trace)
    assert clock is not None
    assert (clock.hz, clock.phase) == (250, 1_700_000)
    assert clock.share > 0.95
    assert extract(trace).machine.tick_phase == 1_700_000  # type: ignore[union-attr]
    # Cut elsewhere, the phase follows; without preemptions there is none.
    assert measured_clock(trace.between("1ms")).phase == 700_000  # type: ignore[union-attr]
    assert measured_clock(simulate(w.hogs(2), policy="fifo", cpus=1)) is None


def test_tick_phase_of_a_recorded_host_is_found() -> None:
    for name in ("linux-ftrace-mixed", "linux-ftrace-starved", "linux-slice-default-1"):
        clock = measured_clock(open_trace(FIXTURES / f"{name}.capture"))
        assert clock is not None
        assert clock.hz == 250


def test_tick_phase_is_found_from_timers_of_kernel_threads() -> None:
    """Ticks at 1.2 ms modulo 4 ms: one wakes a kernel thread, and another thread 0.7 ms later.

    No thread is preempted. Timers of user threads do not count ticks.
    """
    ticks = [1_200 * US + 4 * MS * k for k in range(20)]
    switches: list[Row] = []
    wakeups: list[Row] = []
    for tick in ticks:
        for utid, at in ((1, tick), (2, tick + 700 * US)):
            wakeups.append((at, 0, 0, utid, "enqueued"))
            switches.append((at + 2 * US, 0, 0, "runnable", utid))
            switches.append((at + 9 * US, 0, utid, "sleeping", 0))
    trace = trace_of(switches, wakeups, 80 * MS)
    assert measured_clock(trace) is None
    threads = trace.threads.with_columns(kernel=pl.col("utid") == 1).collect()
    tables = {"switches": trace.switches.collect(), "wakeups": trace.wakeups.collect()}
    known = Trace.from_tables(tables | {"threads": threads}, {"ncpu": 1, "window": [0, 80 * MS]})
    clock = measured_clock(known)
    assert clock is not None
    assert (clock.hz, clock.phase, clock.share) == (250, 1_200 * US, 1)


def test_timers_of_kernel_threads_count_ticks() -> None:
    """A kernel thread sleeps for one or three ticks, which are at 1.2 ms modulo 4 ms.

    In a replay it does so too, though it starts late: a hog takes the CPU for 6 ms at first.
    """
    ticks = [0, 1, 2, 5, 6, 7, 10, 11, 12, 15, 16, 17]
    switches: list[Row] = []
    wakeups: list[Row] = []
    for tick in (1_200 * US + 4 * MS * k for k in ticks):
        wakeups.append((tick, 0, 0, 1, "enqueued"))
        switches.append((tick + 2 * US, 0, 0, "runnable", 1))
        switches.append((tick + 9 * US, 0, 1, "sleeping", 0))
    trace = trace_of(switches, wakeups, 72 * MS)
    threads = trace.threads.with_columns(kernel=pl.col("utid") == 1).collect()
    tables = {"switches": trace.switches.collect(), "wakeups": trace.wakeups.collect()}
    trace = Trace.from_tables(tables | {"threads": threads}, {"ncpu": 1, "window": [0, 72 * MS]})
    load = extract(trace)
    assert (report(load)["ticking_threads"], report(load)["ticking_sleeps"]) == (1, 12)
    slept = [ns for op, ns in program(load, "t1") if op == "sleep_ticks"]
    assert slept == [4 * MS, *((b - a) * 4 * MS for a, b in pairwise(ticks))]

    late = Builder()
    late.thread("hog").run("6ms").exit()
    late.thread("sleeper").run("10us").sleep_ticks("4ms").run("10us").sleep_ticks("12ms").exit()
    shape = machine(1)
    ticking = type(shape)(shape.cpus, shape.costs, tick_phase=1_200 * US)

    def woken(policy: str) -> list[int]:
        again = simulate(late.workload(ticking), policy=policy)
        return again.wakeups.filter(pl.col("kind") == "enqueued").collect()["ts"].to_list()

    # It sleeps from 6.01 ms until the tick before 10.01 ms, and then until the last before 21.22
    # ms.
    assert woken("cfs-6.1")[-2:] == [9_200 * US, 21_200 * US]
    assert woken("fifo")[-2:] == [10_010 * US, 22_020 * US]


def test_woken_parent_does_not_preempt_its_exiting_child() -> None:
    """A child wakes its parent at 10, which is enqueued at 13, and ends at 20.

    cpu0 | parent 0 . 4 | child 4 ...... 20 | parent 20 . 30
    """
    trace = trace_of(
        [
            (0, 0, 0, "runnable", 2),
            (4, 0, 2, "sleeping", 3),
            (20, 0, 3, "dead", 2),
            (30, 0, 2, "dead", 0),
        ],
        [(10, 0, 3, 2, "waking"), (13, 0, 3, 2, "enqueued")],
        30,
    )
    load = extract(trace)
    assert program(load, "t3") == [("run", 16), ("signal", None), ("exit", None)]
    again = simulate(load, policy="cfs-6.1", costs={"preempt": "2ns"})
    left = again.switches.filter(pl.col("prev_utid") > 0).select("ts", "prev_state").collect()
    assert left.rows() == [(4, "sleeping"), (20, "dead"), (30, "dead")]


def test_thread_waiting_beside_an_idle_cpu_is_pinned() -> None:
    """Recorded masks are those at fork: two hogs were pinned to CPU 1 later, and CPU 0 was idle."""
    trace = open_trace(FIXTURES / "linux-slice-default-1.capture")
    load = extract(trace)
    assert report(load)["bound_by_waiting"] == 3
    cpus = load.threads.filter(pl.col("name").is_in(["beat", "hog-1", "hog-2"]))["cpus"]
    assert cpus.to_list() == ["1", "1", "1"]
    # Hogs that share CPUs without being pinned are not: each could run elsewhere.
    shared = extract(simulate(w.hogs(5), policy="eevdf-6.17", cpus=2))
    assert report(shared)["bound_by_waiting"] == 0


def test_rtapp_export_has_costs_and_waits_for_any_thread() -> None:
    load = extract(stream())
    document, lost = w.to_rtapp(load)
    assert lost == {}
    phases = document["tasks"]["t3"]["phases"].values()
    assert [list(p)[1] for p in phases][:3] == ["runtime", "suspend", "runtime"]
    b = w.Builder()
    boss, helper = b.thread("boss"), b.thread("helper")
    boss.wait_for().run("1ms")
    helper.run("2ms").signal(boss)
    document, lost = w.to_rtapp(b.workload())
    assert lost == {}
    assert document["tasks"]["helper"]["phases"]["p1"]["resume"] == "boss"
    first, second = (
        simulate(x, policy="rr", cpus=2) for x in (b.workload(), w.from_rtapp(document))
    )
    assert first.switches.collect().equals(second.switches.collect())


@pytest.mark.parametrize("name", ["linux-slice-default-1", "linux-ftrace-starved"])
def test_rtapp_round_trip_is_stable(name: str) -> None:
    load = extract(open_trace(FIXTURES / f"{name}.capture"))
    document, lost = w.to_rtapp(load)
    assert set(lost) <= {"set_priority", "set_affinity"}
    back = w.from_rtapp(document)
    assert w.to_rtapp(back) == (document, {})
    # Waits are still for the same threads.
    waits = [
        f.filter(pl.col("op") == "wait_for").sort("program", maintain_order=True)["thread"]
        for f in (load.steps, back.steps)
    ]
    assert waits[0].equals(waits[1])


@pytest.mark.parametrize("policy", policies()["name"].to_list())
def test_classes_and_nice_are_recovered_from_any_policy(policy: str) -> None:
    """Also for policies whose priorities are computed, and differ from nice."""
    b = Builder()
    for nice in (0, 5, 19, -10):
        b.thread(f"nice{nice}", nice=nice).run("300ms")
    b.thread("rt", sched="fifo", rt_prio=7).run("1ms").sleep("5ms").repeat(5)
    b.thread("idle", sched="idle").run("30ms")
    b.thread("batch", sched="batch", nice=3).run("30ms")
    load = b.workload()
    again = extract(simulate(load, policy=policy, cpus=1))
    columns = ("name", "class", "rt_prio")
    assert again.threads.select(columns).rows() == load.threads.select(columns).rows()
    # The nice value of the idle class is not used.
    fair = pl.col("class") != "idle"
    nice = [frame.filter(fair)["nice"].to_list() for frame in (again.threads, load.threads)]
    assert nice[0] == nice[1]
    assert "set_priority" not in again.steps["op"].to_list()
    assert again.info["extraction"]["priority_changes"] == 0


def test_trace_above_the_limit_is_refused_and_its_part_is_accepted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trace = open_trace(FIXTURES / "linux-ftrace-mixed.capture")
    rows = sum(t.collect().height for t in (trace.switches, trace.wakeups))
    monkeypatch.setattr("schedscope.simulator.recorded.extract.MOST_ROWS", rows)
    assert extract(trace).steps.height > 1000
    monkeypatch.setattr("schedscope.simulator.recorded.extract.MOST_ROWS", rows - 1)
    with pytest.raises(UsageError, match=f"{rows:,} switches and wakeups.*--since and --until"):
        extract(trace)
    half = trace.duration / 2e9
    assert extract(trace.between(0, half)).steps.height > 100


RUNS = [(0, 1), (10, 13), (20, 24), (30, 52), (60, 66), (70, 71), (80, 83), (90, 95), (100, 102)]


def late_rounds() -> Trace:
    """A thread with a timer of 10 ms works from 30 to 52 ms: it reaches 40 at 44, and 50 at 51.

    The timer, set nevertheless, fires at once and wakes it while it runs.
    """
    switches: list[Row] = []
    wakeups: list[Row] = [(44 * MS, 0, None, 1, "waking"), (51 * MS, 0, None, 1, "waking")]
    for since, until in RUNS:
        switches.append((since * MS, 0, 0, "runnable", 1))
        switches.append((until * MS, 0, 1, "sleeping", 0))
        if since:
            wakeups.append((since * MS, 0, None, 1, "waking"))
    return trace_of(switches, sorted(wakeups), 105 * MS)


def test_missed_wakeup_instant_is_slept_until_where_possible() -> None:
    load = extract(late_rounds())
    assert report(load)["instants_missed"] == 2
    steps = [(op, ns // MS) for op, ns in program(load, "t1") if ns]
    assert steps[6:13] == [
        ("run", 14),
        ("wait_until", 40),
        ("run", 7),
        ("wait_until", 50),
        ("run", 1),
        ("wait_until", 60),
        ("run", 6),
    ]
    assert load.cpu_time == sum(until - since for since, until in RUNS) * MS


def test_wake_of_a_running_thread_does_not_end_its_next_sleep() -> None:
    """Woken at 2 by an interrupt on its CPU, it still sleeps from 5 to 9."""
    trace = trace_of(
        [(0, 0, 0, "runnable", 1), (5, 0, 1, "sleeping", 0), (9, 0, 0, "runnable", 1)],
        [(2, 0, None, 1, "waking"), (9, 0, None, 1, "waking")],
        12,
    )
    load = extract(trace)
    assert program(load, "t1")[:3] == [("run", 5), ("sleep", 4), ("run", 3)]
    assert report(load)["wakes_spurious"] == 1
