"""FreeBSD's own tools (KTR, schedgraph.d) and a ring, against captures and getrusage."""

from __future__ import annotations

import lzma
import re
import tarfile
from pathlib import Path

import polars as pl
import pytest
from archives import unpack

import schedscope as ss

GENUINE = Path(__file__).parents[2] / "fixtures" / "freebsd-13.2"
COUNTED = re.compile(r"thread (\S+) tid (\d+) cpu_ns (\d+) rusage_us \d+ nvcsw (\d+) nivcsw (\d+)")


def unpacked(name: str, folder: Path) -> Path:
    with tarfile.open(GENUINE / f"{name}.tar.xz") as archive:
        unpack(archive, folder)
    return folder


def ran_and_left(trace: ss.Trace, begin: int, end: int) -> dict[int, tuple[int, int]]:
    """By tid, ns on a CPU and switches away from it, between two instants."""
    threads = dict(trace.threads.select("utid", "tid").collect().iter_rows())
    within = pl.min_horizontal(pl.col("ts") + pl.col("dur"), end) - pl.max_horizontal("ts", begin)
    running = trace.states.filter((pl.col("state") == "running") & pl.col("dur").is_not_null())
    ran = running.group_by("utid").agg(within.clip(0).sum()).collect()
    switches = trace.switches.filter(pl.col("ts").is_between(begin, end))
    left = dict(switches.group_by("prev_utid").len().collect().iter_rows())
    return {
        threads[utid]: (dur, left.get(utid, 0))
        for utid, dur in ran.iter_rows()
        if utid >= trace.ncpu and threads[utid]
    }


def test_ktr_agrees_with_a_capture_of_the_same_half_second(tmp_path: Path) -> None:
    """`running` is logged after the switch, among other probes: some 20 us later."""
    folder = unpacked("both", tmp_path)
    capture = ss.open(folder / "events.txt")
    options = {"tsc_hz": "2599998274", "osreldate": "1302001"}
    ktr = ss.open(folder / "ktr.out", options=options)
    # The clocks share one origin, which schedscope shifts to KTR's first entry.
    cycles = re.findall(r"^ *\d+ +\d+ +(\d+) KTRGRAPH", (folder / "ktr.out").read_text(), re.M)
    zero = int(min(map(int, cycles)) / 2.599998274)
    # Without the first and last ms, which one of them may miss.
    begin = max(capture.window[0], ktr.window[0] + zero) + 2_000_000
    end = min(capture.window[1], ktr.window[1] + zero) - 2_000_000
    assert end - begin > 450_000_000
    one = ran_and_left(capture, begin, end)
    other = ran_and_left(ktr, begin - zero, end - zero)
    busy = [tid for tid, (ran, _) in one.items() if ran > 2_000_000]
    assert len(busy) >= 8
    for tid in busy:
        assert abs(other[tid][0] / one[tid][0] - 1) < 0.10, tid
        assert other[tid][1] == one[tid][1], tid
    total, logged = (sum(ran for ran, _ in rows.values()) for rows in (one, other))
    assert abs(logged / total - 1) < 0.01


def test_schedgraph_counts_the_switches_that_getrusage_does(tmp_path: Path) -> None:
    """A yield after which the same thread is chosen again is no switch; CPU time within 5 %."""
    folder = unpacked("schedgraph", tmp_path)
    trace = ss.open(folder / "graph.txt")
    rows = ran_and_left(trace, *trace.window)
    found = COUNTED.findall((folder / "mix.txt").read_text())
    assert len(found) == 11
    for role, tid, cpu_ns, voluntary, involuntary in found:
        ran, left = rows[int(tid)]
        counted = int(voluntary) + int(involuntary)
        if role not in ("main", "yielder"):
            assert abs(left - counted) <= 2, role
        if int(cpu_ns) > 100_000_000 and role != "main":
            assert abs(ran / int(cpu_ns) - 1) < 0.05, role


def test_recorded_ring_has_a_start_for_each_cpu(tmp_path: Path) -> None:
    text = tmp_path / "events.txt"
    text.write_bytes(lzma.decompress((GENUINE / "ring.xz").read_bytes()))
    trace = ss.open(text)
    assert any("flight recorder" in warning for warning in trace.info["warnings"])
    losses = trace.losses.collect()
    late = losses.filter(pl.col("reason").cast(pl.String) == "late_start")
    assert late["cpu"].to_list() == [0]
    assert late["ts_end"].item() - late["ts_begin"].item() == pytest.approx(100_000_000, rel=0.1)
    # The CPU that is complete has no contradictions.
    checks = dict(ss.check(trace).select("check", "found").iter_rows())
    assert not checks["chain breaks"]
    assert not checks["contradictions"]
