"""A CPU that is taken offline has no more events: its last thread did not run on.

Rule Taken down of docs/trace-model.md; both engines give the written answer.
"""

from __future__ import annotations

from dataclasses import replace

import polars as pl
import pytest
from engines import Engine, assert_agree, by_native, by_oracle
from hypothesis import given, strategies as st
from streams import ANY_STREAM
from worlds import World, state_lines, world

from schedscope.parsers.schema import SCHED_CLASS


@pytest.fixture(params=[by_oracle, by_native], ids=["oracle", "native"])
def engine(request: pytest.FixtureRequest) -> Engine:
    return request.param


def classed(played: World, utid: int, sched_class: str) -> World:
    """The world with a table of threads, in which one has a class."""
    threads = pl.DataFrame(
        {"utid": [utid], "sched_class": [sched_class]},
        schema_overrides={"sched_class": SCHED_CLASS},
    ).with_columns(affinity=pl.lit(None, pl.String))
    return replace(played, tables=played.tables | {"threads": threads})


def answer(engine: Engine, text: str, who: str, sched_class: str) -> list[str]:
    """The states of one thread of that class in a window of 0..100."""
    played = world(text, ncpu=2, window=(0, 100))
    utid = 2 + played.names.index(who)
    result = engine(classed(played, utid, sched_class))
    return state_lines(played, result["states"].filter(utid=utid).sort("ts"))


GONE = """
    0  cpu0: idle -> A
    20 cpu1: waking stopper on 1 during idle1
    21 cpu1: enqueued stopper on 1 during idle1
    25 cpu1: idle -> stopper
    30 cpu1: waking A on 0 during stopper
    90 cpu0: A S -> idle
"""


def test_stopper_as_last_thread_takes_its_cpu_offline(engine: Engine) -> None:
    """Its last event is at 30, when it woke a thread; from then on it is unknown."""
    assert answer(engine, GONE, "stopper", "stop") == [
        "stopper runnable@1 20..25 switched",
        "stopper running@1 25..30 lost",
        "stopper unknown 30..100 window",
    ]


def test_other_last_thread_keeps_running(engine: Engine) -> None:
    assert answer(engine, GONE, "stopper", "realtime")[1:] == [
        "stopper running@1 25..100 window",
    ]


def test_cpu_coming_online_starts_with_its_idle_thread(engine: Engine) -> None:
    back = GONE + "95 cpu1: waking stopper on 1 during idle1"
    assert answer(engine, back, "stopper", "stop")[1:] == [
        "stopper running@1 25..30 lost",
        "stopper unknown 30..95 woken",
        "stopper runnable 95..100 window",
    ]


@given(ANY_STREAM, st.integers(0, 3))
def test_engines_agree_for_any_stopper(played: World, which: int) -> None:
    stopped = classed(played, played.ncpu + which, "stop")
    assert_agree(by_oracle(stopped), by_native(stopped))
