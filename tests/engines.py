"""Both reconstructions with one signature: a world in, frames and counters out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import oracle
import polars as pl
from worlds import World

from schedscope import _native

Engine = Callable[[World], dict[str, Any]]
# The clock of each CPU; by how much timestamps may be off, and how much they were moved.
Clocks = tuple[list[int], int | None, int]


def by_oracle(world: World, clocks: Clocks | None = None) -> dict[str, Any]:
    return oracle.reconstruct(
        world.tables,
        world.ncpu,
        world.window,
        clocks,
        uncounted=world.uncounted,
        chosen=None if world.chosen is None else set(world.chosen),
        habits=set(world.habits),
    )


def by_native(
    world: World, chunk: int | None = None, clocks: Clocks | None = None
) -> dict[str, Any]:
    answer = _native.reconstruct(
        world.tables,
        world.ncpu,
        world.window,
        chunk,
        clocks=clocks,
        uncounted=world.uncounted,
        chosen=None if world.chosen is None else sorted(world.chosen),
        habits=sorted(world.habits),
    )
    frames = {name: pl.DataFrame(answer[name]) for name in ("states", "waits", "losses")}
    return frames | {"counters": answer["counters"], "per_cpu": answer["per_cpu"]}


def assert_agree(first: dict[str, Any], second: dict[str, Any]) -> None:
    """Same rows and counts. Rows that become known at one instant may be in any order."""
    for name in ("states", "waits", "losses"):
        left, right = (result[name].sort(pl.all()) for result in (first, second))
        only = [
            one.join(other, on=pl.all(), how="anti", nulls_equal=True)
            for one, other in ((left, right), (right, left))
        ]
        assert left.equals(right), (
            f"{name}: {only[0].rows(named=True)} against {only[1].rows(named=True)}"
        )
    counters = [
        {name: count for name, count in result["counters"].items() if count}
        for result in (first, second)
    ]
    assert counters[0] == counters[1]
