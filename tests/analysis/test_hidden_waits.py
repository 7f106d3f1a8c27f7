"""Waits that a recording does not show, several in one hole perhaps: small traces by hand."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import example, given, strategies as st
from scenes import MS, scene
from test_bounded_answers import bounds, row_of
from test_latency import bounded

import schedscope as ss
from schedscope.analysis.sums.hidden_quantiles import Hidden, hidden
from schedscope.analysis.sums.quantiles import rank
from schedscope.parsers.schema import TABLES

US = 1_000
SHOWN = [
    {"ts_ready": begin * US, "ts_run": (begin + n) * US, "wait": n * US, "wait_high": n * US}
    for begin, n in ((100, 5), (200, 10), (300, 20), (400, 40))
]
HOLE = (800 * US, 830 * US)


def with_losses(trace: ss.Trace, *rows: dict[str, Any], **info: Any) -> ss.Trace:
    losses = pl.DataFrame([{"cpu": 0, **row} for row in rows], schema=TABLES["losses"].schema)
    tables = {name: getattr(trace, name) for name in ("waits", "threads", "states")}
    told = {"ncpu": 1, "window": [0, 1000 * US], **info}
    return ss.Trace.from_tables({**tables, "losses": losses}, told)


OVERRUN = {"ts_begin": HOLE[0], "ts_end": HOLE[1], "reason": "overrun"}


def figures(trace: ss.Trace) -> list[tuple[float, float]]:
    row = ss.latency(trace, by="comm").row(0, named=True)
    return bounds(row, "mean", "p50", "max", unit=US)


def test_lost_events_bound_the_number_of_hidden_waits() -> None:
    """Three at most in 30 us: one of 20 or more is possible, and three of no length."""
    trace = bounded(*SHOWN, unknown=HOLE)
    lost = [(75 / 7, 105 / 4), (5, 20), (40, 40)]
    assert figures(with_losses(trace, OVERRUN | {"count": 3})) == lost
    # Counted, but not where: the stretch may be any gap that is long enough.
    unplaced = [{"cpu": 0, "count": 3, "reason": "overrun"}]
    assert figures(with_losses(trace, OVERRUN, unplaced_losses=unplaced)) == lost


def test_where_losses_are_not_counted_one_wait_may_be_hidden_in_each_stretch() -> None:
    trace = bounded(*SHOWN, unknown=HOLE)
    one = [(75 / 5, 105 / 4), (10, 20), (40, 40)]
    assert figures(with_losses(trace)) == one
    assert figures(with_losses(trace, OVERRUN)) == one


def test_a_filter_may_have_left_out_any_number_of_waits() -> None:
    """Of the threads that it left out; those that were recorded have no unknown time."""
    trace = with_losses(bounded(*SHOWN, unknown=HOLE), filtered={"utids": [7]})
    assert figures(trace)[1:] == [(0, 20), (40, 40)]


def test_how_many_waits_there_may_have_been() -> None:
    """Four were seen; three lost events may have ended three, a stretch of unknown time one.

    Where they were not counted, any number; one that was not over at the end is none of them.
    """
    trace = bounded(*SHOWN, unknown=HOLE)
    broken = {"ts_begin": 900 * US, "ts_end": 910 * US, "reason": "truncated"}
    counted, both = OVERRUN | {"count": 3}, [OVERRUN | {"count": 2}, broken]
    for losses, most in (([], 5), ([counted], 7), (both, None)):
        for by in ("comm", "cause"):
            row = ss.latency(with_losses(trace, *losses), by=by).row(0, named=True)
            assert (row["n"], row["n_high"]) == (4, most)
    open_ = {"ts_ready": 950 * US, "wait": 50 * US, "censored": "right"}
    row = ss.latency(with_losses(bounded(*SHOWN, open_))).row(0, named=True)
    assert (row["n"], row["n_high"], row["n_censored"]) == (4, 4, 1)


def test_uncounted_and_counted_losses_together() -> None:
    """Two events in the one, and a wait of up to 30 us in the other."""
    trace = bounded(*SHOWN, unknown=HOLE)
    late = {"ts_begin": 900 * US, "ts_end": 910 * US, "reason": "late_start"}
    found = figures(with_losses(trace, OVERRUN | {"count": 2}, late))
    assert found == [(75 / 7, 105 / 4), (5, 20), (40, 40)]


def test_records_that_are_cut_off_may_hide_any_number_of_waits() -> None:
    trace = bounded(*SHOWN, unknown=HOLE)
    assert figures(with_losses(trace, OVERRUN | {"reason": "truncated"}))[1:] == [(0, 20), (40, 40)]


def test_a_thread_that_only_hidden_waits_can_have() -> None:
    trace = with_losses(bounded(unknown=HOLE), OVERRUN | {"count": 3})
    row = ss.latency(trace).row(0, named=True)
    assert bounds(row, "p50", "max", "total", unit=US) == [(0, 30), (0, 30), (0, 30)]
    assert (row["n"], row["mean"], row["mean_high"]) == (0, 0, None)


@given(
    st.lists(st.integers(0, 50), max_size=6),
    st.lists(st.integers(0, 60), max_size=2),
    st.lists(st.integers(1, 60), max_size=3),
    st.integers(0, 4),
    st.sampled_from([Fraction(1, 10), Fraction(1, 2), Fraction(9, 10), Fraction(1)]),
)
@example(shown=[0, 50], once=[30], stretches=[], most=0, share=Fraction(1, 2))
@example(shown=[], once=[], stretches=[1], most=1, share=Fraction(1, 2))
def test_bounds_are_the_extremes_of_all_samples_that_are_possible(
    shown: list[int], once: list[int], stretches: list[int], most: int, share: Fraction
) -> None:
    """The quantile is largest with all that may be as long as some length, and no other."""
    all_of = Hidden(np.array(once, np.int64), np.array(stretches, np.int64), most)

    def quantile_with(*more: int) -> int:
        sample = sorted([*shown, *more])
        return sample[rank(len(sample), share)] if sample else -1

    def longest(length: int) -> list[int]:
        parts = sum(stretch // length for stretch in stretches)
        return [*(one for one in once if one >= length), *[length] * min(most, parts)]

    known = np.array(sorted(shown), np.int64)
    least, greatest = all_of.least(known, share), all_of.greatest(known, share)
    assert (-1 if least is None else least) == quantile_with(*[0] * (len(once) + most))
    possible = [quantile_with(*longest(length)) for length in range(1, 62)]
    # Waits of 0 ns count where there is nothing longer.
    nothing = quantile_with(*once) if not any(once) else -1
    assert (-1 if greatest is None else greatest) == max(*possible, nothing)


def test_hidden_waits_have_lengths_of_upper_bounds_and_room_in_their_stretches() -> None:
    """A length has a last bit more; events follow each other after 250 ns at the earliest."""
    once, stretches = pl.Series([7]), pl.Series([1000, 249])
    found = hidden(once, stretches, 100)
    assert (found.once.tolist(), found.stretches.tolist(), found.most) == ([14], [2000, 498], 6)
    assert hidden(once, stretches, 5).n == 6


def test_three_rows_may_be_one_wait() -> None:
    """Woken, put on a queue, and run, each behind a hole: at least one wait, of up to 100."""
    woken = {"ts_ready": 100, "wait": 0, "wait_high": 10, "censored": "right"}
    queued = {"ts_enqueued": 110, "wait_high": 100, "censored": "both"}
    ran = {"ts_run": 200, "wait_high": 90, "censored": "left"}
    row = ss.latency(bounded(woken, queued, ran, unknown=(100, 200))).row(0, named=True)
    assert bounds(row, "total", "mean", "p50", unit=1) == [(0, 100), (0, 100), (0, 100)]


def test_waiting_on_an_unknown_queue_bounds_fairness() -> None:
    """a waits 40 ms, perhaps where b runs, and b may be due half of that time less."""
    text = """
        z sleeping   0..0
        b running@0  0..100
        a runnable@? 0..40
        a running@1  40..50
        c runnable@1 50..100
    """
    frame = ss.fairness(scene(text, until=100), per="cpu")
    a, b = (row_of(frame, comm=name) for name in "ab")
    assert bounds(a, "running", "waiting", "due", "lag", "served") == [
        (10, 10), (0, 40), (10, 50), (0, 40), (10, 50),
    ]  # fmt: skip
    assert bounds(b, "waiting", "due", "lag") == [(0, 0), (60, 100), (-40, 0)]
    assert a["coverage"] == pytest.approx(10 / 50)


def test_thread_of_which_nothing_is_known_has_a_row_in_fairness() -> None:
    """It may have had 30 ms, which belong to the sums of its name."""
    text = "v unknown 0..30\nb running@0 0..100"
    trace = scene(text, {"v": {"prio": 125}}, until=100)
    row = row_of(ss.fairness(trace, per="cpu"), comm="v")
    assert (row["sharing"], row["unknown"], row["coverage"]) == ("fair", 30 * MS, 0)
    assert (row["weight"], row["basis"]) == (335, "kernel table")
    assert bounds(row, "running", "waiting", "due") == [(0, 30), (0, 30), (0, 30)]


def test_cpu_without_a_record_may_hide_any_number_of_waits() -> None:
    trace = with_losses(
        bounded(*SHOWN, unknown=HOLE), {"ts_begin": 0, "ts_end": 1000 * US, "reason": "unrecorded"}
    )
    row = ss.latency(trace).row(0, named=True)
    assert bounds(row, "p50", "max", unit=US) == [(0, 20), (40, 40)]
    assert row["mean"] < US


def test_new_thread_without_a_first_wakeup_may_have_waited() -> None:
    """b was made at 20 and ran at 60: what a was due meanwhile is open."""
    text = """
        a running@0  0..60
        b running@0  60..80
        a runnable@0 60..80
        a running@0  80..100
    """
    known = scene(text, until=100)
    names = known.threads.collect()
    b = names.filter(comm="b")["utid"].item()
    wait = {"utid": b, "cause": "unknown", "ts_run": 60 * MS, "censored": "left"}
    waits = pl.DataFrame([wait], schema=TABLES["waits"].schema)
    made = pl.when(comm="b").then(20 * MS).alias("start_ts")
    tables = {"states": known.states, "waits": waits, "threads": names.with_columns(made)}
    a = row_of(ss.fairness(ss.Trace.from_tables(tables, dict(known.info)), per="cpu"), comm="a")
    assert bounds(a, "running", "waiting", "due") == [(80, 80), (20, 20), (50, 90)]


def test_unknown_time_of_a_cpu_may_have_served_any_thread_of_the_machine() -> None:
    """For 10 ms the one CPU may have run another thread: a and b may be due so much more."""
    text = """
        a running@0  0..40
        b runnable@0 0..40
        b running@0  40..60
        a runnable@0 40..60
        a running@0  60..90
    """
    frame = ss.fairness(scene(text, ncpu=1, until=100), per="machine")
    due = [bounds(row_of(frame, comm=name), "due")[0] for name in "ab"]
    assert due == [(60, 70), (30, 40)]
