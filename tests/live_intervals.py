"""Hand-made intervals of `schedscope top`, in round numbers."""

from __future__ import annotations

from typing import Any

from runs import table

from schedscope import Trace
from schedscope.live.recorder import Interval

NCPU = 2
NAMES = {2: ("slow", 100, 100), 3: ("hog", 101, 101), 4: ("hog", 102, 101)}


def interval(
    spells: list[tuple[int, str, int, int]],
    window: tuple[int, int],
    *,
    begin: int | None = None,
    gap: int | None = 0,
    losses: list[dict[str, Any]] | None = None,
    threads: tuple[int, ...] = (2, 3, 4),
) -> Interval:
    """Of (utid, state, ts, end); waits are the runnable ones, over where running follows."""
    states, waits = [], []
    for utid, state, ts, end in spells:
        states.append(
            {"utid": utid, "cpu": 0, "state": state, "ts": ts, "dur": end - ts, "end": "switched"}
        )
        if state == "runnable":
            ran = end < window[1]
            waits.append(
                {"utid": utid, "cause": "wake", "ts_ready": ts, "ts_run": end if ran else None,
                 "wait": end - ts, "censored": "none" if ran else "right"}
            )  # fmt: skip
    rows = [
        {"utid": utid, "comm": NAMES[utid][0], "tid": NAMES[utid][1], "pid": NAMES[utid][2],
         "process_name": f"p{NAMES[utid][2]}", "cgroup": "/a"}
        for utid in threads
    ]  # fmt: skip
    wakeups = [
        {"utid": utid, "ts": ts, "cpu": 0, "kind": kind}
        for utid, state, ts, _ in spells
        if state == "runnable"
        for kind in ("waking", "enqueued")
    ]
    tables = {"states": states, "waits": waits, "threads": rows, "wakeups": wakeups}
    tables["losses"] = losses or []
    frames = {name: table(name, content) for name, content in tables.items()}
    trace = Trace.from_tables(frames, {"ncpu": NCPU, "window": list(window)})
    return Interval(trace, window[0] if begin is None else begin, window[1], gap)
