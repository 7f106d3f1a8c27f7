"""Time-limited threads are predicted by how often they go round their loop, not by CPU time."""

from __future__ import annotations

import polars as pl
import pytest

import schedscope as ss
from schedscope.cli import main
from schedscope.simulator.changes.time_limited import is_time_limited
from schedscope.simulator.runs.run import simulate
from schedscope.simulator.workloads.builder import Builder
from schedscope.simulator.workloads.workload import Workload
from schedscope.store.trace import Trace

MS = 1_000_000


def closed_loop(nice: int, rounds: int | None = None) -> Workload:
    """A client sends requests to a server in a loop, beside two hogs."""
    b = Builder()
    server = b.thread("server")
    client = b.thread("client").run("1ms").signal(server).wait_for(server).repeat(rounds)
    server.wait_for(client).run("2ms").signal(client).repeat(rounds)
    b.threads("hog", 2, nice=nice).run("100s")
    return b.workload()


def rounds(trace: Trace) -> float:
    """Rounds of the client per second: it runs 1 ms in each."""
    utids = trace.threads.filter(pl.col("comm") == "client").select("utid").collect()["utid"]
    ran = trace.states.filter(pl.col("utid") == utids.item(), pl.col("state") == "running")
    return ran.select(pl.col("dur").sum()).collect().item() / MS / (trace.duration / 1e9)


@pytest.mark.parametrize("nice", [10, -5])
def test_predicted_throughput_of_a_closed_loop_equals_the_true_one(nice: int) -> None:
    real, truth = (
        simulate(closed_loop(n), policy="eevdf-6.12", cpus=1, until="2s") for n in (0, nice)
    )
    frame = ss.whatif(real, set_nice={"hog*": nice}, replays=2)
    grows = rounds(truth) / rounds(real)
    assert not 0.7 < grows < 1.4
    for name in ("client", "server"):
        was, _, then = frame.filter(comm=name).sort("configuration").to_dicts()
        assert was["cpu_time"] > 0
        assert then["cpu_time"] is then["cpu_time_high"] is then["cpu_time_verdict"] is None
        assert then["throughput_verdict"] == "good"
        assert then["throughput"] == pytest.approx(grows * was["throughput"], rel=0.05)
        assert then["throughput_low"] < grows * was["throughput"] < then["throughput_high"]
    hog = frame.filter(pl.col("comm").str.starts_with("hog"), configuration="changed")
    assert hog["throughput"].null_count() == hog.height
    assert hog["cpu_time_high"].null_count() == 0
    (note,) = [one for one in ss.whatif_notes(real, frame) if "goes round its loop" in one]
    assert "'client'" in note


def test_fixed_number_of_rounds_keeps_its_cpu_time() -> None:
    real = simulate(closed_loop(0, rounds=100), policy="eevdf-6.12", cpus=1, until="2s")
    row = ss.whatif(real, set_nice={"hog*": 10}, replays=1).filter(
        comm="client", configuration="changed"
    )
    assert row["cpu_time"].item() == 100 * MS
    assert row["throughput"].item() is None


@pytest.mark.parametrize(
    ("lengths", "cpu_times", "limited"),
    [
        ([None], [500], True),
        ([2003 * MS], [500], True),
        ([2700 * MS], [500], False),
        ([None, None], [500, 560], True),
        ([None, None], [500, 505], False),
        ([2003 * MS, 2007 * MS, 2001 * MS], [500, 300, 400], True),
        ([2003 * MS, 2500 * MS, 2001 * MS], [500, 300, 400], False),
        ([2003 * MS, 2007 * MS, 2001 * MS], [500, 501, 502], False),
    ],
)
def test_time_limited_threads_are_detected(
    lengths: list[int | None], cpu_times: list[float], limited: bool
) -> None:
    seen = [{"rounds": 1000, "outside": 0.1, "length": one} for one in lengths]
    assert is_time_limited(seen, cpu_times) == limited
    paced = [{**one, "outside": 0.9} for one in seen]
    assert not is_time_limited(paced, cpu_times)
    assert not is_time_limited([{**one, "rounds": 20} for one in seen], cpu_times)


def test_the_table_shows_rounds(tmp_path, capsys: pytest.CaptureFixture[str]) -> None:  # type: ignore[no-untyped-def]
    real = simulate(closed_loop(0), policy="eevdf-6.12", cpus=1, until="1s")
    real.to_sched(tmp_path / "loop.sched")
    asked = ["whatif", str(tmp_path / "loop.sched"), "--set-nice", "hog*=10", "--replays", "1"]
    assert main(asked) == 0
    found = capsys.readouterr().out
    assert "rounds/s" in found
    assert main([*asked[:2], "--set-nice", "hog*=10", "--comm", "hog*", "--replays", "1"]) == 0
    assert "rounds/s" not in capsys.readouterr().out
