"""Verdicts of `whatif` are about the figure that is shown: its range, its waits, its model."""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from archives import unpack

import schedscope as ss
from schedscope.simulator.changes.ranges import CROSS, of_change
from schedscope.simulator.changes.verdicts import FAMILY, NARROW, SAME, VERSION, model_apart
from schedscope.simulator.changes.whatif import AsItWas, Asked, Other, combine
from schedscope.simulator.runs.run import simulate
from schedscope.simulator.runs.services import NOTHING

FIXTURES = Path(__file__).parents[2] / "fixtures"
MS = 1_000_000
USUAL = {**NOTHING, "alive": 1, "cpu_time": 1000 * MS, "n_waits": 500, "waiting": 500 * MS}
USUAL |= {"wait_mean": MS, "wait_p50": MS, "wait_p10": MS // 20, "wait_p90": 3 * MS}
USUAL |= {"wait_p30": MS * 9 // 10, "wait_p70": MS * 11 // 10}
USUAL |= {"wait_p99": 9 * MS, "few": 0.002}


def told(outside: float = 0.0, model: str = SAME, **figures: Any) -> dict[str, Any]:
    """The change of a recorded host whose replays are all right."""
    run = {"web": USUAL | figures}
    spread = {"web": {"outside": outside}}
    was = AsItWas({"web": 1}, run["web"] and run, [run], MS, spreads=spread)
    frame = combine([Asked(was, [run], model=model)], "comm")
    return frame.filter(configuration="changed").row(0, named=True)


def test_a_right_replay_with_a_narrow_range_is_good() -> None:
    row = told()
    assert (row["replay_error"], row["verdict"]) == (1, "good")
    assert row["waiting_high"] < NARROW**2 * row["waiting_low"]


def test_a_figure_is_good_if_it_is_known_while_others_take_as_much() -> None:
    """Others took half of the CPU time: without them it waits a seventh, with more five times."""
    row = told(outside=0.5)
    assert row["replay_error"] == 1
    assert row["waiting_low"] < 500 * MS / 5
    assert row["waiting_high"] > 500 * MS * 4
    assert row["waiting_alike_high"] < NARROW**2 * row["waiting_alike_low"]
    assert row["waiting_verdict"] == row["cpu_time_verdict"] == "good"


def test_a_range_that_is_wide_even_so_is_not_good() -> None:
    """Its waits are of all lengths: another recording may have any of them in the middle."""
    row = told(outside=0.5, wait_p30=MS // 20, wait_p70=3 * MS)
    assert row["wait_p50_verdict"] == "doubtful"
    assert row["wait_p50_alike_high"] > NARROW**2 * row["wait_p50_alike_low"]
    assert told()["wait_p50_verdict"] == "good"


def test_the_99th_percentile_of_a_few_waits_is_not_good() -> None:
    row = told(n_waits=42)
    assert (row["wait_p99_verdict"], row["wait_p50_verdict"]) == ("doubtful", "good")
    assert told(n_waits=5)["wait_p50_verdict"] == "doubtful"


def test_waiting_that_is_one_long_wait_is_not_good() -> None:
    """Another recording may have two such waits, or none."""
    row = told(few=0.5)
    assert row["waiting_verdict"] == "doubtful"
    assert row["waiting_high"] > NARROW**2 * row["waiting_low"]


def test_the_replay_of_one_scheduler_says_nothing_of_the_model_of_another() -> None:
    row = told(model=FAMILY)
    assert {row[f"{key}_verdict"] for key in ("cpu_time", "waiting", "wait_p99")} == {"doubtful"}
    narrow, wide = told(), told(model=VERSION)
    assert wide["waiting_verdict"] == "good"
    assert wide["waiting_high"] > narrow["waiting_high"]


def test_how_far_a_policy_is_from_the_recorded_one() -> None:
    assert model_apart("eevdf-6.12", "eevdf-6.12") == SAME
    assert model_apart("cfs-5.10", "cfs-6.1") == VERSION
    assert model_apart("cfs-6.1", "eevdf-6.12") == FAMILY

    class Own(ss.Policy):
        name = "eevdf-6.12"

    assert model_apart("eevdf-6.12", Own()) == FAMILY


def test_several_captures_under_another_policy_are_wider_by_what_models_are_off() -> None:
    captures = [{"recorded": USUAL, "changes": [USUAL]}] * 3
    errors = dict.fromkeys(CROSS, 1.0)
    same, other = of_change(captures, errors), of_change(captures, errors, crossed=True)
    for key in CROSS:
        assert other[f"{key}_high"] > same[f"{key}_high"], key
        assert other[f"{key}_low"] < same[f"{key}_low"], key


def test_unknown_of_one_of_several_captures_is_a_part_of_their_range() -> None:
    """Its other extraction waits as long: no more is open than without it."""
    run = {"web": USUAL}
    plain = Asked(AsItWas({"web": 1}, run, [run], MS, spreads={"web": {"outside": 0.5}}), [run])
    open_ = Asked(plain.was, [run], other=[Other("whether it sleeps", run, [run])])
    one, other = (
        combine(captures, "comm").filter(configuration="changed").row(0, named=True)
        for captures in ([plain] * 3, [plain, plain, open_])
    )
    assert (one["waiting_low"], one["waiting_high"]) == (
        other["waiting_low"],
        other["waiting_high"],
    )


def test_single_periodic_thread_under_another_kernel_is_doubtful(tmp_path: Path) -> None:
    """Under CFS it waits 14.7 ms in all, and its replay is right; under EEVDF 82 to 125 ms."""
    with tarfile.open(FIXTURES / "cfs-and-eevdf.tar.xz") as archive:
        unpack(archive, tmp_path)
    before = ss.open(tmp_path / "linux-6.1-sleepers-1.capture")
    mine = pl.col("comm") == "sleeper0"
    frame = ss.whatif(before, policy="eevdf-6.12", where=mine)
    row = frame.filter(configuration="changed").row(0, named=True)
    assert (row["model"], row["verdict"]) == (FAMILY, "doubtful")
    assert row["replay_error"] < 1.01
    assert row["waiting"] < 20 * MS
    for i in (1, 2, 3):
        after = ss.open(tmp_path / f"linux-6.12-sleepers-{i}.capture")
        real = ss.latency(after, where=mine).row(0, named=True)
        assert row["waiting"] < real["total"] / 4
        assert row["waiting_low"] <= real["total"] <= row["waiting_high"]
        assert row["wait_p99_low"] <= real["p99"] <= row["wait_p99_high"]
    said = ss.whatif_notes(before, frame)
    assert any("nothing of another one" in note for note in said)
    assert any("of fewer than 100 waits the 99th percentile" in note for note in said)


@pytest.mark.parametrize("by_name", [False, True])
def test_signal_without_a_possible_receiver_is_sent(*, by_name: bool) -> None:
    """The reader waits for anyone: there is no wait for this sender by name that it could meet."""
    b = ss.workload.Builder()
    first, second = b.thread("first"), b.thread("second")
    first.run("1ms").signal(second, meet=True).run("1ms")
    if by_name:
        second.wait_for(first)
    else:
        second.wait_for()
    second.run("1ms").signal(first, meet=True)
    trace = simulate(b.workload(), policy="eevdf-6.12", cpus=1)
    ran = trace.states.filter(pl.col("state") == "running", pl.col("utid") > 0)
    assert ran.select(pl.col("dur").sum()).collect().item() == 3 * MS
