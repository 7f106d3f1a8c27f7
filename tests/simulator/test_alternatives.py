"""Where two extractions replay a recording equally well, an answer has bounds over both and names
what to record.
"""

from __future__ import annotations

import polars as pl
import pytest

import schedscope as ss
from schedscope.simulator.changes.alternatives import alternatives
from schedscope.simulator.runs.replay import replay
from schedscope.simulator.runs.run import simulate
from schedscope.simulator.workloads.builder import Builder
from schedscope.simulator.workloads.workload import Workload
from schedscope.store.trace import Trace

MS = 1_000_000


def compiler(capacity: int) -> Workload:
    """A compiler writes 40 times into a pipe from which an assembler reads, twice on one CPU."""
    b = Builder()
    for n in range(2):
        pipe = b.pipe(capacity)
        writer, reader = b.thread(f"cc{n}"), b.thread(f"as{n}")
        for _ in range(40):
            writer.run("400us").put(pipe)
            reader.take(pipe).run("100us")
    return b.workload()


def waiting(trace: Trace, name: str) -> tuple[int, int]:
    """The sum of the waits of threads of this name, and their 99th percentile."""
    threads = trace.threads.filter(pl.col("comm").str.starts_with(name)).select("utid")
    utids = threads.collect()["utid"]
    row = ss.latency(trace, where=pl.col("utid").is_in(utids.implode()), quantiles=[0.99])
    return int(row["n"].item() * row["mean"].item()), row["p99"].item()


@pytest.mark.parametrize("capacity", [1, 16])
def test_unknown_pipe_capacity_gives_bounds_over_capacities(capacity: int) -> None:
    """Under EEVDF a woken reader preempts its writer, so the pipe's capacity is not visible."""
    load = compiler(capacity)
    real = simulate(load, policy="eevdf-7.2", cpus=1)
    truth = simulate(load, policy="scx-simple", cpus=1)
    frame = ss.whatif(real, policy="scx-simple", by="name")
    for row in frame.filter(configuration="changed").to_dicts():
        total, p99 = waiting(truth, row["name"].removesuffix("*"))
        assert row["replay_error"] < 1.1
        assert row["verdict"] == row["wait_p99_verdict"] == "doubtful"
        assert row["waiting_low"] <= total <= row["waiting_high"], row["name"]
        assert row["wait_p99_low"] <= p99 <= row["wait_p99_high"], row["name"]
    model, note = [one for one in ss.whatif_notes(real, frame) if one.startswith("doubtful")]
    assert "nothing of another one" in model
    assert "how far a thread may run ahead of the one that it wakes" in note
    assert "`capture --with syscalls` shows it): 'as*', 'cc*'" in note.replace(
        "'cc*', 'as*'", "'as*', 'cc*'"
    )
    # The replay of the recording itself does not depend on it.
    same = ss.whatif(real, policy="eevdf-7.2", by="name")
    assert same.filter(configuration="changed")["verdict"].to_list() == ["good", "good"]


def test_sleeps_without_a_waker_are_replayed_by_length_or_by_end() -> None:
    """A thread that sleeps until given instants; the recording has only the lengths."""
    b = Builder()
    clock = b.thread("clock")
    for k in range(30):
        clock.run(f"{1 + 3 * k % 7}ms").wait_until(f"{20 * (k + 1) + 5 * k % 11}ms")
    b.thread("hog", start="1ms").run("300ms")
    real = simulate(b.workload(), policy="eevdf-6.12", cpus=2)
    (one,) = alternatives(replay(real), {"cpus": 1})
    assert one.unclear.startswith("whether sleeps that no thread ended had a length or an instant")
    assert one.way.workload.info["external"] == "absolute"
    assert "wait_until" in one.wanted.workload.steps["op"].cast(pl.String).to_list()
    assert one.wanted.machine.ncpu == 1


def test_unselected_threads_are_replayed_both_ways_by_default() -> None:
    b = Builder()
    for name in ("mine", "other"):
        b.thread(name).run("50ms")
    real = simulate(b.workload(), policy="eevdf-6.12", cpus=1)
    way = replay(real, where=pl.col("comm") == "mine", others="occupy")
    (one,) = alternatives(way, {"set_nice": {"mine": -5}})
    assert one.way.workload.info["others"] == "compete"
    assert one.way.utids.drop_nulls().to_list() == way.utids.drop_nulls().to_list()
    assert alternatives(way, {"set_nice": {"mine": -5}}, others="occupy") == []


def test_complete_recording_has_no_alternatives() -> None:
    real = simulate(ss.workload.hogs(3, time="20ms"), policy="rr", cpus=1)
    assert alternatives(replay(real), {"cpus": 2}) == []
