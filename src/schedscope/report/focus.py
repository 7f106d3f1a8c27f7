"""Which stretch of time the report's timeline shows, and why that one."""

from __future__ import annotations

from dataclasses import dataclass

from schedscope import units
from schedscope.analysis.worst_waits import worst_waits
from schedscope.report.subject import Subject
from schedscope.store.trace import Trace
from schedscope.timelines.places import around as stretch

_LEAST = 1_000_000
_LONGEST = 5_000_000_000
"""A longer stretch would show sums only: its start shows more."""


@dataclass(frozen=True)
class Focus:
    """A stretch of the trace, instants in ns, and a sentence that says why it was chosen."""

    since: int
    until: int
    why: str


def focus(subject: Subject, around: str | float | None = None) -> Focus:
    """The time around an instant, else around the worst finding, else around the longest wait.

    Raises `UsageError` for an instant outside the trace.
    """
    trace = subject.trace
    if around is not None:
        return Focus(*stretch(trace, around), f"around {around}, as requested")
    for number, row in enumerate(subject.findings.iter_rows(named=True), 1):
        if row["ts"] is not None and row["dur"]:
            what = f"of finding {number} ({row['topic']})"
            return _around(trace, row["ts"], row["dur"], f"around the worst case {what}")
    worst = subject.ask(worst_waits, n=15)
    if worst.height:
        row = worst.row(0, named=True)
        name = units.printable(row["comm"] or "?")
        return _around(trace, row["ts_ready"], row["wait"], f"around the longest wait, of {name}")
    begin, _ = trace.window
    return _cut(trace, begin, begin + _LONGEST, "the start of the trace: nothing waited")


def _around(trace: Trace, ts: int, dur: int, why: str) -> Focus:
    dur = min(dur, _LONGEST)
    margin = max(dur // 4, _LEAST)
    return _cut(trace, ts - margin, ts + dur + margin, why)


def _cut(trace: Trace, since: int, until: int, why: str) -> Focus:
    begin, end = trace.window
    return Focus(max(begin, since), min(end, until), why)
