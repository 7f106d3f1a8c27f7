"""A trace cut in two and joined again gives the same answer.

Of [begin, cut) and [cut, end), reconstructed separately:

* the first part equals the whole up to the cut: its rows are the whole's first rows, followed by
  the intervals and waits unfinished at the cut. Those that a loss ended are excluded: whether a
  thread stayed on its queue across a loss may be shown by an event after the cut;
* the second part equals the whole once it knows a thread: from the thread's first switch-in
  after the cut on, rows are equal;
* joined, no running time is missing: a CPU's thread at the cut ran until an event shows the
  running thread; and a wait unfinished at the cut ended with that first switch-in.

The first holds for every stream, where both parts have a `waking` or neither: which events are
recorded decides what a wakeup without one means. The second needs different times, since the
state of a thread decides the order of two facts at one instant; and no losses, since earlier
events decide which threads they affect. The third needs a stream without losses and
contradictions, which take back results of the first part.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import polars as pl
from engines import by_native
from hypothesis import assume, given, strategies as st
from streams import ANY_STREAM, plausible
from worlds import World

# A thread that runs without an event when the recording starts may be woken while running, which
# looks like a wake from sleep until its switch-out: a contradiction, though the stream is
# consistent.
TRUE_STREAM = plausible(losses=False, ties=False, unseen=False)
UNTIL = pl.col("ts") + pl.col("dur")
CUT = st.floats(0, 1)

Result = dict[str, Any]


def cut_at(world: World, share: float) -> int:
    assert world.window is not None
    begin, end = world.window
    return begin + round(share * (end - begin))


def parts(world: World, cut: int) -> tuple[World, World]:
    """The two worlds; a loss across the cut belongs to the first."""
    assert world.window is not None
    first, second = {}, {}
    for name, table in world.tables.items():
        when = pl.col("ts_begin" if name == "losses" else "ts")
        first[name], second[name] = table.filter(when < cut), table.filter(when >= cut)
    first["losses"] = first["losses"].with_columns(pl.col("ts_end").clip(upper_bound=cut))
    return (
        replace(world, tables=first, window=(world.window[0], cut)),
        replace(world, tables=second, window=(cut, world.window[1])),
    )


def has_waking(world: World) -> bool:
    return "waking" in world.tables["wakeups"]["kind"]


def first_switch_ins(world: World) -> pl.DataFrame:
    """When each thread of the second part is first switched in, and each CPU first switches."""
    switches = world.tables["switches"]
    threads = switches.filter(pl.col("next_utid") >= world.ncpu)
    known = threads.group_by(utid="next_utid").agg(known=pl.col("ts").min())
    idle = switches.group_by(utid=pl.col("cpu").cast(pl.UInt32)).agg(known=pl.col("ts").min())
    return pl.concat([known, idle])


@given(ANY_STREAM, CUT)
def test_first_part_equals_the_whole_up_to_the_cut(world: World, share: float) -> None:
    cut = cut_at(world, share)
    before = parts(world, cut)[0]
    assume(has_waking(world) == has_waking(before))
    whole, first = by_native(world), by_native(before)
    closed = first["states"].filter(~pl.col("end").is_in(["window", "lost"]))
    seen = whole["states"].filter(pl.col("end") != "lost")
    assert seen.head(closed.height).equals(closed)
    ended = first["waits"].filter(pl.col("ts_run").is_not_null())
    seen = whole["waits"].filter(pl.col("ts_run").is_not_null())
    assert seen.head(ended.height).equals(ended)


@given(plausible(losses=False, ties=False), CUT)
def test_second_part_equals_the_whole_after_a_threads_first_switch_in(
    world: World, share: float
) -> None:
    """Without priorities: one that no event has repeated since the cut is not known yet."""
    after = parts(world, cut_at(world, share))[1]
    whole, second = by_native(world), by_native(after)
    known = first_switch_ins(after)

    def states(result: Result) -> pl.DataFrame:
        rows = result["states"].drop("prio").join(known, on="utid")
        return rows.filter(pl.col("ts") >= pl.col("known")).sort(pl.all())

    def waits(result: Result) -> pl.DataFrame:
        rows = result["waits"].drop("prio").join(known, on="utid")
        begin = pl.coalesce("ts_ready", pl.col("ts_run") - 1)
        return rows.filter(begin >= pl.col("known")).sort(pl.all())

    assert states(whole).equals(states(second))
    assert waits(whole).equals(waits(second))


@given(TRUE_STREAM)
def test_consistent_stream_has_no_contradictions(world: World) -> None:
    """The precondition of the next tests."""
    result = by_native(world)
    assert result["counters"]["contradictions"] == result["counters"]["chain_breaks"] == 0
    assert result["losses"].is_empty()


def run_on(first: Result, after: World) -> pl.DataFrame:
    """The threads on the CPUs at the cut, up to the first event that shows the running thread."""
    assert after.window is not None
    cut, end = after.window
    at_cut = first["states"].filter(state="running", end="window").select("utid", "cpu")
    evidence = after.tables["wakeups"].filter(pl.col("current_utid").is_not_null())
    shown = pl.concat([after.tables["switches"].select("cpu", "ts"), evidence.select("cpu", "ts")])
    first_shown = shown.group_by("cpu").agg(until=pl.col("ts").min())
    ran = at_cut.join(first_shown, on="cpu", how="left")
    return ran.select("utid", dur=pl.col("until").fill_null(end) - cut)


@given(TRUE_STREAM, CUT)
def test_no_running_time_is_lost_at_the_cut(world: World, share: float) -> None:
    """Per thread, idle ones too: the whole's time is the parts' plus what the cut hid."""
    before, after = parts(world, cut_at(world, share))
    whole, first, second = by_native(world), by_native(before), by_native(after)

    def running(result: Result) -> pl.DataFrame:
        return result["states"].filter(state="running").select("utid", "dur")

    joined = pl.concat([running(first), running(second), run_on(first, after)])

    def total(rows: pl.DataFrame) -> list[tuple[int, int]]:
        sums = rows.group_by("utid").agg(pl.col("dur").sum()).filter(pl.col("dur") > 0)
        return sorted(sums.iter_rows())

    assert total(joined) == total(running(whole))


@given(TRUE_STREAM, CUT)
def test_unfinished_wait_at_the_cut_ends_with_the_first_switch_in(
    world: World, share: float
) -> None:
    cut = cut_at(world, share)
    before, after = parts(world, cut)
    whole, first = by_native(world), by_native(before)
    columns = ["utid", "ts_ready", "ts_waking", "ts_run"]
    open_at_cut = first["waits"].filter(censored="right").drop("ts_run")
    joined = open_at_cut.join(first_switch_ins(after), on="utid").rename({"known": "ts_run"})
    spanning = whole["waits"].filter(
        pl.col("censored") == "none", pl.col("ts_ready") < cut, pl.col("ts_run") >= cut
    )
    seen = spanning.join(open_at_cut, on="utid", how="semi")
    assert seen.select(columns).sort(pl.all()).equals(joined.select(columns).sort(pl.all()))
    # The others started with a wakeup that the switch-in or the enqueue had yet to confirm.
    others = spanning.join(open_at_cut, on="utid", how="anti")
    assert others.filter(pl.col("ts_waking") >= pl.col("ts_ready")).is_empty()
    assert others["ts_waking"].null_count() == 0
