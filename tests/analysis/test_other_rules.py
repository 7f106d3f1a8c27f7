"""Other tools' results for the same recordings, from the tool itself or implemented again here."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path

import polars as pl
import pytest
from tools import tool

import schedscope as ss
from schedscope.simulator.workloads import generators
from schedscope.simulator.workloads.machine import grid

FIXTURES = Path(__file__).parents[2] / "fixtures"

Span = tuple[int, int, int]


# -- SchedViz --------------------------------------------------------------------------


def schedviz_spans(trace: ss.Trace) -> tuple[dict[int, list[Span]], dict[int, list[Span]]]:
    """Waiting intervals by thread and running intervals by CPU, as SchedViz infers them.

    A thread waits from a wakeup (sched_wakeup, not sched_waking), or from a switch-out while
    runnable, until its switch-in; a migration moves it to the other CPU's queue. Waiting: (begin,
    end, CPU). Running: (begin, end, thread). Unfinished intervals end with the trace.
    """
    n = trace.ncpu
    events: list[tuple[int, int, tuple[object, ...]]] = []
    switches = trace.switches.select("ts", "cpu", "prev_utid", "prev_state", "next_utid").collect()
    for ts, cpu, prev, state, following in switches.rows():
        events.append((ts, 0, ("switch", cpu, prev, state, following)))
    for ts, kind, utid, cpu in (
        trace.wakeups.select("ts", "kind", "utid", "target_cpu").collect().rows()
    ):
        if kind != "waking":
            events.append((ts, 1, ("wake", utid, cpu)))
    for ts, utid, cpu in trace.migrations.select("ts", "utid", "to_cpu").collect().rows():
        events.append((ts, 2, ("move", utid, cpu)))
    waiting: dict[int, tuple[int, int]] = {}
    running: dict[int, tuple[int, int]] = {}
    waits: dict[int, list[Span]] = defaultdict(list)
    runs: dict[int, list[Span]] = defaultdict(list)
    on_cpu: set[int] = set()
    for ts, _, event in sorted(events, key=lambda event: event[:2]):
        if event[0] == "switch":
            _, cpu, prev, state, following = event
            assert isinstance(cpu, int)
            if cpu in running:
                since, who = running.pop(cpu)
                runs[cpu].append((since, ts, who))
            on_cpu.discard(prev)  # type: ignore[arg-type]
            if state == "runnable" and prev >= n:  # type: ignore[operator]
                waiting[prev] = (ts, cpu)  # type: ignore[index]
            if following in waiting:
                since, queue = waiting.pop(following)  # type: ignore[call-overload]
                waits[following].append((since, ts, queue))  # type: ignore[index]
            running[cpu] = (ts, following)  # type: ignore[assignment]
            on_cpu.add(following)  # type: ignore[arg-type]
        elif event[0] == "wake":
            _, utid, cpu = event
            if utid not in waiting and utid not in on_cpu:
                waiting[utid] = (ts, cpu)  # type: ignore[index, assignment]
        elif event[1] in waiting:
            _, utid, cpu = event
            since, queue = waiting[utid]  # type: ignore[index]
            waits[utid].append((since, ts, queue))  # type: ignore[index]
            waiting[utid] = (ts, cpu)  # type: ignore[index, assignment]
    end = trace.window[1]
    for utid, (since, queue) in waiting.items():
        waits[utid].append((since, end, queue))
    for cpu, (since, who) in running.items():
        runs[cpu].append((since, end, who))
    return waits, runs


@pytest.fixture(scope="module")
def simulated() -> ss.Trace:
    """Three policies' worth of moves and waits would do; this one both pulls and preempts."""
    machine = grid(1, 4, 1).with_costs({"switch": 1337, "ipi": 211})
    return ss.simulate(generators.web(6), policy="eevdf-6.12", machine=machine)


def test_waits_are_those_of_schedviz(simulated: ss.Trace) -> None:
    waits, _ = schedviz_spans(simulated)
    theirs = {utid: sum(b - a for a, b, _ in spans) for utid, spans in waits.items()}
    ours = dict(
        simulated.states.filter(pl.col("state") == "runnable")
        .group_by("utid")
        .agg(pl.col("dur").sum())
        .collect()
        .iter_rows()
    )
    assert {utid: time for utid, time in theirs.items() if time} == ours
    assert sum(ours.values()) > 10_000_000


def test_antagonists_are_those_of_schedviz(simulated: ss.Trace) -> None:
    """Its antagonists of a thread: the threads that ran on the CPU it waited for."""
    waits, runs = schedviz_spans(simulated)
    theirs: Counter[tuple[int, int]] = Counter()
    for utid, spans in waits.items():
        for begin, end, cpu in spans:
            for since, until, who in runs[cpu]:
                common = min(end, until) - max(begin, since)
                if common > 0 and who >= simulated.ncpu:
                    theirs[utid, who] += common
    frame = ss.interference(simulated).filter(pl.col("kind").cast(pl.String) == "thread")
    ours = {(a, b): t for a, b, t in frame.select("victim_utid", "utid", "time").rows()}
    assert ours == dict(theirs)
    assert len(ours) > 30


@pytest.mark.parametrize("name", ["linux-ftrace-placement.capture", "linux-ftrace-mixed.capture"])
def test_wait_equals_schedvizs_wait_plus_placement(name: str, tmp_path: Path) -> None:
    """Our wait starts at sched_waking, SchedViz's at sched_wakeup: `placement` lies between.

    SchedViz ignores prev/next mismatches: a thread whose switch-out or switch-in is missing waits
    for longer there. This happens no more often than there are mismatches.
    """
    trace = ss.open(FIXTURES / name, cache=tmp_path)
    waits, _ = schedviz_spans(trace)
    theirs = {(utid, end): begin for utid, spans in waits.items() for begin, end, _ in spans}
    # A migration cuts an interval there in two; they are joined again.
    for utid, spans in waits.items():
        for (a, b, _), (c, d, _) in pairwise(spans):
            if b == c:
                theirs[utid, d] = theirs.pop((utid, b), a)
    ledger = trace.waits.filter(
        pl.col("censored") == "none", pl.col("cause").is_in(["wake", "new", "preempt", "yield"])
    )
    breaks = trace.losses.filter(pl.col("reason") == "chain_break").select(pl.len())
    checked = longer = 0
    for utid, ready, enqueued, ran in (
        ledger.select("utid", "ts_ready", "ts_enqueued", "ts_run").collect().rows()
    ):
        if (utid, ran) in theirs and enqueued is not None:
            assert theirs[utid, ran] <= enqueued, (utid, ran)
            assert ready <= enqueued
            checked += 1
            longer += theirs[utid, ran] < enqueued
    assert longer <= breaks.collect().item()
    total = ledger.select(pl.len()).collect().item()
    assert checked > 0.98 * total > 500


# -- perf ------------------------------------------------------------------------------

MAP_LINE = re.compile(r"^(?P<cells>.*?)\s+(?P<s>\d+)\.(?P<us>\d{6}) secs (?P<name>.*)$")
NEW_NAME = re.compile(r"(?P<short>\S+) => .*:(?P<tid>\d+)")


@pytest.mark.needs("perf")
@pytest.mark.parametrize("name", ["sched", "pipe", "zstd"])
def test_running_threads_equal_perf_sched_map(name: str, tmp_path: Path) -> None:
    """A line per switch: the CPU with the star got the thread of that letter and digit."""
    perf = tool("perf")
    assert perf is not None
    data = tmp_path / f"perf-{name}.data"
    shutil.copy(FIXTURES / data.name, data)
    done = subprocess.run(
        [*perf, "sched", "map", "-i", str(data)], capture_output=True, text=True, timeout=120
    )
    theirs: dict[int, list[tuple[int, int]]] = defaultdict(list)
    tids: dict[str, int] = {".": 0}
    for line in done.stdout.splitlines():
        if (match := MAP_LINE.match(line)) is None:
            continue
        if new := NEW_NAME.match(match["name"]):
            tids[new["short"]] = int(new["tid"])
        star = match["cells"].index("*")
        short = match["cells"][star + 1 : star + 3].strip()
        # Two blanks, then four columns a CPU.
        cpu = (star - 2) // 4
        at = int(match["s"]) * 1_000_000 + int(match["us"])
        theirs[cpu].append((at, tids[short]))
    if not theirs:
        pytest.skip(f"this perf reads no switches from it: {done.stderr.strip()[-200:]}")
    trace = ss.open(data, cache=tmp_path)
    known = dict(trace.threads.select("utid", "tid").collect().iter_rows())
    ours: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for ts, cpu, utid in trace.switches.select("ts", "cpu", "next_utid").collect().rows():
        ours[cpu].append((ts // 1000, 0 if utid < trace.ncpu else known[utid]))
    assert sorted(ours) == sorted(theirs)
    for cpu, mine in ours.items():
        assert [tid for _, tid in mine] == [tid for _, tid in theirs[cpu]], f"CPU {cpu}"
        assert all(abs(a - b) <= 1 for (a, _), (b, _) in zip(mine, theirs[cpu], strict=True))
