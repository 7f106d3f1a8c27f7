"""Compiled schedulers compared with the kernel (research/lab/objects.py)."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from archives import under_sched_ext

import schedscope as ss
from research.lab import __main__ as lab, objects, queues, schedulers

pytestmark = pytest.mark.research


def decisions(*rows: tuple[int, str]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=["utid", "queue"], orient="row")


def test_decisions_agree_as_far_as_their_order_does() -> None:
    real = decisions((1, "local"), (2, "user 0"), (3, "user 0"), (1, "user 0"))
    swapped = decisions((1, "local"), (3, "user 0"), (2, "user 0"), (1, "user 0"))
    assert objects.agreement(real, real) == {
        "recorded": 4, "replayed": 4, "in the same order": 4, "before the first other": 4,
    }  # fmt: skip
    found = objects.agreement(real, swapped)
    assert (found["in the same order"], found["before the first other"]) == (3, 1)
    assert objects.agreement(real, real[:2])["before the first other"] == 2


def test_recorded_decisions_are_those_that_the_scheduler_printed(tmp_path: Path) -> None:
    """On two CPUs; the kernel's own insertions are half of all."""
    trace = ss.open(under_sched_ext(tmp_path), cache=tmp_path / "cache")
    tids = dict(trace.threads.select("utid", "tid").collect().iter_rows())
    inserts = trace.dispatch_queues.filter(pl.col("step") == "insert").collect()
    found = objects.recorded_decisions(trace)
    assert found.height < 0.6 * inserts.height
    printed = queues._decisions(tmp_path / "decisions.txt")
    last = max(ts for all_of in printed.values() for ts, *_ in all_of)
    begin, end = trace.window[0] + 1_000_000, last - 1_000_000
    told = sorted(
        (ts, tid, kind if kind == "local" else f"user {number}")
        for tid, all_of in printed.items()
        for ts, kind, number, _ in all_of
        if begin < ts < end
    )
    ours = found.filter(pl.col("ts").is_between(begin, end))
    by_tid: dict[int, list[str]] = {}
    for utid, queue in ours.select("utid", "queue").iter_rows():
        by_tid.setdefault(tids[utid], []).append(queue)
    wanted: dict[int, list[str]] = {}
    for _, tid, queue in told:
        wanted.setdefault(tid, []).append(queue)
    assert len(told) > 500
    assert by_tid == wanted


def test_every_scheduler_has_its_source_and_a_machine_of_counted_time() -> None:
    kernels, _ = lab.matrix()
    assert objects.KERNEL in kernels
    for scheduler in objects.SCHEDULERS:
        assert schedulers.source_of(scheduler).is_file()
    cells = [
        objects.cell(scheduler, cpus, work)
        for cpus, works in objects.WORKS.items()
        for work in works
        for scheduler in ("", *objects.SCHEDULERS)
    ]
    assert len({cell.name for cell in cells}) == len(cells)
    assert all(cell.counted and cell.repeats == objects.REPEATS[int(cell.smp)] for cell in cells)
    assert all(("scx" in cell.options) == bool(cell.bpf) for cell in cells)
