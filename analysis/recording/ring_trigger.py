"""Why was a flight recorder's snapshot taken, and does the trace show it?"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from schedscope.analysis.asking.memo import once
from schedscope.units import duration, printable

if TYPE_CHECKING:
    from schedscope.store.trace import Trace

_WAIT = re.compile(r".*: thread (\d+) \((.*)\) waited (\d+) us", re.DOTALL)
"""How the recorder words a wait that triggered it (collectors/linux/ring-watch.sh)."""
_ALIKE = 0.95
"""The recorder's wait begins with the wakeup, the trace's with the decision to wake."""


@dataclass(frozen=True)
class Trigger:
    """A wait: its thread, start and end, and whether the trace measured it."""

    reason: str
    """In the recorder's words."""
    at: int
    wait: int | None = None
    """How long it was, as the recorder measured it; null if another thing triggered it."""
    name: str = ""
    tid: int | None = None
    utid: int | None = None
    longest: int | None = None
    """The longest wait of that thread that the trace has measured."""
    ts: int | None = None
    """When that began."""

    @property
    def shown(self) -> bool:
        """Whether the trace shows what the recorder saw."""
        return self.wait is None or (self.longest or 0) >= _ALIKE * self.wait

    @property
    def text(self) -> str:
        """Why it was taken, and whether the trace shows that, as a sentence without its full
        stop.
        """
        if self.wait is None:
            return f"the snapshot was taken because of this: {printable(self.reason)}"
        who = f"{printable(self.name)} ({self.tid})"
        found = f"the snapshot was taken because {who} waited {duration(self.wait)} for a CPU"
        if self.shown:
            return found
        if self.longest is None:
            return f"{found}; the trace does not show that wait, nor any other of this thread"
        rest = f"its longest wait that is measured is {duration(self.longest)}"
        return f"{found}; the trace does not show that wait: {rest}"


def trigger(trace: Trace) -> Trigger | None:
    """The trigger of a snapshot whose end is in this part; None for other recordings."""
    return once(_trigger, trace)


def _trigger(trace: Trace) -> Trigger | None:
    ring = trace.info.get("ring")
    if not isinstance(ring, dict) or not ring.get("trigger"):
        return None
    begin, end = trace.window
    reason, at = str(ring["trigger"]), int(ring.get("at") or end)
    if not begin < at <= end:
        return None
    told = _WAIT.fullmatch(reason)
    if told is None:
        return Trigger(reason, at)
    tid, wait = int(told[1]), int(told[3]) * 1000
    waits = (
        trace.waits.filter(pl.col("wait").is_not_null(), pl.col("ts_ready").is_not_null())
        .join(trace.threads.filter(pl.col("tid") == tid).select("utid"), on="utid", how="semi")
        .sort("wait", "ts_ready", descending=True)
        .select("utid", "ts_ready", "wait")
        .head(1)
        .collect()
    )
    utids = trace.threads.filter(pl.col("tid") == tid).select(pl.col("utid").max()).collect().item()
    ts, longest = waits.row(0)[1:] if waits.height else (None, None)
    utid = waits["utid"].item() if waits.height else utids
    return Trigger(reason, at, wait, told[2], tid, utid, longest, ts)
