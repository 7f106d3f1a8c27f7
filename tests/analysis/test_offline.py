"""A CPU that is offline raises no events: that is said, and is no gap in the recording."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import polars as pl
from engines import by_native
from worlds import world

from schedscope import Trace
from schedscope.analysis.check.check import check
from schedscope.analysis.cpus.offline import offline
from schedscope.parsers import schema
from schedscope.present.headline import gaps

GONE = """
    0  cpu0: idle -> A
    0  cpu1: idle -> B
    20 cpu1: waking stopper on 1 by B
    21 cpu1: enqueued stopper on 1 by B
    25 cpu1: B S -> stopper
    30 cpu1: waking B on 0 during stopper
"""
BACK = """
    80 cpu1: waking other on 0 during idle1
    81 cpu0: A R -> other
    85 cpu0: other S -> A
    90 cpu1: idle -> C
"""


def in_order(lines: list[str]) -> str:
    """Facts by their times."""
    facts = [line for line in lines if line.strip()]
    return "\n".join(sorted(facts, key=lambda line: int(line.split()[0])))


def warned(trace: Trace) -> list[str]:
    return check(trace).filter(pl.col("level") == "warning")["check"].to_list()


def traced(
    text: str,
    *,
    stop: str = "stop",
    stoppers: tuple[str, ...] = ("stopper",),
    online: bool | None = True,
    ncpu: int = 2,
) -> Trace:
    """A trace of 0..100 in which some threads are of class `stop`."""
    played = world(text, ncpu=ncpu, window=(0, 100))
    names = [*(f"idle{cpu}" for cpu in range(ncpu)), *played.names]
    rows: list[dict[str, Any]] = [
        {
            "utid": utid,
            "comm": name,
            "comm_first": "",
            "sched_class": stop if name in stoppers else None,
        }
        for utid, name in enumerate(names)
    ]
    threads = schema.conform("threads", pl.DataFrame(rows))
    played = replace(played, tables=played.tables | {"threads": threads})
    result = by_native(played)
    known = [True, online, True][:ncpu]
    cpus = pl.DataFrame({"cpu": list(range(ncpu)), "online": known})
    tables = played.tables | {name: result[name] for name in ("states", "waits", "losses")}
    tables["cpus"] = schema.conform("cpus", cpus)
    about = {
        "ncpu": ncpu,
        "window": (0, 100),
        "events": {"switch": {"0": 4, "1": 4}},
        "per_cpu": result["per_cpu"],
        "reconstruction": result["counters"],
    }
    return Trace.from_tables(tables, about)


def texts(trace: Trace) -> dict[str, str]:
    return dict(check(trace).select("check", "text").iter_rows())


def test_a_stopper_that_was_the_last_to_run_took_its_cpu_offline() -> None:
    trace = traced(GONE)
    assert offline(trace).rows() == [(1, 30, 70, False, False)]
    assert texts(trace)["offline"] == "CPU 1 for 70 ns"
    assert texts(trace)["unknown time"] == "0 ns of CPU time (0 %)"
    assert gaps(trace) == ["CPU 1 offline for 70 ns"]


def test_cpu_coming_online_is_not_a_mismatch() -> None:
    trace = traced(GONE + BACK)
    assert offline(trace).rows() == [(1, 30, 50, True, True)]
    assert texts(trace)["chain breaks"] == "none of 6 switches"
    assert not [gap for gap in gaps(trace) if "mismatch" in gap or "unknown" in gap]
    assert "CPU 1 offline for 50 ns" in gaps(trace)


COMING = """
    0  cpu2: idle -> halt2
    5  cpu2: halt2 S -> idle
    76 cpu2: idle -> halt2
    77 cpu2: halt2 S -> idle
"""
ENQUEUED = """
    0  cpu2: idle -> halt2
    5  cpu2: halt2 S -> idle
    75 cpu2: enqueued halt2 on 2 during idle2
    76 cpu2: idle -> halt2
    77 cpu2: halt2 S -> idle
"""


def test_wakeups_by_a_cpu_coming_online_are_not_missing() -> None:
    """Linux reports nothing that it does before it is online, but what others do for it."""
    text = "; 1 more in stopper threads, woken by a CPU that came online"
    facts = [*COMING.splitlines(), *GONE.splitlines(), *BACK.splitlines()]
    trace = traced(in_order(facts), stoppers=("stopper", "halt2"), ncpu=3)
    assert texts(trace)["missing wakeups"].endswith(text)
    assert "missing wakeups" not in warned(trace)
    assert not [gap for gap in gaps(trace) if "wakeup" in gap]
    facts = [*ENQUEUED.splitlines(), *GONE.splitlines(), *BACK.splitlines()]
    trace = traced(in_order(facts), stoppers=("stopper", "halt2"), ncpu=3)
    assert texts(trace)["missing wakings"].startswith("none of ")
    assert texts(trace)["missing wakings"].endswith(text)
    # The wakeup of another thread is missing.
    trace = traced(in_order(facts), stoppers=("stopper",), ncpu=3)
    assert "missing wakings" in warned(trace)


def test_other_thread_with_a_missing_switch_is_a_mismatch() -> None:
    trace = traced(GONE + BACK, stop="realtime")
    assert offline(trace).is_empty()
    assert texts(trace)["chain breaks"].startswith("1 of 6 switches")
    assert "1 prev/next mismatch" in gaps(trace)


def test_a_stopper_that_leaves_its_cpu_took_nothing_offline() -> None:
    trace = traced(GONE + "35 cpu1: stopper S -> idle")
    assert offline(trace).is_empty()
    assert texts(trace)["offline"] == "no CPU, as far as the trace shows"


def test_nothing_is_concluded_where_events_are_lost() -> None:
    trace = traced(GONE + "40 loss cpu1 until 60 overrun")
    assert offline(trace).is_empty()


QUIET = """
    0  cpu0: idle -> A
    60 cpu0: A S -> idle
"""


def test_unused_cpu_is_offline_not_missing() -> None:
    trace = traced(QUIET, online=False)
    assert offline(trace).rows() == [(1, 0, 100, False, False)]
    assert gaps(trace) == ["CPU 1 offline"]
    levels = dict(check(trace).select("check", "level").iter_rows())
    assert (levels["offline"], levels["unknown time"]) == ("note", "ok")


LATE = """
    0  cpu0: idle -> A
    0  cpu2: idle -> halt2
    5  cpu2: halt2 S -> idle
    40 cpu2: idle -> halt2
    41 cpu2: halt2 S -> idle
    60 cpu1: idle -> B
    80 cpu0: A S -> idle
"""


def test_a_cpu_that_came_online_was_offline_until_its_first_event() -> None:
    """It stopped CPU 2 on its way, of which no trace tells; and so it is in parts of the trace."""
    trace = traced(LATE, online=False, stoppers=("halt2",), ncpu=3)
    assert offline(trace).rows() == [(1, 0, 60, True, False)]
    assert texts(trace)["unknown time"] == "0 ns of CPU time (0 %)"
    text = "; 1 more in stopper threads, woken by a CPU that came online"
    assert texts(trace)["missing wakeups"].endswith(text)
    assert "missing wakeups" not in warned(trace)
    assert offline(trace.between("20ns", "50ns")).rows() == [(1, 20, 30, False, False)]
    assert offline(trace.between("50ns", "70ns")).rows() == [(1, 50, 10, True, False)]
    # It idled then, and is not taken for offline as at the start.
    assert offline(trace.between("70ns", "90ns")).is_empty()


def test_part_has_cpus_taken_offline_before_it() -> None:
    part = traced(GONE + BACK).between("40ns", "70ns")
    assert offline(part).rows() == [(1, 40, 30, False, True)]
    assert "CPU 1 offline" in gaps(part)
    assert not [gap for gap in gaps(part) if "mismatch" in gap]


def test_snapshot_has_offline_cpus_of_its_end() -> None:
    trace = traced(LATE, online=False, stoppers=("halt2",), ncpu=3)
    tables = {name: getattr(trace, name) for name in ("switches", "wakeups", "cpus", "threads")}
    taken = Trace.from_tables(tables, trace.info | {"ring": {"at": 100}})
    assert offline(taken).is_empty()


def test_used_or_unknown_cpu_without_events_is_missing() -> None:
    for online in (True, None):
        trace = traced(QUIET, online=online)
        assert offline(trace).is_empty()
        assert gaps(trace) == ["50.0 % of CPU time unknown"]
