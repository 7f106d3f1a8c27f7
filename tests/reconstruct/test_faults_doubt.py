"""How far the figures of the fault campaign may be off by clocks that differ undetected."""

from __future__ import annotations

import polars as pl
import pytest
from faults.comparison import Doubt
from faults.figures import Caution, Figure, status
from faults.truth import STATES, Truth

NOTHING_SAID = Caution({}, (), 0)


def truth(*spans: tuple[str, int, int]) -> Truth:
    rows = [{"tid": 1, "ts": ts, "end": end, "state": state, "cpu": 0} for state, ts, end in spans]
    states = pl.DataFrame(rows).with_columns(pl.col("state").cast(pl.Enum(STATES)))
    none = pl.DataFrame({"tid": [], "wait": []})
    return Truth(states, none, none, (0, 1_000_000), [], set(), 1)


@pytest.mark.parametrize(
    ("slept", "doubt", "expected"),
    [
        (9_000, Doubt(10_000), "doubted"),
        (11_000, Doubt(10_000), "wrong"),
        (11_000, Doubt(10_000, since=400_000), "doubted"),
        (11_000, Doubt(10_000, since=600_000), "wrong"),
        (9_000, Doubt(0), "wrong"),
    ],
)
def test_count_may_miss_sleeps_shorter_than_the_doubt(
    slept: int, doubt: Doubt, expected: str
) -> None:
    """One of two sleeps is not counted: it is short, or comes after `since`, or it is an error."""
    true = truth(
        ("running", 0, 100_000),
        ("sleeping", 100_000, 300_000),
        ("running", 300_000, 500_000),
        ("sleeping", 500_000, 500_000 + slept),
    )
    said, whole = Figure(1, "part"), Figure(2, "part")
    assert status("off CPU n", said, whole, true, NOTHING_SAID, NOTHING_SAID, doubt) == expected
