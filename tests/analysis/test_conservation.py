"""Conservation (docs/trace-model.md) holds for every stream, inconsistent ones included.

The rules leave no way to break it.
"""

from __future__ import annotations

import polars as pl
from engines import by_native
from hypothesis import given
from streams import ANY_STREAM
from worlds import World

END = pl.col("ts") + pl.col("dur")


@given(ANY_STREAM)
def test_a_cpu_runs_one_thread_at_a_time(world: World) -> None:
    """Running and idle intervals of one CPU do not overlap, and stay in the window."""
    assert world.window is not None
    running = by_native(world)["states"].filter(state="running").sort("cpu", "ts")
    assert running["cpu"].null_count() == 0
    assert running.filter(END.shift().over("cpu") > pl.col("ts")).is_empty()
    assert running.filter((pl.col("ts") < world.window[0]) | (world.window[1] < END)).is_empty()


@given(ANY_STREAM)
def test_cpu_totals_make_up_the_window(world: World) -> None:
    """running + idle + unknown = window, and the totals equal the sums over `states`."""
    assert world.window is not None
    result = by_native(world)
    running = result["states"].filter(state="running")
    for totals in result["per_cpu"]:
        parts = totals["running"] + totals["idle"] + totals["unknown"]
        assert parts == world.window[1] - world.window[0]
        here = running.filter(cpu=totals["cpu"])
        idle = pl.col("utid") < world.ncpu
        assert here.filter(idle)["dur"].sum() == totals["idle"]
        assert here.filter(~idle)["dur"].sum() == totals["running"]


@given(ANY_STREAM)
def test_intervals_of_a_thread_have_no_gap_and_no_overlap(world: World) -> None:
    """Intervals adjoin; a thread's last one ends at its exit or with the window; idle threads only
    run.
    """
    assert world.window is not None
    states = by_native(world)["states"]
    assert (states["dur"] > 0).all()
    assert states.filter(state="dead").is_empty()
    assert states.filter(pl.col("utid") < world.ncpu, pl.col("state") != "running").is_empty()
    lives = states.filter(pl.col("utid") >= world.ncpu).sort("utid", "ts")
    lives = lives.with_columns(until=END, following=pl.col("ts").shift(-1).over("utid"))
    assert lives.filter(pl.col("following") < pl.col("until")).is_empty()
    # Only an inconsistent stream reuses a utid after its exit; that counts as a new thread.
    deaths = world.tables["switches"].filter(prev_state="dead")
    ends = lives.filter((pl.col("following") != pl.col("until")).fill_null(True))
    not_dead = ends.join(
        deaths, left_on=["utid", "until"], right_on=["prev_utid", "ts"], how="anti"
    )
    assert not_dead.filter(pl.col("following").is_not_null()).is_empty()
    assert not_dead.filter(pl.col("until") != world.window[1]).is_empty()


@given(ANY_STREAM)
def test_running_time_by_thread_equals_running_time_by_cpu(world: World) -> None:
    """The sum over CPUs equals the sum over threads."""
    result = by_native(world)
    lives = result["states"].filter(pl.col("utid") >= world.ncpu, state="running")
    over_cpus = sum(totals["running"] for totals in result["per_cpu"])
    assert lives["dur"].sum() == over_cpus == result["counters"]["thread_running"]


@given(ANY_STREAM)
def test_every_switch_in_has_a_wait_row(world: World) -> None:
    """Rows with `ts_run` are the switch-ins of threads; the others are right-censored."""
    waits = by_native(world)["waits"]
    ins = world.tables["switches"].filter(pl.col("next_utid") >= world.ncpu)
    switch_ins = ins.select(utid="next_utid", ts_run="ts", cpu="cpu").sort(pl.all())
    ended = waits.filter(pl.col("ts_run").is_not_null())
    assert ended.select("utid", "ts_run", "cpu").sort(pl.all()).equals(switch_ins)
    assert ended.filter(pl.col("censored") == "right").is_empty()
    open_ended = waits.filter(pl.col("ts_run").is_null())
    assert open_ended.filter(~pl.col("censored").is_in(["right", "both"])).is_empty()


@given(ANY_STREAM)
def test_placement_and_queue_add_up_to_the_wait(world: World) -> None:
    """placement + queue = wait where all are known; none is negative; waking <= ready."""
    waits = by_native(world)["waits"]
    for part in ("placement", "queue", "wait"):
        assert waits.filter(pl.col(part) < 0).is_empty()
    whole = pl.col("placement") + pl.col("queue")
    assert waits.filter(whole != pl.col("wait")).is_empty()
    assert waits.filter(pl.col("ts_waking") > pl.col("ts_ready")).is_empty()
    known = waits.filter(pl.col("censored") == "none")
    assert known.filter(pl.col("ts_run") - pl.col("ts_ready") != pl.col("wait")).is_empty()
    begun_before = pl.col("censored").is_in(["left", "both"])
    assert waits.filter(begun_before != pl.col("ts_ready").is_null()).is_empty()
    assert waits.filter((pl.col("cause") == "unknown") & (pl.col("censored") != "left")).is_empty()
    # A wait whose waking was not recorded has a known queue time, unless the waking may have come
    # before the switch-out and its enqueue is missing.
    unplaced = waits.filter(begun_before & pl.col("ts_enqueued").is_null())
    assert unplaced["queue"].null_count() == unplaced.height


@given(ANY_STREAM)
def test_a_measured_wait_is_runnable_time(world: World) -> None:
    """From ts_ready to ts_run the thread was runnable, in one interval or, migrated, in several."""
    result = by_native(world)
    runnable = result["states"].filter(state="runnable")
    waits = result["waits"].filter(pl.col("censored") == "none", pl.col("wait") > 0)
    key = ["utid", "ts_ready", "ts_run"]
    within = (pl.col("ts") >= pl.col("ts_ready")) & (pl.col("ts_run") >= END)
    covered = waits.select(key).join(runnable, on="utid").filter(within)
    sums = covered.group_by(key).agg(wait=pl.col("dur").sum())
    assert sums.sort(key).equals(waits.select(*key, "wait").sort(key))
