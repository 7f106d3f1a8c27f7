"""What waits consisted of: by hand, and against the same waits by who ran meanwhile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

import schedscope as ss
from schedscope.analysis.wait_breakdown import PARTS
from schedscope.errors import UsageError

MS = 1_000_000
FIXTURES = Path(__file__).parents[2] / "fixtures"
NAMES = (
    *("linux-ftrace-mixed.capture", "linux-ftrace-starved.capture", "linux-bpftrace.capture"),
    *("linux-trace-cmd-yield.dat", "perf-sched.data", "perfetto-compact.pftrace"),
    *("freebsd-ule-synthetic.capture", "freebsd-4bsd-synthetic.capture"),
)


def world(groups: object = None, irqs: pl.DataFrame | None = None) -> ss.Trace:
    """One CPU for 100 ms: `web` (120) waits behind better, equal and worse ones, then beside none.

    rt 0-10, peer 10-30, hog 30-40, nobody knows 40-50, idle 50-90, web 90-100.
    """
    runs = [(0, 10, 2, 49), (10, 20, 3, 120), (30, 10, 4, 130)]
    rows = [(ts * MS, dur * MS, utid, "running", 0, prio) for ts, dur, utid, prio in runs]
    rows += [(0, 90 * MS, 1, "runnable", 0, 120), (50 * MS, 40 * MS, 0, "running", 0, None)]
    rows += [(90 * MS, 10 * MS, 1, "running", 0, 120)]
    rows.sort(key=lambda row: row[0] + row[1])
    states = pl.DataFrame(rows, schema=["ts", "dur", "utid", "state", "cpu", "prio"], orient="row")
    threads = pl.DataFrame(
        {
            "utid": range(5),
            "comm": ["idle/0", "web", "rt", "peer", "hog"],
            "tid": range(5),
            "prio": [None, 120, 49, 120, 130],
            "sched_class": ["idle", "fair", "realtime", "fair", "fair"],
            "cgroup": [None, "/web/one", "/", "/", "/"],
        }
    )
    tables = {"states": states, "threads": threads}
    if irqs is not None:
        tables["irqs"] = irqs
    about: dict[str, Any] = {"ncpu": 1, "window": [0, 100 * MS], "os": "Linux"}
    return ss.Trace.from_tables(tables, about | ({"groups": groups} if groups else {}))


def parts(frame: pl.DataFrame, comm: str = "web") -> dict[str, int | None]:
    """In ms."""
    row = frame.filter(pl.col("comm") == comm).row(0, named=True)
    return {part: None if row[part] is None else row[part] // MS for part in PARTS}


def test_a_wait_is_divided_by_what_its_cpu_did() -> None:
    found = parts(ss.wait_breakdown(world(), by="comm"))
    assert found == {
        "behind_better": 10, "behind_same": 20, "behind_worse": 10, "interrupted": None,
        "throttled": None, "cpu_idle": 40, "unknown": 10,
    }  # fmt: skip


def test_interrupts_count_once_and_in_place_of_what_they_interrupt() -> None:
    irqs = pl.DataFrame(
        {
            "ts": [8 * MS, 9 * MS, 60 * MS],
            "cpu": [0, 0, 0],
            "kind": ["hard", "soft", "hard"],
            "id": [1, 2, 1],
            "dur": [4 * MS, 2 * MS, 5 * MS],
        },
    )
    found = parts(ss.wait_breakdown(world(irqs=irqs), by="comm"))
    assert found["interrupted"] == 4 + 5
    assert found["behind_better"] == 8
    assert found["behind_same"] == 18
    assert found["cpu_idle"] == 35


@pytest.mark.parametrize(
    ("group", "throttled"),
    [("/web", True), ("/web/one", True), ("/we", False), ("/web/two", False)],
)
def test_an_idle_cpu_beside_a_thread_of_a_throttled_group(group: str, throttled: bool) -> None:
    """The group that holds it, however far above; and no other one."""
    trace = world([{"cgroup": group, "n_throttled": 3, "throttled": 50 * MS}])
    frame = ss.wait_breakdown(trace, by="comm")
    found = parts(frame)
    assert (found["throttled"], found["cpu_idle"]) == ((40, 0) if throttled else (0, 40))
    assert frame["evidence"].to_list() == (["idle CPU"] if throttled else [None])


def test_no_group_was_throttled() -> None:
    found = parts(ss.wait_breakdown(world([{"cgroup": "/web", "n_throttled": 0}]), by="comm"))
    assert (found["throttled"], found["cpu_idle"]) == (0, 40)


def test_the_longest_waits_one_by_one() -> None:
    frame = ss.wait_breakdown(world(), by="wait")
    assert frame.select("ts", "comm", "cpu", "wait").rows() == [(0, "web", 0, 90 * MS)]
    assert parts(frame)["behind_same"] == 20


@pytest.mark.parametrize("name", NAMES)
def test_parts_agree_with_who_ran_meanwhile(name: str, tmp_path: Path) -> None:
    """Thread by thread: all of each wait, and its idle and unknown parts, to the ns."""
    trace = ss.open(FIXTURES / name, cache=tmp_path)
    frame = ss.wait_breakdown(trace)
    assert len(frame) > 10
    zero = [pl.col(part).fill_null(0) for part in PARTS]
    assert frame.filter(pl.sum_horizontal(zero) != pl.col("wait")).is_empty()
    kinds = ("thread", "idle", "unknown", "no_queue")
    other = ss.interference(trace).group_by("victim_utid").agg(
        pl.col("wait").first().alias("wait_other"),
        **{kind: pl.col("time").filter(pl.col("kind") == kind).sum() for kind in kinds},
    )  # fmt: skip
    both = frame.join(other, left_on="utid", right_on="victim_utid", how="left", suffix="_other")
    assert both["wait"].to_list() == both["wait_other"].to_list()
    idle = pl.col("cpu_idle") + pl.col("throttled").fill_null(0)
    assert both.filter(idle != pl.col("idle")).is_empty()
    # A priority that is not known is unknown here only.
    least = pl.col("unknown_other") + pl.col("no_queue")
    assert both.filter(pl.col("unknown") < least).is_empty()
    waits = ss.wait_breakdown(trace, by="wait", top=1_000_000)
    assert waits["wait"].sum() == frame["wait"].sum()
    assert len(waits) == frame["n"].sum()
    assert waits["wait"].is_sorted(descending=True)


def test_by_cpu_only_the_waits_on_its_queue_count(tmp_path: Path) -> None:
    trace = ss.open(FIXTURES / NAMES[0], cache=tmp_path)
    whole = ss.wait_breakdown(trace, by="all")
    cpus = [ss.wait_breakdown(trace, by="all", where=pl.col("cpu") == cpu) for cpu in (0, 1)]
    unplaced = ss.wait_breakdown(trace, by="all", where=pl.col("cpu").is_null())
    of_parts = [frame["wait"].sum() for frame in (*cpus, unplaced)]
    assert sum(of_parts) == whole["wait"].sum()
    assert all(of_parts[:2])


def test_what_cannot_be_asked() -> None:
    for options in ({"by": "nonsense"}, {"top": 0}, {"where": pl.col("nonsense") == 1}):
        with pytest.raises(UsageError):
            ss.wait_breakdown(world(), **options)  # type: ignore[arg-type]
