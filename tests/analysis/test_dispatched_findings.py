"""Findings about sched_ext, on scenes of two CPUs: late dispatch, its watchdog, its end."""

from __future__ import annotations

import random
import tarfile
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from archives import unpack
from scenes import MS, scene

import schedscope as ss
from schedscope.analysis.cpus.idle_beside import idle_beside
from schedscope.parsers.schema import TABLES

BESIDE = """
    hog    running@0   0..800
    idle1  running@1   100..300
    clerk  runnable@0  100..400
    clerk  running@1   400..500
"""
"""`clerk` waits for 300 ms, 200 of which CPU 1 idles."""


def under_sched_ext(
    trace: ss.Trace, steps: list[tuple[int, str, str, int]], limit: int | None = None
) -> ss.Trace:
    """With steps of the thread `clerk` through dispatch queues: (ms, step, kind, number)."""
    threads = trace.threads.collect()
    utid = threads.filter(comm="clerk")["utid"].item()
    rows = [
        {
            "ts": ts * MS,
            "cpu": 0,
            "utid": utid,
            "step": step,
            "kind": kind,
            "queue_cpu": None if kind == "user" else number,
            "queue_id": number if kind == "user" else None,
            "queued": 0,
            "slice": 20 * MS if step == "insert" else None,
            "limit": limit if step == "insert" else None,
        }
        for ts, step, kind, number in steps
    ]
    schema = TABLES["dispatch_queues"].schema
    table = pl.DataFrame([{name: row.get(name) for name in schema} for row in rows], schema)
    tables: dict[str, Any] = {name: trace.table(name) for name in ("states", "waits")}
    return ss.Trace.from_tables(
        {**tables, "threads": threads, "dispatch_queues": table}, trace.info
    )


def row(trace: ss.Trace, topic: str, **options: Any) -> dict[str, Any] | None:
    found = ss.findings(trace, **options).filter(pl.col("topic") == topic)
    return found.row(0, named=True) if found.height else None


def queued(kind: str, number: int, until: int = 400) -> list[tuple[int, str, str, int]]:
    return [(100, "insert", kind, number), (until, "remove", kind, number)]


def test_a_wait_in_a_queue_beside_an_idle_cpu_is_late() -> None:
    found = row(under_sched_ext(scene(BESIDE), queued("user", 7)), "late dispatch")
    assert found is not None
    assert found["cost"] == 200 * MS
    assert found["level"] == "warning"
    assert (found["ts"], found["dur"]) == (100 * MS, 300 * MS)
    assert "1 wait passed 200 ms in dispatch queues" in found["text"]
    assert "all of it in queue user 7" in found["text"]
    assert "clerk (101) waited 300 ms, 200 ms of it beside an idle CPU" in found["text"]
    assert "SCX_KICK_IDLE" in found["advice"]


def test_the_local_queue_of_a_busy_cpu_is_a_wrong_one() -> None:
    found = row(under_sched_ext(scene(BESIDE), queued("local", 0)), "late dispatch")
    assert found is not None
    assert "local queue of a CPU that is idle" in found["advice"]


@pytest.mark.parametrize(
    ("kind", "number", "until", "affinity"),
    [
        ("local", 1, 400, None),  # about to run it
        ("user", 7, 180, None),  # less than half of the wait
        ("bypass", 0, 400, None),  # no CPU may take it from there
        ("user", 7, 400, "0"),  # not allowed on CPU 1
    ],
)
def test_waits_that_look_alike_are_not_late(
    kind: str, number: int, until: int, affinity: str | None
) -> None:
    text = BESIDE.replace("running@1   400", "running@0   800") if affinity else BESIDE
    text = (
        text.replace("100..400", "100..800").replace("800..500", "800..900") if affinity else text
    )
    plain = scene(text, {"clerk": {"affinity": affinity}})
    assert row(under_sched_ext(plain, queued(kind, number, until)), "late dispatch") is None


def test_late_waits_are_those_of_the_selected_threads() -> None:
    trace = under_sched_ext(scene(BESIDE), queued("user", 7))
    assert row(trace, "late dispatch", where=pl.col("comm") == "clerk") is not None
    assert row(trace, "late dispatch", where=pl.col("comm") == "hog") is None


@pytest.mark.parametrize("seed", range(12))
def test_idle_time_beside_spans_is_that_of_a_count_ns_by_ns(seed: int) -> None:
    chance = random.Random(seed)
    lines, idle = ["a running@0 0..0", "b running@0 0..0"], set()
    for cpu in range(3):
        at = chance.randrange(10)
        while at < 90:
            until = at + chance.randrange(1, 12)
            lines.append(f"idle{cpu} running@{cpu} {at}..{until}")
            idle |= {(cpu, ns) for ns in range(at, until)}
            at = until + chance.randrange(9)
    allowed = {"a": {0, 1, 2}, "b": {1, 2}}
    threads = {"b": {"affinity": "1-2"}}
    trace = scene("\n".join(lines), threads, ncpu=3, until=100, unit=1)
    spans = [
        (who, since, since + chance.randrange(30), chance.choice([None, 0, 1, 2]))
        for who in ("a", "b")
        for since in range(0, 100, 7)
    ]
    frame = pl.DataFrame(
        [(3 + "ab".index(who), *rest) for who, *rest in spans],
        {"utid": pl.UInt32, "ts": pl.Int64, "until": pl.Int64, "own": pl.Int64},
        orient="row",
    )
    assert idle_beside(trace, frame).to_list() == [
        sum(any((cpu, ns) in idle for cpu in allowed[who] - {own}) for ns in range(since, until))
        for who, since, until, own in spans
    ]


STARVING = """
    hog    running@0   0..900
    clerk  runnable@0  100..{end}
    clerk  running@0   {end}..{after}
"""


@pytest.mark.parametrize(
    ("end", "limit", "share"),
    [(600, 1000 * MS, "50.0 %"), (599, 1000 * MS, None), (900, None, None)],
)
def test_waits_of_half_of_the_watchdogs_limit(
    end: int, limit: int | None, share: str | None
) -> None:
    text = STARVING.format(end=end, after=end + 50)
    found = row(under_sched_ext(scene(text), queued("user", 7, end), limit), "watchdog")
    assert (found is None) == (share is None)
    if found is not None:
        assert found["level"] == "warning"
        assert f"clerk (101) 500 ms ({share})" in found["text"]
        assert "for 1.00 s (as the scheduler set it)" in found["text"]


def test_an_unrecorded_limit_is_the_kernels_and_a_cut_wait_counts_as_a_lower_bound() -> None:
    """A scene of 40 s: the wait is not over when it ends."""
    text = "hog running@0 0..40000\nclerk runnable@0 100..40000"
    trace = under_sched_ext(scene(text, until=40_000), [(100, "insert", "user", 7)])
    found = row(trace, "watchdog")
    assert found is not None
    assert "for 30.0 s (the kernel's default" in found["text"]
    assert "It is: clerk (101) at least 39.9 s (133.0 %)" in found["text"]


def ended(**end: Any) -> dict[str, Any]:
    begin = {"state": "enabled", "root/ops": "scx_new", "enable_seq": "1"}
    return {"scheduler": {"sched_ext": {"begin": begin, "end": {**begin, **end}}}}


GONE = {"state": "disabled", "root/ops": None}
DUMP = [
    [5 * MS, "sh[12] triggered exit kind 1024 on CPU 0:"],
    [5 * MS, "  runtime error (no such queue)"],
]


@pytest.mark.parametrize(
    ("info", "level", "said"),
    [
        (ended(**GONE), "note", "ended during the recording, and the kernel's own scheduler"),
        (ended(**GONE) | {"scheduler_dump": DUMP}, "warning", "runtime error (no such queue)"),
        (ended(**{"root/ops": "scx_old", "enable_seq": "2"}), "note", "scx_old of sched_ext was l"),
        (ended(enable_seq="2"), "note", "and it was loaded again"),
        ({"scheduler": {"sched_ext": {"begin": GONE, "end": {"state": "enabled"}}}}, "note", "is"),
    ],
)
def test_a_scheduler_that_ended_comes_first(info: dict[str, Any], level: str, said: str) -> None:
    text = STARVING.format(end=600, after=650)
    found = ss.findings(scene(text, **info)).row(0, named=True)
    assert (found["topic"], found["level"], found["about"]) == ("scheduler exit", level, "machine")
    assert said in found["text"]
    assert found["ts"] == (5 * MS if "scheduler_dump" in info else None)


@pytest.mark.parametrize(
    "info",
    [
        ended(),
        # A dump that was requested (sysrq-D) ends no scheduler.
        ended() | {"scheduler_dump": [[5, "Debug dump triggered by SysRq-D"]]},
        {"scheduler": {"sched_ext": {"begin": {}, "end": {}}}},
        {"scheduler": {"sched_ext": {"begin": GONE, "end": GONE}}},
        {},
    ],
)
def test_a_scheduler_that_stayed_is_not_reported(info: dict[str, Any]) -> None:
    assert row(scene(BESIDE, **info), "scheduler exit") is None


LAB = Path(__file__).parents[2] / "fixtures/lab"


def recorded(name: str, folder: Path) -> ss.Trace:
    with tarfile.open(LAB / f"amd64-newest-{name}.tar.xz") as archive:
        unpack(archive, folder)
    return ss.open(folder / "lab.capture")


def test_a_recorded_scheduler_that_kicks_no_cpu_and_that_the_kernel_ends(tmp_path: Path) -> None:
    """Recorded on a real kernel: research/lab/guest/scx_late.bpf.c."""
    found = ss.findings(recorded("scx-late", tmp_path))
    first = found.row(0, named=True)
    assert (first["topic"], first["level"]) == ("scheduler exit", "warning")
    assert "The scheduler scx_late of sched_ext ended" in first["text"]
    assert "reason: runtime error (non-existent DSQ 0x63)." in first["text"]
    late = found.filter(topic="late dispatch").row(0, named=True)
    assert late["cost_frac"] > 0.02
    assert "all of it in queue user 1" in late["text"]


@pytest.mark.parametrize("name", ["scx-kick", "scx-2cpu"])
def test_recorded_schedulers_that_kick_idle_cpus_and_stay(name: str, tmp_path: Path) -> None:
    found = ss.findings(recorded(name, tmp_path))
    assert not {"late dispatch", "scheduler exit", "watchdog"} & set(found["topic"])
