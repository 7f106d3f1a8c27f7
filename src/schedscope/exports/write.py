"""Write a trace in other tools' formats: Perfetto, trace.dat, Chrome JSON, Parquet, CSV."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from schedscope import outputs
from schedscope.analysis.asking.arguments import check_trace
from schedscope.analysis.threads.of_threads import some_threads
from schedscope.errors import StorageError, UsageError
from schedscope.exports.blocks import blocks, slices
from schedscope.parsers.schema import TABLES, Table
from schedscope.store import stored
from schedscope.units import several

if TYPE_CHECKING:
    from schedscope.store.trace import Trace

FORMATS = ("perfetto", "trace.dat", "chrome", "parquet", "csv")

# Names for the rows of tables that not every format can hold, and the formats that do.
_ELSEWHERE = {
    "migrations": ("move of a thread", "moves of threads", {"perfetto", "trace.dat"}),
    "yields": ("yield", "yields", {"trace.dat"}),
    "priorities": ("change of priority", "changes of priority", {"trace.dat"}),
    "sleeps": ("reason for sleeping", "reasons for sleeping", set[str]()),
    "queue_load": ("queue length", "queue lengths", set[str]()),
    "quota_refills": ("refill of a CPU quota", "refills of CPU quotas", set[str]()),
    "system_calls": ("end of a system call", "ends of system calls", set[str]()),
    "locks": ("end of waiting for a lock", "ends of waiting for locks", set[str]()),
    "disk_requests": ("step of a request to a disk", "steps of requests to disks", set[str]()),
    "sleep_reasons": ("reason for a sleep", "reasons for sleeps", set[str]()),
    "dispatch_queues": (
        "step through a dispatch queue",
        "steps through dispatch queues",
        set[str](),
    ),
    "kicks": ("kick of a CPU", "kicks of CPUs", set[str]()),
    "irqs": ("handler of an interrupt", "handlers of interrupts", set[str]()),
}

_OURS = (stored.METADATA, stored.SELECTION)
"""What tells a folder that an export made."""

# Clocks that readers of trace.dat know by name.
_CLOCKS = ("local", "global", "mono", "mono_raw", "boot", "tai")


def export(
    trace: Trace,
    path: str | os.PathLike[str],
    to: str,
    *,
    waits: bool = True,
    where: pl.Expr | None = None,
    force: bool = False,
    notes: list[str] | None = None,
) -> Path:
    """Write `trace` to `path` in the format `to`; returns the path.

    * `perfetto`: one protobuf file for https://ui.perfetto.dev and trace_processor: switches,
      wakeups with their wakers, migrations, forks, renames and exits as ftrace events; a counter
      track of runnable threads for each CPU; with `waits`, a slice for every wait on its thread's
      track. FreeBSD and simulated traces are written with Linux's event names and state bits.
    * `trace.dat`: version 7, compressed with zstd, for trace-cmd, KernelShark and other users of
      libtraceevent: the same events, with their formats in the file.
    * `chrome`: trace-event JSON (`chrome://tracing`), for small traces: it takes about 150 bytes
      for each switch.
    * `parquet`, `csv`: a folder with one file for each table of the trace model.

    All but `chrome`, which refuses a long trace, hold one block of the trace at a time.

    `where` selects threads by columns of `threads`. CPUs stay whole, since a CPU without the other
    threads would look idle:

    * `perfetto` and `chrome` get the waits of the selected threads only;
    * `parquet` and `csv` get the rows about these threads of each table about single threads, and
      the other tables whole, except `switches`, each of which is about two threads. The folder has
      `selection.json` in place of `trace.json` and cannot be opened as a trace;
    * `trace.dat`, which has nothing but the events of CPUs, takes no selection: it is refused.

    `notes`, if given, gets a sentence for each kind of fact that the format cannot hold.

    The file appears under its name only when it is whole. Raises `UsageError`
    for an unknown format or an existing path without `force`, `StorageError`
    if it cannot be written.
    """
    check_trace(trace, "export")
    if to not in FORMATS:
        raise UsageError(f"export to {to!r}", "a known format", "one of " + ", ".join(FORMATS))
    chosen = None if where is None else _chosen(trace, where, to, waits)
    target = Path(path)
    if target.exists() and not force:
        raise UsageError(f"{target} exists", "a free name", "choose another name, or use force")
    writers: dict[str, Callable[[Path], None]] = {
        "perfetto": lambda part: _perfetto(trace, part, waits, chosen),
        "trace.dat": lambda part: _trace_dat(trace, part, notes),
        "chrome": lambda part: _chrome(trace, part, chosen),
        "parquet": lambda part: _folder(trace, part, "parquet", chosen),
        "csv": lambda part: _folder(trace, part, "csv", chosen),
    }
    try:
        if target.is_dir() and not any((target / name).is_file() for name in _OURS):
            raise UsageError(
                f"{target} is a folder that no export made", "a free name", "choose another name"
            )
        with outputs.whole(target, trace.sources) as made:
            writers[to](made)
    except OSError as error:
        raise StorageError(
            f"cannot write {target}: {error.strerror or error}", "a writable folder"
        ) from error
    if notes is not None and chosen is not None:
        notes.append(_selected(trace, to, chosen))
    if notes is not None and to in ("perfetto", "trace.dat"):
        notes += _order_lost(trace)
    if notes is not None and to not in ("parquet", "csv"):
        notes += _left_out(trace, to)
    return target


def _chosen(trace: Trace, where: pl.Expr, to: str, waits: bool) -> pl.Series:
    """The utids that `where` selects, of a format that can have a selection."""
    if to == "trace.dat":
        raise UsageError(
            "a selection of threads for trace.dat",
            "all of them, as CPUs without the other threads would look idle there",
            "filter in KernelShark, or export to csv, parquet, perfetto or chrome",
        )
    if to == "perfetto" and not waits:
        raise UsageError(
            "a selection of threads without waits",
            "waits, which are what is selected in a file for Perfetto",
            "all threads' events are written in any case, since CPUs stay whole",
        )
    return some_threads(trace, where)


def _selected(trace: Trace, to: str, chosen: pl.Series) -> str:
    """Which parts of a file with selected threads are about them, and which about all threads."""
    mine = several(len(chosen), "selected thread")
    if to in ("parquet", "csv"):
        whole = ", ".join(name for name, table in TABLES.items() if _is_whole(name, table))
        return (
            f"rows about {mine} only ({whole}: whole; switches: not written, since each is of two "
            "threads): tables to query, not a trace to open"
        )
    return f"waits of {mine} only; what ran on each CPU is whole"


def _is_whole(name: str, table: Table) -> bool:
    """A table that is not about single threads, or names those that the other tables refer to."""
    return name != "switches" and (name == "threads" or "utid" not in table.schema)


def _order_lost(trace: Trace) -> list[str]:
    """A sentence on what a file with a stream for each CPU does not say of a simulation."""
    if "simulation" not in trace.info:
        return []
    comes = trace.switches.select("ts", "cpu", utid="next_utid")
    before = pl.concat(
        [
            trace.wakeups.select("ts", "utid", from_cpu="cpu"),
            trace.switches.select("ts", utid="prev_utid", from_cpu="cpu"),
        ],
        how="vertical_relaxed",
    ).filter(pl.col("utid") >= trace.ncpu)
    pairs = comes.join(before, on=["ts", "utid"]).filter(pl.col("cpu") != pl.col("from_cpu"))
    n, of = pl.collect_all(
        [pairs.select(pl.struct("ts", "utid").n_unique()), comes.select(pl.len())]
    )
    if not n.item():
        return []
    return [
        f"{n.item():,} of {of.item():,} switches have the time of the event that they follow on "
        "another CPU (a wakeup or a switch-out): the format does not keep which came first, "
        "and readers may miss such wakeups; simulate with --cost ipi=1ns --cost idle_exit=1ns"
    ]


def _left_out(trace: Trace, to: str) -> list[str]:
    """A sentence for each table whose rows the format does not get."""
    found = []
    for name, (one, many, held) in _ELSEWHERE.items():
        rows = getattr(trace, name).select(pl.len()).collect().item()
        if rows and to not in held:
            found.append(f"{several(rows, one, many)} not written to {to}")
    return found


def _perfetto(trace: Trace, path: Path, waits: bool, chosen: pl.Series | None) -> None:
    from schedscope import _native
    from schedscope.exports.perfetto import host, perfetto_blocks, wall

    rows = perfetto_blocks(trace, waits=waits, chosen=chosen)
    clock = trace.window[0], wall(trace)
    _native.write_perfetto(str(path), host(trace), trace.ncpu, clock, rows)


def _trace_dat(trace: Trace, path: Path, notes: list[str] | None) -> None:
    from schedscope import _native

    clock = trace.metadata("clock", "name")
    settings = {"clock": clock if clock in _CLOCKS else "mono"}
    if "simulation" in trace.info:
        settings["uname"] = "Linux schedscope-simulation"
    elif trace.info.get("release") or trace.info.get("os") not in (None, "Linux"):
        words = ("os", "hostname", "release", "machine")
        told = [str(trace.info.get(word) or "unknown").replace(" ", "-") for word in words]
        settings["uname"] = " ".join(told)
    left_out = _native.write_trace_dat(_fact_blocks(trace), str(path), trace.ncpu, settings)
    if notes is not None:
        notes += [
            f"{n:,} {kind} not written: trace.dat has no event for them"
            for kind, n in left_out.items()
        ]


def _fact_blocks(trace: Trace) -> Iterator[dict[str, pl.DataFrame]]:
    """The events, block after block; the first one also has the threads."""
    times = dict.fromkeys(("switches", "wakeups", "migrations", "yields"), "ts")
    times["losses"] = "ts_begin"
    more = {name: getattr(trace, name).collect() for name in ("threads", "renames", "priorities")}
    for block in blocks(trace):
        facts = {name: block.rows(trace, name, ts).collect() for name, ts in times.items()}
        yield facts | more
        more = {}


def _chrome(trace: Trace, path: Path, chosen: pl.Series | None) -> None:
    from schedscope.exports.chrome import write_chrome

    write_chrome(trace, path, chosen)


def _folder(trace: Trace, path: Path, suffix: str, chosen: pl.Series | None) -> None:
    from schedscope.parsers import csv_text, trace_json

    path.mkdir()
    for name, table in TABLES.items():
        rows = getattr(trace, name)
        mine = pl.lit(True)
        if chosen is not None and not _is_whole(name, table):
            if name == "switches":
                continue
            mine = pl.col("utid").cast(pl.UInt32).is_in(chosen.implode())
        with (path / f"{name}.{suffix}").open("wb") as file:
            if suffix == "parquet":
                rows.filter(mine).sink_parquet(file, compression="zstd")
                continue
            for part in slices(rows):
                frame = csv_text.guard(part.filter(mine).collect())
                frame.write_csv(file, include_header=file.tell() == 0)
    about = {key: value for key, value in trace.info.items() if key not in ("cache", "files")}
    if chosen is not None:
        about = {key: value for key, value in about.items() if key != "rows"}
        about["selected_utids"] = chosen.to_list()
        (path / stored.SELECTION).write_text(trace_json.written(about))
        return
    about |= {"files": stored.record(path)} if suffix == "parquet" else {}
    (path / "trace.json").write_text(trace_json.written(about))
