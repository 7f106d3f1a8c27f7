"""Masks that threads changed themselves, as a recording shows them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

import schedscope as ss
from schedscope.parsers.schema import TABLES
from schedscope.simulator.changes.change import change
from schedscope.simulator.recorded.extract import extract, report
from schedscope.simulator.recorded.masks import changed_masks
from schedscope.simulator.runs.replay import replay
from schedscope.store.trace import Trace

FIXTURES = Path(__file__).parents[2] / "fixtures"
MS = 1_000_000

SETTER, STOPPER, CHILD = 3, 4, 5


def moved(
    *, back: bool = False, renamed: int | None = None, waker: int = SETTER, ncpu: int = 3
) -> Trace:
    """`setter` runs on CPU 0 and wakes `migration/0` at 1 ms; it is on CPU 1 then, with its child.

    `back`: it returns to CPU 0; `renamed`: its name changes so long after 1 ms.
    """
    switches: list[tuple[Any, ...]] = [
        (0, 0, 0, "runnable", SETTER),
        (1 * MS + 5, 0, SETTER, "runnable", STOPPER),
        (1 * MS + 9, 0, STOPPER, "sleeping", 0),
        (1 * MS + 20, 1, 1, "runnable", SETTER),
        (30 * MS, 1, SETTER, "runnable", CHILD),
        (34 * MS, 1, CHILD, "runnable", SETTER),
        (35 * MS, 1, SETTER, "sleeping", CHILD),
        (37 * MS, 1, CHILD, "dead", 1),
    ]
    wakeups = [
        (1 * MS, 0, waker, STOPPER, "waking"),
        (1 * MS + 1, 0, waker, STOPPER, "enqueued"),
        (2 * MS, 1, SETTER, CHILD, "new"),
    ]
    if back:
        switches += [(38 * MS, 0, 0, "runnable", SETTER), (39 * MS, 0, SETTER, "sleeping", 0)]
        wakeups += [(38 * MS - 9, 0, 0, SETTER, "waking"), (38 * MS - 8, 0, 0, SETTER, "enqueued")]
    rows = [(ts, cpu, p, state, 120, None, n, 120) for ts, cpu, p, state, n in switches]
    names = {SETTER: "setter", STOPPER: "migration/0", CHILD: "child"}
    threads = pl.DataFrame(
        {
            "utid": list(range(6)),
            "comm": [names.get(u, f"swapper/{u}") for u in range(6)],
            "kernel": [u not in (SETTER, CHILD) for u in range(6)],
            "parent_utid": [SETTER if u == CHILD else None for u in range(6)],
            "start_ts": [{SETTER: 0, CHILD: 2 * MS}.get(u) for u in range(6)],
        }
    )
    schema = TABLES["threads"].schema
    threads = threads.with_columns(
        pl.lit(None, dtype).alias(name) for name, dtype in schema.items() if name not in threads
    )
    waits = [(2 * MS, 28 * MS, CHILD, "runnable", 1)]
    states = pl.DataFrame(waits, schema=("ts", "dur", "utid", "state", "cpu"), orient="row")
    of_states = TABLES["states"].schema
    states = states.with_columns(
        pl.lit(None, dtype).alias(name) for name, dtype in of_states.items() if name not in states
    )
    new = [] if renamed is None else [(1 * MS + renamed, SETTER, "other")]
    tables = {
        "switches": pl.DataFrame(rows, schema=TABLES["switches"].schema, orient="row"),
        "wakeups": pl.DataFrame(
            [
                {
                    **dict(zip(("ts", "cpu", "waker_utid", "utid", "kind"), row, strict=True)),
                    "target_cpu": row[1],
                    "prio": 120,
                }
                for row in wakeups
            ],
            schema=TABLES["wakeups"].schema,
        ),
        "threads": threads.select(schema.names()).cast(
            {"utid": pl.UInt32, "parent_utid": pl.UInt32}
        ),
        "states": states.select(of_states.names()).cast(of_states),
        "renames": pl.DataFrame(
            [dict(zip(("ts", "utid", "comm"), row, strict=True)) for row in new],
            schema=TABLES["renames"].schema,
        ),
    }
    return Trace.from_tables(tables, {"ncpu": ncpu, "window": [0, 50 * MS]})


def masks(trace: Trace) -> tuple[pl.DataFrame, dict[int, int]]:
    tables = (trace.switches.collect(), trace.wakeups.collect(), trace.threads.collect())
    return changed_masks(trace, *tables)


def changes(trace: Trace) -> list[tuple[int, int, str]]:
    found, _ = masks(trace)
    return found.filter(~pl.col("first")).select("ts", "utid", "cpus").rows()


def test_wakeup_of_the_stopper_before_leaving_the_cpu_is_a_mask_change() -> None:
    assert changes(moved()) == [(1 * MS, SETTER, "1")]


def test_return_to_the_cpu_is_not_a_mask_change() -> None:
    assert changes(moved(back=True)) == []


def test_exec_is_not_a_mask_change() -> None:
    new = moved(renamed=MS)
    assert changes(new) == []
    # Or `taskset` bound it, if it waits for that CPU while another one idles.
    assert masks(new)[1] == {SETTER: 1}
    assert masks(moved())[1] == masks(moved(renamed=MS, back=True))[1] == {}


def test_stopper_woken_by_another_thread_is_not_a_mask_change() -> None:
    assert changes(moved(waker=1)) == []


def test_replay_changes_the_mask_at_that_time_and_a_child_inherits_it() -> None:
    load = extract(moved())
    rows = load.threads.join(load.steps, on="program", maintain_order="left")
    own = rows.filter(pl.col("name") == "setter").select(pl.col("op").cast(pl.String), "ns")
    assert own.rows()[:2] == [("run", 1 * MS), ("set_affinity", None)]
    cpus = dict(load.threads.select("name", "cpus").iter_rows())
    assert (cpus["setter"], cpus["child"]) == (None, "1")


@pytest.fixture(scope="module")
def starved() -> Trace:
    return ss.open(FIXTURES / "linux-ftrace-starved.capture")


def test_threads_of_a_real_recording_starve_where_they_did(starved: Trace) -> None:
    """All threads of this load pinned themselves to CPU 1: five after they had run on CPU 0."""
    found = report(extract(starved))
    assert (found["mask_changes"], found["bound_by_family"]) == (5, 1)
    frame = ss.whatif(starved, set_nice={"patient": 0}, replays=3)
    last = frame.filter(pl.col("configuration") == "changed")
    off = dict(last.select("comm", "replay_error").iter_rows())
    # Without their masks: 217, 7.6, 1.5 and 1.7.
    assert off["patient"] < 2.5
    assert max(off["clerk"], off["even-a"], off["even-b"]) < 1.1


def test_other_masks_replace_those_that_threads_set(starved: Trace) -> None:
    way = replay(starved)
    there = change(way, pin={"clerk": "0"}).workload
    row = there.threads.row(by_predicate=pl.col("name") == "clerk", named=True)
    sets = (pl.col("program") == row["program"]) & (pl.col("op").cast(pl.String) == "set_affinity")
    assert (row["cpus"], there.steps.filter(sets)["cpus"].to_list()) == ("0", ["0"])
    # A mask of missing CPUs is refused, and the thread keeps its previous one.
    one = change(way, cpus=1).workload
    assert one.threads.filter(pl.col("name").is_in(["clerk", "patient"]))["cpus"].is_null().all()
    assert one.steps["cpus"].is_null().all()
