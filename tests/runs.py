"""Hand-made runs for comparisons: only threads with their waits and running times.

run("beat 10 30 on 0; beat 50 70 on 1"): beat waits 10 -> 30 and runs from 30 on CPU 0 until its
next line begins, or for as long as the line says: `beat 10 30 on 0 for 5`.
"""

from __future__ import annotations

import random
from typing import Any

import polars as pl

from schedscope import Trace
from schedscope.parsers.schema import TABLES


def table(name: str, rows: list[dict[str, Any]]) -> pl.DataFrame:
    columns = TABLES[name].schema
    return pl.DataFrame([{column: row.get(column) for column in columns} for row in rows], columns)


def run(text: str, *, ncpu: int = 2, window: tuple[int, int] = (0, 1000), **info: Any) -> Trace:
    """A trace of waits and the runs that follow them; a name may be given as comm/pid/tid."""
    spells = []
    for line in filter(None, map(str.strip, text.split(";"))):
        name, ready, ran, _, cpu, *rest = line.split()
        spells.append((name, int(ready), int(ran), int(cpu), int(rest[1]) if rest else 10))
    return of_spells(spells, ncpu=ncpu, window=window, **info)


def of_spells(
    spells: list[tuple[str, int, int, int, int]],
    *,
    ncpu: int = 2,
    window: tuple[int, int] = (0, 1000),
    **info: Any,
) -> Trace:
    """A trace of (name, ready, ran, cpu, running time)."""
    names = list(dict.fromkeys(name for name, *_ in spells))
    utids = {name: ncpu + i for i, name in enumerate(names)}
    waits, states = [], []
    last: dict[str, int] = {}
    for name, ready, ran, cpu, length in sorted(spells, key=lambda spell: spell[2]):
        common = {"utid": utids[name], "cpu": cpu}
        wait = {"cause": "wake", "ts_ready": ready, "ts_enqueued": ready, "ts_run": ran}
        waits.append(
            common | wait
            | {"queue_cpu": cpu, "prev_cpu": last.get(name), "wait": ran - ready}
            | {"censored": "none"}
        )  # fmt: skip
        for state, ts, dur in (("runnable", ready, ran - ready), ("running", ran, length)):
            if dur:
                states.append(common | {"state": state, "ts": ts, "dur": dur, "end": "switched"})
        last[name] = cpu
    threads = []
    for i, name in enumerate(names):
        comm, _, numbers = name.partition("|")
        pid, tid = map(int, numbers.split("/")) if numbers else (100 + i, 100 + i)
        threads.append(
            {"utid": ncpu + i, "tid": tid, "pid": pid, "comm": comm, "comm_first": comm,
             "kernel": pid == 2}
        )  # fmt: skip
    tables = {"waits": waits, "states": states, "threads": threads}
    frames = {name: table(name, rows) for name, rows in tables.items()}
    return Trace.from_tables(frames, {"ncpu": ncpu, "window": list(window), **info})


def noisy(seed: int, *, waits: int = 150, factor: float = 1.0, spread: float = 0.15) -> Trace:
    """A run of two threads with skewed waits, whose level varies from run to run by `spread`."""
    chance = random.Random(seed)
    length = 10_000_000
    spells = []
    for name in ("beat", "hog"):
        level = 2000 * factor * chance.lognormvariate(0, spread)
        at = 0.0
        for _ in range(waits):
            at += chance.expovariate(waits / length)
            wait = int(chance.lognormvariate(0, 1) * level)
            spells.append((name, int(at), int(at) + wait, chance.randrange(2), 500))
    return of_spells(spells, window=(0, 2 * length))
