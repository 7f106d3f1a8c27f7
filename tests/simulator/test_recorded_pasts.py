"""What FreeBSD's priorities say of threads before a recording, and of their nice values."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

import schedscope as ss
from schedscope.simulator.recorded.extract import extract_with_utids
from schedscope.simulator.recorded.freebsd_priorities import Bands, charge_of, share_of
from schedscope.simulator.recorded.nice import _as_noted, _by_priorities, _inherited
from schedscope.simulator.recorded.pasts import Life, history_of, used_within

ULE_13 = Bands(48, 120, 32, 127, 1)
BSD_13 = Bands(48, 120, 32, 128, 1, ule=False)
FIXTURES = Path(__file__).parents[2] / "fixtures"


def test_usage_lies_where_all_batch_priorities_agree() -> None:
    """Batch priorities of nice 0 are 172 to 203: 32 levels of 10 s / 32 = 312.5 ms."""
    assert used_within([(0.0, 174)], 0, ULE_13) == pytest.approx((0.625, 0.9375))
    # One level more after 200 ms: at least 0.9375 - 0.2 s were used before.
    assert used_within([(0.0, 174), (0.2, 175)], 0, ULE_13) == pytest.approx((0.7375, 0.9375))
    # A priority of another nice value contradicts what is known, and does not count.
    assert used_within([(0.0, 174), (0.2, 194)], 0, ULE_13) == pytest.approx((0.625, 0.9375))
    assert used_within([(0.0, 154)], -20, ULE_13) == pytest.approx((0.625, 0.9375))
    assert used_within([(0.0, 140)], 0, ULE_13) is None


def test_history_has_the_score_of_an_interactive_priority() -> None:
    """135 is a score of 15 * 30 / 32 = 14.06; 50 * 0.9 / 3.6 = 12.5 is nearest of the 20 shares,
    before 50 * 1.125 / 3.375 = 16.7.
    """
    assert history_of(Life(0, [(0.0, 135, False)], []), ULE_13) == pytest.approx((0.9, 3.6))
    assert history_of(Life(0, [], []), ULE_13) is None


def test_history_of_a_batch_priority_is_the_middle_of_what_gives_one() -> None:
    """Nice 0 needs a score of 30: shares of 0.4 (33) to 1, of which 0.7 is the middle. Nice -20
    needs 50: shares of 0.5 to 1.
    """
    assert history_of(Life(0, [(0.0, 172, False)], []), ULE_13) == pytest.approx((3.15, 1.35))
    assert history_of(Life(-20, [(0.0, 153, False)], []), ULE_13) == pytest.approx((3.375, 1.125))


def test_history_is_the_one_that_later_priorities_fit() -> None:
    """Batch at the start, and after 2 s of sleep a score of 28.1: of a history of 3 s the share
    0.95 gives 50 * 2.85 / 2.15 = 50, so that less was run: 1.95 / 3.05 has 32, and 0.6 of 3 s
    1.8 / 3.2 = 28.1.
    """
    life = Life(0, [(0.0, 172, False), (2.0, 150, False)], [(0.0, 2.0, "sleep")])
    run, sleep = history_of(life, ULE_13) or (0.0, 0.0)
    assert 50 * run / (sleep + 2.0) == pytest.approx(28.1, abs=0.1)
    assert (run, sleep) == pytest.approx((1.8, 1.2))


def test_charge_of_a_share_is_that_of_a_steady_load() -> None:
    """Half a CPU, load 1: each second adds 64 ticks, and 2 / 3 stay: from 128 to 192."""
    assert charge_of(0.5, 1.0, BSD_13) == 160
    assert share_of(160, 1.0, BSD_13) == 0.5
    # ESTCPULIM: 8 * (40 - 4) + 7.
    assert charge_of(1.0, 10.0, BSD_13) == 295


def test_priorities_rise_by_use() -> None:
    assert (BSD_13.rise(0.49), BSD_13.rise(1.0)) == (7, 16)
    assert (ULE_13.rise(0.3), ULE_13.rise(1.0)) == (0, 3)
    assert (ULE_13.worst_by_use, BSD_13.worst_by_use) == (203, 176)


SWITCHES = {
    "ts": pl.Int64,
    "prev_utid": pl.UInt32,
    "prev_prio": pl.Int16,
    "prev_state": pl.String,
    "next_utid": pl.UInt32,
    "next_prio": pl.Int16,
}


def switches(*rows: tuple[object, ...]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=SWITCHES, orient="row")


def test_recorded_change_of_nice_comes_with_the_stay_before() -> None:
    """One number, two threads: the first is started by `nice`, is recorded with 10 when it comes
    back at 50, and so set it after 10; the second begins with 5.
    """
    threads = pl.DataFrame({"utid": [5, 6], "tid": [100, 100]})
    rows = switches(
        (10, 0, 255, "runnable", 5, 172),
        (20, 5, 182, "runnable", 0, 255),
        (50, 0, 255, "runnable", 5, 182),
        (60, 5, 182, "dead", 0, 255),
        (80, 0, 255, "runnable", 6, 177),
        (90, 6, 177, "runnable", 0, 255),
    )
    noted = {100: [(48, 10), (79, 5)]}
    began, changes = _as_noted(threads, rows, {100: 3}, noted, 0)
    assert began == {5: 3, 6: 5}
    assert changes == {5: [(11, 10)]}


def test_worse_priority_than_use_explains_is_a_change_of_nice() -> None:
    """Under ULE 10 ms of use are no level, and 20 are; from 152 a thread returns to its own."""
    rows = switches(
        (0, 0, 255, "runnable", 5, 172),
        (10_000_000, 5, 182, "runnable", 6, 172),
        (20_000_000, 6, 173, "runnable", 7, 152),
        (30_000_000, 7, 172, "runnable", 0, 255),
    )
    assert _by_priorities(rows, ULE_13, 1) == {5: [(1, 10)]}


def test_charge_inherited_from_children_differs_from_nice() -> None:
    """4BSD: 164 may become 176, the largest charge, at once. 186 is at least nice 10, and 196 is
    20, of which 19 is simulated.
    """
    for left, found in ((176, {}), (186, {5: [(1, 10)]}), (196, {5: [(1, 19)]})):
        rows = switches((0, 0, 255, "runnable", 5, 164), (7_000_000, 5, left, "runnable", 0, 255))
        assert _by_priorities(rows, BSD_13, 1) == found, left


def test_children_have_the_nice_value_of_the_moment() -> None:
    threads = pl.DataFrame(
        {
            "utid": [4, 5, 6, 7],
            "tid": [100, 101, 102, 103],
            "parent_utid": [None, 4, 4, 6],
            "start_ts": [0, 10, 30, 40],
        }
    )
    began = _inherited(threads, {100: -5}, {4: [(20, 7)], 7: [(50, 9)]})
    assert began == {4: -5, 5: -5, 6: 7, 7: 7}


@pytest.mark.parametrize("name", ["freebsd-ule", "freebsd-4bsd"])
def test_threads_of_a_recording_have_a_past_if_none_forked_them(name: str) -> None:
    trace = ss.open(FIXTURES / f"{name}.capture")
    workload = ss.workload.extract(trace)
    known = workload.threads.filter(pl.col("past_run").is_not_null())
    assert known.height == workload.info["extraction"]["pasts"] > 0
    assert known["start"].null_count() == 0
    for past in ("past_used", "past_run", "past_sleep", "past_charged"):
        assert known[past].is_between(0, 10_000_000_000).all()


def test_recorder_used_no_cpu_time_before_the_recording() -> None:
    """`dtrace` takes most of a CPU in this recording of 4BSD, which would be 6.9 of 10 s."""
    trace = ss.open(FIXTURES / "freebsd-4bsd.capture")
    workload, utids = extract_with_utids(trace)
    recorders = trace.threads.filter(pl.col("recorder")).collect()["utid"]
    pasts = workload.threads.filter(utids.is_in(recorders.implode()))["past_used"].drop_nulls()
    assert pasts.to_list()
    assert set(pasts) == {0}
