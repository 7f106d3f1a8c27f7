"""A trace: what is known about a recording, and its tables."""

from __future__ import annotations

import html
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from schedscope.errors import UsageError
from schedscope.parsers.files import scan_parquet
from schedscope.parsers.plausible import check_frame
from schedscope.parsers.schema import SCHEMA_VERSION, TABLES, empty
from schedscope.store import cache as _cache, clock, cut, stored as _stored
from schedscope.store.in_use import Lease
from schedscope.units import duration, offset, printable

if TYPE_CHECKING:
    from datetime import datetime


class Trace:
    """One recording: what is known about it, and its tables as lazy frames.

    Made by `schedscope.open`, by the simulator, or by `Trace.from_tables`.
    Every table is a `polars.LazyFrame` with the columns of docs/trace-model.md;
    nothing is read from disk before it is asked for. A trace does not change:
    selections return new traces.
    """

    def __init__(
        self,
        info: Mapping[str, Any],
        tables: Mapping[str, pl.LazyFrame],
        path: Path | None,
        *,
        sources: tuple[Path, ...] = (),
        whole: Trace | None = None,
    ) -> None:
        """Hold `tables`; use `schedscope.open` or `from_tables`."""
        self._info = dict(info)
        self._tables = dict(tables)
        self._in_memory = frozenset(tables)
        self._path = path
        self._lease = Lease(path) if path is not None else None
        self._sources = sources
        self._whole = whole
        self._checked: dict[str, object] = {}

    @classmethod
    def from_tables(
        cls,
        tables: Mapping[str, pl.DataFrame | pl.LazyFrame],
        info: Mapping[str, Any],
        *,
        sources: tuple[Path, ...] = (),
    ) -> Trace:
        """A trace in memory; tables not given are empty. `sources`: what they were read from.

        A question raises `UsageError` if a table lacks a column that it needs.

        Raises `UsageError` for a name that is not a table of the trace model.
        """
        for name in tables:
            if name not in TABLES:
                raise UsageError(
                    f"table {name!r}", "a table of the trace model", "one of " + ", ".join(TABLES)
                )
        lazy = {name: frame.lazy() for name, frame in tables.items()}
        if "threads" in lazy:
            # Columns that few sources have may be left out.
            there = lazy["threads"].collect_schema().names()
            lazy["threads"] = lazy["threads"].with_columns(
                pl.lit(None, dtype).alias(name)
                for name, dtype in TABLES["threads"].schema.items()
                if name in ("ppid", "process_name", "cgroup", "cmdline") and name not in there
            )
        return cls(info, lazy, None, sources=sources)

    @classmethod
    def read(cls, folder: str | os.PathLike[str], *, sources: tuple[Path, ...] = ()) -> Trace:
        """A `.sched` folder as it is, without asking whether its source changed."""
        path = Path(folder)
        trace = cls({}, {}, path, sources=sources)
        # After the lock, so that the folder cannot be replaced.
        trace._info = _stored.read_about(path)
        return trace

    def to_sched(self, folder: str | os.PathLike[str], *, force: bool = False) -> Trace:
        """Write trace.json and every table to a `.sched` folder; returns the trace there.

        All or nothing: the folder appears when it is complete. An existing one is
        replaced only with `force`, and only if it is a `.sched` folder.
        """
        target = Path(folder)
        _cache.free_target(target, force)

        def write(partial: Path) -> str:
            rows = {}
            utids = self.table("threads").select(pl.col("utid").max()).collect().item()
            for name in TABLES:
                file = partial / f"{name}.parquet"
                if (self._whole or self).folder_of(name) is None:
                    frame = self.table(name).collect()
                    check_frame(
                        name, frame, f"table {name}", ncpu=self.ncpu, threads=1 + (utids or 0)
                    )
                    frame.write_parquet(file, compression="lz4")
                else:
                    # May be of any length, and was already checked when the folder was opened.
                    with file.open("wb") as out:
                        self.table(name).sink_parquet(out, compression="lz4")
                rows[name] = scan_parquet(file).select(pl.len()).collect().item()
            about = {k: v for k, v in self._info.items() if k not in ("cache", "files")}
            return json.dumps({**about, "schema_version": SCHEMA_VERSION, "rows": rows})

        return Trace.read(_cache.write(target, write, replace=force, sources=self.sources))

    @property
    def info(self) -> dict[str, Any]:
        """What trace.json says: source, host, clock, counts, reconstruction, warnings."""
        return self._info

    def metadata(self, key: str, part: str) -> Any:
        """`info[key][part]`, or None where the trace does not say.

        Some formats know only a name, as in `"clock": "boot"`: that is the part `name`.
        """
        value = self._info.get(key)
        if isinstance(value, dict):
            return value.get(part)
        return value if part == "name" else None

    @property
    def path(self) -> Path | None:
        """The `.sched` folder; None for a trace in memory."""
        return self._path

    @property
    def sources(self) -> tuple[Path, ...]:
        """The sources that it was read from: files made of it are as private as these
        (`outputs`).
        """
        if self._whole is not None:
            return self._whole.sources
        return self._sources or ((self._path,) if self._path else ())

    @property
    def whole(self) -> Trace | None:
        """The trace that `between` cut this one out of; None for a whole one."""
        return self._whole

    def folder_of(self, table: str) -> Path | None:
        """The `.sched` folder whose file is this table, unchanged; None for a table held in
        memory."""
        if table in self._in_memory or self._path is None:
            return None
        self.table(table)  # raises if the file is damaged
        return self._path

    @property
    def name(self) -> str:
        """The source's name, as people call the recording."""
        name = self.metadata("source", "name")
        return str(name or (self._path.name if self._path else "(in memory)"))

    @property
    def window(self) -> tuple[int, int]:
        """Start and end of the observation in ns on the capture's clock; half-open.

        `(0, 0)` for a trace without events.
        """
        begin, end = self._info.get("window") or (0, 0)
        return int(begin), int(end)

    @property
    def duration(self) -> int:
        """Length of the window in ns."""
        begin, end = self.window
        return end - begin

    @property
    def origin(self) -> int:
        """The instant that printed times count from: the start of the whole recording, in ns."""
        return int(self._info.get("origin", self.window[0]))

    def seconds(self, ts: int) -> float:
        """The time that is printed for an instant of a column `ts`: seconds from the start.

        This is what `between` and every other option of time takes:
        `trace.between(trace.seconds(ts))`.
        """
        return (ts - self.origin) / 1e9

    def instant(self, when: str | float) -> int:
        """The instant, as in columns `ts`, of a time as it is printed: 2.5, "2.5", "2500ms".

        Or of a time of day: "12:03", "12:03:05.25", "2026-11-28 12:03", "12:03 +01:00"; without a
        date the first such one in the recording, without a zone in that of this machine. Raises
        `UsageError` for any other text, and for a time of day if the trace has none.
        """
        if isinstance(when, str) and clock.is_one(when):
            return clock.instant(self, when)
        try:
            return self.origin + offset(when)
        except UsageError:
            if not isinstance(when, str):
                raise
            raise UsageError(
                f"{when!r} is not a time",
                "seconds from the start as tables print them, as in 2.5, or a time of day, as in"
                " 12:03",
            ) from None

    def time_of_day(self, ts: int) -> datetime | None:
        """The host's time of day at an instant, in this machine's zone; None if it is not known.

        Raises `UsageError` if the host's clock was set while it was recorded.
        """
        return clock.at(self, ts)

    def between(self, since: str | float | None = None, until: str | float | None = None) -> Trace:
        """The part of this trace within `[since, until)`, as a trace.

        Times are those that tables print: seconds from the start of the recording, as 2.5, or a
        text with a unit, as in "2500ms" (`seconds` converts a value of a column `ts`), or with a
        time of day, as in "12:03" (`instant`).

        The result is as if the recorder had run in this window only, except for what is known about
        threads, and for what the whole recording shows: which control groups were throttled when,
        why waits began and threads moved, which CPUs were offline. What happened at the last
        instant of the recording is in its last part. So times add up: those of some parts, to the
        ns, to those of what they are parts of. States are clipped. A wait that began before the
        window is censored on the left, one that lasts beyond it on the right. Counts that belong to
        the whole recording (missing and spurious wakeups, contradictions) are left out.

        Raises `UsageError` if nothing is left, or for a text that is not a time.
        """
        begin, end = self._window(since, until)
        tables = {name: self._cut(name, (begin, end), begin, end) for name in TABLES}
        left_out = ("rows", "cache", "files")
        info = {key: value for key, value in self._info.items() if key not in left_out}
        info.update(window=[begin, end], origin=self.origin)
        return type(self)(cut.recounted(info, tables, self.ncpu), tables, None, whole=self)

    def _window(self, since: str | float | None, until: str | float | None) -> tuple[int, int]:
        first, last = self.window
        begin = first if since is None else self.instant(since)
        end = last if until is None else self.instant(until)
        named = {"since": since, "until": until}.items()
        part = " ".join(f"{name} {when}" for name, when in named if when is not None)
        if end <= first or begin >= last:
            span = f"{duration(first - self.origin)} to {duration(last - self.origin)}"
            raise UsageError(
                f"{part} lies outside the trace",
                f"part of {span} after its start{self._of_day(since, until)}",
            )
        if begin >= end:
            raise UsageError(f"{part} is empty", "since earlier than until")
        return max(begin, first), min(end, last)

    def _of_day(self, *times: str | float | None) -> str:
        """The window in times of day, if one of `times` was given as one."""
        if not any(clock.is_one(when) for when in times):
            return ""
        first, last = (self.time_of_day(ts) for ts in self.window)
        return f", {first:%H:%M:%S} to {last:%H:%M:%S %z}" if first and last else ""

    def _cut(self, name: str, window: tuple[int, int], begin: int, end: int) -> pl.LazyFrame:
        """A table of what `between` cuts out, perhaps without rows that have no part in
        `[begin, end]`."""
        if name in cut.TIMELESS:
            return self.table(name)
        rows = self.part(name, max(begin, window[0]), min(end, window[1]))
        # What happened at the last instant of a recording is part of it, and so of its last part.
        return cut.rows(rows, name, *window, closed=window[1] == self.window[1])

    def in_memory(self, *tables: str) -> Trace:
        """The same trace with these tables read into memory, once for many questions.

        For 10 million events the states take some 320 MB, the waits 260 MB.
        """
        held = {name: self.table(name).collect().lazy() for name in tables}
        made = {name: self._tables[name] for name in self._in_memory}
        return type(self)(self._info, {**made, **held}, self._path, sources=self._sources)

    @property
    def ncpu(self) -> int:
        """Number of CPUs; utids below it are the idle threads."""
        return int(self._info["ncpu"])

    @property
    def events(self) -> int:
        """Scheduler events read from the source, of all kinds and CPUs."""
        kinds = self._info.get("events") or {}
        return sum(sum(per_cpu.values()) for per_cpu in kinds.values())

    @property
    def switches(self) -> pl.LazyFrame:
        """One row per context switch."""
        return self.table("switches")

    @property
    def wakeups(self) -> pl.LazyFrame:
        """One row per step of a wakeup: waking, enqueued, new."""
        return self.table("wakeups")

    @property
    def migrations(self) -> pl.LazyFrame:
        """One row per move of a thread to another CPU's queue."""
        return self.table("migrations")

    @property
    def threads(self) -> pl.LazyFrame:
        """One row per thread incarnation, the idle threads first."""
        return self.table("threads")

    @property
    def renames(self) -> pl.LazyFrame:
        """One row per change of a thread's name."""
        return self.table("renames")

    @property
    def sleeps(self) -> pl.LazyFrame:
        """One row per switch-out with its wait message or lock, where recorded."""
        return self.table("sleeps")

    @property
    def yields(self) -> pl.LazyFrame:
        """One row per sched_yield, where recorded."""
        return self.table("yields")

    @property
    def priorities(self) -> pl.LazyFrame:
        """One row per change of a thread's priority."""
        return self.table("priorities")

    @property
    def queue_load(self) -> pl.LazyFrame:
        """One row per queue length that the kernel itself reported."""
        return self.table("queue_load")

    @property
    def irqs(self) -> pl.LazyFrame:
        """One row per interrupt, where recorded."""
        return self.table("irqs")

    @property
    def quota_refills(self) -> pl.LazyFrame:
        """One row per moment at which a control group's CPU quota was refilled."""
        return self.table("quota_refills")

    @property
    def system_calls(self) -> pl.LazyFrame:
        """One row per entry into a system call and per return from one, where recorded."""
        return self.table("system_calls")

    @property
    def locks(self) -> pl.LazyFrame:
        """One row per start and end of a wait for a lock of the kernel, where recorded."""
        return self.table("locks")

    @property
    def disk_requests(self) -> pl.LazyFrame:
        """One row per step of a request to a disk, where recorded."""
        return self.table("disk_requests")

    @property
    def sleep_reasons(self) -> pl.LazyFrame:
        """One row per sleep whose reason the kernel reported, where recorded."""
        return self.table("sleep_reasons")

    @property
    def dispatch_queues(self) -> pl.LazyFrame:
        """One row per entry into a dispatch queue of sched_ext and per exit, where recorded."""
        return self.table("dispatch_queues")

    @property
    def kicks(self) -> pl.LazyFrame:
        """One row per time that a scheduler of sched_ext kicked a CPU, where recorded."""
        return self.table("kicks")

    @property
    def losses(self) -> pl.LazyFrame:
        """One row per interval in which events may be missing."""
        return self.table("losses")

    @property
    def cpus(self) -> pl.LazyFrame:
        """One row per CPU: its position in the machine."""
        return self.table("cpus")

    @property
    def states(self) -> pl.LazyFrame:
        """One row per interval of a thread's life in one state on one CPU."""
        return self.table("states")

    @property
    def waits(self) -> pl.LazyFrame:
        """The ledger: one row per wait for a CPU."""
        return self.table("waits")

    def sql(self, query: str, *, program: str | os.PathLike[str] | None = None) -> pl.DataFrame:
        """The rows of a PerfettoSQL query over the Perfetto file this trace was opened from.

        Needs trace_processor (`schedscope.parsers.perfetto.find_program` says
        where it is looked for). Raises `UsageError` for other traces and for
        queries it refuses, `StorageError` if it is unavailable.
        """
        file = next(iter(self._sources), None)
        if file is None or not file.is_file() or self.metadata("source", "format") != "perfetto":
            raise UsageError(
                f"{self.name} was not opened from a Perfetto file",
                "a trace from schedscope.open(FILE) of a .pftrace",
                "export it first: schedscope.export(trace, FILE, 'perfetto')",
            )
        from schedscope.parsers import perfetto

        return perfetto.sql(file, query, program=program)

    def table(self, name: str) -> pl.LazyFrame:
        """A table by its name."""
        if name in self._in_memory or self._path is None:
            return self._tables.setdefault(name, empty(name).lazy())
        # This also reports a file that was changed after the trace was opened.
        if (now := _stored.stamp(self._path, name)) != self._checked.get(name):
            self._tables[name] = _stored.table(self._path, name, self._info)
            self._checked[name] = now
        return self._tables[name]

    def part(self, name: str, begin: int, end: int) -> pl.LazyFrame:
        """The table, perhaps without rows that have no part in `[begin, end]`, which then are
        not read."""
        if self._whole is not None:
            return self._whole._cut(name, self.window, begin, end)
        if name in self._in_memory or self._path is None:
            return self.table(name)
        part = _stored.part(self._path, name, self._info, begin, end)
        return self.table(name) if part is None else part

    def __repr__(self) -> str:
        """The facts that users ask for first, a line each."""
        lines = [f"Trace {printable(self.name)}"]
        lines += [f"  {key}: {value}" for key, value in self._facts()]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><th style='text-align:left; padding-right:1em'>{html.escape(key)}</th>"
            f"<td style='text-align:left'>{html.escape(value)}</td></tr>"
            for key, value in self._facts()
        )
        title = html.escape(printable(self.name))
        return f"<table><caption><b>Trace {title}</b></caption>{rows}</table>"

    def _facts(self) -> list[tuple[str, str]]:
        info = self._info
        facts = []
        host = " ".join(str(info[k]) for k in ("os", "release", "machine") if info.get(k))
        if host:
            facts.append(("host", host))
        facts.append(("cpus", str(self.ncpu)))
        clock = self.metadata("clock", "name")
        facts.append(
            ("window", f"{self.duration / 1e9:.3f} s" + (f" (clock {clock})" if clock else ""))
        )
        facts.append(("events", f"{self.events:,}"))
        rows = info.get("rows") or {}
        tables = ", ".join(f"{name} {n:,}" for name, n in rows.items() if n)
        if tables:
            facts.append(("rows", tables))
        facts += [("warning", str(text)) for text in info.get("warnings") or []]
        if self._path:
            facts.append(("folder", str(self._path)))
        return [(key, printable(text)) for key, text in facts]
