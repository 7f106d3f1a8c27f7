"""Exact quantiles of more groups than are summed up at a time."""

from __future__ import annotations

import numpy as np
import pytest

from schedscope.analysis.sums import order_statistics as module


@pytest.mark.parametrize("rows", [1, 3, 7, 1 << 12])
def test_how_many_groups_are_summed_up_at_a_time_changes_nothing(
    rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_ROWS", rows)
    rng = np.random.default_rng(5)
    group = rng.integers(0, 20, 400)
    group[group == 11] = 12  # one without any
    wait = np.exp(rng.normal(9, 3, 400)).astype(np.int64)
    histogram = np.zeros((20, module.buckets()), np.int64)
    np.add.at(histogram, (group, module.bucket(wait)), 1)
    n = histogram.sum(axis=1)
    ranks = np.stack([n // 2 - (n == 0), n - 1], axis=1)
    found = module.order_statistics(histogram, ranks, lambda: [(group, wait)])
    for number in range(20):
        mine = np.sort(wait[group == number])
        expected = [mine[len(mine) // 2], mine[-1]] if len(mine) else [-1, -1]
        assert found[number].tolist() == expected
