"""Nothing is invented and nothing lost: the sums of docs/trace-model.md, Conservation."""

from __future__ import annotations

import oracle
import polars as pl
from hypothesis import given
from streams import plausible, wild
from worlds import World


def check(world: World, states: pl.DataFrame, waits: pl.DataFrame) -> None:
    begin, end = world.window
    # Per CPU: running and idle intervals do not overlap; the rest of the window is unknown.
    running = states.filter(state="running").sort("cpu", "ts")
    assert running["cpu"].null_count() == 0
    assert running.filter(
        (pl.col("ts") < begin)
        | (pl.col("ts") + pl.col("dur") > end)
        | ((pl.col("ts") + pl.col("dur")).shift().over("cpu") > pl.col("ts"))
    ).is_empty()
    # Per thread: adjoining intervals, up to its exit or the window's end.
    lives = states.filter(pl.col("utid") >= world.ncpu).sort("utid", "ts")
    ends = pl.col("ts") + pl.col("dur")
    assert lives.filter(pl.col("ts") != ends.shift().over("utid")).is_empty()
    last = lives.group_by("utid").last()
    assert last.filter((ends != end) & (pl.col("end") != "exited")).is_empty()
    assert (states["dur"] > 0).all()
    # One row of the ledger per switch-in.
    ins = world.tables["switches"].filter(pl.col("next_utid") >= world.ncpu)
    ran = waits.filter(pl.col("ts_run").is_not_null())
    assert ins.select(utid="next_utid", ts_run="ts").sort(pl.all()).equals(
        ran.select("utid", "ts_run").sort(pl.all())
    )
    for part in ("wait", "placement", "queue"):
        assert waits.filter(pl.col(part) < 0).is_empty()


@given(plausible() | wild())
def test_the_oracle_conserves(world: World) -> None:
    result = oracle.reconstruct(world.tables, world.ncpu, world.window)
    check(world, result["states"], result["waits"])
