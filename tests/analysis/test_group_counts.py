"""Quantiles of groups: the same whether values are held, counted or sorted in slices of groups."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, strategies as st

from schedscope.analysis._base import group_counts as module

SHARES = [Fraction(1, 3), Fraction(1, 2), Fraction(99, 100), Fraction(1)]

WAYS = {
    "held": {},
    "histograms": {"_HELD": 0},
    "histograms, after some were held": {"_HELD": 9},
    "histograms, fine until groups are many": {"_HELD": 0, "_FEW": 4},
    "slices": {"_HELD": 0, "_HISTOGRAMS": 0, "_SLICE": 10},
    "slices, each of one group": {"_HELD": 0, "_HISTOGRAMS": 0, "_SLICE": 1},
    "slices, of which histograms became too many": {"_HELD": 5, "_HISTOGRAMS": 3, "_SLICE": 4},
}


@pytest.mark.parametrize("way", WAYS)
@given(
    rows=st.lists(
        st.tuples(st.integers(0, 8), st.one_of(st.integers(0, 9), st.integers(0, 2**62))),
        max_size=60,
    )
)
def test_against_sorting(way: str, rows: list[tuple[int, int]]) -> None:
    """In batches of 7; groups are known as they appear, and some have no value."""
    group = np.array([g for g, _ in rows], dtype=np.int64)
    value = np.array([v for _, v in rows], dtype=np.int64)

    def pairs() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for i in range(0, max(len(rows), 1), 7):
            yield group[i : i + 7], value[i : i + 7]

    with pytest.MonkeyPatch.context() as patch:
        for name, limit in WAYS[way].items():
            patch.setattr(module, name, limit)
        counts = module.GroupCounts()
        groups = 0
        for some, values in pairs():
            groups = max(groups, int(some.max(initial=-1)) + 2)
            counts.add(some, values, groups)
        found = counts.at(SHARES, pairs)
    assert found.shape == (groups, len(SHARES))
    for number in range(groups):
        mine = np.sort(value[group == number])
        assert counts.n[number] == len(mine)
        expected = (
            [int(mine[-(-len(mine) * s // 1) - 1]) for s in SHARES] if len(mine) else [-1] * 4
        )
        assert found[number].tolist() == expected


def test_no_quantiles_are_none() -> None:
    counts = module.GroupCounts()
    counts.add(np.array([0, 1]), np.array([5, 6]), 2)
    assert counts.at([], lambda: []).shape == (2, 0)


def test_a_slice_holds_no_more_than_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """40 values of 10 groups, 8 at a time: five passes, and one that finds the large group."""
    for name, limit in {"_HELD": 0, "_HISTOGRAMS": 0, "_SLICE": 8}.items():
        monkeypatch.setattr(module, name, limit)
    group = np.repeat(np.arange(10), 4)
    passes = []

    def pairs() -> list[tuple[np.ndarray, np.ndarray]]:
        passes.append(1)
        return [(group, np.arange(40))]

    counts = module.GroupCounts()
    counts.add(group, np.arange(40), 10)
    assert counts.at([Fraction(1)], pairs)[:, 0].tolist() == list(range(3, 40, 4))
    assert len(passes) == 5
