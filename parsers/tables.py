"""Tables of the trace model that another program wrote.

A folder with `switches.parquet` (or .csv, .arrow, .feather) and any other fact tables, one file
each, and perhaps a `trace.json` with what is known about the host. Columns are those of `schema`;
`states`, `waits` and `losses` found by the reconstruction are computed here, never read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from schedscope.errors import FormatError, SchedscopeError, StorageError
from schedscope.parsers import files, schema, trace_json
from schedscope.parsers.plausible import check_frame

FACTS = ("switches", "wakeups", "migrations", "yields", "losses")
"""Tables that the reconstruction reads."""

_READERS: dict[str, Callable[[Path], pl.DataFrame]] = {
    ".parquet": files.read_parquet,
    ".csv": files.read_csv,
    ".arrow": files.read_ipc,
    ".feather": files.read_ipc,
}
_UTIDS = {
    "switches": ("prev_utid", "next_utid"),
    "wakeups": ("utid", "waker_utid", "current_utid"),
    "migrations": ("utid",),
    "yields": ("utid",),
}
_DERIVED = ("states", "waits")


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with a folder of tables."""

    table: str
    found: str
    expected: str
    hint: str = ""


def is_tables(folder: Path) -> bool:
    """Is this a folder with a table of switches, and no .sched folder of ours?"""
    if not folder.is_dir():
        return False
    if folder.suffix == ".sched":
        return False
    if (folder / "waits.parquet").exists() and (folder / "trace.json").exists():
        return False
    return any((folder / f"switches{suffix}").is_file() for suffix in _READERS)


def found_in(folder: Path) -> dict[str, Path]:
    """The file of each fact table that the folder has."""
    found: dict[str, Path] = {}
    for name in schema.TABLES:
        for suffix in _READERS:
            path = folder / f"{name}{suffix}"
            if path.exists() and name not in _DERIVED:
                found.setdefault(name, path)
    return found


def problems(folder: Path) -> list[Problem]:
    """Everything that keeps `folder` from being read as a trace; empty if nothing does."""
    found: list[Problem] = []
    tables = _load(folder, found)
    if "switches" not in tables and not any(problem.table == "switches" for problem in found):
        names = ", ".join(f"switches{suffix}" for suffix in _READERS)
        found.append(Problem("switches", "no such file", f"one of {names}"))
    info = _about(folder, found)
    if "switches" in tables:
        _check_rows(tables, _ncpu(tables, info), found)
        _check_window(tables, info, found)
    named = {problem.table for problem in found}
    bound = 2**20 + 3 * sum(map(len, tables.values()))
    for name, frame in tables.items():
        if name not in named:
            try:
                check_frame(name, frame, name, ncpu=_ncpu(tables, info), threads=bound)
            except SchedscopeError as error:
                found.append(Problem(name, error.found, error.expected))
    return found


def read(folder: Path) -> tuple[dict[str, pl.DataFrame], dict[str, Any]]:
    """The tables in `folder` with states and waits reconstructed, and what is known of them.

    Without a `threads` table every thread is nameless; without `ncpu` in
    trace.json there are as many CPUs as the tables name. Raises `FormatError`
    with the first problem that `schedscope validate` would list.
    """
    from schedscope import _native

    found = problems(folder)
    if found:
        first = found[0]
        more = f" (and {len(found) - 1} more: schedscope validate {folder})"
        raise FormatError(
            f"{folder}: {first.table}: {first.found}{more if len(found) > 1 else ''}",
            first.expected,
            first.hint or "schedscope validate lists every column that a table needs",
        )
    tables = _load(folder, [])
    given = _about(folder, [])
    ncpu = _ncpu(tables, given)
    tables["threads"] = _threads(tables, ncpu)
    window = given.get("window")
    facts = {name: tables[name] for name in FACTS if name in tables}
    if tables["threads"].height:
        facts["threads"] = tables["threads"]
    linux = given.get("os", "Linux") == "Linux"
    filtered = given.get("filtered")
    chosen = None if filtered is None else list(filtered.get("utids") or [])
    result = _native.reconstruct(
        facts, ncpu, tuple(window) if window else None, linux=linux, chosen=chosen
    )
    tables |= {name: pl.DataFrame(result[name]) for name in ("states", "waits", "losses")}
    kinds = set(tables["wakeups"]["kind"].unique()) if "wakeups" in tables else set()
    info = {
        **given,
        "schema_version": schema.SCHEMA_VERSION,
        "source": {"name": folder.name, "format": "tables"},
        "ncpu": ncpu,
        "window": list(window) if window else _seen(tables),
        "has_waking": "waking" in kinds,
        "has_enqueued": "enqueued" in kinds,
        "events": _events(tables),
        "rows": {name: len(frame) for name, frame in tables.items()},
        "per_cpu": result["per_cpu"],
        "reconstruction": result["counters"],
        "warnings": list(given.get("warnings") or []),
        "unplaced_losses": list(given.get("unplaced_losses") or []),
    }
    return tables, info


def _load(folder: Path, found: list[Problem]) -> dict[str, pl.DataFrame]:
    tables = {}
    for name, path in found_in(folder).items():
        if not _regular(path, name, found):
            continue
        try:
            frame = _READERS[path.suffix](path)
        except (pl.exceptions.PolarsError, ValueError, OSError) as error:
            # For a truncated file Polars raises an OSError without an errno.
            if isinstance(error, OSError) and error.errno is not None:
                raise StorageError(f"cannot read {path}: {error.strerror or error}") from error
            kind = path.suffix.lstrip(".")
            found.append(Problem(name, f"{path.name}: {error}", f"a whole {kind} file"))
            continue
        try:
            if name == "threads" and "comm" in frame.columns and "comm_first" not in frame.columns:
                # A writer with only one name per thread gives no first name.
                frame = frame.with_columns(comm_first="comm")
            tables[name] = schema.conform(name, frame)
        except SchedscopeError as error:
            # conform raises subclasses of this error: all have the three parts.
            found.append(Problem(name, error.found, error.expected, error.hint))
    return tables


def _regular(path: Path, table: str, found: list[Problem]) -> bool:
    """A pipe would be waited for, and a device may have no end."""
    if path.is_file():
        return True
    found.append(Problem(table, f"{path.name} is a folder, a pipe or a device", "a regular file"))
    return False


def _about(folder: Path, found: list[Problem]) -> dict[str, Any]:
    path = folder / "trace.json"
    if not path.exists() or not _regular(path, "trace.json", found):
        return {}
    try:
        info = trace_json.parse(files.read_small(path), "trace.json")
    except FormatError as error:
        found.append(Problem("trace.json", error.found, "one JSON object"))
        return {}
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror}") from error
    while wrong := trace_json.wrong(info):
        key, value, expected = wrong
        found.append(Problem("trace.json", f"{key} is {trace_json.shown(value)}", expected))
        info.pop(key.partition("[")[0].partition(".")[0].split()[-1], None)
    if info.get("ncpu") == 0:
        found.append(Problem("trace.json", "ncpu is 0", "a number of CPUs"))
    return info


def _ncpu(tables: Mapping[str, pl.DataFrame], info: Mapping[str, Any]) -> int:
    if info.get("ncpu"):
        return int(info["ncpu"])
    highest = [
        int(str(frame["cpu"].max()))
        for name, frame in tables.items()
        if name in ("switches", "wakeups", "cpus") and len(frame)
    ]
    return max(highest, default=0) + 1


def _check_rows(tables: Mapping[str, pl.DataFrame], ncpu: int, found: list[Problem]) -> None:
    for name, frame in tables.items():
        time = "ts_begin" if name == "losses" else "ts"
        # Interrupts are in order of their ends.
        if time in frame.columns and name != "irqs" and not frame[time].is_sorted():
            row = int((frame[time].diff() < 0).arg_max() or 0)
            text = f"{time} goes back at row {row}"
            found.append(Problem(name, text, f"rows in order of {time}", f"sort by {time}"))
        if name in ("switches", "wakeups") and (frame["cpu"] >= ncpu).any():
            text = f"CPU {frame['cpu'].to_numpy().max()} of a machine with {ncpu} CPUs"
            found.append(Problem(name, text, "CPUs below ncpu of trace.json"))
    switches = tables["switches"]
    for column in ("prev_utid", "next_utid"):
        foreign = (switches[column] < ncpu) & (switches[column] != switches["cpu"].cast(pl.UInt32))
        if foreign.any():
            row = int(foreign.arg_max() or 0)
            utid, cpu = switches[column][row], switches["cpu"][row]
            found.append(
                Problem(
                    "switches",
                    f"{column} is {utid} on CPU {cpu} in row {row}",
                    f"utids 0 to {ncpu - 1} only for the idle threads of CPUs 0 to {ncpu - 1}",
                    f"number other threads from {ncpu} on",
                )
            )
    if "threads" in tables:
        listed = tables["threads"]["utid"]
        used = _used(tables)
        missing = used.filter(~used.is_in(listed.implode())).sort()
        if len(missing):
            text = f"{len(missing)} utids are in no row, the first is {missing[0]}"
            found.append(Problem("threads", text, "a row for every utid that a table names"))
        if listed.is_duplicated().any():
            found.append(Problem("threads", "a utid has two rows", "one row for each"))


def _check_window(
    tables: Mapping[str, pl.DataFrame], info: Mapping[str, Any], found: list[Problem]
) -> None:
    """If the window left out some events, sums would contradict each other."""
    if not (window := info.get("window")):
        return
    begin, end = window
    for name in _UTIDS:
        frame = tables.get(name, schema.empty(name))
        if (outside := ~frame["ts"].is_between(begin, end)).any():
            row = int(outside.arg_max() or 0)
            text = f"ts is {frame['ts'][row]} in row {row}, outside the window of trace.json"
            hint = "leave out the window, or the rows outside of it"
            found.append(Problem(name, text, f"times from {begin} to {end}", hint))


def _used(tables: Mapping[str, pl.DataFrame]) -> pl.Series:
    columns = [
        tables[name][column].drop_nulls()
        for name, of_table in _UTIDS.items()
        if name in tables
        for column in of_table
    ]
    return pl.concat(columns).unique() if columns else pl.Series([], dtype=pl.UInt32)


def _threads(tables: Mapping[str, pl.DataFrame], ncpu: int) -> pl.DataFrame:
    """A row for every utid, the idle threads first."""
    given = tables["threads"] if "threads" in tables else schema.empty("threads")
    idle = pl.Series(range(ncpu), dtype=pl.UInt32)
    used = pl.concat([idle, _used(tables)]).unique()
    new = pl.DataFrame({"utid": used.filter(~used.is_in(given["utid"].implode()))})
    nameless = (
        pl.when(pl.col("utid") < ncpu).then(pl.format("idle/{}", "utid")).otherwise(pl.lit(""))
    )
    made = schema.conform("threads", new.with_columns(comm=nameless, comm_first=nameless))
    return pl.concat([given, made]).sort("utid")


def _seen(tables: Mapping[str, pl.DataFrame]) -> list[int]:
    times = [tables[name]["ts"] for name in ("switches", "wakeups", "migrations") if name in tables]
    seen = pl.concat(times)
    return [int(str(seen.min())), int(str(seen.max()))] if len(seen) else [0, 0]


def _events(tables: Mapping[str, pl.DataFrame]) -> dict[str, dict[str, int]]:
    counts = {}
    for name in ("switches", "wakeups", "migrations"):
        if name in tables:
            per_cpu = tables[name].group_by("cpu").len().sort("cpu").rows()
            counts[name] = {str(cpu): int(n) for cpu, n in per_cpu}
    return counts
