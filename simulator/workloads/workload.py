"""What a simulation runs: threads, and the programs they go through.

A workload is two tables. `threads` has one row per thread, its number being
the row's; `steps` has the programs' steps, the steps of one program standing
together and in order. Threads may share a program. `schedscope.workload` describes
both column by column; on disk they are `steps.parquet` and `workload.json` in a
folder `NAME.workload/`.
"""

from __future__ import annotations

import json
import os
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from schedscope import units
from schedscope.analysis.cpus import topology
from schedscope.errors import FormatError, StorageError, UsageError
from schedscope.outputs import whole
from schedscope.parsers.files import read_parquet, read_small
from schedscope.simulator.workloads.groups import GROUPS, MOVES, check_groups, check_moves, in_order
from schedscope.simulator.workloads.machine import Machine
from schedscope.store import cache

FORMAT_VERSION = 1

# The order matters: the engine numbers operations and classes by it.
OPS = (
    "run",
    "sleep",
    "wait_until",
    "wait_for",
    "signal",
    "fork",
    "yield",
    "set_priority",
    "set_affinity",
    "repeat",
    "park",
    "exit",
    "put",
    "take",
    "lock",
    "unlock",
    "cond_wait",
    "cond_signal",
    "cond_broadcast",
    "barrier",
    "post",
    "serve",
    "sleep_ticks",
    "read_clock",
)
CLASSES = ("fifo", "rr", "fair", "batch", "idle", "deadline", "interrupt", "kernel")

THREADS = pl.Schema(
    {
        "name": pl.String(),
        "tid": pl.Int64(),
        "pid": pl.Int64(),
        "class": pl.Enum(CLASSES),
        "nice": pl.Int8(),
        "rt_prio": pl.UInt8(),
        "cpus": pl.String(),
        "start": pl.Int64(),
        "asleep": pl.Boolean(),
        "cpu": pl.UInt16(),
        "program": pl.UInt32(),
        "group": pl.String(),
        "slice": pl.Int64(),
        "dl_runtime": pl.Int64(),
        "dl_deadline": pl.Int64(),
        "dl_period": pl.Int64(),
        "past_used": pl.Int64(),
        "past_run": pl.Int64(),
        "past_sleep": pl.Int64(),
        "past_charged": pl.Int64(),
        "exits_after": pl.Int64(),
    }
)
SHORTEST_SLICE, LONGEST_SLICE = 100_000, 100_000_000
"""What the kernel makes of any slice of a thread, ns (__setparam_fair of Linux 6.12)."""

_PAST = ("past_used", "past_run", "past_sleep", "past_charged")
_LATER = ("group", "slice", "dl_runtime", "dl_deadline", "dl_period", *_PAST, "exits_after")
"""Columns that a table of threads may lack."""

STEPS = pl.Schema(
    {
        "program": pl.UInt32(),
        "op": pl.Enum(OPS),
        "ns": pl.Int64(),
        "thread": pl.UInt32(),
        "count": pl.Int64(),
        "step": pl.UInt32(),
        "disk": pl.Boolean(),
        "sync": pl.Boolean(),
        "meet": pl.Boolean(),
        "class": pl.Enum(CLASSES),
        "nice": pl.Int8(),
        "rt_prio": pl.UInt8(),
        "cpus": pl.String(),
        "pipe": pl.UInt32(),
        "mutex": pl.UInt32(),
        "condition": pl.UInt32(),
        "barrier": pl.UInt32(),
        "queue": pl.UInt32(),
        "job": pl.UInt32(),
    }
)

PIPES = pl.Schema(
    {"capacity": pl.Int64(), "low": pl.Int64(), "filled": pl.Int64(), "page": pl.Int64()}
)

UNLIMITED = 2**62
"""What a pipe without a limit holds."""

_STEPS_FILE = "steps.parquet"
_ABOUT_FILE = "workload.json"


@dataclass(frozen=True)
class Workload:
    """Threads, programs, the pipes between them, and the control groups that they are in.

    A thread is in the group that its row names until `moves` takes it to another one.

    `machine` is that of the trace, if the workload comes from one.

    `info` says where it comes from; for one extracted from a trace it holds the
    extraction report under "extraction".
    """

    threads: pl.DataFrame
    steps: pl.DataFrame
    machine: Machine | None = None
    info: dict[str, Any] = field(default_factory=dict)
    pipes: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=PIPES))
    groups: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=GROUPS))
    moves: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=MOVES))
    sources: tuple[Path, ...] = field(default=(), compare=False)
    """What it was read from: files made of it are as private as these."""

    def __post_init__(self) -> None:
        """Refuse tables with other columns than `schedscope.workload` lists.

        Threads without a column `group` are in no group, those without `slice` have none, and
        those without `dl_runtime`, `dl_deadline` and `dl_period` no known reservation, those
        without `past_run` and its like no known past, and those without `exits_after` exit at once.
        """
        later = [c for c in _LATER if c not in self.threads.columns]
        if later:
            none = self.threads.with_columns(pl.lit(None, THREADS[c]).alias(c) for c in later)
            object.__setattr__(self, "threads", none)
        for name, frame, schema in (
            ("threads", self.threads, THREADS),
            ("steps", self.steps, STEPS),
            ("pipes", self.pipes, PIPES),
            ("groups", self.groups, GROUPS),
            ("moves", self.moves, MOVES),
        ):
            if frame.schema != schema:
                found = {k: str(v) for k, v in frame.schema.items() if schema.get(k) != v}
                lacking = sorted(set(schema) - set(frame.schema))
                raise UsageError(
                    f"table {name} with {found or 'no other columns'}, lacking {lacking}",
                    "the columns and types that help(schedscope.workload) lists",
                    "make the frame with THREADS, STEPS, PIPES, GROUPS or MOVES of "
                    "schedscope.simulator.workloads.workload",
                )
        check_groups(self.groups, self.threads["group"])
        check_moves(self.moves, self.groups, self.threads.height)

    @property
    def n_threads(self) -> int:
        """Number of threads."""
        return self.threads.height

    @property
    def cpu_time(self) -> int:
        """CPU time of all steps as written, ns; a program counts once for each thread.

        Steps inside a `repeat` count once. What a signal or wait takes only if it wakes or sleeps
        is included.
        """
        timed = pl.col("op").is_in(["sleep", "sleep_ticks", "wait_until", "read_clock"])
        per_program = self.steps.filter(~timed).group_by("program").agg(pl.col("ns").sum())
        joined = self.threads.join(per_program, on="program", how="left")
        return int(joined["ns"].fill_null(0).sum())

    @property
    def steps_executed(self) -> int:
        """Steps that all threads go through, those of a `repeat` as often as it says.

        An endless `repeat` counts once.

        >>> from schedscope.simulator.runs.rtapp import from_rtapp
        >>> from_rtapp('{"tasks": {"t": {"loop": 1000, "run": 1, "sleep": 1}}}').steps_executed
        3000
        """
        plain = self.steps.group_by("program", maintain_order=True).agg(pl.len())
        lengths = dict(plain.iter_rows())
        repeats = (
            self.steps.with_columns(at=pl.int_range(pl.len()).over("program"))
            .filter(pl.col("op") == "repeat", pl.col("count") > 0)
            .select("program", "at", "step", "count")
        )
        for key, of_program in repeats.partition_by("program", as_dict=True).items():
            # After each repeat: how many more steps are executed than written.
            places, extras = [0], [0]
            for _, at, to, count in of_program.sort("at").iter_rows():
                before = extras[bisect_right(places, to or 0) - 1]
                once = max(0, at + 1 - (to or 0) + extras[-1] - before)
                places.append(at + 1)
                extras.append(min(extras[-1] + count * once, 2**63))
            lengths[key[0]] += extras[-1]
        programs = self.threads["program"].to_list()
        return sum(int(lengths.get(program, 0)) for program in programs)

    def __repr__(self) -> str:
        """Size in one line."""
        threads = units.several(self.n_threads, "thread")
        return f"Workload of {threads}, {units.several(self.steps.height, 'step')}"

    def save(self, folder: str | os.PathLike[str], *, force: bool = False) -> Path:
        """Write `NAME.workload/`: steps.parquet and workload.json.

        Raises `UsageError` if the folder exists and `force` is not given,
        `StorageError` if it cannot be written.
        """
        path = Path(folder)
        if path.exists():
            if not force:
                raise UsageError(f"{path} exists", "a free name", "give --force to replace it")
            if not (path / _ABOUT_FILE).is_file():
                raise UsageError(f"{path} is not a workload", "a free name, or a workload")
        cache.needs_folder(path)
        about = {
            "format": "schedscope workload",
            "version": FORMAT_VERSION,
            "machine": self.machine.to_dict() if self.machine else None,
            "info": self.info,
            "threads": self.threads.to_dicts(),
            "pipes": self.pipes.to_dicts(),
            "groups": self.groups.to_dicts(),
            "moves": self.moves.to_dicts(),
        }
        try:
            with whole(path, self.sources) as made:
                made.mkdir()
                self.steps.write_parquet(made / _STEPS_FILE)
                (made / _ABOUT_FILE).write_text(json.dumps(about, indent=1) + "\n")
        except OSError as error:
            raise StorageError(
                f"cannot write {path}: {error.strerror}", hint="choose another place"
            ) from error
        return path


def read_workload(folder: str | os.PathLike[str]) -> Workload:
    """Read what `Workload.save` wrote.

    Raises `StorageError` if it cannot be read, `FormatError` if it is not a workload.
    """
    path = Path(folder)
    try:
        about = json.loads(read_small(path / _ABOUT_FILE))
        steps = read_parquet(path / _STEPS_FILE)
    except OSError as error:
        raise StorageError(
            f"cannot read {path}: {error.strerror or error}",
            f"a workload folder with {_ABOUT_FILE} and {_STEPS_FILE}",
            "check the path",
        ) from error
    except (ValueError, RecursionError, pl.exceptions.PolarsError) as error:
        raise FormatError(
            f"{path} holds unreadable data: {str(error)[:200]}",
            f"{_ABOUT_FILE} as JSON and {_STEPS_FILE} as Parquet",
        ) from error
    if not isinstance(about, dict) or about.get("version") != FORMAT_VERSION:
        version = about.get("version") if isinstance(about, dict) else None
        raise FormatError(
            f"{path / _ABOUT_FILE} has version {version}",
            f"version {FORMAT_VERSION}",
            "write the workload again with this schedscope",
        )
    try:
        threads = _table(about, "threads", THREADS)
        # Written before there were pipes, or locks.
        later = ("pipe", "mutex", "condition", "barrier", "queue", "job")
        lacking = [c for c in later if c not in steps.columns]
        steps = steps.with_columns(pl.lit(None).alias(c) for c in lacking)
        steps = steps.select(pl.col(name).cast(dtype) for name, dtype in STEPS.items())
        pipes = _table(about, "pipes", PIPES)
        groups = _table(about, "groups", GROUPS)
        moves = _table(about, "moves", MOVES)
    except (pl.exceptions.PolarsError, TypeError, ValueError) as error:
        raise FormatError(
            f"{path}: {str(error)[:200]}",
            "the columns and values that help(schedscope.workload) lists",
        ) from error
    machine, info = about.get("machine"), about.get("info") or {}
    if not isinstance(info, dict):
        raise FormatError(f"{path / _ABOUT_FILE}: info {info!r:.80}", "an object")
    shape = Machine.from_dict(machine) if machine else None
    return Workload(threads, steps, shape, info, pipes, groups, moves, (path,))


def _table(about: Mapping[str, Any], name: str, schema: Mapping[str, Any]) -> pl.DataFrame:
    """The rows of that name; raises ValueError if they are not rows, or hold more than plain
    values.

    Polars uses up all memory on types that are nested hundreds of times.
    """
    rows = about.get(name) or []
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ValueError(f"{name} is no list of objects")
    for row in rows:
        for key, value in row.items():
            if isinstance(value, dict | list):
                raise ValueError(f"{key} of {name} is no plain value: {value!r:.60}")
    return pl.DataFrame(rows, schema=schema)


def is_workload(path: str | os.PathLike[str]) -> bool:
    """Whether `path` is a folder that `Workload.save` wrote."""
    return (Path(path) / _ABOUT_FILE).is_file()


def cpu_list(text: str | None, ncpu: int) -> list[int]:
    """The CPUs of a list such as "0-3,8" below `ncpu`; all of them for None.

    >>> cpu_list("0-2,5", 4), cpu_list(None, 2)
    ([0, 1, 2], [0, 1])
    """
    if text is None:
        return list(range(ncpu))
    return [cpu for cpu in topology.cpu_list(text) if cpu < ncpu]


def engine_pipes(workload: Workload) -> list[list[int]]:
    """The pipes as the engine takes them: capacity, low, filled, page; no limit is the largest."""
    rows = workload.pipes.iter_rows()
    return [
        [UNLIMITED if whole is None else whole, low or 0, filled or 0, page or 0]
        for whole, low, filled, page in rows
    ]


def engine_tables(
    workload: Workload, ncpu: int
) -> tuple[pl.DataFrame, pl.DataFrame, list[list[int]], list[str]]:
    """Threads and steps as the engine takes them: all columns Int64, masks by number."""
    named = [table["cpus"].drop_nulls() for table in (workload.threads, workload.steps)]
    texts: list[str | None] = [None, *pl.concat(named).unique(maintain_order=True)]
    masks = [cpu_list(text, ncpu) for text in texts]
    numbers: Mapping[str, int] = {t: i for i, t in enumerate(texts) if t is not None}
    mask = (
        pl.col("cpus").replace_strict(numbers, default=0, return_dtype=pl.Int64)
        if numbers
        else pl.lit(0, pl.Int64)
    )

    def codes(column: str) -> pl.Expr:
        return pl.col(column).to_physical().cast(pl.Int64)

    def plain(*columns: str) -> list[pl.Expr]:
        return [pl.col(c).cast(pl.Int64) for c in columns]

    threads = workload.threads.select(
        *plain("tid", "pid", "nice", "rt_prio", "start", "asleep", "cpu", "program", "slice"),
        *plain("dl_runtime", "dl_deadline", "dl_period", *_PAST, "exits_after"),
        codes("class").alias("class"),
        mask.alias("mask"),
        group=pl.col("group").replace_strict(
            {path: i for i, path in enumerate(in_order(workload.groups))},
            default=None,
            return_dtype=pl.Int64,
        ),
    )
    steps = workload.steps.select(
        *plain(
            "program",
            "ns",
            "thread",
            "count",
            "step",
            "disk",
            "sync",
            "meet",
            "nice",
            "rt_prio",
            "pipe",
            "mutex",
            "condition",
            "barrier",
            "queue",
            "job",
        ),
        codes("op").alias("op"),
        codes("class").alias("class"),
        mask.alias("mask"),
    )
    return threads, steps, masks, workload.threads["name"].fill_null("").to_list()
