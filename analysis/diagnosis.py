"""What is wrong with this trace, and what did it cost?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import polars as pl

from schedscope.analysis.check import check
from schedscope.analysis.finding import several
from schedscope.analysis.isolation import runs_outside_affinity
from schedscope.analysis.migration import migration_summary, ping_pong
from schedscope.analysis.once import once
from schedscope.analysis.queue_depth import queue_depth_summary
from schedscope.analysis.starvation import starvation, starvation_summary
from schedscope.analysis.work_conservation import wasted_time
from schedscope.units import count, duration, percent, printable

if TYPE_CHECKING:
    from schedscope.trace import Trace

SCHEMA = {
    "topic": pl.String,
    "level": pl.String,
    "cost": pl.Int64,
    "cost_frac": pl.Float64,
    "text": pl.String,
    "command": pl.String,
}
WORTH = 0.001
"""Findings that cost less than this share of the machine's time are left out."""
WARN = 0.05
"""From this share on a finding is a warning."""

_BOUNCES = 10


def diagnosis(trace: Trace, *, threshold: str | int = "100ms") -> pl.DataFrame:
    """One row per thing that is wrong with this trace, the costliest first.

    * `topic`: starvation, overload, idle (CPU time wasted while threads waited), migration
      (moved, then waited anyway), ping-pong, affinity (ran outside the recorded mask), recorder,
      trust (time of which the trace does not tell), sums (the trace contradicts itself);
    * `level`: `note`, `warning` from 5 % of the machine's time on, `violated` for sums;
    * `cost`: thread or CPU time that it concerns, ns; `cost_frac`: relative to the window
      times the CPUs. Waiting threads can be many, so it may exceed 1;
    * `text`: a sentence with numbers; `command`: what shows its table, to put the input behind.

    What costs less than 0.1 % is no row. `threshold` is where a wait begins to be starvation.
    Topics overlap: a thread that starves while a CPU idles is in both, so costs do not add up.
    Sums that do not hold come first whatever they cost, for then nothing else can be believed.
    """
    capacity = trace.duration * trace.ncpu
    rows = [_row(found, capacity) for found in _all(trace, threshold)]
    frame = pl.DataFrame([row for row in rows if row is not None], schema=SCHEMA)
    first = pl.col("level") == "violated"
    return frame.sort(first, "cost", descending=[True, True], maintain_order=True)


def _all(trace: Trace, threshold: str | int) -> Iterator[dict[str, Any]]:
    if not trace.duration:
        return
    yield from _sums(trace)
    yield from _starved(trace, threshold)
    yield from _overload(trace)
    yield from _wasted(trace)
    yield from _moved(trace)
    yield from _bounced(trace)
    yield from _outside(trace)


def _row(found: dict[str, Any], capacity: int) -> dict[str, Any] | None:
    share = found["cost"] / capacity
    level = found.get("level") or ("warning" if share >= WARN else "note")
    if share < WORTH and level != "violated":
        return None
    return {**found, "level": level, "cost_frac": share}


def _sums(trace: Trace) -> Iterator[dict[str, Any]]:
    """What `check` calls violated, the recorder's share, and unknown time."""
    for row in once(check, trace).iter_rows(named=True):
        found = {"cost": row["found"] if row["unit"] == "ns" else 0, "command": "check"}
        if row["level"] == "violated":
            text = f"The trace cannot be trusted: {row['check']}: {row['text']}."
            yield {**found, "topic": "sums", "level": "violated", "text": text}
        elif row["check"] == "recorder" and row["found"]:
            text = f"The recorder took part: {row['text']}."
            yield {**found, "topic": "recorder", "text": text}
        elif row["check"] == "unknown time" and row["found"]:
            text = f"The trace does not tell who ran in {row['text']}."
            yield {**found, "topic": "trust", "text": text}


def _starved(trace: Trace, threshold: str | int) -> Iterator[dict[str, Any]]:
    whole = starvation_summary(trace, by="all", threshold=threshold).row(0, named=True)
    if not whole["n"]:
        return
    story = once(starvation, trace, threshold=threshold, top=15)["story"][0]
    limit = threshold if isinstance(threshold, str) else duration(threshold)
    text = (
        f"{several(whole['threads'], 'thread')} starved: {several(whole['n'], 'wait')} of"
        f" {limit} and more, {duration(whole['total'])} in all. The longest: {story}."
    )
    yield {"topic": "starvation", "cost": whole["total"], "text": text, "command": "starvation"}


def _overload(trace: Trace) -> Iterator[dict[str, Any]]:
    row = queue_depth_summary(trace, by="machine").row(0, named=True)
    if not row["observed"] or row["overload_frac"] < 0.5:
        return
    text = (
        f"The machine had too much to do for {percent(row['overload_frac'])} of the time: on"
        f" average {row['mean']:.1f} threads wanted its {several(trace.ncpu, 'CPU')}. They waited"
        f" {duration(row['waiting'])}: no scheduler could have run them all at once."
    )
    yield {"topic": "overload", "cost": row["waiting"], "text": text, "command": "queue --machine"}


def _wasted(trace: Trace) -> Iterator[dict[str, Any]]:
    row = once(wasted_time, trace).row(0, named=True)
    if not row["wasted"]:
        return
    text = (
        f"CPUs idled {duration(row['wasted'])} while threads that may run there waited elsewhere,"
        f" {percent(row['wasted_idle_frac'])} of all idle time."
    )
    worst = once(wasted_time, trace, by="comm")
    if worst.height and worst["avoidable"][0]:
        name, time = worst.select("comm", "avoidable").row(0)
        text += f" Threads named {printable(name or '?')} waited most of it, {duration(time)}."
    yield {"topic": "idle", "cost": row["wasted"], "text": text, "command": "idle"}


def _moved(trace: Trace) -> Iterator[dict[str, Any]]:
    row = migration_summary(trace, by=[]).row(0, named=True)
    if not row["n_waited"]:
        return
    text = (
        f"Of {several(row['n'], 'migration')} {count(row['n_waited'])} led to another queue: the"
        f" threads waited there anyway, {duration(row['queued'])} in all."
    )
    yield {"topic": "migration", "cost": row["queued"], "text": text, "command": "migrations"}


def _bounced(trace: Trace) -> Iterator[dict[str, Any]]:
    frame = ping_pong(trace).filter(pl.col("n") >= _BOUNCES)
    if frame.is_empty():
        return
    worst = frame.row(0, named=True)
    text = (
        f"{several(frame.height, 'thread')} went back and forth between two CPUs,"
        f" {several(int(frame['n'].sum()), 'time')} in all; most of them"
        f" {printable(worst['comm'] or '?')}: {count(worst['n'])} times between CPU"
        f" {worst['cpu_a']} and CPU {worst['cpu_b']}."
    )
    cost = int(frame["wait"].sum())
    yield {"topic": "ping-pong", "cost": cost, "text": text, "command": "migrations --ping-pong"}


def _outside(trace: Trace) -> Iterator[dict[str, Any]]:
    frame = runs_outside_affinity(trace)
    if frame.is_empty():
        return
    worst = frame.row(0, named=True)
    text = (
        f"{several(frame['utid'].n_unique(), 'thread')} ran outside the CPUs recorded for them,"
        f" longest {printable(worst['comm'] or '?')} on CPU {worst['cpu']}"
        f" ({duration(worst['running'])}); or their mask changed after it was recorded."
    )
    cost = int(frame["running"].sum())
    yield {"topic": "affinity", "cost": cost, "text": text, "command": "affinity --outside"}
