"""How much of what some threads did was recorded?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import polars as pl

from schedscope.analysis.asking.needs import has
from schedscope.analysis.check.row import WARN_WITHHELD, CheckRow, of, part, unanswered
from schedscope.analysis.cpus.accounting import Tiling
from schedscope.analysis.latency import latency
from schedscope.analysis.recording.unknown_time import unknown_time
from schedscope.analysis.threads.of_threads import some_threads, threads_with
from schedscope.analysis.wait_breakdown import wait_breakdown
from schedscope.analysis.waits.waits import waits_in_batches
from schedscope.units import count, duration, percent, several

if TYPE_CHECKING:
    from schedscope.store.trace import Trace

_SIDES = {"left": "without a start", "right": "without an end", "both": "without either"}
"""What is not known of a wait that is censored."""


def unseen(sides: Mapping[str, int]) -> str:
    """How many waits are not measured, by what was not recorded, to continue a sentence."""
    found = [f"{count(sides[side])} {words}" for side, words in _SIDES.items() if side in sides]
    return f": {', '.join(found)}" if found else ""


def selection(trace: Trace, where: pl.Expr, tiles: Tiling) -> list[CheckRow]:
    """A row per question about the threads that fit `where`, which uses columns of `threads`."""
    utids = some_threads(trace, where)
    mine = pl.col("utid").is_in(utids.implode())
    return [
        _threads(trace, utids, mine, tiles),
        withheld("selected waits", trace, mine),
        _time(trace, utids, mine),
        *_reasons(trace, mine),
    ]


def _threads(trace: Trace, utids: pl.Series, mine: pl.Expr, tiles: Tiling) -> CheckRow:
    """How many they are, and how much of the CPU time of all threads is theirs."""
    every, pids = (
        threads_with(trace, ())
        .filter(pl.col("utid") >= trace.ncpu)
        .select(pl.len(), pl.col("pid").filter(mine).drop_nulls().n_unique())
        .collect()
        .row(0)
    )
    running = trace.states.filter(mine, pl.col("state") == "running")
    ran = int(running.select(pl.col("dur").sum()).collect(engine="streaming").item())
    total = tiles.of_threads
    processes = f", in {several(pids, 'process', 'processes')}" if pids else ""
    text = (
        f"{count(len(utids))} of {several(every, 'thread')}{processes}, ran {duration(ran)}: "
        f"{percent(ran / total if total else 0)} of the running time of all threads"
    )
    return CheckRow("selected threads", "ok", ran, total, "ns", text)


def withheld(name: str, trace: Trace, mine: pl.Expr) -> CheckRow:
    """The time that threads may have waited, and that is in no measured wait."""
    sides: dict[str, int] = {}
    for some in waits_in_batches(trace, ["censored"], mine):
        counted = some.group_by(pl.col("censored").cast(pl.String)).len().collect()
        for side, n in counted.iter_rows():
            sides[side] = sides.get(side, 0) + n
    rows = sum(sides.values())
    if not (has(trace, "switches") and has(trace, "wakeups")):
        return unanswered(name, "ns", "without switches and wakeups there are no waits")
    known = latency(trace, where=mine, quantiles=[]).row(0, named=True)
    possible = known["total_high"]
    found = possible - round(known["coverage"] * possible)
    text = of(rows - sides.get("none", 0), rows, "wait") + unseen(sides)
    if found:
        text = (
            f"{duration(found)} of up to {duration(possible)} of waiting is not measured "
            f"({percent(found / possible)}); {text}"
        )
    return part(name, found, possible, text, unit="ns", warn=WARN_WITHHELD)


def _time(trace: Trace, utids: pl.Series, mine: pl.Expr) -> CheckRow:
    """The part of their lives in which it is unknown what they did."""
    lives = trace.states.filter(mine).select(pl.col("dur").sum())
    total = int(lives.collect(engine="streaming").item())
    unknown = unknown_time(trace).filter(pl.col("utid").is_in(utids.implode()))
    found = int(unknown["unknown"].sum())
    share = percent(found / total if total else 0)
    text = f"it is unknown what they did for {duration(found)} of {duration(total)} ({share})"
    return part("selected time", found, total, text, unit="ns", warn=WARN_WITHHELD)


def _reasons(trace: Trace, mine: pl.Expr) -> list[CheckRow]:
    """The part of their waits of which it is unknown what the CPU did meanwhile."""
    if not has(trace, "switches"):
        return []
    row = wait_breakdown(trace, by="all", where=mine)
    found, total = int(row["unknown"].sum()), int(row["wait"].sum())
    share = percent(found / total if total else 0)
    text = f"unknown for {duration(found)} of {duration(total)} of waiting ({share})"
    return [part("selected reasons", found, total, text, unit="ns", warn=WARN_WITHHELD)]
