"""Worlds of intervals: states written down as they are, and random ones of twenty instants."""

from __future__ import annotations

import polars as pl
from hypothesis import strategies as st
from ledgers import played

import schedscope as ss
from schedscope.parsers.schema import TABLES

Interval = tuple[int, int, int, str, int | None]


def of_states(
    rows: list[Interval],
    window: tuple[int, int],
    *,
    ncpu: int = 3,
    masks: dict[int, str] | None = None,
) -> ss.Trace:
    """A trace of (ts, until, utid, state, cpu); the idle threads come first."""
    columns = TABLES["states"].schema
    states = pl.DataFrame(
        [
            {"ts": ts, "dur": end - ts, "utid": utid, "state": state, "cpu": cpu, "end": "switched"}
            for ts, end, utid, state, cpu in sorted(rows, key=lambda row: row[1])
        ],
        {name: columns[name] for name in ("ts", "dur", "utid", "state", "cpu", "end")},
    )
    utids = sorted({*range(ncpu), *(row[2] for row in rows)})
    threads = pl.DataFrame(
        {
            "utid": utids,
            "tid": [100 + u for u in utids],
            "comm": [f"t{u}" for u in utids],
            "affinity": [(masks or {}).get(u) for u in utids],
        },
        schema_overrides={"utid": pl.UInt32, "affinity": pl.String},
    )
    nobody = pl.DataFrame(schema=TABLES["threads"].schema)
    return ss.Trace.from_tables(
        {"states": states, "threads": pl.concat([nobody, threads], how="diagonal_relaxed")},
        {"ncpu": ncpu, "window": list(window)},
    )


MASKS = {10: None, 11: "0-1", 12: "1-2", 13: "2", 14: None, 15: "0,2"}


@st.composite
def between_runs(draw: st.DrawFn, runs: list[Interval]) -> list[Interval]:
    """What a thread does in the time between: mostly it sleeps, or nothing is known of it."""
    rows: list[Interval] = []
    until = 0
    for begin, end, utid, _, _ in runs:
        state = draw(st.sampled_from(["sleeping", "sleeping", "unknown", ""]))
        if state and until < begin:
            rows.append((until, begin, utid, state, None))
        until = end
    return rows


@st.composite
def small_worlds(draw: st.DrawFn, masks: bool = False) -> tuple[list[Interval], dict[int, str]]:
    rows: list[Interval] = []
    for cpu in range(3):
        ts = 0
        for _ in range(draw(st.integers(0, 5))):
            ts += draw(st.sampled_from([0, 0, 0, 2]))  # nothing is known in the gap
            dur = draw(st.integers(1, 6))
            busy = draw(st.booleans())
            rows.append((ts, ts + dur, 20 + cpu if busy else cpu, "running", cpu))
            ts += dur
        rows += draw(between_runs([row for row in rows if row[2] == 20 + cpu]))
    given_masks = {u: m for u, m in MASKS.items() if m and masks}
    for utid in MASKS:
        ts = draw(st.integers(0, 5))
        for _ in range(draw(st.integers(0, 3))):
            dur = draw(st.integers(1, 7))
            mask = given_masks.get(utid)
            homes: list[int | None] = [0, 1, 2, None]
            if mask:
                homes = {"0-1": [0, 1], "1-2": [1, 2], "2": [2], "0,2": [0, 2]}[mask]  # type: ignore[assignment]
            rows.append((ts, ts + dur, utid, "runnable", draw(st.sampled_from(homes))))
            ts += dur + draw(st.integers(0, 3))
    return rows, given_masks


def allowed(mask: str | None) -> set[int]:
    return {None: {0, 1, 2}, "0-1": {0, 1}, "1-2": {1, 2}, "2": {2}, "0,2": {0, 2}}[mask]


# CPU 0: a runs 100-400, is preempted inside the kernel by b, which runs 400-600 and
# leaves plain R for a; a runs 600-700 and sleeps; idle from then on. CPU 1: known from 300 on.
PREEMPTED_TWICE = """
    100 cpu0: idle -> a
    200 cpu0: waking b on 0 by a
    200 cpu0: enqueued b on 0 by a
    300 cpu1: z S -> idle
    400 cpu0: a R+ -> b
    600 cpu0: b R -> a
    700 cpu0: a S -> b
    800 cpu0: b S -> idle
"""


def preempted_twice() -> ss.Trace:
    """The trace of it."""
    return played(PREEMPTED_TWICE, window=(100, 1100), source={"name": "round"})
