"""Clocks of CPUs that disagree: found, corrected where possible, and no wait is wrong."""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from pathlib import Path

import polars as pl
import pytest
from engines import Clocks, assert_agree, by_native, by_oracle
from hypothesis import given, strategies as st
from streams import faulty, plausible, wild
from worlds import World, world

import schedscope as ss
from schedscope.analysis.check.check import check, verdict
from schedscope.present.headline import headline

US = 1_000
MS = 1_000_000


@pytest.mark.parametrize("kind", [plausible, faulty, wild])
def test_the_engines_agree_where_clocks_differ(
    kind: Callable[[], st.SearchStrategy[World]],
) -> None:
    @given(kind(), st.none() | st.integers(0, 12), st.integers(0, 5), st.integers(1, 3))
    def agree(world: World, width: int | None, moved: int, clocks: int) -> None:
        known = ([cpu % clocks for cpu in range(world.ncpu)], width, moved)
        assert_agree(by_oracle(world, known), by_native(world, clocks=known))

    agree()


TWO_CPUS = """
 0 cpu0: idle -> A
 1 cpu1: idle -> B
10 cpu0: A S -> idle
20 cpu0: waking A on 0 by idle
25 cpu0: idle -> A
40 cpu0: A R -> B2
60 cpu1: B S -> idle
70 cpu0: waking B on 1 by B2
90 cpu1: idle -> B
95 cpu0: B2 S -> A
"""


def waits(clocks: Clocks | None) -> list[tuple[object, ...]]:
    rows = by_native(world(TWO_CPUS), clocks=clocks)["waits"].sort("utid", "ts_ready", "ts_run")
    names = "utid", "ts_ready", "ts_run", "wait", "censored"
    return [row for row in rows.select(names).iter_rows() if row[1] is not None]


def test_a_wait_on_one_clock_is_measured_and_one_on_two_is_a_bound() -> None:
    a, b = 2, 3
    assert waits(None) == [(a, 20, 25, 5, "none"), (a, 40, 95, 55, "none"), (b, 70, 90, 20, "none")]
    within_8 = [(a, 20, 25, 5, "none"), (a, 40, 95, 55, "none"), (b, 70, None, 10, "right")]
    assert waits(([0, 1], 8, 2)) == within_8
    nobody_can_tell = [
        (a, 20, None, 0, "right"),
        (a, 40, None, 0, "right"),
        (b, 70, None, 0, "right"),
    ]
    assert waits(([0, 1], None, 0)) == nobody_can_tell


# Of each round: CPU, µs after its start, event. A and B wake each other across CPUs, and interrupts
# of its own CPU wake each once more.
ROUND = """
0 -15 swapper-0    sched_waking: comm=a pid=100 prio=120 target_cpu=000
0 -13 swapper-0    sched_wakeup: comm=a pid=100 prio=120 target_cpu=000
0   0 swapper-0    sched_switch: swapper/0:0 [120] R ==> a:100 [120]
0  20 a-100        sched_waking: comm=b pid=101 prio=120 target_cpu=001
0  22 a-100        sched_wakeup: comm=b pid=101 prio=120 target_cpu=001
1  35 swapper-0    sched_switch: swapper/1:0 [120] R ==> b:101 [120]
0  50 a-100        sched_switch: a:100 [120] S ==> swapper/0:0 [120]
1  70 b-101        sched_waking: comm=a pid=100 prio=120 target_cpu=000
1  72 b-101        sched_wakeup: comm=a pid=100 prio=120 target_cpu=000
0  85 swapper-0    sched_switch: swapper/0:0 [120] R ==> a:100 [120]
0 100 a-100        sched_switch: a:100 [120] S ==> swapper/0:0 [120]
1 110 b-101        sched_switch: b:101 [120] S ==> swapper/1:0 [120]
1 200 swapper-0    sched_waking: comm=b pid=101 prio=120 target_cpu=001
1 202 swapper-0    sched_wakeup: comm=b pid=101 prio=120 target_cpu=001
1 215 swapper-0    sched_switch: swapper/1:0 [120] R ==> b:101 [120]
1 240 b-101        sched_switch: b:101 [120] S ==> swapper/1:0 [120]
"""
ROUNDS = 100


def reported(
    folder: Path, ahead: Callable[[int], int], unit: int = US, rounded: int = 1
) -> ss.Trace:
    """Two CPUs in the form of `trace-cmd report -t`; CPU 1's clock is ahead by some ns.

    `unit`: the length of a round's µs, ns; `rounded`: timestamps are multiples of it.
    """
    lines = []
    for number in range(ROUNDS):
        begin = 10**12 + number * 700 * US + number * number * 3 * US
        for line in ROUND.strip().splitlines():
            cpu, after, who, event = line.split(maxsplit=3)
            ts = begin + int(after) * unit
            ts += ahead(ts) if cpu == "1" else 0
            ts = (ts + rounded // 2) // rounded * rounded
            lines.append((ts, f"  {who} [00{cpu}] {ts}: {event}\n"))
    path = folder / "report.txt"
    path.write_text("cpus=2\n" + "".join(line for _, line in sorted(lines, key=itemgetter(0))))
    return ss.convert(path, folder / "out.sched", force=True)


def measured(trace: ss.Trace, cpu_1_ahead: int = 0) -> set[tuple[int, int, int]]:
    """Thread, switch-in and length of every measured wait."""
    rows = trace.waits.filter(censored="none").join(trace.threads, on="utid")
    moved = pl.when(pl.col("cpu") == 1).then(cpu_1_ahead).otherwise(0)
    return set(rows.select("tid", pl.col("ts_run") - moved, "wait").collect().iter_rows())


def first_of_cpu_1(trace: ss.Trace) -> int:
    return trace.switches.filter(cpu=1).select(pl.col("ts").min()).collect().item()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> ss.Trace:
    return reported(tmp_path_factory.mktemp("whole"), lambda ts: 0)


def test_clocks_that_agree_are_left_alone(whole: ss.Trace) -> None:
    assert whole.info["clock_offsets"] == []
    assert "clocks" not in check(whole)["check"].to_list()


@pytest.mark.parametrize("offset", [100 * US, -MS, 10 * MS])
def test_constant_offset_is_found_and_removed(whole: ss.Trace, tmp_path: Path, offset: int) -> None:
    trace = reported(tmp_path, lambda ts: offset)
    (found,) = trace.info["clock_offsets"]
    assert "CPU clocks disagree" in headline(trace)[1]
    least, most = found["ahead"]
    assert found["cpu"] == 1
    assert least <= offset <= most
    assert most - least < 200 * US
    true = measured(whole)
    said = measured(trace, first_of_cpu_1(trace) - first_of_cpu_1(whole))
    assert said <= true
    assert len(said) > len(true) / 4
    row = check(trace).row(by_predicate=pl.col("check") == "clocks", named=True)
    assert row["level"] == "warning"
    assert "the clock of CPU 1 was" in row["text"]
    assert ("ahead of" if offset > 0 else "behind") in row["text"]
    assert not verdict(check(trace)).startswith("Trustworthy")


@pytest.mark.parametrize("offset", [100_300, -999_700, 10_000_500])
def test_a_constant_offset_is_found_where_stamps_are_microseconds(
    tmp_path: Path, offset: int
) -> None:
    """Rounding changes the order of events of two clocks, which is no sign of a step or drift."""
    trace = reported(tmp_path, lambda ts: offset, unit=37, rounded=US)
    (found,) = trace.info["clock_offsets"]
    least, most = found["ahead"]
    assert least <= offset <= most
    assert found["breaks_left"] == 0
    row = check(trace).row(by_predicate=pl.col("check") == "clocks", named=True)
    assert "by an amount that changes" not in row["text"]


def test_step_of_a_clock_is_not_taken_for_rounding(tmp_path: Path) -> None:
    """Half of the trace has another offset: nothing is moved."""
    half = 10**12 + ROUNDS * 350 * US
    trace = reported(tmp_path, lambda ts: 100 * US if ts < half else 300 * US, unit=37, rounded=US)
    (found,) = trace.info["clock_offsets"]
    assert found["ahead"] is None


def ring(folder: Path, ncpu: int, ahead: dict[int, int]) -> ss.Trace:
    """As `reported`, with one thread on each CPU: they wake each other around the ring."""
    lines = []
    for number in range(40 * ncpu):
        begin = 10**12 + number * 700 * US + number * number * 300
        first, second = number % ncpu, (number + 1) % ncpu
        for line in ROUND.strip().splitlines():
            which, after, who, event = line.split(maxsplit=3)
            cpu = second if which == "1" else first
            for pair in (("a", first, "100", "0"), ("b", second, "101", "1")):
                name, of, tid, digit = pair
                for text, new in (
                    (f"{name}-{tid}", f"t{of}-{200 + of}"),
                    (f"{name}:{tid}", f"t{of}:{200 + of}"),
                    (f"comm={name} pid={tid}", f"comm=t{of} pid={200 + of}"),
                    (f"swapper/{digit}:", f"swapper/<{of}>:"),
                    (f"target_cpu=00{digit}", f"target_cpu=<{of}>"),
                ):
                    who, event = who.replace(text, new), event.replace(text, new)
            event = event.replace("<", "").replace(">", "").replace("==", "==>")
            ts = begin + int(after) * US + ahead.get(cpu, 0)
            lines.append((ts, f"  {who} [{cpu:03}] {ts}: {event}\n"))
    path = folder / "report.txt"
    path.write_text(f"cpus={ncpu}\n" + "".join(line for _, line in sorted(lines)))
    return ss.convert(path, folder / "out.sched", force=True)


def since_first(trace: ss.Trace) -> set[tuple[int, int, int]]:
    """Measured waits, their ends counted from the first switch of the CPU."""
    first = trace.switches.group_by("cpu").agg(first=pl.col("ts").min())
    rows = trace.waits.filter(censored="none").join(trace.threads, on="utid").join(first, on="cpu")
    chosen = rows.select("tid", pl.col("ts_run") - pl.col("first"), "wait")
    return set(chosen.collect().iter_rows())


@pytest.mark.parametrize("ncpu", [4, 8])
@pytest.mark.parametrize("ahead", [{}, {3: MS}, {1: -300 * US, 2: 5 * MS}])
def test_each_of_many_clocks_is_found(tmp_path: Path, ncpu: int, ahead: dict[int, int]) -> None:
    (tmp_path / "whole").mkdir()
    true = since_first(ring(tmp_path / "whole", ncpu, {}))
    assert len(true) == 40 * ncpu * 4
    trace = ring(tmp_path, ncpu, ahead)
    found = {one["cpu"]: one["ahead"] for one in trace.info["clock_offsets"]}
    assert set(found) == set(ahead)
    for cpu, (least, most) in found.items():
        assert least <= ahead[cpu] <= most
    said = since_first(trace)
    assert said <= true
    assert len(said) > len(true) / 4


def test_check_reports_how_far_clocks_may_differ_undetected(whole: ss.Trace) -> None:
    """The quickest wakeups across took 15 us from CPU 0 to 1, and as long back."""
    row = check(whole).row(by_predicate=pl.col("check") == "clock inversions", named=True)
    assert "; clocks that differ by up to 15.0 µs, or by more for up to 3.87 ms, " in row["text"]


def test_cpu_from_another_recording_is_detected(tmp_path: Path) -> None:
    """CPU 0 wakes b for CPU 1 again and again; CPU 1 runs other threads all the time."""
    lines = []
    for number in range(ROUNDS):
        begin = 10**12 + number * 700 * US
        for line in ROUND.strip().splitlines():
            cpu, after, who, event = line.split(maxsplit=3)
            if cpu == "1":
                # Threads of its own, none of which CPU 0 ever names.
                pairs = (
                    ("a-100", "c-300"),
                    ("b-101", "d-301"),
                    ("comm=a pid=100", "comm=c pid=300"),
                )
                pairs += (("comm=b pid=101", "comm=d pid=301"), ("b:101", "d:301"))
                for text, new in pairs:
                    who, event = who.replace(text, new), event.replace(text, new)
            ts = begin + int(after) * US
            lines.append((ts, f"  {who} [00{cpu}] {ts}: {event}\n"))
    path = tmp_path / "report.txt"
    path.write_text("cpus=2\n" + "".join(line for _, line in sorted(lines, key=itemgetter(0))))
    trace = ss.convert(path, tmp_path / "out.sched")
    (found,) = trace.info["clock_offsets"]
    assert found["ahead"] is None
    assert found["breaks"] == found["breaks_left"] >= ROUNDS - 1
    assert not measured(trace)
    row = check(trace).row(by_predicate=pl.col("check") == "clocks", named=True)
    assert row["level"] == "warning"
    assert "its events are from another recording" in row["text"]


@pytest.mark.parametrize("recorded", [slice(0, 30), slice(70, ROUNDS)])
def test_cpu_recorded_for_part_of_the_time_is_not_from_another_recording(
    tmp_path: Path, recorded: slice
) -> None:
    """While it has no events it runs no thread put on it: a loss; the rest is measured."""
    true = measured(reported(tmp_path, lambda _: 0))
    path = tmp_path / "report.txt"
    lines = path.read_text().splitlines(keepends=True)
    own = [line for line in lines if "[001]" in line]
    each = len(own) // ROUNDS
    kept = set(own[recorded.start * each : recorded.stop * each])
    path.write_text("".join(line for line in lines if "[001]" not in line or line in kept))
    trace = ss.convert(path, tmp_path / "out.sched", force=True)
    assert not trace.info["clock_offsets"]
    (lost,) = trace.losses.filter(pl.col("reason") != "chain_break").collect().iter_rows(named=True)
    assert lost["reason"] == ("early_end" if recorded.start == 0 else "late_start")
    said = measured(trace)
    assert said <= true
    assert len(said) > len(true) / 5
