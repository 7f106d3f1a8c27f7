"""When the fault campaign takes a figure for right, bounded, admitted, doubted or wrong."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from faults.comparison import Doubt
from faults.summaries import Answer, Counts, Judge, may_be_off, of_rows
from faults.truth import STATES, Truth


def truth(*spans: tuple[str, int, int]) -> Truth:
    rows = [{"tid": 1, "ts": ts, "end": end, "state": state, "cpu": 0} for state, ts, end in spans]
    schema = {"tid": pl.Int64, "ts": pl.Int64, "end": pl.Int64, "state": pl.String, "cpu": pl.Int64}
    states = pl.DataFrame(rows, schema=schema).with_columns(pl.col("state").cast(pl.Enum(STATES)))
    none = pl.DataFrame({"tid": [], "wait": []})
    return Truth(states, none, none, (0, 1_000_000), [], set(), 1)


@pytest.mark.parametrize(
    ("slept", "doubt", "expected"),
    [
        (9_000, Doubt(10_000), 1),
        (11_000, Doubt(10_000), 0),
        (11_000, Doubt(10_000, since=400_000), 1),
        (11_000, Doubt(10_000, since=600_000), 0),
        (9_000, Doubt(0), 0),
    ],
)
def test_count_may_miss_sleeps_shorter_than_the_doubt(
    slept: int, doubt: Doubt, expected: int
) -> None:
    """One of two sleeps is not counted: it is short, or comes after `since`, or it is an error."""
    true = truth(
        ("running", 0, 100_000),
        ("sleeping", 100_000, 300_000),
        ("running", 300_000, 500_000),
        ("sleeping", 500_000, 500_000 + slept),
    )
    assert may_be_off("count", doubt, true) == expected


def judged(
    said: dict[str, Any],
    true: dict[str, Any],
    *,
    admits: bool = False,
    flagged: bool = False,
    clocks: bool = False,
) -> Counts:
    """Of one row of `latency`."""
    judge = Judge(Counts(), admits, flagged, clocks, Doubt(), truth())
    answers = [of_rows("latency", pl.DataFrame([row])) for row in (said, true)]
    one, other = (answer for answer in answers if isinstance(answer, Answer))
    judge.table("latency", "all", one, other)
    return judge.counts


def status(said: dict[str, Any], true: dict[str, Any], **told: bool) -> str:
    """That of the only figure."""
    (counts,) = judged(said, true, **told).statuses.values()
    (found,) = counts
    return found


PAIR = {"total": 5_000_000, "total_high": 5_000_000}


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (5_000_000, 5_000_000, "right"),
        (4_000_000, 5_000_000, "bound"),
        (4_000_000, None, "bound"),
        (4_000_000, 4_500_000, "wrong"),
        (5_100_000, None, "wrong"),
    ],
)
def test_upper_bound_must_hold_with_or_without_a_warning(
    low: int, high: int | None, expected: str
) -> None:
    said = {"total": low, "total_high": high}
    assert status(said, PAIR, admits=True, flagged=True) == expected


def test_figure_without_an_upper_bound_is_right_or_admitted() -> None:
    """By its own row, then by the headline, then by a new warning; never if it is too large."""
    true = {"total": 5_000_000, "n_excluded": 0}
    assert status({"total": 5_000_500, "n_excluded": 0}, true) == "right"
    low, admitted = {"total": 4_000_000, "n_excluded": 0}, {"total": 4_000_000, "n_excluded": 1}
    assert status(admitted, true) == "admitted"
    assert status(low, true) == "wrong"
    assert status(low, true, admits=True) == "headed"
    assert status(low, true, flagged=True) == "flagged"
    assert status({"total": 6_000_000, "n_excluded": 1}, true, admits=True) == "wrong"


def test_sum_lacks_no_more_than_the_unknown_time() -> None:
    true = {"total": 5_000_000, "unknown": 0}
    assert status({"total": 4_000_000, "unknown": 1_000_000}, true) == "admitted"
    assert status({"total": 4_000_000, "unknown": 500_000}, true) == "wrong"


def test_width_is_a_share_of_the_true_figure() -> None:
    counts = judged({"total": 4_000_000, "total_high": 9_000_000}, PAIR)
    assert counts.widths == {"all": {"1": 1}}
