"""Which CPUs were offline, and when?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from schedscope.analysis.asking.memo import once
from schedscope.analysis.cpus.topology import recorded_cpus
from schedscope.analysis.recording.recorded_threads import recorded_threads
from schedscope.store.losses import IS_BREAK

if TYPE_CHECKING:
    from schedscope.store.trace import Trace

_SCHEMA = {
    "cpu": pl.UInt16, "ts": pl.Int64, "dur": pl.Int64, "back": pl.Boolean, "broken": pl.Boolean,
}  # fmt: skip
_Row = tuple[int, int, int, bool, bool]


def offline(trace: Trace) -> pl.DataFrame:
    """One row per stretch of time in which a CPU was offline, as far as the trace shows.

    * `cpu`, `ts`, `dur`: which, and when within the window;
    * `back`: it came online at the end of this; `broken`: its chain of switches is broken for as
      long.

    A simulation says so. If the host said so when the recording began, it was so until the CPU's
    first event, or all along if there is none. And a switch to a CPU's stopper that is the last
    thing it did before it is found idle, or before the window ends, took it offline
    (docs/trace-model.md, Taken down).
    Where events of a CPU are lost, nothing is concluded.
    """
    return once(_found, trace)


def online_cpus(trace: Trace) -> list[int]:
    """Numbers of the CPUs that were recorded, in order, but for those offline throughout."""
    gone = offline_throughout(trace)
    return [cpu for cpu in recorded_cpus(trace) if cpu not in gone]


def offline_throughout(trace: Trace) -> list[int]:
    """Numbers of the CPUs that were offline for the whole window."""
    return offline(trace).filter(pl.col("dur") == trace.duration)["cpu"].to_list()


def _found(trace: Trace) -> pl.DataFrame:
    if trace.whole is not None:
        return _clipped(offline(trace.whole), *trace.window)
    told = trace.info.get("offline")
    rows = _told(told, *trace.window) if told else [*_at_first(trace), *_taken_down(trace)]
    return pl.DataFrame(rows, schema=_SCHEMA, orient="row").sort("ts", "cpu")


def _clipped(gone: pl.DataFrame, begin: int, end: int) -> pl.DataFrame:
    """The part of it that lies within a part of the recording."""
    since, until = pl.col("ts").clip(begin, None), pl.col("ts") + pl.col("dur")
    return gone.select(
        "cpu", "broken", ts=since, dur=until.clip(None, end) - since,
        back=pl.col("back") & (until <= end),
    ).filter(pl.col("dur") > 0).select(*_SCHEMA)  # fmt: skip


def _told(told: list[dict[str, int]], begin: int, end: int) -> list[_Row]:
    """Offline CPUs as a simulation reports them."""
    clipped = [(one["cpu"], max(one["begin"], begin), min(one["end"], end)) for one in told]
    return [(cpu, ts, to - ts, to < end, False) for cpu, ts, to in clipped if ts < to]


def _at_first(trace: Trace) -> list[_Row]:
    absent = trace.cpus.filter(~pl.col("online")).collect()["cpu"].to_list()
    if not absent:
        return []
    lossy = _lossy(trace)
    of_these = pl.col("cpu").is_in(sorted({*absent} - {*lossy}))
    events = [
        table.filter(of_these).select("cpu", "ts") for table in (trace.switches, trace.wakeups)
    ]
    first = pl.concat(events).group_by("cpu").agg(pl.col("ts").min()).collect()
    since = dict(first.iter_rows())
    begin, end = trace.window
    if "ring" in trace.info:  # recorded when the snapshot was taken, so it describes its end
        absent = [cpu for cpu in absent if cpu not in since]
    return [
        (cpu, begin, since.get(cpu, end) - begin, cpu in since, False)
        for cpu in sorted({*absent} - {*lossy})
        if since.get(cpu, end) > begin
    ]


def _taken_down(trace: Trace) -> list[_Row]:
    if recorded_threads(trace) is not None:
        return []
    stoppers = trace.threads.filter(pl.col("sched_class") == "stop").select("utid").collect()
    if stoppers.is_empty():
        return []
    ids = pl.lit(stoppers["utid"]).implode()
    # A stopper's switch-ins and switch-outs on its CPU alternate, except where it took the CPU
    # down.
    into = pl.col("next_utid").is_in(ids)
    left = (
        trace.switches.filter(into | pl.col("prev_utid").is_in(ids))
        .select("cpu", "ts", into=into)
        .with_columns(followed=pl.col("into").shift(-1).over("cpu"))
        .filter("into", pl.col("followed").fill_null(True))
        .select("cpu", "ts")
        .collect()
    )
    if left.is_empty():
        return []
    lossy = _lossy(trace)
    breaks = trace.losses.filter(IS_BREAK).sort("ts_begin").collect()
    begin, end = trace.window
    found = []
    for cpu, ts in left.filter(~pl.col("cpu").is_in(lossy)).iter_rows():
        back = breaks.filter((pl.col("cpu") == cpu) & (pl.col("ts_begin") >= ts)).head(1)
        if len(back):
            first, last = back["ts_begin"].item(), back["ts_end"].item()
            found.append((cpu, first, min(last, end) - first, True, True))
        else:
            first = max(_confirmed(trace, cpu, ts), begin)
            found.append((cpu, first, end - first, False, False))
    return found


def _confirmed(trace: Trace, cpu: int, ts: int) -> int:
    """The time of the CPU's last event from then on."""
    heard = trace.wakeups.filter((pl.col("cpu") == cpu) & (pl.col("ts") >= ts))
    last = heard.select(pl.col("ts").max()).collect().item()
    return ts if last is None else int(last)


def _lossy(trace: Trace) -> list[int]:
    """CPUs with lost events; all of them if a loss names none."""
    losses = trace.losses.filter(~IS_BREAK).select("cpu").unique()
    named = losses.collect()["cpu"]
    return list(range(trace.ncpu)) if named.null_count() else named.to_list()
