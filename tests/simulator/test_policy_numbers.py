"""The numbers that docs/policies quotes are computed here and compared."""

from __future__ import annotations

import re
from pathlib import Path

import polars as pl
import pytest

from research.published.counters import counter_ratio, measured
from research.published.one_cpu import nice_19_under_staircase, share_under_4bsd
from research.published.saw_tooth import spread_ratio
from schedscope.simulator.runs.run import simulate
from schedscope.simulator.workloads.builder import Builder
from schedscope.simulator.workloads.generators import hogs
from schedscope.simulator.workloads.machine import Cpu, Machine

PAGES = Path(__file__).parents[2] / "docs" / "policies"


def page(name: str) -> str:
    """The page on one line, so that no phrase is broken."""
    return re.sub(r"\s+", " ", (PAGES / f"{name}.md").read_text())


def turn_ms(policy: str, threads: int, cpus: int) -> float:
    """How long equal hogs run at a time, in the middle of 1 s: the most frequent length."""
    trace = simulate(hogs(threads, time="1s"), policy=policy, cpus=cpus)
    runs = trace.states.filter((pl.col("state") == "running") & (pl.col("utid") >= cpus))
    middle = runs.filter(pl.col("ts").is_between(300_000_000, 900_000_000)).collect()
    return middle["dur"].mode().max() / 1e6  # type: ignore[operator]


def test_ule_saw_tooth() -> None:
    """16 CPUs: N = 18 and 32 in the form of 2011, 18 in that of 14."""
    tooth, even, later = (
        spread_ratio(p, n, 16) for p, n in (("ule-2011", 18), ("ule-2011", 32), ("ule-14", 18))
    )
    assert f"N = 18: {tooth:.2f} times the ideal, 32: {even:.2f}" in page("ule")
    assert f"in `ule-14` it is {later:.2f}" in page("ule")


def test_child_under_ule_becomes_interactive_quickly() -> None:
    """Its first run is one statistics tick in the 2011 form, and two of 12 in that of 14."""
    build = Builder()
    build.thread("parent").run(1_000_000_000).fork(1).run(1_000_000_000)
    build.thread("child", start=None).run(1_000_000_000)
    ticks = {}
    for policy in ("ule-2011", "ule-14"):
        trace = simulate(build.workload(Machine((Cpu(0, 0, 0, 0),))), policy=policy)
        runs = trace.states.filter(pl.col("state") == "running", pl.col("utid") == 2)
        ticks[policy] = round(runs.sort("ts").collect()["dur"][0] * 127 / 1e9, 3)
    assert ticks == {"ule-2011": 1.0, "ule-14": 2.0}


def test_cfs_slices() -> None:
    """Two hogs per CPU on two CPUs at 250 Hz."""
    old, new = turn_ms("cfs-2.6.31", 4, 2), turn_ms("cfs-2.6.32", 4, 2)
    assert f"get {old:.0f} ms (2.6.31) and {new:.0f} ms (2.6.32)" in page("cfs")


def test_cfs_waste_with_few_processes() -> None:
    """Simulated against measured, N = 2 and 3, and how much of the waste that is."""
    found = {n: counter_ratio("cfs-2.6.31", n) for n in (2, 3)}
    real = {n: measured("cfs_2_6_31_s")[n] for n in (2, 3)}
    words = f"N = 2: {found[2]:.2f} against {real[2]:.2f} measured, N = 3: {found[3]:.2f} against "
    assert f"{words}{real[3]:.2f}" in page("cfs")
    part = sum(found[n] - 1 for n in found) / sum(real[n] - 1 for n in real)
    assert "about a quarter of the size" in page("cfs")
    assert part == pytest.approx(0.25, abs=0.05)


def test_4bsd_spreads_hogs() -> None:
    """16 CPUs, N = 1 to 48."""
    worst = max(spread_ratio("4bsd", n, 16) for n in range(1, 49))
    said = re.search(r"wall clock within ([\d.]+) % of CPU time", page("4bsd"))
    assert said is not None
    assert float(said[1]) - 0.5 < 100 * (worst - 1) <= float(said[1])


def test_4bsd_shares() -> None:
    share = 100 * share_under_4bsd("0 10")
    said = re.search(r"share about (\d+) to (\d+) at a load average of 2", page("4bsd"))
    assert said is not None
    assert share == pytest.approx(float(said[1]), abs=1)
    assert int(said[1]) + int(said[2]) == 100


def test_bfs_is_at_the_ideal() -> None:
    """1 to 32 counting processes on two CPUs."""
    worst = max(counter_ratio("bfs", n) for n in range(1, 33))
    said = re.search(r"end within (\d+) % of the ideal", page("bfs"))
    assert said is not None
    assert float(said[1]) - 1 < 100 * (worst - 1) <= float(said[1])


def test_staircase_nice() -> None:
    assert "nice 0 gets 19 to 20 times what nice 19 gets" in page("staircase")
    assert 19 <= nice_19_under_staircase() <= 20.5


@pytest.mark.parametrize(
    ("policy", "page_of", "words"),
    [
        ("ule-2003", "ule-2003", "(about {:.0f} ms)"),
        ("staircase", "staircase", "Equal hogs take turns of {:.0f} ms"),
        ("scx-simple", "scx-simple", "hogs take turns of {:.0f} ms"),
        ("eevdf-6.17", "eevdf", "a slice of 3 ms, {:.0f} ms"),
    ],
)
def test_policies_alternate_at_their_slices(policy: str, page_of: str, words: str) -> None:
    """Equal hogs on one CPU; EEVDF's on the 8 that its 3 ms are for."""
    cpus = 8 if page_of == "eevdf" else 1
    assert words.format(turn_ms(policy, 2 * cpus, cpus)) in page(page_of)
