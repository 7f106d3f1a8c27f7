"""A trace cut in time: nothing is lost or invented at the cut, and waits across it are censored."""

from __future__ import annotations

import polars as pl
import pytest
from engines import by_native
from hypothesis import given, strategies as st
from ledgers import ledger
from streams import ANY_STREAM
from worlds import World

import schedscope as ss
from schedscope.cli import main

BUNDLED = "fixtures/linux-ftrace-mixed.capture"
SHARE = st.floats(0, 1)


def at(trace: ss.Trace, ts: int) -> str:
    """An instant as the time after the start that `between` takes, exactly."""
    return f"{ts - trace.origin}ns"


def trace_of(world: World) -> ss.Trace:
    found = by_native(world)
    tables = {**world.tables, "states": found["states"], "waits": found["waits"]}
    tables["losses"] = found.get("losses", world.tables["losses"])
    info = {"ncpu": world.ncpu, "window": list(world.window or (0, 0))}
    return ss.Trace.from_tables(tables, {**info, "per_cpu": found["per_cpu"]})


@given(ANY_STREAM, SHARE, SHARE)
def test_checks_hold_in_every_window(world: World, one: float, other: float) -> None:
    trace = trace_of(world)
    begin, end = trace.window
    since, until = sorted(begin + round(share * (end - begin)) for share in (one, other))
    if since == until:
        return
    part = trace.between(at(trace, since), at(trace, until))
    whole = dict(ss.check(trace).select("check", "level").iter_rows())
    for check, level in ss.check(part).select("check", "level").iter_rows():
        assert level != "violated" or whole[check] == "violated", check


@given(ANY_STREAM, SHARE)
def test_times_of_two_parts_add_up_to_the_whole(world: World, share: float) -> None:
    """In every state of every thread; each part's waits are no longer than within it."""
    trace = trace_of(world)
    begin, end = trace.window
    cut = begin + round(share * (end - begin))
    if not begin < cut < end:
        return
    parts = [trace.between(until=at(trace, cut)), trace.between(since=at(trace, cut))]

    def time(one: ss.Trace) -> pl.LazyFrame:
        inside = pl.min_horizontal(pl.col("ts") + pl.col("dur"), end) - pl.col("ts")
        return one.states.select("utid", "state", time=inside)

    def summed(frame: pl.LazyFrame) -> dict[tuple[int, str], int]:
        frame = frame.group_by("utid", "state").agg(pl.col("time").sum())
        return {(utid, state): n for utid, state, n in frame.collect().iter_rows() if n}

    assert summed(pl.concat(map(time, parts))) == summed(time(trace))
    switches = sum(part.switches.collect().height for part in parts)
    assert switches == trace.switches.collect().height


WAITS = """
    early wake 100 -> 150 cpu0
    across wake 150 -> 300 cpu0
    inside wake 300 -> 350 cpu1
    late wake 380 -> 500 cpu1
    spanning preempt 100 -> 600 cpu0
    open wake 390 -> open cpu0
    after wake 400 -> 420 cpu0
    unseen unknown ? -> 310 cpu0
"""


def test_waits_are_censored_where_the_cut_falls() -> None:
    part = ledger(WAITS).between("200ns", "400ns")
    names = part.threads.select("utid", "comm")
    rows = part.waits.join(names, on="utid").select(
        "comm", "ts_ready", "ts_run", "wait", "censored"
    )
    assert sorted(rows.collect().rows()) == [
        ("across", None, 300, None, "left"),
        ("inside", 300, 350, 50, "none"),
        ("late", 380, None, 20, "right"),
        ("open", 390, None, 10, "right"),
        ("spanning", None, None, None, "both"),
        ("unseen", None, 310, None, "left"),
    ]


def test_times_are_counted_from_the_start_of_the_recording() -> None:
    trace = ledger("a wake 2000000100 -> 2000000150 cpu0", window=(1_000_000_000, 3_000_000_000))
    part = trace.between("1s", "1.5s")
    assert part.window == (2_000_000_000, 2_500_000_000)
    assert part.origin == 1_000_000_000
    for same in ("1.2s", "1.2", 1.2, "1200ms", part.seconds(2_200_000_000)):
        assert part.between(same).window == (2_200_000_000, 2_500_000_000)


def test_bare_number_is_in_seconds_as_tables_print(capsys: pytest.CaptureFixture[str]) -> None:
    """Seconds from the start: also in a cut trace, and in the shell as in Python."""
    assert main(["info", BUNDLED, "--since", "0.5", "--until", ".6"]) == 0
    assert "100 ms" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("since", "until", "word"),
    [
        ("2s", "1s", "outside"),
        ("500ns", "400ns", "is empty"),
        ("2000ns", None, "outside"),
        ("1 day", None, "is not a time"),
        (float("nan"), None, "not a time"),
        (True, None, "not a time"),
    ],
)
def test_empty_window_is_refused(since: str | float, until: str | float, word: str) -> None:
    with pytest.raises(ss.UsageError, match=word):
        ledger(WAITS).between(since, until)


@pytest.mark.parametrize("command", ["latency", "check", "queue-depth", "info", "definitions"])
def test_commands_take_a_window(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, BUNDLED, "--since", "0.5s", "--until", "0.6s"]) == 0
    assert "100 ms" in capsys.readouterr().out


def test_a_pattern_selects_threads_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["latency", BUNDLED, "--comm", "kworker/*", "--format", "csv"]) == 0
    rows = capsys.readouterr().out.splitlines()[1:]
    assert len(rows) > 1
    assert all(row.startswith("kworker/") for row in rows)


@pytest.mark.parametrize(
    ("option", "value", "hint"),
    [("--comm", "pyton3", "python3"), ("--tid", "4000000", "thread"), ("--cpu", "7", "0, 1")],
)
def test_selection_that_matches_nothing_is_refused(
    option: str, value: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["latency", BUNDLED, option, value]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert hint in err
    assert err.count("\n") == 1


def test_part_of_a_loss_has_no_count() -> None:
    trace = ss.open("fixtures/linux-ftrace-lossy.capture")
    counted = trace.losses.filter(pl.col("count") > 0).collect().row(0, named=True)
    begin, end = counted["ts_begin"], counted["ts_end"]
    middle = (begin + end) // 2

    def counts(since: int, until: int) -> list[int | None]:
        cut = trace.between(at(trace, since), at(trace, until)).losses
        here = (pl.col("ts_begin") >= since) & (pl.col("cpu") == counted["cpu"])
        return cut.filter(here, pl.col("ts_begin") < end).collect()["count"].to_list()

    assert counts(begin, end) == [counted["count"]]
    assert counts(begin, middle) == counts(middle, end) == [None]
