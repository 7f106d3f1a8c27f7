"""In which control group was each thread when, as far as moves were recorded?

`threads.cgroup` is the last one known. The kernel's event names a thread or, by the number of its
first thread, a process; a child starts in the group that its parent is in.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    from schedscope.trace import Trace

SCHEMA = {"utid": pl.UInt32, "since": pl.Int64, "until": pl.Int64, "cgroup": pl.String}


def memberships(trace: Trace) -> pl.DataFrame:
    """One row per stretch of a thread in one group, for threads that moved or whose parents did.

    `utid`, `since`, `until`, `cgroup` (null: unknown). Of a thread without rows, `threads.cgroup`
    holds for the whole window.
    """
    moves = trace.info.get("group_moves") or []
    if not moves:
        return pl.DataFrame(schema=SCHEMA)
    begin, end = trace.window
    known = trace.threads.select(
        *("utid", "tid", "pid", "parent_utid", "start_ts", "exit_ts", "cgroup")
    ).collect()
    threads = {row["utid"]: row for row in known.iter_rows(named=True)}
    of_tid: dict[int, list[int]] = defaultdict(list)
    of_pid: dict[int, list[int]] = defaultdict(list)
    children: dict[int, list[int]] = defaultdict(list)
    for utid, row in threads.items():
        if utid >= trace.ncpu:
            of_tid[row["tid"]].append(utid)
            of_pid[row["pid"]].append(utid)
            children[row["parent_utid"]].append(utid)
    steps: dict[int, list[tuple[int, str]]] = defaultdict(list)
    first: dict[int, str | None] = {}
    for move in moves:
        tid, ts = move["tid"], move["ts"]
        named = [utid for utid in of_tid[tid] if _lives(threads[utid], ts)]
        for utid in named:
            whole = threads[utid]["pid"] == tid
            for one in (other for other in of_pid[tid] if whole) if whole else (utid,):
                if _lives(threads[one], ts):
                    steps[one].append((ts, move["cgroup"]))
                    first.setdefault(one, move.get("from"))
    # Those who moved, and whom they started; parents come before children.
    concerned = set(steps)
    left = list(steps)
    while left:
        for child in children[left.pop()]:
            if child not in concerned:
                concerned.add(child)
                left.append(child)
    lines: dict[int, list[tuple[int, str | None]]] = {}
    for utid in sorted(concerned, key=lambda utid: (threads[utid]["start_ts"] or begin, utid)):
        row = threads[utid]
        started = row["start_ts"]
        parent = lines.get(row["parent_utid"])
        group = first.get(utid)
        if group is None and started is not None:
            over = threads.get(row["parent_utid"], {}).get("cgroup")
            group = _at(parent, started) if parent else over
        lines[utid] = [(begin, group), *steps[utid]]
    rows = []
    for utid, line in lines.items():
        ends = [ts for ts, _ in line[1:]] + [end]
        rows += [
            {"utid": utid, "since": since, "until": until, "cgroup": group}
            for (since, group), until in zip(line, ends, strict=True)
            if until > since
        ]
    return pl.DataFrame(rows, SCHEMA)


def _lives(row: dict[str, object], ts: int) -> bool:
    started, ended = row["start_ts"], row["exit_ts"]
    born = started is None or int(str(started)) <= ts
    return born and (ended is None or ts <= int(str(ended)))


def _at(line: list[tuple[int, str | None]], ts: int) -> str | None:
    """The last group that began until `ts`."""
    found = line[0][1]
    for since, group in line:
        if since <= ts:
            found = group
    return found
