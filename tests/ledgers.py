"""Hand-made ledgers: a trace of which only `waits` and `threads` matter, a wait a line.

nginx wake 100 -> 150 cpu0      woken at 100, ran at 150 on CPU 0
nginx preempt 200 -> open cpu1  still on CPU 1's queue when the window ended
sh unknown ? -> 300 cpu0        ran at 300; its start was not recorded
"""

from __future__ import annotations

from typing import Any

import polars as pl
from worlds import world

from schedscope import Trace, _native
from schedscope.parsers.schema import TABLES


def ledger(text: str, *, ncpu: int = 2, window: tuple[int, int] = (0, 1000), **info: Any) -> Trace:
    """A trace in memory with the given waits; utids from ncpu on, by appearance."""
    names: list[str] = []
    rows = []
    for line in filter(None, map(str.strip, text.splitlines())):
        comm, cause, begin, _, end, cpu = line.split()
        if comm not in names:
            names.append(comm)
        ready = None if begin == "?" else int(begin)
        run = None if end == "open" else int(end)
        wait = None if ready is None else (window[1] if run is None else run) - ready
        where = int(cpu.removeprefix("cpu"))
        rows.append(
            {
                "utid": ncpu + names.index(comm),
                "cause": cause,
                "ts_ready": ready,
                "ts_run": run,
                "queue_cpu": where,
                "cpu": where if run is not None else None,
                "wait": wait,
                "censored": {
                    (True, True): "none",
                    (True, False): "right",
                    (False, True): "left",
                    (False, False): "both",
                }[ready is not None, run is not None],
            }
        )
    threads = [
        {"utid": ncpu + i, "tid": 100 + i, "pid": 100 + i, "comm": name, "comm_first": name}
        for i, name in enumerate(names)
    ]
    tables = {"waits": _table("waits", rows), "threads": _table("threads", threads)}
    return Trace.from_tables(tables, {"ncpu": ncpu, "window": list(window), **info})


def _table(name: str, rows: list[dict[str, Any]]) -> pl.DataFrame:
    columns = TABLES[name].schema
    return pl.DataFrame([{column: row.get(column) for column in columns} for row in rows], columns)


def played(text: str, *, ncpu: int = 2, window: tuple[int, int], **info: Any) -> Trace:
    """A whole trace in memory: the world `text` (see worlds.py), reconstructed."""
    facts = world(text, ncpu=ncpu, window=window)
    result = _native.reconstruct(facts.tables, ncpu, window)
    tables = facts.tables | {
        name: pl.DataFrame(result[name]) for name in ("states", "waits", "losses")
    }
    names = [facts.name(utid) for utid in range(ncpu + len(facts.names))]
    tables["threads"] = _table(
        "threads",
        [{"utid": i, "tid": 100 + i, "comm": n, "comm_first": n} for i, n in enumerate(names)],
    )
    about = {
        "ncpu": ncpu,
        "window": list(window),
        "events": {"switch": {"0": facts.tables["switches"].height}},
        "per_cpu": result["per_cpu"],
        "reconstruction": result["counters"],
    }
    return Trace.from_tables(tables, about | info)


def utid(trace: Trace, comm: str) -> int:
    """The first thread with that name."""
    return int(trace.threads.filter(comm=comm).collect()["utid"][0])
