"""Pipes: in the engine, and found by extraction from system calls."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest
from recorded import MS, recorded, runs

from schedscope import workload as w
from schedscope.errors import UsageError
from schedscope.parsers.schema import TABLES
from schedscope.simulator.recorded.extract import extract
from schedscope.simulator.runs.run import simulate
from schedscope.simulator.workloads.builder import Builder
from schedscope.simulator.workloads.workload import read_workload
from schedscope.store.trace import Trace

READ, WRITE = 0, 1  # x86-64's numbers


def pair(capacity: int | None, low: int | None = None) -> w.Workload:
    """A writer of four messages, 1 ms each, and a reader that takes 3 ms for each."""
    b = Builder()
    pipe = b.pipe(capacity, low=low)
    b.thread("writer").run("1ms").put(pipe).repeat(4)
    b.thread("reader").take(pipe).run("3ms").repeat(4)
    return b.workload()


def test_message_to_an_awake_reader_is_counted() -> None:
    # fifo on two CPUs: the writer never waits, the reader sleeps once, for the first message.
    trace = simulate(pair(None), policy="fifo", cpus=2)
    assert runs(trace) == [("writer", 0, 4), ("reader", 1, 13)]
    wakes = trace.wakeups.filter(pl.col("kind") == "waking").collect()
    assert wakes["ts"].to_list() == [1 * MS]


def test_a_writer_sleeps_while_the_pipe_is_full() -> None:
    # Capacity 2: full at 3 ms (one was read at 1 ms); space at 4 ms, when the reader takes the
    # next.
    trace = simulate(pair(2), policy="fifo", cpus=2)
    assert runs(trace) == [("writer", 0, 4), ("reader", 1, 13)]
    # Capacity 1: the third does not fit at 3 ms, and is written at 4 ms; the fourth at 7 ms.
    trace = simulate(pair(1), policy="fifo", cpus=2)
    assert runs(trace) == [("writer", 0, 3), ("reader", 1, 13), ("writer", 4, 5)]
    # Capacity 2, woken only when empty: the fourth at 7 ms, when the last of two is read.
    b = Builder()
    pipe = b.pipe(2, low=0)
    b.thread("writer").put(pipe).put(pipe).put(pipe).run("1ms")
    b.thread("reader", start="1ms").take(pipe).run("3ms").repeat(3)
    assert runs(simulate(b.workload(), policy="fifo", cpus=2)) == [
        ("reader", 1, 10),
        ("writer", 4, 5),
    ]


def test_message_goes_to_the_first_reader() -> None:
    b = Builder()
    pipe = b.pipe()
    b.threads("worker", 2).take(pipe).run("2ms").repeat(3)
    b.thread("source").run("1ms").put(pipe).repeat(6)
    trace = simulate(b.workload(), policy="fifo", cpus=3)
    # One message a ms and 2 ms for each: the two alternate and never wait for a CPU.
    ran = {
        name: sum(b - a for who, a, b in runs(trace) if who == name) for name, _, _ in runs(trace)
    }
    assert ran == {"source": 6, "worker-0": 6, "worker-1": 6}
    assert max(end for _, _, end in runs(trace)) == 8
    assert trace.waits.filter(pl.col("wait") > 0).collect().is_empty()


def test_large_message_is_read_in_pieces() -> None:
    b = Builder()
    pipe = b.pipe()
    b.thread("writer").run("1ms").put(pipe, 100).repeat(3)
    b.thread("reader").take(pipe, 300).run("1ms")
    trace = simulate(b.workload(), policy="fifo", cpus=2)
    assert runs(trace)[-1] == ("reader", 3, 4)


def test_unbounded_reader_is_refused_without_until() -> None:
    b = Builder()
    b.thread("reader").take(b.pipe())
    with pytest.raises(UsageError, match=r"reader.*something in pipe 0"):
        simulate(b.workload(), policy="fifo")
    assert simulate(b.workload(), policy="fifo", until="1ms").ncpu == 1


def test_pipes_are_kept_with_the_workload(tmp_path: Path) -> None:
    load = pair(2)
    again = read_workload(load.save(tmp_path / "x.workload"))
    assert again.pipes.equals(load.pipes)
    assert again.steps.equals(load.steps)


def test_unknown_pipe_is_refused() -> None:
    b = Builder()
    b.thread("t").run("1ms").put(3)
    with pytest.raises(UsageError, match="pipe 3"):
        simulate(b.workload(), policy="fifo")


# --- Extraction. Utids 0 and 1 are idle, 2 writes on CPU 0, 3 reads on CPU 1. ---


def calls_of(rows: list[tuple[Any, ...]]) -> list[dict[str, Any]]:
    """Of ts, cpu, utid, step, number, and of an entry its first argument, of a return its value."""
    return [
        {"ts": ts, "cpu": cpu, "utid": utid, "step": step, "number": number}
        | {"arg0" if step == "enter" else "value": last}
        for ts, cpu, utid, step, number, last in rows
    ]


def messages() -> Trace:
    """Three messages of 100 bytes; the reader is awake for the second and third."""
    calls = [(0, 1, 3, "enter", READ, 5)]
    for at in (2, 4, 6):
        calls += [(at * MS, 0, 2, "enter", WRITE, 7), (at * MS + 100, 0, 2, "exit", WRITE, 100)]
    for back, again in ((3, 8), (9, 10), (11, 12)):
        calls += [(back * MS, 1, 3, "exit", READ, 100), (again * MS, 1, 3, "enter", READ, 5)]
    switches = [
        (0, 0, 0, "runnable", 2),
        (0, 1, 1, "runnable", 3),
        (1 * MS, 1, 3, "sleeping", 1),
        (2 * MS + 60, 1, 1, "runnable", 3),
        (7 * MS, 0, 2, "dead", 0),
        (13 * MS, 1, 3, "sleeping", 1),
    ]
    wakes = [(2 * MS + 50, "waking"), (2 * MS + 55, "enqueued")]
    threads = {"writer": 12, "reader": 13}
    return recorded(threads, calls_of(sorted(calls)), switches, wakes)


def steps(load: w.Workload, name: str) -> list[tuple[str, int | None]]:
    number = load.threads.row(by_predicate=pl.col("name") == name, named=True)["program"]
    rows = load.steps.filter(pl.col("program") == number)
    return [
        (op, count if op in ("put", "take") else ns)
        for op, ns, count in rows.select(pl.col("op").cast(pl.String), "ns", "count").rows()
    ]


def test_writes_without_a_wakeup_are_messages() -> None:
    load = extract(messages())
    found = load.info["extraction"]
    assert [found[k] for k in ("pipes", "messages", "messages_unnoticed")] == [1, 3, 2]
    assert [s for s in steps(load, "writer") if s[0] == "put"] == [("put", 100)] * 3
    assert [s for s in steps(load, "reader") if s[0] == "take"] == [("take", 100)] * 3
    assert not {"signal", "wait_for"} & set(load.steps["op"].cast(pl.String))
    assert load.steps.filter(pl.col("op") == "put")["sync"].all()
    # It was never full.
    assert load.pipes.select("capacity", "filled").rows() == [(None, 0)]
    # A replay wakes once, as recorded.
    again = simulate(load, policy="fifo", until="20ms")
    assert again.wakeups.filter(pl.col("kind") == "waking").collect().height == 1


def with_calls(trace: Trace, calls: pl.DataFrame) -> Trace:
    tables = {name: trace.table(name) for name in TABLES}
    return Trace.from_tables({**tables, "system_calls": calls}, trace.info)


def test_calls_without_descriptors_are_extracted_as_if_unrecorded() -> None:
    trace = messages()
    calls = trace.system_calls.collect().with_columns(arg0=pl.lit(None, pl.UInt64))
    trace = with_calls(trace, calls)
    load = extract(trace)
    assert not load.info["extraction"]["calls_recorded"]
    assert load.pipes.is_empty()
    assert "signal" in [op for op, _ in steps(load, "writer")]


def test_pipe_with_unrecorded_writes_is_left_out() -> None:
    trace = messages()
    calls = trace.system_calls.collect()
    # The reader gets more than the writer wrote: another writer is not recorded.
    more = pl.when((pl.col("step") == "exit") & (pl.col("number") == READ)).then(500)
    trace = with_calls(trace, calls.with_columns(value=more.otherwise("value")))
    found = extract(trace).info["extraction"]
    assert (found["pipes"], found["pipes_left_out"]) == (0, 1)


def blocks(trace: Trace, name: str) -> list[float]:
    """When the threads of that name went to sleep, ms."""
    rows = (
        trace.switches.filter(pl.col("prev_state") == "sleeping")
        .join(trace.threads.filter(comm=name).select("utid"), left_on="prev_utid", right_on="utid")
        .select(pl.col("ts") / MS)
    )
    return rows.collect()["ts"].to_list()


def test_space_in_a_pipe_is_freed_by_whole_pages() -> None:
    """Two pages of 10, messages of 4: two to a page, so that it holds four."""
    b = Builder()
    pipe = b.pipe(20, page=10)
    b.thread("writer").run("1ms").put(pipe, 4).repeat(6)
    b.thread("reader", start="10ms").take(pipe, 4).run("1ms").repeat(6)
    trace = simulate(b.workload(), policy="fifo", cpus=2)
    # The fifth finds both pages in use at 5 ms, though 4 are free; the first page is empty when the
    # second message is read, at 11 ms. The sixth joins the fifth at 12 ms.
    assert blocks(trace, "writer") == [5]
    assert runs(trace) == [("writer", 0, 5), ("reader", 10, 16), ("writer", 11, 12)]


def test_freed_page_wakes_one_writer_and_a_socket_wakes_all() -> None:
    def sleepers(**options: Any) -> dict[str, int]:
        """How often writers slept, and which threads woke them."""
        b = Builder()
        pipe = b.pipe(20, filled=20, **options)
        for i in range(4):
            b.thread(f"writer-{i}").put(pipe, 10).run("10us")
        b.thread("reader", start="1ms").take(pipe, 10).run("1ms").repeat(6)
        trace = simulate(b.workload(), policy="fifo", cpus=1)
        wakes = trace.wakeups.filter(pl.col("kind") == "waking").collect()
        by_reader = wakes.join(
            trace.threads.filter(comm="reader").select("utid").collect(),
            left_on="waker_utid",
            right_on="utid",
        )
        slept = sum(len(blocks(trace, f"writer-{i}")) for i in range(4))
        return {"slept": slept, "woken": wakes.height, "by reader": by_reader.height}

    # The reader wakes the first when it empties a page of the full pipe. That one wakes the second,
    # since a page is still free, and the reader, since it was empty; then it is full again.
    assert sleepers(page=10) == {"slept": 4, "woken": 6, "by reader": 2}
    # All four at the first message read; two find no space, sleep again, and are woken together.
    assert sleepers() == {"slept": 6, "woken": 8, "by reader": 6}


def test_a_pipe_of_less_than_a_page_is_refused() -> None:
    for capacity in (None, 5):
        with pytest.raises(UsageError, match="at least one whole page"):
            Builder().pipe(capacity, page=10)


@pytest.mark.parametrize(("calls", "ends"), [(True, 124), (False, 105)])
def test_preempted_thread_stops_before_its_next_call(calls: bool, ends: int) -> None:
    """Preempted at 10.5 us, it stops at its next call, at 11 us, until 30.5 us."""
    b = Builder()
    pipe = b.pipe()
    writer = b.thread("writer", cpus="1")
    for _ in range(100):
        writer.run("1us")
        if calls:
            writer.put(pipe)
    waker = b.thread("waker", cpus="0")
    urgent = b.thread("urgent", sched="fifo", rt_prio=50, cpus="1", asleep=True)
    urgent.wait_for(waker).run("5us")
    waker.run("10500ns").signal(urgent)
    trace = simulate(b.workload(), policy="eevdf-6.18", cpus=2, costs={"ipi": "20us"})
    waits = trace.waits.join(trace.threads.select("utid", "comm"), on="utid")
    urgent_waits = waits.filter(pl.col("comm") == "urgent").collect()
    assert urgent_waits["wait"].to_list() == [20_000]
    end = trace.threads.filter(pl.col("comm") == "writer").collect()["exit_ts"].item()
    assert (end - trace.window[0]) // 1000 == ends
