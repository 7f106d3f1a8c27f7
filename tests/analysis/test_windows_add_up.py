"""Sums over the parts of a recording equal those of the whole, inferred values included."""

from __future__ import annotations

import tarfile
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import polars as pl
import pytest
from archives import unpack

import schedscope as ss

FIXTURES = Path(__file__).parents[2] / "fixtures"
LAB = "amd64-6.12-quota"
TRACES = [
    "linux-ftrace-lossy.capture",
    "freebsd-ule-synthetic.capture",
    "perfetto-4cpu.pftrace",
    LAB,
]

Answer = Callable[[ss.Trace], pl.DataFrame]
CAUSES = [f"cause_{name}" for name in ("wake", "new", "preempt", "yield", "unknown")]
PARTS = ["wait", "behind_better", "behind_same", "behind_worse", "interrupted", "throttled",
         "cpu_idle", "unknown"]  # fmt: skip

ADDITIVE: dict[str, tuple[Answer, list[str], list[str]]] = {
    "wait_breakdown": (ss.wait_breakdown, ["utid"], PARTS),
    "wait_breakdown by group": (lambda t: ss.wait_breakdown(t, by="cgroup"), ["cgroup"], PARTS),
    "interference": (
        lambda t: ss.interference(t, by="comm"),
        ["victim_comm", "kind", "comm"],
        ["time", *CAUSES],
    ),
    "work_conservation": (
        ss.work_conservation,
        [],
        ["capacity", "idle", "unknown", "dispatch", "wasted", "wasted_any", "unplaced", "waiting",
         "throttled", "throttled_high"],
    ),
    "work_conservation by thread": (
        lambda t: ss.work_conservation(t, by="thread"),
        ["utid"],
        ["waiting", "throttled", "throttled_high", "avoidable"],
    ),
    "work_conservation by CPU": (
        lambda t: ss.work_conservation(t, by="cpu"),
        ["cpu"],
        ["idle", "unknown", "dispatch", "spare", "available", "waiting", "throttled", "waited"],
    ),
    "efficiency": (
        ss.efficiency,
        ["cpu"],
        ["busy", "idle", "unknown", "switches", "n_voluntary", "n_involuntary", "n_ambiguous",
         "irq_hard", "irq_soft"],
    ),
    "fairness": (
        lambda t: ss.fairness(t, by="comm"),
        ["comm"],
        ["running", "waiting", "unplaced", "served"],
    ),
    "residency": (lambda t: ss.residency(t, "comm"), ["comm", "cpu"], ["running"]),
    "affinity": (ss.affinity, ["comm"], ["running"]),
    "slowdown": (
        lambda t: ss.slowdown(t, by="thread"),
        ["utid"],
        ["wall", "cpu", "waiting", "unknown"],
    ),
    "queue_depth_summary": (
        ss.queue_depth_summary,
        ["cpu"],
        ["observed", "unknown", "overload", "waiting", "waiting_unknown"],
    ),
    "migration_summary": (
        lambda t: ss.migration_summary(t, by="utid"),
        ["utid"],
        ["n", "runs"],
    ),
    "run_lengths": (
        lambda t: ss.run_lengths(t).select(total=pl.col("total") + pl.col("total_censored")),
        [],
        ["total"],
    ),
    "migration_matrix": (
        ss.migration_matrix,
        ["from_cpu", "to_cpu"],
        ["n", "wake", "balance", "fork", "exec", "affinity", "unknown"],
    ),
}  # fmt: skip
"""Of each question the columns that are sums of time, or counts of instants, by its keys."""


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], ss.Trace]:
    found: dict[str, ss.Trace] = {}

    def trace(name: str) -> ss.Trace:
        if name not in found:
            cache = tmp_path_factory.mktemp("cache")
            path = FIXTURES / name
            if name == LAB:
                path = cache / "lab.capture"
                with tarfile.open(FIXTURES / "lab" / f"{name}.tar.xz") as archive:
                    unpack(archive, cache)
            found[name] = ss.open(path, cache=cache)
        return found[name]

    return trace


def cuts(trace: ss.Trace) -> list[int]:
    """Cut points in ns from the start: at sevenths, at an event, and just after it."""
    length = trace.duration
    switches = trace.switches.select(pl.col("ts") - trace.origin).collect()["ts"]
    event = int(switches[len(switches) // 3])
    return [*(length * n // 7 for n in range(1, 7)), event, event + 1]


def parts(trace: ss.Trace, at: list[int]) -> list[ss.Trace]:
    edges = [None, *(f"{ns}ns" for ns in sorted(set(at)) if 0 < ns < trace.duration), None]
    return [trace.between(since, until) for since, until in pairwise(edges)]


def summed(frames: list[pl.DataFrame], keys: list[str], columns: list[str]) -> pl.DataFrame:
    frame = pl.concat(
        [one.select(*keys, *(pl.col(name).cast(pl.Int64) for name in columns)) for one in frames]
    )
    sums = frame.group_by(keys).agg(pl.col(columns).sum()) if keys else frame.sum()
    if keys:
        sums = sums.filter(pl.any_horizontal(pl.col(columns) != 0)).sort(keys, nulls_last=True)
    return sums


@pytest.mark.parametrize("name", TRACES)
@pytest.mark.parametrize("question", ADDITIVE)
def test_sums_over_parts_equal_the_whole(
    question: str, name: str, opened: Callable[[str], ss.Trace]
) -> None:
    trace = opened(name)
    ask, keys, columns = ADDITIVE[question]
    whole = summed([ask(trace)], keys, columns)
    found = summed([ask(part) for part in parts(trace, cuts(trace))], keys, columns)
    assert found.equals(whole)


@pytest.mark.parametrize("name", TRACES)
def test_each_event_is_in_exactly_one_part(name: str, opened: Callable[[str], ss.Trace]) -> None:
    """An event at the recording's last instant is in its last part."""
    trace = opened(name)
    cut = parts(trace, cuts(trace))
    assert sum(part.duration for part in cut) == trace.duration
    for table in ("switches", "wakeups", "migrations"):
        rows = [getattr(part, table).select("ts", "cpu").collect() for part in cut]
        assert pl.concat(rows).equals(getattr(trace, table).select("ts", "cpu").collect())


@pytest.mark.parametrize("name", TRACES)
def test_between_without_times_is_the_whole_trace(
    name: str, opened: Callable[[str], ss.Trace]
) -> None:
    trace = opened(name)
    part = trace.between()
    for table in ("switches", "wakeups", "migrations", "waits", "states", "losses"):
        assert getattr(part, table).collect().equals(getattr(trace, table).collect()), table


def test_throttled_time_equals_the_kernels_count_in_eight_windows(
    opened: Callable[[str], ss.Trace],
) -> None:
    """Probes in the kernel counted 1,198.0 ms."""
    trace = opened(LAB)
    length = trace.duration
    found = [
        ss.wait_breakdown(part, by="cgroup").filter(pl.col("cgroup") == "/limited")["throttled"][0]
        for part in parts(trace, [length * n // 8 for n in range(1, 8)])
    ]
    assert sum(found) == 1_197_844_161
    assert min(found) > 100_000_000


def test_a_part_of_a_part_is_cut_from_the_whole(opened: Callable[[str], ss.Trace]) -> None:
    trace = opened(LAB)
    inner = trace.between("1s", "4s").between("2s", "3s")
    assert ss.wait_breakdown(inner).equals(ss.wait_breakdown(trace.between("2s", "3s")))


def test_quota_finding_of_a_part_has_the_cost_within_the_part(
    opened: Callable[[str], ss.Trace],
) -> None:
    """The finding states that the kernel's count is for the whole recording."""
    part = opened(LAB).between("2s", "3s")
    groups = ss.wait_breakdown(part, by="cgroup").filter(pl.col("cgroup") == "/limited")
    found = ss.findings(part).filter(pl.col("topic") == "quota").row(0, named=True)
    assert found["cost"] == groups["throttled"][0]
    assert "by the kernel's count of the whole recording." in found["text"]
