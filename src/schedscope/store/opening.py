"""Open any trace as the tables of the trace model."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

import polars as pl

from schedscope.errors import FormatError, StorageError, UsageError
from schedscope.parsers.schema import TABLES
from schedscope.store import cache as _cache, stored as _stored
from schedscope.store.trace import Trace

Progress = Callable[[int, int], None]
"""Called now and then with the bytes done and the bytes in all."""


def open(
    path: str | os.PathLike[str],
    *,
    cache: str | os.PathLike[str] | None = None,
    refresh: bool = False,
    options: Mapping[str, str] | None = None,
    progress: Progress | None = None,
    jobs: int | None = None,
    engine: Literal["native", "trace_processor"] = "native",
) -> Trace:
    """Open a capture folder, another tool's trace file, a `.sched` folder, or tables.

    A capture or foreign file is converted first, once: the result is kept beside it or in the
    user's cache folder and reused (`schedscope.store.cache` has the rules). `cache` names another
    folder for it, `refresh` converts again, and `options` go to the decoder of the format.
    Conversion uses `jobs` threads, by default as many as the process has CPUs; the result is the
    same, to the byte, for any number. `engine="trace_processor"` reads a Perfetto file through
    Google's program instead of our own decoder.

    Raises `StorageError` if the path cannot be read or the result cannot be written,
    `FormatError` if no decoder knows the bytes or they are broken.
    """
    source = _existing(path)
    if engine == "trace_processor":
        from schedscope.parsers import perfetto

        return Trace.from_tables(*perfetto.read(source), sources=(source,))
    if source.is_dir():
        from schedscope.parsers import tables

        if tables.is_tables(source):
            return Trace.from_tables(*tables.read(source), sources=(source,))
    if (source / _stored.METADATA).is_file():
        return Trace.read(source)
    _refuse_strange(source)
    folder = _cache.find_or_build(
        source,
        _converter(source, options, progress, jobs, plain=False),
        folder=Path(cache) if cache is not None else None,
        refresh=refresh,
        options=options,
    )
    return Trace.read(folder, sources=(source,))


def _existing(path: str | os.PathLike[str]) -> Path:
    """`path`, if a trace can be there: files are read at several positions."""
    if re.match(r"[a-z][a-z0-9+.-]*://", os.fspath(path)):
        raise UsageError(
            f"{os.fspath(path)} is a URL",
            "a file or folder of this host",
            "copy it here first; `schedscope fleet` reads URLs itself",
        )
    source = Path(path)
    try:
        mode = source.stat().st_mode
    except OSError as error:
        raise StorageError(
            f"cannot open {source}: {error.strerror}",
            "a capture folder, a trace file or a .sched folder",
            "check the path" if isinstance(error, FileNotFoundError) else "",
        ) from error
    _cache.refuse_pipe(source, mode)
    if source.absolute().parts[1:2] in (("dev",), ("proc",)):
        # /dev/stdin behind a `<`: the file has a name of its own, and what is kept lies beside it.
        named = source.resolve()
        return named if named.exists() else source
    return source


def _refuse_strange(source: Path) -> None:
    """Raises for a folder that is no capture, before all of its files are looked at."""
    if (source / _stored.SELECTION).is_file():
        raise FormatError(
            f"{source} has only the rows about some threads, as an export with a selection writes",
            "a whole trace",
            "open the trace that it was exported from",
        )
    if source.is_dir():
        from schedscope import _native

        _native.recognise(str(source))


def read_tables(
    path: str | os.PathLike[str],
    *names: str,
    options: Mapping[str, str] | None = None,
    progress: Progress | None = None,
    jobs: int | None = None,
) -> dict[str, pl.DataFrame]:
    """Some tables of a capture or another tool's trace file, read straight into memory.

    Nothing is written or cached, and no other table is built. This is the short way to `waits` or
    `states` of a file that is read once, or to its events. If none of `states`, `waits` and
    `losses` is named, nothing is inferred either: no gaps are looked for, and times are the file's
    own even where `open` finds CPUs whose clocks differ and corrects them. `open` costs more the
    first time and next to nothing afterwards. `options` go to the decoder of the format, and `jobs`
    is the number of threads, as in `open`.

    Raises `UsageError` for a name that is not a table, `StorageError` if the path
    cannot be read, `FormatError` if no decoder knows the bytes or they are broken.
    """
    from schedscope import _native

    unknown = [name for name in names if name not in TABLES]
    if unknown or not names:
        raise UsageError(
            f"table {unknown[0]!r}" if unknown else "no table named",
            "tables of the trace model",
            "any of " + ", ".join(TABLES),
        )
    source = _existing(path)
    tables, _ = _native.decode(str(source), dict(options or {}), progress, list(names), jobs)
    return {name: pl.DataFrame(tables[name]) for name in names}


def convert(
    path: str | os.PathLike[str],
    output: str | os.PathLike[str] | None = None,
    *,
    force: bool = False,
    options: Mapping[str, str] | None = None,
    progress: Progress | None = None,
    jobs: int | None = None,
) -> Trace:
    """Convert a capture or foreign file to a `.sched` folder of your choosing.

    Without `output`: beside the source. An existing folder is replaced only
    with `force`, and only if it is a `.sched` folder. `options` go to the decoder of the format,
    and `jobs` is the number of threads, as in `open`.
    """
    source = _existing(path)
    target = (
        Path(output) if output else source.absolute().parent / _cache.sched_name(source, options)
    )
    _cache.free_target(target, force)
    _refuse_strange(source)
    into = _converter(source, options, progress, jobs, plain=True)
    _cache.build(source, target, into, replace=force)
    return Trace.read(target)


def _converter(
    source: Path,
    options: Mapping[str, str] | None,
    progress: Progress | None,
    jobs: int | None,
    *,
    plain: bool,
) -> _cache.Convert:
    """`plain`: as the public tables; else as they take the least space (parsers/derived.py)."""

    def convert_into(folder: Path) -> str:
        from schedscope import _native
        from schedscope.store import overview_writer

        options_given = dict(options or {})
        about = _native.convert(
            str(source), str(folder), options_given, progress, (None, plain), jobs
        )
        overview_writer.write(folder, json.loads(about))
        return about

    return convert_into
