"""Are threads in the dispatch queues that the scheduler put them into, as the kernel counts them?

guest/scx_layers.bpf.c prints each of its decisions (`decisions.txt`).
"""

from __future__ import annotations

import re
from collections import defaultdict, deque
from dataclasses import dataclass
from pathlib import Path

import polars as pl

import schedscope as ss

_LINE = re.compile(
    r".* (\d+)\.(\d+): bpf_trace_printk: insert (\d+) (local|user) (\d+)(?: (\d+))?$"
)
_LATEST = 1_000_000
"""ns from a decision to what the kernel makes of it, at most."""


@dataclass(frozen=True)
class Queues:
    """Decisions of the scheduler while both were recorded, and what the recording has of them."""

    decisions: int
    missing: int
    """Decisions that no row of `dispatch_queues` follows."""
    strange: int
    """Threads put into a queue of the scheduler's that it did not say, or with another vtime."""
    steps: int
    """Rows of `dispatch_queues` of a queue of which an earlier row is known."""
    miscounted: int
    """Those before which the kernel counted other threads in the queue than the rows do."""

    def __str__(self) -> str:
        """For people."""
        return (
            f"{self.decisions} decisions, {self.missing} missing, {self.strange} strange; "
            f"of {self.steps} steps {self.miscounted} are not as long as the kernel counts"
        )


def queues(trace: ss.Trace, text: Path) -> Queues:
    """Compare the steps through dispatch queues with what the scheduler printed."""
    tids = trace.threads.select("utid", "tid")
    rows = trace.dispatch_queues.join(tids, on="utid", maintain_order="left").collect()
    told = _decisions(text)
    last = max(ts for all_of in told.values() for ts, *_ in all_of)
    begin, end = trace.window[0] + _LATEST, min(last, trace.window[1])
    for waiting in told.values():
        while waiting and waiting[0][0] < begin:
            waiting.popleft()
    missing = strange = decisions = 0
    inserts = rows.filter(pl.col("step") == "insert", pl.col("ts").is_between(begin, end))
    for ts, tid, kind, cpu, number, vtime in inserts.select(
        "ts", "tid", "kind", "queue_cpu", "queue_id", "vtime"
    ).rows():
        waiting = told[tid]
        while waiting and waiting[0][0] < ts - _LATEST:
            waiting.popleft()
            missing += 1
        head = waiting[0] if waiting and waiting[0][0] <= ts else None
        where = number if kind == "user" else cpu
        if head and head[1:3] == (kind, where) and head[3] in (None, vtime):
            decisions += 1
            waiting.popleft()
        elif kind == "user" and ts > begin + _LATEST:  # its decision may be from before
            strange += 1
    left = (ts for all_of in told.values() for ts, *_ in all_of)
    missing += sum(ts < end - _LATEST for ts in left)
    steps, miscounted = _counted(rows)
    return Queues(decisions + missing, missing, strange, steps, miscounted)


def _decisions(text: Path) -> dict[int, deque[tuple[int, str, int, int | None]]]:
    """By thread, in order: when, into which kind of queue, which one, with which vtime."""
    found: dict[int, deque[tuple[int, str, int, int | None]]] = defaultdict(deque)
    with text.open(errors="replace") as lines:
        for match in filter(None, map(_LINE.match, lines)):
            ts = int(match[1]) * 1_000_000_000 + int(match[2].ljust(9, "0"))
            vtime = int(match[6]) if match[6] else None
            found[int(match[3])].append((ts, match[4], int(match[5]), vtime))
    return found


def _counted(rows: pl.DataFrame) -> tuple[int, int]:
    """How many rows follow another one of their queue, and before how many the counts differ."""
    queue = ("kind", "queue_cpu", "queue_id")
    after = pl.col("queued").cast(pl.Int64) + pl.when(step="insert").then(1).otherwise(-1)
    compared = rows.select("queued", known=after.shift(1).over(queue, order_by="ts")).drop_nulls()
    return compared.height, compared.filter(pl.col("queued") != pl.col("known")).height
