"""Quantiles of groups: the same whether values are held, counted or sorted in slices of groups."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import polars as pl
import pytest
from hypothesis import given, strategies as st

from schedscope.analysis.sums import group_counts, group_histograms

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
def test_quantiles_equal_those_of_sorting(way: str, rows: list[tuple[int, int]]) -> None:
    """In batches of 7; groups are known as they appear, and some have no value."""
    group = pl.Series([g for g, _ in rows], dtype=pl.Int64)
    value = pl.Series([v for _, v in rows], dtype=pl.Int64)

    def pairs() -> Iterator[tuple[pl.Series, pl.Series]]:
        for i in range(0, max(len(rows), 1), 7):
            yield group[i : i + 7], value[i : i + 7]

    with pytest.MonkeyPatch.context() as patch:
        for name, limit in WAYS[way].items():
            patch.setattr(group_counts if name == "_HELD" else group_histograms, name, limit)
        counts = group_counts.GroupCounts()
        groups = 0
        for some, values in pairs():
            groups = max(groups, (-1 if some.is_empty() else some.max()) + 2)
            counts.add(some, values, groups)
        found = counts.at(SHARES, pairs)
    assert [len(column) for column in found] == [groups] * len(SHARES)
    for number in range(groups):
        mine = sorted(v for g, v in rows if g == number)
        assert counts.n[number] == len(mine)
        expected = [mine[-(-len(mine) * s // 1) - 1] if mine else None for s in SHARES]
        assert [column[number] for column in found] == expected


def test_no_quantiles_give_an_empty_list() -> None:
    counts = group_counts.GroupCounts()
    counts.add(pl.Series([0, 1]), pl.Series([5, 6]), 2)
    assert counts.at([], lambda: []) == []


def test_a_slice_holds_no_more_than_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """40 values of 10 groups, 8 at a time: five passes, and one that finds the large group."""
    monkeypatch.setattr(group_counts, "_HELD", 0)
    for name, limit in {"_HISTOGRAMS": 0, "_SLICE": 8}.items():
        monkeypatch.setattr(group_histograms, name, limit)
    value = pl.int_range(40, eager=True)
    passes = []

    def pairs() -> list[tuple[pl.Series, pl.Series]]:
        passes.append(1)
        return [(value // 4, value)]

    counts = group_counts.GroupCounts()
    counts.add(value // 4, value, 10)
    assert counts.at([Fraction(1)], pairs)[0].to_list() == list(range(3, 40, 4))
    assert len(passes) == 5
