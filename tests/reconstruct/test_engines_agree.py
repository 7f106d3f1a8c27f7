"""The native reconstruction is the naive one, on any stream; and its output keeps its promises."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import polars as pl
import pytest
from engines import assert_agree, by_native, by_oracle
from hypothesis import given, strategies as st
from streams import ANY_STREAM, faulty, plausible, wild
from worlds import World


@pytest.mark.parametrize("kind", [plausible, faulty, wild])
def test_the_engines_agree(kind: Callable[[], st.SearchStrategy[World]]) -> None:
    @given(kind())
    def agree(world: World) -> None:
        assert_agree(by_oracle(world), by_native(world))

    agree()


@given(ANY_STREAM, st.sets(st.integers(0, 12)))
def test_the_engines_agree_on_a_recording_of_chosen_threads(world: World, chosen: set[int]) -> None:
    """With any selected threads, and any events of the others."""
    world = replace(world, chosen=frozenset(chosen))
    assert_agree(by_oracle(world), by_native(world))


@given(ANY_STREAM, st.integers(1, 9))
def test_the_size_of_chunks_does_not_matter(world: World, chunk: int) -> None:
    """Fed in batches, the engine gives the same rows in the same order."""
    whole, pieces = by_native(world), by_native(world, chunk)
    for name in ("states", "waits", "losses"):
        assert whole[name].equals(pieces[name])
    assert whole["counters"] == pieces["counters"]


@given(ANY_STREAM)
def test_the_window_covers_every_fact(world: World) -> None:
    """A window that is absent or too small becomes that of the facts."""
    without = World(world.tables, world.ncpu, world.names)
    assert_agree(by_oracle(without), by_native(without))
    ends = [rows["ts"] for rows in world.tables.values() if "ts" in rows.columns]
    first = pl.concat(ends).min()
    if first is not None and world.tables["losses"].is_empty():
        small = World(world.tables, world.ncpu, world.names, (first, first))
        assert_agree(by_native(without), by_native(small))


@given(ANY_STREAM)
def test_rows_come_in_the_order_of_their_ends(world: World) -> None:
    """In the order in which they become known; rows that end with the window are last."""
    result = by_native(world)
    # A prev/next mismatch ends an interval in the past, where it was last confirmed.
    seen = result["states"].filter(pl.col("end") != "lost")
    assert seen.select(pl.col("ts") + pl.col("dur")).to_series().is_sorted()
    assert result["losses"]["ts_begin"].is_sorted()
    open_at_end = result["states"]["end"] == "window"
    assert open_at_end.is_sorted()
