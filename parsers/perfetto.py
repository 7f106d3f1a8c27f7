"""Perfetto traces through Google's trace_processor: the second engine, and PerfettoSQL.

The native decoder (`schedscope.open`) needs none of this. trace_processor is a
program that the Python package `perfetto` (extra `schedscope[perfetto]`) drives:
it knows every data source of Perfetto, and answers SQL.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl

from schedscope.errors import StorageError, UsageError
from schedscope.extras import missing
from schedscope.parsers import schema

Read = tuple[dict[str, pl.DataFrame], dict[str, Any]]
"""The tables of a trace, and what trace.json would say of it."""

VARIABLE = "SCHEDSCOPE_TRACE_PROCESSOR"
"""Environment variable with the path of the trace_processor program."""

_PROGRAMS = ("trace_processor_shell", "trace_processor")
_SLICES = """
    SELECT s.ts, s.dur, s.cpu, s.utid AS thread, s.end_state, s.priority
    FROM sched_slice s ORDER BY s.ts
"""
_STATES = """
    SELECT ts, utid AS thread, state, waker_utid AS waker, irq_context
    FROM thread_state WHERE state IN ('R', 'R+') ORDER BY ts
"""
_THREADS = """
    SELECT t.utid AS thread, t.tid, p.pid, t.name, t.start_ts, t.end_ts
    FROM thread t LEFT JOIN process p USING (upid)
"""
# The letters of Linux 4.14 and later, as trace_processor writes them.
_LETTERS = {
    "R": "runnable",
    "R+": "runnable",
    "S": "sleeping",
    "D": "blocked",
    "T": "stopped",
    "t": "stopped",
    "X": "dead",
    "Z": "dead",
    "P": "parked",
    "I": "parked",
}


def find_program(given: str | os.PathLike[str] | None = None) -> str | None:
    """Where trace_processor is: the argument, $SCHEDSCOPE_TRACE_PROCESSOR, or PATH.

    None if in none of them; the package `perfetto` then looks for its own copy,
    which it downloads. Raises `UsageError` if the place that was named has no program.
    """
    named = given or os.environ.get(VARIABLE)
    if named:
        path = shutil.which(os.fspath(named))
        if path is None:
            origin = "the argument" if given else f"${VARIABLE}"
            raise UsageError(
                f"{named} (from {origin}) is not a program", "the path of trace_processor_shell"
            )
        return path
    return next(filter(None, map(shutil.which, _PROGRAMS)), None)


def sql(
    path: str | os.PathLike[str], query: str, *, program: str | os.PathLike[str] | None = None
) -> pl.DataFrame:
    """The rows of a PerfettoSQL `query` over the trace in `path`.

    Raises `StorageError` if trace_processor is unavailable, `UsageError` if it
    refuses the query.
    """
    return _queries(Path(path), {"query": query}, program)["query"]


def read(path: str | os.PathLike[str], *, program: str | os.PathLike[str] | None = None) -> Read:
    """The trace in `path` as trace_processor reads it: its slices are our switches.

    Its `thread_state` rows of state R give the wakeups (as `waking`). Migrations
    and renames are not in its tables. Raises as `sql` does.
    """
    source = Path(path)
    frames = _queries(source, {"slices": _SLICES, "states": _STATES, "threads": _THREADS}, program)
    return from_frames(frames, source.name)


def from_frames(frames: Mapping[str, pl.DataFrame], name: str) -> Read:
    """A trace from rows of `sched_slice` ("slices"), `thread_state` ("states") and `thread`."""
    from schedscope import _native

    slices, states, listed = frames["slices"], frames["states"], frames["threads"]
    ncpu = int(str(slices["cpu"].max())) + 1 if len(slices) else 1
    threads = listed.sort("thread").with_columns(
        number=pl.int_range(pl.len(), dtype=pl.UInt32) + ncpu
    )
    idle = threads.filter(pl.col("tid") == 0)["thread"].implode()
    number = threads.select("thread", "number")
    switches = _switches(slices, number, idle)
    wakeups = _wakeups(states, number, idle, switches)
    facts = {"switches": switches, "wakeups": wakeups}
    result = _native.reconstruct(facts, ncpu)
    tables = {
        **facts,
        "threads": _threads(threads.filter(pl.col("tid") != 0), ncpu),
        **{table: pl.DataFrame(result[table]) for table in ("states", "waits", "losses")},
    }
    times = [frame["ts"] for frame in facts.values() if len(frame)]
    window = [min(t[0] for t in times), max(t[-1] for t in times)] if times else [0, 0]
    info: dict[str, Any] = {
        "schema_version": schema.SCHEMA_VERSION,
        "source": {"name": name, "format": "perfetto"},
        "engine": "trace_processor",
        "os": "Linux",
        "ncpu": ncpu,
        "window": window,
        "has_waking": True,
        "has_enqueued": False,
        "events": {"sched_slice": {"0": len(slices)}, "thread_state R": {"0": len(wakeups)}},
        "rows": {table: len(frame) for table, frame in tables.items()},
        "per_cpu": result["per_cpu"],
        "reconstruction": result["counters"],
        "warnings": [],
        "unplaced_losses": [],
    }
    return tables, info


def _switches(slices: pl.DataFrame, number: pl.DataFrame, idle: pl.Series) -> pl.DataFrame:
    """A switch where a slice starts; the previous slice on that CPU gives the outgoing thread and
    its state.
    """
    before = {"prev": "thread", "state": "end_state", "prev_prio": "priority"}
    rows = (
        slices.sort("cpu", "ts", maintain_order=True)
        .with_columns(
            end=(pl.col("ts") + pl.col("dur")).shift(1).over("cpu"),
            **{new: pl.col(old).shift(1).over("cpu") for new, old in before.items()},
        )
        .filter(pl.col("prev").is_not_null())
        # A slice left open by a mismatch has no end: its thread's switch-out was not recorded.
        .with_columns(state=pl.when(pl.col("end") == pl.col("ts")).then("state"))
        .join(number.rename({"thread": "prev", "number": "before"}), on="prev", how="left")
        .join(number, on="thread", how="left")
    )
    cpu = pl.col("cpu").cast(pl.UInt32)
    return schema.conform(
        "switches",
        rows.sort("ts", maintain_order=True).select(
            "ts",
            "cpu",
            prev_utid=pl.when(pl.col("prev").is_in(idle)).then(cpu).otherwise("before"),
            prev_state=pl.col("state").replace_strict(_LETTERS, default="unknown"),
            prev_prio="prev_prio",
            preempted=pl.when(pl.col("state") == "R+")
            .then(True)
            .when(pl.col("state").is_in(["R"]) | pl.col("state").is_null())
            .then(None)
            .otherwise(False),
            next_utid=pl.when(pl.col("thread").is_in(idle)).then(cpu).otherwise("number"),
            next_prio="priority",
        ),
    )


def _wakeups(
    states: pl.DataFrame, number: pl.DataFrame, idle: pl.Series, switches: pl.DataFrame
) -> pl.DataFrame:
    """R rows that no switch-out began were begun by a waking."""
    left = switches.filter(pl.col("prev_state") == "runnable").select(
        "ts", pl.col("prev_utid").alias("number"), left=pl.lit(True)
    )
    rows = (
        states.filter(pl.col("state") == "R")
        .join(number, on="thread", how="left")
        .join(number.rename({"thread": "waker", "number": "by"}), on="waker", how="left")
        .join(left, on=["ts", "number"], how="left")
        .filter(pl.col("left").is_null())
        .sort("ts", maintain_order=True)
    )
    # The waker is known; its CPU is where it last came on.
    runs = switches.select("ts", "cpu", pl.col("next_utid").alias("by")).sort("ts")
    rows = rows.join_asof(runs, on="ts", by="by", check_sortedness=False)
    interrupt = pl.col("irq_context").fill_null(0) != 0
    waker = pl.when(~interrupt & ~pl.col("waker").is_in(idle).fill_null(True)).then("by")
    return schema.conform(
        "wakeups",
        rows.select(
            "ts",
            cpu=pl.col("cpu").fill_null(0),
            waker_utid=waker,
            utid="number",
            kind=pl.lit("waking"),
        ),
    )


def _threads(threads: pl.DataFrame, ncpu: int) -> pl.DataFrame:
    idle = pl.DataFrame({"utid": range(ncpu)}).select(
        pl.col("utid").cast(pl.UInt32),
        tid=pl.lit(0, pl.Int64),
        pid=pl.lit(0, pl.Int64),
        comm=pl.format("idle/{}", "utid"),
    )
    others = threads.select(
        utid="number",
        tid=pl.col("tid").cast(pl.Int64),
        pid=pl.col("pid").cast(pl.Int64),
        comm=pl.col("name").fill_null(""),
    )
    rows = pl.concat([idle, others]).with_columns(comm_first="comm")
    return schema.conform("threads", rows)


def _queries(
    path: Path, queries: Mapping[str, str], program: str | os.PathLike[str] | None
) -> dict[str, pl.DataFrame]:
    found = find_program(program)
    try:
        from perfetto.trace_processor import TraceProcessor, TraceProcessorConfig
    except ImportError as error:
        raise missing("perfetto") from error
    if not path.is_file():
        raise StorageError(f"cannot open {path}: no such file", hint="check the path")
    try:
        processor = TraceProcessor(trace=str(path), config=TraceProcessorConfig(bin_path=found))
    # Its download or start may raise errors of urllib, its own, or OSError.
    except Exception as error:
        downloading = isinstance(error, subprocess.CalledProcessError)
        why = "the package perfetto could not download it" if downloading else str(error)
        raise StorageError(
            f"trace_processor is unavailable: {why}",
            f"the program in ${VARIABLE}, in PATH, or a network from which the package perfetto "
            "can download it",
            "the native engine reads the trace without it: schedscope.open(path)",
        ) from error
    with processor:
        try:
            return {key: _frame(processor.query(query)) for key, query in queries.items()}
        except Exception as error:
            raise UsageError(
                f"trace_processor refuses the query: {error}", "PerfettoSQL"
            ) from error


def _frame(result: Any) -> pl.DataFrame:
    """The rows of an answer; by hand, as the package's own way wants pandas and pyarrow."""
    columns: dict[str, list[Any]] = {name: [] for name in result.column_names}
    for row in result:
        for name, values in columns.items():
            values.append(getattr(row, name))
    return pl.DataFrame(columns, infer_schema_length=None, strict=False)
