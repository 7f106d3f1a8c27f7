"""Hand-made traces for who waited while who ran: an interval a line, times in ms.

    bully running@1 100..400
    clerk runnable@1 100..400     a wait; adjoining ones, on other CPUs, are one wait
    clerk runnable@? 400..410     on no known queue
    idle0 running@0 0..500        an idle thread

Waits follow from the intervals: one that a run ends is whole, one at the end of the window is open.
"""

from __future__ import annotations

import re
from typing import Any

import polars as pl

from schedscope import Trace
from schedscope.parsers.schema import TABLES

MS = 1_000_000
_LINE = re.compile(r"(\S+)\s+(\w+)(?:@(\d+|\?))?\s+(\d+)\.\.(\d+)")

Threads = dict[str, dict[str, Any]]


def scene(
    text: str,
    threads: Threads | None = None,
    *,
    ncpu: int = 2,
    until: int = 1000,
    unit: int = MS,
    ledger: bool = True,
    **info: Any,
) -> Trace:
    """A trace of the intervals; `threads` has `prio`, `sched_class`, `affinity`, `pid` by name.

    A thread not named there has nice 0 on Linux. utids from ncpu on, in order of appearance; an
    interval without length only names its thread. Without `ledger` there are no waits.
    """
    known = threads or {}
    names: list[str] = []
    rows = []
    for line in filter(None, map(str.strip, text.splitlines())):
        match = _LINE.fullmatch(line)
        assert match, line
        name, state, cpu, since, end = match.groups()
        if name.startswith("idle"):
            utid = int(name.removeprefix("idle"))
        else:
            if name not in names:
                names.append(name)
            utid = ncpu + names.index(name)
        if since == end:
            continue
        prio = None if utid < ncpu else known.get(name, {}).get("prio", 120)
        rows.append(
            {
                "ts": int(since) * unit,
                "dur": (int(end) - int(since)) * unit,
                "utid": utid,
                "state": state,
                "cpu": None if cpu in (None, "?") else int(cpu),
                "prio": prio,
                "end": "switched",
            }
        )
    table = [
        {"utid": i, "comm": "", "comm_first": "", "sched_class": "idle", "tid": 0}
        for i in range(ncpu)
    ]
    table += [
        {
            "utid": ncpu + i,
            "tid": 100 + i,
            "pid": 100 + i,
            "comm": name,
            "comm_first": name,
            "sched_class": "fair",
            "prio": 120,
            **known.get(name, {}),
        }
        for i, name in enumerate(names)
    ]
    tables = {
        "states": _table("states", sorted(rows, key=lambda row: row["ts"] + row["dur"])),
        "waits": _table("waits", _waits(rows, ncpu, until * unit) if ledger else []),
        "threads": _table("threads", table),
    }
    about = {
        "ncpu": ncpu,
        "window": [0, until * unit],
        "os": "Linux",
        "source": {"name": "scene"},
        "per_cpu": [_totals(rows, cpu, ncpu, until * unit) for cpu in range(ncpu)],
    }
    return Trace.from_tables(tables, about | info)


def _totals(rows: list[dict[str, Any]], cpu: int, ncpu: int, window: int) -> dict[str, Any]:
    """A CPU's time in the window; without a row of its idle thread, the rest is idle."""
    ran = [row for row in rows if row["cpu"] == cpu and row["state"] == "running"]
    running = sum(row["dur"] for row in ran if row["utid"] >= ncpu)
    idle = [row["dur"] for row in ran if row["utid"] < ncpu]
    rest = window - running
    return {
        "cpu": cpu,
        "running": running,
        "idle": sum(idle) if idle else rest,
        "unknown": rest - sum(idle) if idle else 0,
    }


def _waits(rows: list[dict[str, Any]], ncpu: int, end: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for utid in sorted({row["utid"] for row in rows if row["utid"] >= ncpu}):
        own = sorted((row for row in rows if row["utid"] == utid), key=lambda row: row["ts"])
        ready: int | None = None
        for row, following in zip(own, [*own[1:], None], strict=True):
            if row["state"] != "runnable":
                continue
            ready = row["ts"] if ready is None else ready
            until = row["ts"] + row["dur"]
            if following and following["ts"] == until and following["state"] == "runnable":
                continue
            ran = following is not None and following["ts"] == until
            found.append(
                {
                    "utid": utid,
                    "cause": "wake",
                    "ts_ready": ready,
                    "ts_run": until if ran else None,
                    "queue_cpu": row["cpu"],
                    "cpu": following["cpu"] if ran and following else None,
                    "prio": row["prio"],
                    "wait": until - ready,
                    "censored": "none" if ran else "right",
                }
            )
            assert ran or until == end, "a wait ends with a run, or with the window"
            ready = None
    return found


def _table(name: str, rows: list[dict[str, Any]]) -> pl.DataFrame:
    columns = TABLES[name].schema
    return pl.DataFrame([{column: row.get(column) for column in columns} for row in rows], columns)
