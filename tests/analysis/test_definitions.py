"""Other tools' definitions of latency: one trace on which they differ, and each against a naive
one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import polars as pl
import pytest
from decoded import FIXTURES, decode
from hypothesis import given
from streams import plausible, wild
from worlds import World, world

import schedscope as ss
from schedscope.analysis.definitions import NAMES
from schedscope.errors import MissingEventsError, UsageError


def trace_of(made: World) -> ss.Trace:
    info = {"ncpu": made.ncpu, "window": list(made.window or (0, 1000))}
    info |= {"has_waking": True, "has_enqueued": True}
    return ss.Trace.from_tables(made.tables, info)


def waits(trace: ss.Trace, name: str) -> list[tuple[int, int, int]]:
    """(thread, switch-in, wait that the tool reports)"""
    frame = ss.as_defined(trace, name).waits.select("utid", "ts_run", "wait").collect()
    return sorted(frame.rows())


WORLD = """
    100 cpu0: waking A on 0
    110 cpu0: enqueued A on 0
    200 cpu0: idle -> A
    300 cpu0: A R+ -> B
    450 cpu0: B S -> A
    500 cpu0: waking A on 0
    520 cpu0: A S -> idle
    530 cpu0: enqueued A on 0
    600 cpu0: idle -> A
"""


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        # A woken at 100 runs at 200; preempted in the kernel from 300 to 450;
        # woken at 500 while leaving its CPU (until 520), enqueued at 530, runs at 600.
        ("perf", {"A": [100, 150], "B": [0]}),
        ("runqlat", {"A": [90, 150, 70], "B": []}),
        ("runqlat.bt", {"A": [90, 70], "B": []}),
        ("lisa", {"A": [90, 70], "B": []}),
        ("lisa-preempt", {"A": [], "B": []}),
        # The run at 600 gets the length of the preemption, the last R row before it.
        ("perfetto", {"A": [100, 150, 150], "B": []}),
        ("lttng", {"A": [100, 70], "B": []}),
        ("schedscore", {"A": [100, 100], "B": []}),
    ],
)
def test_tools_differ_on_the_same_trace(name: str, expected: dict[str, list[int]]) -> None:
    """The tools differ in the race of a waking with the switch-out, and in R+."""
    made = world(WORLD)
    found = waits(trace_of(made), name)
    for who, numbers in expected.items():
        assert [wait for utid, _, wait in found if made.name(utid) == who] == numbers


@dataclass
class Thread:
    """State that the naive implementations keep of a thread."""

    # perf
    atom: str = ""
    since: int = 0
    # the others
    stamp: dict[str, int | None] = field(default_factory=dict)
    last: str = ""
    last_ts: int = 0
    current: bool = False
    rows: list[list[object]] = field(default_factory=list)


def events(made: World) -> Iterator[tuple[int, str, int, bool, bool]]:
    """(ts, kind, utid, runnable, preempted) of each thread in the order of definitions.py."""
    order = {"out": 0, "waking": 2, "enqueued": 3, "new": 4, "in": 5}
    rows = []
    for row in made.tables["switches"].to_dicts() if "switches" in made.tables else []:
        runnable = row["prev_state"] == "runnable"
        plus = runnable and bool(row["preempted"])
        rows.append((row["ts"], "out", row["prev_utid"], runnable, plus))
        rows.append((row["ts"], "in", row["next_utid"], False, False))
    for row in made.tables["wakeups"].to_dicts() if "wakeups" in made.tables else []:
        rows.append((row["ts"], row["kind"], row["utid"], False, False))
    rows = [row for row in rows if row[2] >= made.ncpu]
    yield from sorted(rows, key=lambda row: (row[2], row[0], order[row[1]]))


def naive(made: World, name: str) -> list[tuple[int, int, int]]:
    """The tool's own bookkeeping, event by event."""
    threads: dict[int, Thread] = {}
    found: list[tuple[int, int, int]] = []
    for ts, kind, utid, runnable, plus in events(made):
        thread = threads.setdefault(utid, Thread())
        step = getattr(Naive, name.replace("-", "_").replace(".", "_"))
        wait = step(thread, ts, kind, runnable, plus)
        if wait is not None:
            found.append((utid, ts, wait))
    return sorted(found)


class Naive:
    """One method for each tool: takes an event, gives the wait it ends."""

    @staticmethod
    def perf(t: Thread, ts: int, kind: str, runnable: bool, plus: bool) -> int | None:
        if kind == "enqueued":
            return None
        if kind == "out":
            t.atom, t.since = ("wait" if runnable else "sleep"), ts
        elif kind == "in":
            if not t.atom:
                t.atom, t.since = "wait", ts
            if t.atom == "wait":
                t.atom = "ran"
                return ts - t.since
        else:
            if not t.atom:
                t.atom = "sleep"
            if t.atom == "sleep":
                t.atom, t.since = "wait", ts
        return None

    @staticmethod
    def _stamped(t: Thread, ts: int, kind: str, stamps: bool) -> int | None:
        if kind == "in":
            stamp, t.stamp["x"] = t.stamp.get("x"), None
            return None if stamp is None else ts - stamp
        if stamps:
            t.stamp["x"] = ts
        return None

    @staticmethod
    def runqlat(t: Thread, ts: int, kind: str, runnable: bool, plus: bool) -> int | None:
        return Naive._stamped(t, ts, kind, kind in ("enqueued", "new") or runnable)

    @staticmethod
    def runqlat_bt(t: Thread, ts: int, kind: str, runnable: bool, plus: bool) -> int | None:
        return Naive._stamped(t, ts, kind, kind in ("enqueued", "new") or (runnable and not plus))

    @staticmethod
    def schedscore(t: Thread, ts: int, kind: str, runnable: bool, plus: bool) -> int | None:
        return Naive._stamped(t, ts, kind, kind == "waking")

    @staticmethod
    def _adjacent(t: Thread, ts: int, kind: str, row: str, wanted: tuple[str, ...]) -> int | None:
        if kind == "waking":
            return None
        wait = ts - t.last_ts if kind == "in" and t.last in wanted else None
        t.last, t.last_ts = row, ts
        return wait

    @staticmethod
    def lisa(t: Thread, ts: int, kind: str, runnable: bool, plus: bool) -> int | None:
        return Naive._adjacent(t, ts, kind, kind, ("enqueued", "new"))

    @staticmethod
    def lisa_preempt(t: Thread, ts: int, kind: str, runnable: bool, plus: bool) -> int | None:
        row = "out0" if kind == "out" and runnable and not plus else kind
        return Naive._adjacent(t, ts, kind, row, ("out0",))

    @staticmethod
    def lttng(t: Thread, ts: int, kind: str, runnable: bool, plus: bool) -> int | None:
        if kind == "in":
            t.current = True
            stamp, t.stamp["x"] = t.stamp.get("x"), None
            return None if stamp is None else ts - stamp
        if kind == "out":
            t.current = False
        elif not t.current and t.stamp.get("x") is None:
            t.stamp["x"] = ts
        return None

    @staticmethod
    def perfetto(t: Thread, ts: int, kind: str, runnable: bool, plus: bool) -> int | None:
        # Rows of thread_state: [ts, state, dur].
        if kind in ("enqueued", "new"):
            return None
        if kind == "waking":
            if t.rows and t.rows[-1][1] in ("R", "Running"):
                return None
            state = "R"
        elif kind == "in":
            state = "Running"
        else:
            state = ("R+" if plus else "R") if runnable else "blocked"
        if t.rows:
            t.rows[-1][2] = ts - t.rows[-1][0]
        waits_ = [row[2] for row in t.rows if row[1] in ("R", "R+")]
        t.rows.append([ts, state, None])
        return waits_[-1] if kind == "in" and waits_ else None


@given(made=plausible(losses=False))
def test_each_rule_equals_its_naive_implementation(made: World) -> None:
    trace = trace_of(made)
    for name in NAMES:
        assert waits(trace, name) == naive(made, name), name


@given(made=wild())
def test_each_rule_equals_its_naive_implementation_on_inconsistent_streams(made: World) -> None:
    """Streams with missing switches or threads in two places: the tools check nothing, nor do we
    here.
    """
    trace = trace_of(made)
    for name in NAMES:
        assert waits(trace, name) == naive(made, name), name


def test_definitions_without_the_needed_events_have_empty_rows() -> None:
    """perf sched record has no sched_wakeup, so four rows are empty."""
    frame = ss.definitions(decode(FIXTURES / "perf-sched.data"))
    assert frame["definition"].to_list() == ["schedscope", *NAMES]
    empty = frame.filter(pl.col("n").is_null())
    assert empty["definition"].to_list() == ["runqlat", "runqlat.bt", "lisa", "lttng"]
    assert empty["leaves_out"].str.contains("needs sched_wakeup").all()
    # `perf sched latency -p` of the same file ends in TOTAL: ... | 558 |
    text = (FIXTURES / "perf-sched.latency.txt").read_text()
    total = int(text.split("TOTAL:")[1].split("|")[2])
    assert frame.row(by_predicate=pl.col("definition") == "perf", named=True)["n"] == total


def test_unknown_names_and_missing_events_are_refused() -> None:
    trace = decode(FIXTURES / "perf-sched.data")
    with pytest.raises(UsageError, match="one of perf, runqlat"):
        ss.as_defined(trace, "htop")
    with pytest.raises(MissingEventsError, match="no sched_wakeup"):
        ss.as_defined(trace, "runqlat")


def test_analyses_run_on_a_trace_as_defined() -> None:
    """`as_defined` returns a trace: every analysis of waits works on it."""
    trace = ss.as_defined(decode(FIXTURES / "perf-zstd.data"), "runqlat")
    frame = ss.latency(trace, by="comm")
    assert frame["n"].sum() == ss.definitions(trace).filter(definition="runqlat")["n"].item()
