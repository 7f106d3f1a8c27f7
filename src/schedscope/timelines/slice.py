"""All that is known about one interval of a lane, with links to others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from schedscope.analysis.asking.needs import has
from schedscope.analysis.critical_path import critical_path
from schedscope.analysis.interference import interference
from schedscope.analysis.wait_breakdown import BEHIND, wait_breakdown
from schedscope.analysis.waits.queue_stays import stays
from schedscope.analysis.wake_chain import wake_chain
from schedscope.errors import SchedscopeError, UsageError
from schedscope.present.columns import choose
from schedscope.timelines.lanes import NOBODY, STATES, Lane, Lanes
from schedscope.timelines.tables import table
from schedscope.units import duration, printable

if TYPE_CHECKING:
    from schedscope.store.trace import Trace

_PARTS = (*BEHIND, "interrupted", "throttled", "cpu_idle", "unknown")
_WORDS = {
    "behind_better": "another thread of better priority ran",
    "behind_same": "another thread of the same priority ran",
    "behind_worse": "another thread of worse priority ran",
    "interrupted": "interrupts were handled",
    "throttled": "the CPU quota was used up",
    "cpu_idle": "the CPU idled",
    "unknown": "unknown",
}
_PATH = 50_000_000
"""A critical path goes back, and a wake chain forward, this far, or ten times the interval's length
(ns)."""


def slice_at(lanes: Lanes, key: str, at: int) -> dict[str, Any]:
    """The interval of lane `key` at `at`, ns after the window's begin: who, what, and why.

    `state` is null where the trace does not show any. `before` and `after` are the thread's
    neighbouring intervals; `wait` says what a wait consisted of, `woke` which threads a running
    thread woke, `tables` which threads ran meanwhile.
    """
    lane = lanes.around(key, at)
    here = _interval(lane, _place(lane, at))
    kind, _, number = key.partition(":")
    answer: dict[str, Any] = {"lane": key, "at": at, "state": None, "tables": []}
    if here is None:
        return answer
    answer.update(here)
    utid = int(number) if kind == "utid" else here["who"]
    if utid is None or utid < lanes.trace.ncpu:
        return {**answer, "utid": None}
    own = lanes.around(f"utid:{utid}", at)
    i = _place(own, at)
    mine = _interval(own, i)
    if mine is None:
        return {**answer, "utid": utid, "names": _names(lanes, {utid})}
    cpu = mine.pop("who")
    answer.update(mine, utid=utid, cpu=cpu if kind == "utid" else int(number))
    answer["before"] = _interval(own, i - 1)
    answer["after"] = _interval(own, i + 1)
    answer.update(_about(lanes.trace, utid))
    end = mine["end"]
    span = _span(lanes, mine["begin"], end)
    if mine["state"] == "runnable":
        answer["wait"], answer["tables"] = _wait(lanes, utid, mine["begin"], end, span)
    elif mine["state"] == "running":
        answer["tables"] = [
            *_delayed(lanes, utid, mine["begin"], end, span),
            *_woke(lanes, utid, mine["begin"], end),
        ]
    else:
        answer["reason"] = _reason(lanes, utid, mine["begin"])
    answer["python"] = f"trace.between({span}).states.filter(pl.col('utid') == {utid}).collect()"
    utids = {utid, *(part["waker"] for part in (mine, answer["after"]) if part)} - {None}
    answer["names"] = _names(lanes, utids)
    return answer


def path_to(lanes: Lanes, utid: int, begin: int, end: int) -> dict[str, Any]:
    """The critical path that led thread `utid` up to `end`, a row per step."""
    trace = lanes.trace
    if not 0 <= begin <= end <= lanes.duration:
        raise UsageError("these instants", "a stretch of the trace")
    since = max(0, end - max(_PATH, 10 * (end - begin)))
    times = [trace.seconds(lanes.begin + at) for at in (since, end)]
    cut = trace.between(*times)
    frame = critical_path(cut, times[0], times[1], utid=utid)
    names = ["ts", "dur", "kind", "comm", "tid", "cpu", "ended", "other_comm", "other_tid"]
    return table(
        frame.reverse(),
        choose(frame, names, question="critical_path", origin=trace.origin),
        title="Critical path up to the end of this, the last step first",
        python=f"ss.critical_path(trace, {times[0]:.9f}, {times[1]:.9f}, utid={utid})",
        begin=lanes.begin,
    )


def chain_from(lanes: Lanes, utid: int, begin: int, end: int) -> dict[str, Any]:
    """The wakeups that followed from what thread `utid` did from `begin` on, a row for each."""
    trace = lanes.trace
    if not 0 <= begin <= end <= lanes.duration or begin == lanes.duration:
        raise UsageError("these instants", "a stretch of the trace")
    until = min(lanes.duration, begin + max(_PATH, 10 * (end - begin)))
    span = _span(lanes, begin, until)
    since, last = (f"{lanes.begin + at - trace.origin}ns" for at in (begin, until))
    frame = wake_chain(trace, since, last, utid=utid)
    names = ["ts_ready", "hops", "waker_comm", "waker_tid", "comm", "tid", "wait", "chain_wait"]
    return table(
        frame,
        choose(frame, names, question="wake_chain", origin=trace.origin),
        title=f"Wakeups that followed, of the {duration(until - begin)} from its start on",
        python=f"ss.wake_chain(trace, {span}, utid={utid})",
        begin=lanes.begin,
        most=100,
    )


def _place(lane: Lane, at: int) -> int:
    """The number of the interval that `at` lies in, or of the one before it."""
    return int(np.searchsorted(lane.starts, at, side="right")) - 1


def _interval(lane: Lane, i: int) -> dict[str, Any] | None:
    if not 0 <= i < len(lane.starts):
        return None

    def known(values: Any) -> int | None:
        return None if values[i] == NOBODY else int(values[i])

    return {
        "state": STATES[lane.codes[i]],
        "begin": int(lane.starts[i]),
        "end": int(lane.ends[i]),
        "who": known(lane.who),
        "waker": known(lane.waker),
        "waker_cpu": known(lane.waker_cpu),
    }


def _names(lanes: Lanes, utids: set[int]) -> dict[str, str]:
    return {str(utid): lanes.name(utid) for utid in sorted(utids)}


def _about(trace: Trace, utid: int) -> dict[str, Any]:
    frame = trace.threads.filter(pl.col("utid") == utid).collect()
    if not frame.height:
        return {}
    row = frame.row(0, named=True)
    names = ("pid", "process_name", "cgroup", "cmdline", "prio", "sched_class")
    said = {name: row.get(name) for name in names}
    if row.get("sched_class") == "fair" and trace.info.get("os") == "Linux" and row.get("prio"):
        said["nice"] = row["prio"] - 120
    return {
        "thread": {
            name: printable(value) if isinstance(value, str) else value
            for name, value in said.items()
            if value is not None
        }
    }


def _span(lanes: Lanes, begin: int, end: int) -> str:
    trace = lanes.trace
    return ", ".join(f"{trace.seconds(lanes.begin + at):.9f}" for at in (begin, end))


def _cut(lanes: Lanes, begin: int, end: int) -> Trace:
    trace = lanes.trace
    return trace.between(*(f"{lanes.begin + at - trace.origin}ns" for at in (begin, end)))


def _wait(
    lanes: Lanes, utid: int, begin: int, end: int, span: str
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Why it waited: the row of the ledger, the parts of this interval, who ran meanwhile."""
    trace, ts = lanes.trace, lanes.begin + begin
    rows = (
        trace.part("waits", ts, lanes.begin + end)
        .filter(
            pl.col("utid") == utid,
            pl.coalesce("ts_ready", "ts_run") <= lanes.begin + end,
            pl.coalesce("ts_run", pl.col("ts_ready") + pl.col("wait")) > ts,
        )
        .select("cause", "wait", "ts_ready", "queue_cpu", "cpu", "censored", "prio")
        .head(1)
        .collect()
        .to_dicts()
    )
    wait: dict[str, Any] = rows[0] if rows else {}
    if wait.get("ts_ready") is not None:
        ready = wait.pop("ts_ready")
        wait["ready"] = ready - lanes.begin
        wait["queues"] = _queues(trace, utid, ready)
    cut, where = _cut(lanes, begin, end), pl.col("utid") == utid
    wait["parts"], tables = [], []
    try:
        parts = wait_breakdown(cut, by="utid", where=where)
        if parts.height:
            row = parts.row(0, named=True)
            wait["parts"] = [[_WORDS[p], row[p]] for p in _PARTS if row[p]]
            wait["python"] = (
                f"ss.wait_breakdown(trace.between({span}), where=pl.col('utid') == {utid})"
            )
        ran = interference(cut, where=where)
        idle = {"idle": "(the CPU idled)", "unknown": "(unknown)", "no_queue": "(no known queue)"}
        ran = ran.with_columns(
            comm=pl.coalesce(
                "comm", pl.col("kind").cast(pl.String).replace_strict(idle, default=None)
            )
        )
        frame = ran.select("comm", "tid", "utid", "time", "share")
        tables.append(
            table(
                frame,
                choose(frame, ["comm", "tid", "time", "share"], question="interference"),
                title="Who ran meanwhile on the CPU that it waited for",
                python=f"ss.interference(trace.between({span}), where=pl.col('utid') == {utid})",
                begin=lanes.begin,
                most=20,
            )
        )
    except SchedscopeError as error:
        # Some recordings lack what these need: the rest of the answer stands.
        wait["missing"] = str(error)
    return wait, tables


def _queues(trace: Trace, utid: int, ready: int) -> list[list[Any]]:
    """For how long the whole wait was in which dispatch queues of sched_ext, in their order."""
    if not has(trace, "dispatch_queues"):
        return []
    own = pl.col("utid") == utid
    tables = {name: trace.table(name).filter(own) for name in ("waits", "dispatch_queues")}
    alone = type(trace).from_tables({**tables, "losses": trace.losses}, trace.info)
    found = stays(alone, pl.col("ts_ready") == ready, []).sort("ts")
    return [list(row) for row in found.select("queue", "dur").iter_rows()]


def _delayed(lanes: Lanes, utid: int, begin: int, end: int, span: str) -> list[dict[str, Any]]:
    """The threads that waited for the CPU while the thread ran there."""
    try:
        frame = interference(_cut(lanes, begin, end)).filter(pl.col("utid") == utid)
    except SchedscopeError:
        return []  # some recordings lack what this needs
    if not frame.height:
        return []
    victims = frame.select(
        comm="victim_comm", tid="victim_tid", utid="victim_utid", time="time"
    ).sort("time", descending=True, maintain_order=True)
    return [
        table(
            victims,
            choose(victims, ["comm", "tid", "time"], question="interference"),
            title="Who waited for its CPU meanwhile, and how long",
            python=f"ss.interference(trace.between({span})).filter(pl.col('utid') == {utid})",
            begin=lanes.begin,
            most=50,
        )
    ]


def _woke(lanes: Lanes, utid: int, begin: int, end: int) -> list[dict[str, Any]]:
    trace = lanes.trace
    ready = pl.col("ts_ready")
    text = (
        f"trace.waits.filter(pl.col('waker_utid') == {utid}, pl.col('ts_ready').is_between("
        f"{lanes.begin + begin}, {lanes.begin + end})).collect()"
    )
    frame = (
        trace.part("waits", lanes.begin + begin, lanes.begin + end)
        .filter(
            pl.col("waker_utid") == utid,
            ready.is_between(lanes.begin + begin, lanes.begin + end),
        )
        .join(trace.threads.select("utid", "comm", "tid"), on="utid", how="left")
        .select("ts_ready", "wait", "comm", "tid", "utid", "cpu")
        .sort("ts_ready")
        .collect()
    )
    if not frame.height:
        return []
    return [
        table(
            frame,
            choose(frame, ["ts_ready", "comm", "tid", "wait", "cpu"], origin=trace.origin),
            title="Whom it woke meanwhile, and how long they waited for a CPU",
            python=text,
            begin=lanes.begin,
            most=50,
        )
    ]


def _reason(lanes: Lanes, utid: int, begin: int) -> str | None:
    """What it slept for, where the source has it."""
    ts = lanes.begin + begin
    rows = (
        lanes.trace.part("sleeps", ts, ts)
        .filter(pl.col("utid") == utid, pl.col("ts") == ts)
        .select("kind", "reason")
        .head(1)
        .collect()
    )
    return printable(f"{rows['kind'][0]} {rows['reason'][0]}".strip()) if rows.height else None
