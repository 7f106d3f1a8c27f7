"""Sketches add up, and their quantiles are within the stated error of the exact ones."""

from __future__ import annotations

import json
from math import ceil

import numpy as np
import pytest
from hypothesis import given, strategies as st

from schedscope.fleets.sketch import RELATIVE_ERROR, Sketch

SHARES = (0.001, 0.25, 0.5, 0.9, 0.99, 0.999, 1.0)
WAITS = st.lists(
    st.one_of(st.integers(0, 10), st.integers(0, 10**6), st.integers(0, 2**62)), max_size=60
)


def exact(waits: list[int], share: float) -> int:
    """The nearest rank, as `latency` takes it."""
    return sorted(waits)[max(0, ceil(share * len(waits)) - 1)]


def assert_close(sketch: Sketch, waits: list[int]) -> None:
    for share in SHARES:
        found, true = sketch.wait_at(share), exact(waits, share)
        assert found is not None
        assert abs(found - true) <= RELATIVE_ERROR * true * (1 + 1e-9), share


@given(st.lists(WAITS, min_size=1, max_size=5))
def test_merged_sketches_equal_the_whole(parts: list[list[int]]) -> None:
    """Range by range, in any order; and every quantile is within the error."""
    whole = [wait for part in parts for wait in part]
    sketches = [Sketch.of(np.array(part, dtype=np.int64)) for part in parts]
    at_once = Sketch.of(np.array(whole, dtype=np.int64))
    for merged in (Sketch.merged(sketches), Sketch.merged(sketches[::-1])):
        assert (merged.counts, merged.zero) == (at_once.counts, at_once.zero)
        assert merged.n == len(whole)
    if whole:
        assert_close(Sketch.merged(sketches), whole)
    else:
        assert at_once.wait_at(0.5) is None


def test_relative_error_holds_for_waits_of_all_lengths() -> None:
    rng = np.random.default_rng(1)
    waits = np.concatenate([np.exp(rng.normal(9, 3, 20_000)), rng.integers(0, 50, 5_000)]).astype(
        np.int64
    )
    assert_close(Sketch.of(waits), waits.tolist())


def test_sketch_is_restored_from_json() -> None:
    sketch = Sketch.of(np.array([0, 0, 3, 4_000, 10**12]))
    kept = json.loads(json.dumps(sketch.to_json()))
    assert kept["relative_error"] == RELATIVE_ERROR
    again = Sketch.from_json(kept)
    assert (again.counts, again.zero) == (sketch.counts, 2)
    assert [again.wait_at(q) for q in SHARES] == [sketch.wait_at(q) for q in SHARES]


def test_vectorised_rule_equals_the_ddsketch_package() -> None:
    """Each wait is counted in the same range as by the package."""
    from ddsketch.mapping import LogarithmicMapping

    own = LogarithmicMapping(RELATIVE_ERROR)
    for wait in [1, 2, 3, 999, 1_000, 123_456_789, 2**40, 2**62]:
        [key] = Sketch.of(np.array([wait])).counts
        assert key == own.key(wait)
        assert own.key(own.value(key)) == key


@pytest.mark.parametrize("n", [1, 2])
def test_few_waits_have_quantiles_too(n: int) -> None:
    sketch = Sketch.of(np.array([1_000] * n))
    assert sketch.wait_at(0.5) == pytest.approx(1_000, rel=RELATIVE_ERROR)
    assert sketch.wait_at(1.0) == pytest.approx(1_000, rel=RELATIVE_ERROR)
