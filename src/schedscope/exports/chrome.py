"""Chrome's trace-event JSON: a slice for every run of a thread on a CPU."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from schedscope.errors import UsageError

if TYPE_CHECKING:
    from schedscope.store.trace import Trace

LIMIT = 2_000_000
"""Runs; viewers of this format hold everything in memory and give up earlier."""


def write_chrome(trace: Trace, path: Path, chosen: pl.Series | None = None) -> None:
    """Write runs as slices on one row for each CPU, waits as slices on one row for each thread.

    With `chosen`, by `utid`, the waits are those of these threads only.
    Times are µs with three decimals from the window's begin, as the format wants.
    """
    runs = trace.states.filter((pl.col("state") == "running") & (pl.col("utid") >= trace.ncpu))
    # Streaming: a long trace is refused without being held.
    if (number := runs.select(pl.len()).collect(engine="streaming").item()) > LIMIT:
        raise UsageError(
            f"{number:,} runs in the trace",
            f"at most {LIMIT:,} for trace-event JSON",
            "export to perfetto, or cut the trace",
        )
    running = runs.select("ts", "dur", "utid", "cpu", "end").sort("ts").collect()
    of = pl.lit(True) if chosen is None else pl.col("utid").is_in(chosen.implode())
    waits = (
        trace.waits.filter(of, pl.col("ts_ready").is_not_null() & pl.col("wait").is_not_null())
        .select("utid", "cause", ts="ts_ready", dur="wait")
        .sort("ts")
        .collect()
    )
    threads = trace.threads.select("utid", "tid", "comm").collect()
    label = {
        utid: f"{comm}[{tid if tid is not None else '?'}]"
        for utid, tid, comm in threads.iter_rows()
    }
    origin = trace.origin
    with path.open("w", encoding="utf-8") as out:
        out.write('{"displayTimeUnit":"ns","traceEvents":[\n')
        events = [_name("process_name", 1, 0, "CPUs"), _name("process_name", 2, 0, "waits")]
        events += [_name("thread_name", 1, cpu, f"CPU {cpu}") for cpu in range(trace.ncpu)]
        events += [
            _name("thread_name", 2, utid, label[utid]) for utid in waits["utid"].unique().to_list()
        ]
        out.write(",\n".join(events))
        for ts, dur, utid, cpu, end in running.iter_rows():
            out.write(",\n" + _slice(label[utid], 1, cpu or 0, ts - origin, dur, {"end": end}))
        for utid, cause, ts, dur in waits.iter_rows():
            out.write(",\n" + _slice(f"wait ({cause})", 2, utid, ts - origin, dur, {}))
        out.write("\n]}\n")


def _name(kind: str, pid: int, tid: int, name: str) -> str:
    return json.dumps({"ph": "M", "name": kind, "pid": pid, "tid": tid, "args": {"name": name}})


def _slice(name: str, pid: int, tid: int, ts: int, dur: int, args: dict[str, str]) -> str:
    # In decimal: a float would lose the nanoseconds of long traces.
    head = json.dumps({"ph": "X", "name": name, "pid": pid, "tid": tid, "args": args})
    return f'{head[:-1]}, "ts": {_micro(ts)}, "dur": {_micro(dur)}}}'


def _micro(ns: int) -> str:
    sign, ns = ("-", -ns) if ns < 0 else ("", ns)
    return f"{sign}{ns // 1000}.{ns % 1000:03d}"
