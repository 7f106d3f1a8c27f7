"""Where in the timeline a finding is to be seen, and the address that opens the viewer there."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from schedscope import units
from schedscope.analysis.asking.memo import once
from schedscope.analysis.findings.findings import findings
from schedscope.errors import SchedscopeError, UsageError
from schedscope.store import clock

if TYPE_CHECKING:
    from schedscope.store.trace import Trace

_AROUND = 10_000_000
"""Shown before and after an instant that has no length (ns)."""
_ASKED = 100_000_000
"""Shown before and after an instant that was asked for (ns)."""
_VIEW = re.compile(r"view=-?\d+--?\d+(&[a-z]+=[^&]*)*")


@dataclass(frozen=True)
class Place:
    """A stretch of the trace (ns, as in its tables), and the lane to look at."""

    ts: int
    dur: int
    lane: str | None

    def shown(self, trace: Trace) -> tuple[int, int]:
        """The stretch with something before and after it."""
        begin, end = trace.window
        margin = self.dur // 2 if self.dur else _AROUND
        return max(begin, self.ts - margin), min(end, self.ts + self.dur + margin)

    def middle(self, trace: Trace) -> int | None:
        """The instant to select in the lane; none where the stretch is the whole of the trace."""
        begin, end = trace.window
        if self.lane is None or self.dur >= trace.duration:
            return None
        return max(begin, min(end - 1, self.ts + self.dur // 2))

    def view(self, trace: Trace) -> str:
        """What `schedscope view --at` and the viewer's address take."""
        since, until = (ts - trace.origin for ts in self.shown(trace))
        text, at = f"view={since}-{until}", self.middle(trace)
        if self.lane is None or at is None:
            return text
        lane = self.lane.replace("cpu:", "c").replace("utid:", "u")
        return f"{text}&select={lane}@{at - trace.origin}"


def around(trace: Trace, when: str | float) -> tuple[int, int]:
    """The stretch to show for `--at TIME`: the instant, with 100 ms on both sides (ns).

    Raises `UsageError` for what is no time, and for one outside the trace.
    """
    try:
        at = trace.instant(when)
    except UsageError:
        if clock.is_one(when):
            raise
        expected = "a time as tables print it, as in 2.5, or a time of day, as in 12:03"
        raise UsageError(f"--at {when}", expected) from None
    begin, end = trace.window
    if not begin <= at < end:
        first, last = (units.instant(ts, trace.origin) for ts in (begin, end))
        raise UsageError(f"--at {when}", f"{first} to {last}, which the trace covers")
    return max(begin, at - _ASKED), min(end, at + _ASKED)


def view_at(trace: Trace, text: str) -> str:
    """The form of `--at` in the viewer's address: a time, or a view as the viewer copies it.

    Raises `UsageError` for anything else.
    """
    view = text.lstrip("#")
    if view.startswith("view="):
        if not _VIEW.fullmatch(view):
            expected = "view=BEGIN-END in ns, as the viewer's button `link` copies it"
            raise UsageError(f"--at {text}", expected, "or give a time, as in --at 2.5")
        return view
    since, until = (ts - trace.origin for ts in around(trace, text))
    return f"view={since}-{until}"


def places(trace: Trace, found: pl.DataFrame) -> list[Place]:
    """For each row of `findings`: its worst case, else its thread's longest wait, else all."""
    begin, _ = trace.window
    without = found.filter(pl.col("ts").is_null(), pl.col("utid").is_not_null())
    longest = {
        utid: (ts, dur)
        for utid, ts, dur in trace.waits.filter(
            pl.col("utid").is_in(without["utid"].implode()),
            pl.col("ts_ready").is_not_null(),
            pl.col("wait").is_not_null(),
        )
        .group_by("utid")
        .agg(pl.col("ts_ready", "wait").sort_by("wait").last())
        .collect()
        .iter_rows()
    }
    rows = []
    for ts, dur, utid, cpu in found.select("ts", "dur", "utid", "cpu").iter_rows():
        lane = f"utid:{utid}" if utid is not None else None if cpu is None else f"cpu:{cpu}"
        if ts is None:
            ts, dur = longest.get(utid, (begin, trace.duration))
        rows.append(Place(ts, dur or 0, lane))
    return rows


def listed(
    trace: Trace, found: pl.DataFrame | None = None, chosen: Collection[int] | None = None
) -> list[dict[str, Any]]:
    """The findings as the viewer shows them: texts, and where each one is, from the start on.

    With `chosen`, by `utid`, those that affect these threads.
    `found` are those of a trace of which this is a part: numbers are theirs, and what lies outside
    is left out.
    """
    if found is None:
        try:
            mine = None if chosen is None else pl.col("utid").is_in(list(chosen))
            found = once(findings, trace) if mine is None else findings(trace, where=mine)
        except (SchedscopeError, pl.exceptions.ColumnNotFoundError):
            # Without switches there are no findings, and tables of other programs may lack columns.
            return []
    begin, end = trace.window
    rows = []
    for number, (row, place) in enumerate(
        zip(found.iter_rows(named=True), places(trace, found), strict=True), 1
    ):
        if place.ts + max(1, place.dur) <= begin or place.ts >= end:
            continue
        rows.append(
            {
                "n": number,
                "topic": row["topic"],
                "level": row["level"],
                "cost": units.cost(row["cost"], row["cost_high"], row["cost_frac"]),
                "text": units.printable(row["text"]),
                "advice": row["advice"],
                "commands": [
                    row["command"],
                    *([row["whatif"]] if row["whatif"] else []),
                    f"view --at {shlex.quote(place.view(trace))}",
                ],
                "shown": [ts - begin for ts in place.shown(trace)],
                "lane": place.lane,
                "at": None if (at := place.middle(trace)) is None else at - begin,
            }
        )
    return rows
