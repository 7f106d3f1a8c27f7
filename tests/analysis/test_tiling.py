"""`tiling`: the pass in the table's order finds what a sorted table shows, whatever the order."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given
from ledgers import played
from streams import ANY_STREAM
from worlds import World

import schedscope as ss
from schedscope import _native
from schedscope.analysis.cpus.accounting import Tiling, tiling

WINDOW = (0, 100)
Row = tuple[int, int, int, str, int | None]


def of_rows(rows: list[Row], ncpu: int = 2) -> ss.Trace:
    """A trace of (ts, until, utid, state, cpu)."""
    states = pl.DataFrame(
        [(ts, until - ts, utid, state, cpu) for ts, until, utid, state, cpu in rows],
        schema={"ts": pl.Int64, "dur": pl.Int64, "utid": pl.UInt32, "state": pl.String,
                "cpu": pl.UInt16},
        orient="row",
    )  # fmt: skip
    return ss.Trace.from_tables({"states": states}, {"ncpu": ncpu, "window": list(WINDOW)})


def facts(found: Tiling) -> tuple[object, ...]:
    ends = found.ends.sort("utid", "until", "following", nulls_last=True).rows()
    sums = {cpu: parts for cpu, parts in found.per_cpu.items() if parts != (0, 0)}
    return ends, sums, found.recorder, found.excess, found.intervals


def test_gaps_overlaps_and_last_ends() -> None:
    """Thread 2 has a gap from 40 to 50, thread 3 an overlap of 5 on CPU 1 with thread 2."""
    rows: list[Row] = [
        (0, 40, 2, "running", 0),
        (0, 55, 3, "running", 1),
        (50, 70, 2, "running", 1),
        (55, 100, 3, "sleeping", None),
        (0, 100, 1, "running", 0),
    ]
    found = tiling(of_rows(rows[:4]))
    assert facts(found)[0] == [(2, 40, 50), (2, 70, None), (3, 100, None)]
    assert found.per_cpu == {0: (40, 0), 1: (75, 0)}
    assert (found.excess, found.of_threads, found.known, found.intervals) == (5, 115, 115, 4)
    # An idle thread's interval is in the CPU's time and in no life.
    found = tiling(of_rows(rows))
    assert (found.per_cpu[0], found.excess, found.intervals) == ((40, 100), 45, 4)


@pytest.mark.parametrize(
    ("row", "excess"),
    [((90, 120, 2, "running", 0), 20), ((-5, 5, 2, "running", 0), 5),
     ((10, 20, 2, "running", None), 10)],
)  # fmt: skip
def test_running_where_nothing_can_run_is_excess(row: Row, excess: int) -> None:
    """Outside of the window, or on no CPU."""
    assert tiling(of_rows([row])).excess == excess


@pytest.mark.parametrize("utid", [70_000, (1 << 17) + 2])
def test_utids_of_more_than_16_bits(utid: int) -> None:
    """Two threads whose numbers have the same low bits are two threads."""
    rows: list[Row] = [
        (0, 40, 2, "running", 0),
        (0, 30, utid, "sleeping", None),
        (30, 60, utid, "running", 1),
        (45, 100, 2, "sleeping", None),
    ]
    assert facts(tiling(of_rows(rows)))[0] == [(2, 40, 45), (2, 100, None), (utid, 60, None)]


@given(ANY_STREAM)
def test_the_order_of_the_table_changes_nothing(world: World) -> None:
    """What reconstruction wrote needs no sort; backwards it needs one, and says the same."""
    result = _native.reconstruct(world.tables, world.ncpu, world.window)
    states = pl.DataFrame(result["states"])
    assert world.window is not None
    info = {"ncpu": world.ncpu, "window": list(world.window)}
    forth, back = (
        tiling(ss.Trace.from_tables({"states": frame}, info))
        for frame in (states, states.reverse())
    )
    assert facts(forth) == facts(back)
    assert forth.excess == 0


def test_batches_carry_over() -> None:
    """The same in two batches, wherever they part."""
    trace = played(
        """
        0   cpu0: idle -> A
        20  cpu0: A S -> B
        30  cpu1: waking A on 0 by C
        60  cpu0: B R -> A
        """,
        window=WINDOW,
    )
    whole = facts(tiling(trace))
    states = trace.states.collect()
    info = {"ncpu": trace.ncpu, "window": list(WINDOW)}
    for cut in range(1, states.height):
        parted = pl.concat([states.head(cut), states.tail(-cut)], rechunk=False)
        assert parted.n_chunks() == 2
        tables = {"states": parted, "threads": trace.threads.collect()}
        assert facts(tiling(ss.Trace.from_tables(tables, info))) == whole
