"""Quantiles without sorting everything: the same answer as sorting everything."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, strategies as st
from ledgers import ledger

import schedscope as ss
from schedscope.analysis.asking import batches
from schedscope.analysis.sums import order_statistics as module
from schedscope.analysis.sums.order_statistics import (
    COARSE,
    FINE,
    bucket,
    bucket_start,
    buckets,
    order_statistics,
)
from schedscope.analysis.waits import grouping

WAIT = st.one_of(
    st.integers(0, 20),
    st.integers(1_000, 1_010),
    st.integers(0, 2**62),
    # At the edges of buckets, and where a float cannot tell neighbours apart.
    st.builds(lambda e, d: max(0, 2**e + d), st.integers(0, 61), st.integers(-2, 2)),
)


@pytest.mark.parametrize("parts", [COARSE, FINE])
@given(
    rows=st.lists(st.tuples(st.integers(0, 2), WAIT), min_size=1, max_size=80),
    narrow=st.booleans(),
)
def test_every_rank_of_every_group(parts: int, rows: list[tuple[int, int]], narrow: bool) -> None:
    """Against `sorted`, whether or not the intervals have to be narrowed, in batches of 7."""
    group = np.array([g for g, _ in rows])
    wait = np.array([w for _, w in rows])

    def pairs() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for i in range(0, len(rows), 7):
            yield group[i : i + 7], wait[i : i + 7]

    size = buckets(parts)
    cells = np.bincount(group * size + bucket(wait, parts), minlength=3 * size)
    sizes = [int((group == g).sum()) for g in range(3)]
    ranks = np.full((3, max(sizes)), -1)
    expected = np.full((3, max(sizes)), -1)
    for g, n in enumerate(sizes):
        ranks[g, :n] = range(n)
        expected[g, :n] = np.sort(wait[group == g])
    with pytest.MonkeyPatch.context() as patch:
        if narrow:
            patch.setattr(module, "_KEEP", 0)
        got = order_statistics(cells.reshape(3, size), ranks, pairs, parts)
    assert got.tolist() == expected.tolist()


@pytest.mark.parametrize("parts", [COARSE, FINE])
@given(waits=st.lists(WAIT, min_size=2))
def test_buckets_do_not_fall(parts: int, waits: list[int]) -> None:
    """A longer wait is in no earlier bucket: what the whole method rests on."""
    numbers = bucket(np.sort(np.array(waits)), parts)
    assert (np.diff(numbers) >= 0).all()
    assert numbers.max() < buckets(parts)


@pytest.mark.parametrize("parts", [COARSE, FINE])
@given(wait=st.integers(0, 2**50))
def test_a_wait_lies_between_its_buckets_ends(parts: int, wait: int) -> None:
    number = bucket(np.array([wait]), parts)
    assert bucket_start(number, parts).item() <= wait < bucket_start(number + 1, parts).item()


def test_batches_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    """A ledger read in batches of 3 rows gives what it gives in one."""
    rng = np.random.default_rng(3)
    lines = [
        f"{'abc'[rng.integers(3)]} {('wake', 'preempt')[rng.integers(2)]} "
        f"{'?' if rng.random() < 0.1 else i} -> "
        f"{'open' if rng.random() < 0.1 else i + rng.integers(1, 300)} cpu{rng.integers(2)}"
        for i in range(100)
    ]
    trace = ledger("\n".join(lines))
    questions: list[dict[str, object]] = [
        {},
        {"by": "comm"},
        {"by": ["cpu", "cause"]},
        {"every": 10},
        {"by": "tid", "every": 25},
        {"by": "comm", "censored": "kaplan-meier"},
    ]
    for question in questions:
        whole = ss.latency(trace, **question)  # type: ignore[arg-type]
        monkeypatch.setattr(batches, "BATCH", 3)
        assert ss.latency(trace, **question).equals(whole)  # type: ignore[arg-type]
        # More combinations than a table is made for.
        monkeypatch.setattr(grouping, "_TABLE", 1)
        assert ss.latency(trace, **question).equals(whole)  # type: ignore[arg-type]
        monkeypatch.undo()
