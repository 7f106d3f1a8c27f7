"""Mutexes, conditions, barriers and queues: in the engine, and found by extraction."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from recorded import MS, recorded, runs, table

from schedscope import workload as w
from schedscope.errors import UsageError
from schedscope.simulator.recorded.extract import extract
from schedscope.simulator.runs.run import simulate
from schedscope.simulator.workloads.builder import Builder
from schedscope.simulator.workloads.workload import read_workload
from schedscope.store.trace import Trace

FUTEX = 202  # x86-64's number
WAIT, WAKE = 128, 129  # FUTEX_WAIT and FUTEX_WAKE, private
CONTENDED = 2
CONDITION = 640  # Words from this address on are not mutexes.


def test_thread_sleeps_until_a_held_mutex_is_released() -> None:
    b = Builder()
    m = b.mutex()
    b.thread("first").lock(m).run("3ms").unlock(m).run("1ms")
    b.thread("second").run("1ms").lock(m).run("2ms").unlock(m)
    assert runs(simulate(b.workload(), policy="fifo", cpus=2)) == [
        ("first", 0, 4),
        ("second", 0, 1),
        ("second", 3, 5),
    ]


def test_running_thread_takes_a_free_mutex_before_the_woken_one() -> None:
    """The thread that releases it takes it again before the woken one gets the CPU."""
    b = Builder()
    m = b.mutex()
    b.thread("greedy").lock(m).run("1ms").sleep("2ms").run("1ms").unlock(m).repeat(2)
    b.thread("waiter", start="2ms").lock(m).run("1ms").unlock(m)
    trace = simulate(b.workload(), policy="fifo", cpus=1)
    ran = [row for row in runs(trace) if row[2] > row[1]]
    assert ran == [("greedy", 0, 1), ("greedy", 3, 5), ("greedy", 7, 8), ("waiter", 8, 9)]
    # Woken at 4 ms it finds the mutex held again at 5 ms, and is woken at 8 ms.
    waiter = trace.wakeups.filter(pl.col("kind") == "waking").join(
        trace.threads.filter(comm="waiter").select("utid"), on="utid"
    )
    assert (waiter.collect()["ts"].sort() / MS).to_list() == [4, 8]


def test_condition_wakes_one_or_all_and_each_retakes_the_mutex() -> None:
    def ended(signal: str) -> dict[str, float]:
        b = Builder()
        m, c = b.mutex(), b.condition()
        for i in range(2):
            b.thread(f"waiter-{i}").lock(m).cond_wait(c, m).run("1ms").unlock(m)
        getattr(b.thread("signaller", start="5ms").lock(m), signal)(c).run("1ms").unlock(m)
        trace = simulate(b.workload(), policy="fifo", cpus=4, until="20ms")
        return {who: end for who, _, end in runs(trace) if end > 1}

    assert ended("cond_signal") == {"signaller": 6, "waiter-0": 7}
    assert ended("cond_broadcast") == {"signaller": 6, "waiter-0": 7, "waiter-1": 8}


def test_a_signal_without_a_waiter_is_lost() -> None:
    b = Builder()
    m, c = b.mutex(), b.condition()
    b.thread("signaller").cond_signal(c).run("1ms")
    b.thread("late", start="2ms").lock(m).cond_wait(c, m).unlock(m)
    with pytest.raises(UsageError, match=r"late.*signal of condition 0"):
        simulate(b.workload(), policy="fifo")


def test_barrier_releases_all_when_the_last_arrives() -> None:
    b = Builder()
    gate = b.barrier()
    for i in range(3):
        b.thread(f"t{i}").run((i + 1) * MS).barrier(gate, 3).run("1ms").repeat(2)
    trace = simulate(b.workload(), policy="fifo", cpus=3)
    # The slowest takes 3 ms to the barrier and 1 ms behind it, twice.
    assert {who: end for who, _, end in runs(trace)} == {"t0": 8, "t1": 8, "t2": 8}


def test_deadlock_names_holders_and_wrong_unlock_is_refused() -> None:
    b = Builder()
    one, two = b.mutex(), b.mutex()
    b.thread("a").lock(one).run("1ms").lock(two)
    b.thread("b").lock(two).run("1ms").lock(one)
    with pytest.raises(UsageError, match=r'"a".*mutex 1, held by 1 \("b"\)'):
        simulate(b.workload(), policy="fifo", cpus=2)
    b = Builder()
    m = b.mutex()
    b.thread("t").run("1ms").unlock(m)
    with pytest.raises(UsageError, match="releases mutex 0, and nobody holds it"):
        simulate(b.workload(), policy="fifo")
    b = Builder()
    b.thread("t").run("1ms").barrier(b.barrier(), 0)
    with pytest.raises(UsageError, match="barrier is for 0 threads"):
        simulate(b.workload(), policy="fifo")


def pool(jobs: list[str], workers: int = 2) -> w.Workload:
    """A dispatcher that puts jobs of these lengths into a queue at once."""
    b = Builder()
    queue = b.queue()
    dispatcher = b.thread("dispatcher", start="1ms")
    for time in jobs:
        dispatcher.post(queue, b.job().run(time))
    for i in range(workers):
        b.thread(f"worker-{i}").serve(queue).repeat()
    return b.workload()


def test_next_job_goes_to_a_free_worker() -> None:
    trace = simulate(pool(["5ms", "1ms", "2ms", "1ms"]), policy="fifo", cpus=3)
    # The second worker does all the short ones: it is free at 2 and at 4 ms.
    assert {(who, a, b) for who, a, b in runs(trace) if b > a} == {
        ("worker-0", 1, 6),
        ("worker-1", 1, 5),
    }


def test_job_goes_to_an_awake_worker_before_the_woken_one() -> None:
    b = Builder()
    queue = b.queue()
    short, long = b.job().run("1ms"), b.job().run("4ms")
    # On one CPU, first come first served: `busy` is back at the queue before `idle` may run.
    b.thread("idle").serve(queue).repeat()
    b.thread("busy").run("1ms").post(queue, long).serve(queue).repeat(2).post(queue, short)
    trace = simulate(b.workload(), policy="fifo", cpus=1)
    assert [row for row in runs(trace) if row[2] > row[1]] == [("busy", 0, 10), ("idle", 10, 11)]


def test_job_must_not_depend_on_its_worker() -> None:
    b = Builder()
    queue = b.queue()
    other = b.thread("other").run("1ms")
    b.thread("t").post(queue, b.job().run("1ms").wait_for(other)).serve(queue)
    with pytest.raises(UsageError, match="job 0, step 1: a `wait_for`"):
        simulate(b.workload(), policy="fifo")


def test_locks_are_kept_with_the_workload_and_older_workloads_are_read(tmp_path: Path) -> None:
    b = Builder()
    m, c, gate = b.mutex(), b.condition(), b.barrier()
    b.thread("t").lock(m).cond_wait(c, m).unlock(m).barrier(gate, 2)
    load = b.workload()
    folder = load.save(tmp_path / "x.workload")
    assert read_workload(folder).steps.equals(load.steps)
    old = load.steps.drop("mutex", "condition", "barrier", "pipe", "queue", "job")
    old.write_parquet(folder / "steps.parquet")
    assert read_workload(folder).steps["mutex"].is_null().all()


# --- Extraction. Utids 0 and 1 are idle; 2 is on CPU 0, 3 on CPU 1, of one process. ---


def calls_of(rows: list[tuple[Any, ...]]) -> list[dict[str, Any]]:
    """Of ts, utid, and of an entry its command and word; a return has neither."""
    return [
        {"ts": ts, "cpu": utid - 2, "utid": utid, "number": FUTEX}
        | (
            {"step": "enter", "arg0": rest[1], "arg1": rest[0]}
            | {"arg2": CONTENDED if rest[1] < CONDITION else 7}
            if rest
            else {"step": "exit", "value": 0}
        )
        for ts, utid, *rest in rows
    ]


def contended(*, woken_by_thread: bool = False, of_condition: bool = False) -> Trace:
    """`a` has the mutex when `b` comes at 2 ms, and releases it at 5 ms; `b` does at 8 ms.

    `woken_by_thread`: from 6 to 7 ms `b` waits for `a`, holding the mutex; `of_condition`: it does
    so in a condition that it signals and `a` waits for, until `a` has left it.
    """
    calls = [
        (2 * MS, 3, WAIT, 64),
        (5 * MS, 2, WAKE, 64),
        (5 * MS + 200, 2),
        (5 * MS + 1000, 3),
        (8 * MS, 3, WAKE, 64),
        (8 * MS + 200, 3),
    ]
    switches = [
        (0, 0, 0, "runnable", 2),
        (0, 1, 1, "runnable", 3),
        (2 * MS + 500, 1, 3, "sleeping", 1),
        (5 * MS + 800, 1, 1, "runnable", 3),
    ]
    wakes = [(5 * MS + 100, "waking"), (5 * MS + 150, "enqueued")]
    if woken_by_thread:
        switches += [(6 * MS, 1, 3, "sleeping", 1), (7 * MS + 10, 1, 1, "runnable", 3)]
        wakes += [(7 * MS, "waking"), (7 * MS + 5, "enqueued")]
    if of_condition:
        calls += [
            (1 * MS, 2, WAIT, CONDITION + 24),
            (1 * MS + 5, 2),
            (5 * MS + 2000, 3, WAKE, CONDITION + 24),
            (5 * MS + 2005, 3),
            (6 * MS - 5, 3, WAIT, CONDITION),
            (7 * MS - 5, 2, WAKE, CONDITION),
            (7 * MS + 8, 2),
            (7 * MS + 15, 3),
        ]
    switches += [(9 * MS, 0, 2, "dead", 0), (10 * MS, 1, 3, "dead", 1)]
    return recorded({"a": 12, "b": 12}, calls_of(sorted(calls)), switches, wakes)


def steps(load: w.Workload, name: str) -> list[tuple[str, int]]:
    number = load.threads.row(by_predicate=pl.col("name") == name, named=True)["program"]
    rows = load.steps.filter(pl.col("program") == number)
    return [(op, ns or 0) for op, ns in rows.select(pl.col("op").cast(pl.String), "ns").rows()]


def test_contended_mutex_is_inferred_from_futex_calls() -> None:
    load = extract(contended())
    found = load.info["extraction"]
    names = ("mutexes", "mutexes_left_out", "holds", "holds_waited_for", "wakes_by_threads")
    assert [found[k] for k in names] == [1, 0, 2, 1, 1]
    # `a` took it without a call, at the latest when `b` found it held.
    at = [2 * MS, 3 * MS]
    assert [ns for op, ns in steps(load, "a") if op == "run"][:2] == at
    assert [op for op, _ in steps(load, "a")][:4] == ["run", "lock", "run", "unlock"]
    assert [op for op, _ in steps(load, "b")][:4] == ["run", "lock", "run", "unlock"]
    # The time that `b` took to find it held and to come back is the cost of its sleep: 500 and 200
    # ns.
    assert steps(load, "b")[1] == ("lock", 700)
    assert steps(load, "b")[2] == ("run", 3 * MS - 1000)
    assert not {"signal", "wait_for"} & set(load.steps["op"].cast(pl.String))
    # A replay wakes once, as recorded; on one CPU `b` does not find it held.
    two = simulate(load, policy="fifo", until="20ms")
    assert two.wakeups.filter(pl.col("kind") == "waking").collect().height == 1
    one = simulate(load, policy="fifo", cpus=1, until="20ms")
    assert one.wakeups.filter(pl.col("kind") == "waking").collect().is_empty()


def test_mutex_held_while_waiting_for_a_thread_is_left_out() -> None:
    """It could wait for a thread that wants the mutex: then what it held was not a mutex."""
    load = extract(contended(woken_by_thread=True))
    found = load.info["extraction"]
    assert (found["mutexes"], found["mutexes_left_out"]) == (0, 1)
    assert {"signal", "wait_for"} <= set(load.steps["op"].cast(pl.String))
    assert not {"lock", "unlock"} & set(load.steps["op"].cast(pl.String))


def test_holder_signalling_a_condition_may_wait_for_its_waiters() -> None:
    """As in pthread_cond_signal. In a replay no thread waits for that, mutex or not."""
    load = extract(contended(woken_by_thread=True, of_condition=True))
    found = load.info["extraction"]
    names = ("mutexes", "mutexes_left_out", "holds", "holds_waited_for", "waits_to_signal")
    assert [found[k] for k in names] == [1, 0, 2, 1, 1]
    assert not {"signal", "wait_for"} & set(load.steps["op"].cast(pl.String))
    # `b` held the mutex for 1 ms before and 1 ms after that wait.
    ops = [op for op, _ in steps(load, "b")]
    held = steps(load, "b")[ops.index("lock") + 1 : ops.index("unlock")]
    assert {op for op, _ in held} == {"run"}
    assert sum(ns for _, ns in held) == pytest.approx(2 * MS, abs=2000)


# --- Pools and barriers: a simulated truth, with the calls that its threads would have made. ---


def with_calls(truth: Trace, waiters: str, word: int = 640) -> Trace:
    """`truth` with futex calls: threads of these names sleep on one word, and wakers wake there."""
    names = truth.threads.select("utid", "comm").collect()
    waiting = names.filter(pl.col("comm").str.starts_with(waiters))["utid"].to_list()
    calls: list[dict[str, Any]] = []

    def call(ts: int, cpu: int, utid: int, command: int) -> None:
        base = {"cpu": cpu, "utid": utid, "number": FUTEX}
        entry = {"ts": ts, "step": "enter", "arg0": word, "arg1": command, "arg2": ts & 0xFF | 1}
        calls.append(base | entry)

    def back(ts: int, cpu: int, utid: int) -> None:
        base = {"cpu": cpu, "utid": utid, "number": FUTEX}
        calls.append(base | {"ts": ts, "step": "exit", "value": 0})

    asleep = set()
    for row in truth.switches.sort("ts").collect().iter_rows(named=True):
        if row["prev_utid"] in waiting and row["prev_state"] == "sleeping":
            call(row["ts"], row["cpu"], row["prev_utid"], WAIT)
            asleep.add(row["prev_utid"])
        if row["next_utid"] in asleep:
            asleep.remove(row["next_utid"])
            back(row["ts"] + 1, row["cpu"], row["next_utid"])
    wakes = truth.wakeups.filter(
        (pl.col("kind") == "waking")
        & pl.col("utid").is_in(waiting)
        & (pl.col("waker_utid") >= truth.ncpu)
    )
    for row in wakes.unique(["ts", "waker_utid"]).sort("ts").collect().iter_rows(named=True):
        call(row["ts"], row["cpu"], row["waker_utid"], WAKE)
        back(row["ts"] + 1, row["cpu"], row["waker_utid"])
    names_of = ("switches", "wakeups", "yields", "threads")
    tables = {name: getattr(truth, name).collect() for name in names_of}
    tables["threads"] = tables["threads"].with_columns(pid=pl.lit(12, pl.UInt32))
    calls.sort(key=lambda row: row["ts"])
    about = {"ncpu": truth.ncpu, "window": list(truth.window), "os": "Linux", "machine": "x86_64"}
    return Trace.from_tables(tables | {"system_calls": table("system_calls", calls)}, about)


def timed_pool() -> w.Workload:
    """Requests that come at their own times; the fifth takes very long."""
    b = Builder()
    queue = b.queue()
    dispatcher = b.thread("dispatcher")
    for i in range(12):
        dispatcher.sleep("1ms").run("20us").post(queue, b.job().run(9 * MS if i == 4 else 2 * MS))
    b.thread("worker-1").serve(queue).repeat()
    b.thread("worker-2").serve(queue).repeat()
    b.thread("worker-3").serve(queue).repeat()
    return b.workload()


def waits_of(trace: Trace) -> list[int]:
    """Lengths of all waits for a CPU."""
    done = trace.waits.filter(pl.col("censored") == "none", pl.col("utid") >= trace.ncpu)
    return sorted(done.select("wait").collect()["wait"].to_list())


@pytest.mark.parametrize(("policy", "cpus"), [("fifo", 4), ("fifo", 2), ("eevdf", 2), ("rr", 1)])
def test_replayed_pool_gives_requests_to_any_free_worker(policy: str, cpus: int) -> None:
    load = extract(with_calls(simulate(timed_pool(), policy="fifo", cpus=4), "worker"))
    found = load.info["extraction"]
    assert (found["queues"], found["jobs"], found["queues_left_out"]) == (1, 12, 0)
    assert "wait_for" not in load.steps["op"].cast(pl.String).to_list()
    # Replayed under another policy it is what the pool itself does there: each request is done by a
    # free worker, whichever did it in the recording.
    truth = simulate(timed_pool(), policy=policy, cpus=cpus, until="80ms")
    again = simulate(load, policy=policy, cpus=cpus, until="80ms")
    assert max(row[2] for row in runs(again)) == pytest.approx(max(row[2] for row in runs(truth)))
    assert sum(waits_of(again)) == pytest.approx(sum(waits_of(truth)), rel=0.01, abs=1000)


def extracted(load: w.Workload, cpus: int) -> w.Workload:
    """The extraction of a recorded pool in which sleeping and looking again takes 5 us."""
    costs = pl.when(pl.col("op").cast(pl.String) == "serve").then(pl.lit(5000, pl.Int64))
    load = replace(load, steps=load.steps.with_columns(ns=costs.otherwise("ns")))
    return extract(with_calls(simulate(load, policy="fifo", cpus=cpus, until="100ms"), "worker"))


def jobs_of(load: w.Workload) -> list[int]:
    """CPU time of the jobs."""
    runs = load.steps.filter(pl.col("op").cast(pl.String) == "run", pl.col("ns") >= MS)
    return sorted(runs["ns"].to_list())


def assert_waits_alike(load: w.Workload, true_load: w.Workload, rel: float) -> None:
    """In total, for any policy."""
    for policy, cpus in (("fifo", 2), ("eevdf", 2), ("rr", 1)):
        truth = simulate(true_load, policy=policy, cpus=cpus, until="100ms")
        again = simulate(load, policy=policy, cpus=cpus, until="100ms")
        assert sum(waits_of(again)) == pytest.approx(sum(waits_of(truth)), rel=rel)


def busy_pool() -> w.Workload:
    """Two workers sleep when five jobs of 3 ms arrive, and are behind when five more do."""
    b = Builder()
    queue = b.queue()
    dispatcher = b.thread("dispatcher")
    for gap in ["4ms"] * 4 + ["1ms"] * 6:
        dispatcher.sleep(gap).run("20us").post(queue, b.job().run("3ms")).run("10us")
    dispatcher.sleep("1ms")
    b.thread("worker-1").serve(queue).repeat()
    b.thread("worker-2").serve(queue).repeat()
    return b.workload()


def test_jobs_queued_while_all_workers_are_busy_are_separated() -> None:
    """They have no calls: the recording shows runs of 9 and 12 ms."""
    load = extracted(busy_pool(), 3)
    found = load.info["extraction"]
    assert (found["jobs"], found["jobs_unnoticed"], found["wakes_in_vain"]) == (10, 5, 0)
    assert jobs_of(load) == pytest.approx([3 * MS] * 10, abs=10_000)
    assert_waits_alike(load, busy_pool(), rel=0.05)


def overtaken_pool() -> w.Workload:
    """Two CPUs: the worker woken for the second job waits for the dispatcher's CPU, and the other
    is done before.
    """
    b = Builder()
    queue = b.queue()
    dispatcher = b.thread("dispatcher")
    for _ in range(6):
        dispatcher.sleep("5ms").run("20us").post(queue, b.job().run("2ms")).run("10us")
        dispatcher.sleep("1ms").run("20us").post(queue, b.job().run("2ms")).run("1500us")
    b.thread("worker-1").serve(queue).repeat()
    b.thread("worker-2").serve(queue).repeat()
    return b.workload()


def test_job_of_a_futile_wake_is_found_on_its_real_worker() -> None:
    load = extracted(overtaken_pool(), 2)
    found = load.info["extraction"]
    assert (found["jobs"], found["jobs_unnoticed"], found["wakes_in_vain"]) == (12, 0, 6)
    assert [ns for ns in jobs_of(load) if ns > 1500_000] == pytest.approx([2 * MS] * 12, abs=10_000)
    assert_waits_alike(load, overtaken_pool(), rel=0.01)


def in_each_others_way(rounds: int) -> Trace:
    """Each round a dispatcher on CPU 0 wakes worker-1 and, 0.1 ms later, worker-2.

    worker-2 gets the CPU of the dispatcher at 2 ms. It finds its job taken and the mutex of the
    queue held, and worker-1 then finds it held by worker-2. Extraction does not know the mutex:
    worker-1 naps with it.
    """
    queue, mutex, begins, quit = CONDITION, 64, "enter", "exit"
    calls: list[tuple[int, int, int, str, int, int]] = []
    switches: list[tuple[int, int, int, str, int]] = []
    wakes: list[tuple[int, int, int | None, int]] = []
    for base in range(0, rounds * 20 * MS, 20 * MS):
        at = [base + us * 1000 for us in range(5000)]
        wakes += [(at[1], 0, None, 2), (at[12], 0, 2, 3), (at[102], 0, 2, 4)]
        wakes += [(at[2590], 1, None, 3), (at[3002], 1, 3, 4), (at[3016], 0, 4, 3)]
        switches += [
            (at[2], 0, 0, "runnable", 2),
            (at[20], 1, 1, "runnable", 3),
            (at[2000], 0, 2, "sleeping", 4),
            (at[2010], 0, 4, "sleeping", 0),
            (at[2500], 1, 3, "sleeping", 1),
            (at[2600], 1, 1, "runnable", 3),
            (at[3010], 0, 0, "runnable", 4),
            (at[3013], 1, 3, "sleeping", 1),
            (at[3020], 1, 1, "runnable", 3),
            (at[3028], 0, 4, "sleeping", 0),
            (at[4005], 1, 3, "sleeping", 1),
        ]
        for us, cpu, utid, step, command, word in (
            (10, 0, 2, begins, WAKE, queue),
            (14, 0, 2, quit, 0, 0),
            (21, 1, 3, quit, 0, 0),
            (100, 0, 2, begins, WAKE, queue),
            (104, 0, 2, quit, 0, 0),
            (2001, 0, 4, quit, 0, 0),
            (2005, 0, 4, begins, WAIT, mutex),
            (3000, 1, 3, begins, WAKE, mutex),
            (3004, 1, 3, quit, 0, 0),
            (3011, 0, 4, quit, 0, 0),
            (3012, 1, 3, begins, WAIT, mutex),
            (3015, 0, 4, begins, WAKE, mutex),
            (3018, 0, 4, quit, 0, 0),
            (3021, 1, 3, quit, 0, 0),
            (3025, 0, 4, begins, WAIT, queue),
            (3030, 1, 3, begins, WAKE, mutex),
            (3031, 1, 3, quit, 0, 0),
            (4000, 1, 3, begins, WAIT, queue),
        ):
            calls.append((at[us], cpu, utid, step, command, word))
    names = [("", 0), ("", 0), ("dispatcher", 12), ("worker-1", 12), ("worker-2", 12)]
    tables = {
        "switches": table(
            "switches",
            [
                {"ts": ts, "cpu": cpu, "prev_utid": prev, "prev_state": state, "prev_prio": 120}
                | {"next_utid": after, "next_prio": 120}
                for ts, cpu, prev, state, after in switches
            ],
        ),
        "wakeups": table(
            "wakeups",
            [
                {"ts": ts + later, "cpu": cpu, "waker_utid": waker, "utid": utid, "prio": 120}
                | {"kind": kind, "target_cpu": cpu}
                for ts, cpu, waker, utid in wakes
                for later, kind in ((0, "waking"), (500, "enqueued"))
            ],
        ),
        "system_calls": table(
            "system_calls",
            [
                {"ts": ts, "cpu": cpu, "utid": utid, "number": FUTEX, "step": step}
                | (
                    {"arg0": word, "arg1": command, "arg2": CONTENDED if word == mutex else 7}
                    if step == begins
                    else {"value": 0}
                )
                for ts, cpu, utid, step, command, word in calls
            ],
        ),
        "threads": table(
            "threads",
            [{"utid": i, "comm": comm, "pid": pid} for i, (comm, pid) in enumerate(names)],
        ),
    }
    about = {"ncpu": 2, "window": [0, rounds * 20 * MS], "os": "Linux", "machine": "x86_64"}
    return Trace.from_tables(tables, about)


def test_signals_from_a_futilely_woken_worker_are_removed() -> None:
    """Its run is left out, so no thread may wait for a signal from it."""
    rounds = 5
    load = extract(in_each_others_way(rounds))
    found = load.info["extraction"]
    names = ("queues", "jobs", "wakes_in_vain", "mutexes_left_out", "signals_in_vain")
    # The waker of a worker's first wait is not recorded.
    assert [found[k] for k in names] == [1, 8, 4, 1, 8]
    queues = {
        op: set(load.steps.filter(pl.col("op") == op)["queue"].to_list())
        for op in ("post", "serve")
    }
    assert queues["post"] == queues["serve"]
    # All work of the workers is done, whichever is first.
    for policy, cpus in (("fifo", 2), ("rr", 1)):
        again = simulate(load, policy=policy, cpus=cpus, until="200ms")
        ran = [(who, end - begin) for who, begin, end in runs(again) if who != "dispatcher"]
        assert sum(ms for _, ms in ran) == pytest.approx(rounds * 3.9, rel=0.02)


def test_pool_with_unlike_members_is_left_out() -> None:
    """Members with different work cannot replace each other: waits stay for named threads."""
    b = Builder()
    queue = b.queue()
    dispatcher = b.thread("dispatcher")
    for _ in range(8):
        dispatcher.sleep("1ms").run("20us").post(queue, b.job().run("2ms"))
    b.thread("worker-reads").serve(queue).repeat()
    b.thread("worker-writes").serve(queue).repeat()
    load = extract(with_calls(simulate(b.workload(), policy="fifo", cpus=4), "worker"))
    found = load.info["extraction"]
    assert (found["queues"], found["queues_left_out"]) == (0, 1)
    assert "wait_for" in load.steps["op"].cast(pl.String).to_list()


def rounds(slow: int) -> w.Workload:
    """Three threads that meet five times; each time another one is slower."""
    b = Builder()
    gate = b.barrier()
    for i in range(3):
        thread = b.thread(f"part-{i}")
        for k in range(5):
            thread.run((slow if (i + k) % 3 == 0 else 1) * MS).barrier(gate, 3)
        thread.run("1ms")
    return b.workload()


def test_barrier_is_inferred_from_threads_that_meet() -> None:
    load = extract(with_calls(simulate(rounds(3), policy="fifo", cpus=4), "part"))
    found = load.info["extraction"]
    assert (found["barriers"], found["barrier_waits"], found["queues"]) == (1, 15, 0)
    met = load.steps.filter(pl.col("op") == "barrier")
    assert (met.height, met["count"].unique().to_list()) == (15, [3])
    # On one CPU other threads are the last to arrive.
    truth = runs(simulate(rounds(3), policy="rr", cpus=1))
    again = runs(simulate(load, policy="rr", cpus=1, until="80ms"))
    # To the microsecond: returning from a call took a nanosecond.
    assert [(who, round(a, 3), round(b, 3)) for who, a, b in again] == truth
