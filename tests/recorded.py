"""Hand-made recordings of two threads with system calls, and the running threads of a trace.

Utids 0 and 1 are idle; 2 is on CPU 0 and wakes 3, which is on CPU 1.
"""

from __future__ import annotations

from typing import Any

import polars as pl

from schedscope.parsers.schema import TABLES
from schedscope.store.trace import Trace

MS = 1_000_000


def table(name: str, rows: list[dict[str, Any]]) -> pl.DataFrame:
    """Rows of a table of facts; missing columns are null."""
    return pl.DataFrame(rows, schema=TABLES[name].schema)


def recorded(
    threads: dict[str, int], calls: list[dict[str, Any]], switches: list[Any], wakes: list[Any]
) -> Trace:
    """`threads`: names and pids of 2 and 3; `switches`: ts, cpu, prev, its state, next."""
    named = [("", 0), ("", 0), *threads.items()]
    tables = {
        "switches": table(
            "switches",
            [
                {"ts": ts, "cpu": cpu, "prev_utid": prev, "prev_state": state, "prev_prio": 120}
                | {"next_utid": after, "next_prio": 120}
                for ts, cpu, prev, state, after in switches
            ],
        ),
        "wakeups": table(
            "wakeups",
            [
                {"ts": ts, "cpu": 0, "waker_utid": 2, "utid": 3, "kind": kind}
                | {"target_cpu": 1, "prio": 120}
                for ts, kind in wakes
            ],
        ),
        "system_calls": table("system_calls", calls),
        "threads": table(
            "threads",
            [{"utid": i, "comm": comm, "pid": pid} for i, (comm, pid) in enumerate(named)],
        ),
    }
    about = {"ncpu": 2, "window": [0, 20 * MS], "os": "Linux", "machine": "x86_64"}
    return Trace.from_tables(tables, about)


def runs(trace: Trace) -> list[tuple[str, float, float]]:
    """The runs of threads, from and to, ms."""
    rows = (
        trace.states.filter(pl.col("state") == "running", pl.col("utid") >= trace.ncpu)
        .join(trace.threads.select("utid", "comm"), on="utid")
        .sort("ts", "comm")
        .select("comm", begin=pl.col("ts") / MS, end=(pl.col("ts") + pl.col("dur")) / MS)
    )
    return [tuple(row) for row in rows.collect().rows()]
