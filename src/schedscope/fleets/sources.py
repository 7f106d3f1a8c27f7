"""Which traces do the given paths refer to, on this host or in an object store?

A path is a trace, or a folder in which every trace is meant. A URL (`s3://bucket/traces`) is read
by fsspec. Inside a folder a trace is a folder with a `capture.json` or `trace.json`, or a file
whose name ends as the recorders name theirs; a converted copy beside its source is not a second
trace.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from schedscope import units
from schedscope.errors import MissingExtraError, StorageError, UsageError
from schedscope.extras import installing

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

SUFFIXES = (".dat", ".data", ".pftrace", ".perfetto-trace", ".ftrace")
"""Files in a folder that are traces; others must be named themselves."""
_MARKS = ("capture.json", "trace.json")
_URL = re.compile(r"[a-z][a-z0-9+.-]*://")


def is_url(path: str) -> bool:
    """Is it an address that fsspec reads?

    >>> is_url("s3://bucket/web.capture"), is_url("traces/a:b.dat"), is_url("/srv/x")
    (True, False, False)
    """
    return _URL.match(path) is not None


def file_system(url: str) -> tuple[AbstractFileSystem, str]:
    """The store that a URL names, and the place in it."""
    import fsspec

    try:
        found: tuple[AbstractFileSystem, str] = fsspec.core.url_to_fs(url)
    except (ImportError, ValueError) as error:
        # "Install s3fs to access S3", "Protocol not known: xy".
        text = " ".join(str(error).split())
        if isinstance(error, ImportError):
            raise MissingExtraError(
                f"{url} needs a package of fsspec: {text}",
                "the package for this kind of store",
                f"for s3://, {installing(['s3fs'])}",
            ) from error
        raise UsageError(f"{url} is not an address: {text}", "one that fsspec knows") from error
    return found


def expand(paths: Sequence[str]) -> list[str]:
    """Every trace that the paths mean, each once, in the order given.

    Raises `UsageError` for a folder without any, `StorageError` for a store that does not answer.
    A path where nothing is counts as a trace, so that it is named among those that failed.
    """
    found: dict[str, None] = {}
    for path in paths:
        here = _of_url(path) if is_url(path) else _of_folder(Path(path))
        if not here:
            raise UsageError(
                f"no trace in {path}",
                f"folders with capture.json or trace.json, or files named *{', *'.join(SUFFIXES)}",
                "name other files themselves",
            )
        found.update(dict.fromkeys(here))
    if not found:
        raise UsageError("no traces given", "one path or more")
    return list(found)


def _of_folder(path: Path) -> list[str]:
    from schedscope.parsers import tables

    if not path.is_dir() or any((path / mark).is_file() for mark in _MARKS):
        return [str(path)]
    if tables.is_tables(path):
        return [str(path)]
    names = []
    for folder, folders, files in os.walk(path):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        within = Path(folder).relative_to(path)
        names += [str(within / name) for name in sorted(files)]
    return [str(path / name) for name in traces_among(names)]


def _of_url(url: str) -> list[str]:
    system, place = file_system(url)
    try:
        if any(character in place for character in "*?["):
            matched = sorted(map(str, system.glob(place)))
            return [name for each in matched for name in _of_url(system.unstrip_protocol(each))]
        if system.isfile(place):
            return [url]
        names = sorted(map(str, system.find(place)))
    except Exception as error:  # each store has errors of its own
        raise unreadable(url, error) from error
    if not names:
        return [url]
    root = place.rstrip("/")
    inside = traces_among([name.removeprefix(root).lstrip("/") for name in names])
    base = url.rstrip("/")
    return [base if name == "." else f"{base}/{name}" for name in inside]


def unreadable(url: str, error: Exception) -> StorageError:
    """The answer of a store, as a sentence."""
    text = " ".join(str(error).split())[:300] or type(error).__name__
    if isinstance(error, FileNotFoundError):
        text = "no such file or folder"
    return StorageError(
        f"cannot read {url}: {text}",
        "a store that answers, and the right to read",
        "its package reads credentials and the address of the store from the environment",
    )


def traces_among(names: Iterable[str]) -> list[str]:
    """The traces among the files of a folder, by their names relative to it; "." is the folder.

    >>> traces_among(["a.capture/capture.json", "a.capture/raw/x.dat", "a.sched/trace.json",
    ...     "b.dat", "b.dat.sched/trace.json", "notes.txt", "c/d.sched/trace.json"])
    ['a.capture', 'b.dat', 'c/d.sched']
    """
    paths = [PurePosixPath(name) for name in names]
    paths = [path for path in paths if not any(part.startswith(".") for part in path.parts)]
    marked = {path.parent for path in paths if path.name in _MARKS}
    folders = {path for path in marked if not marked.intersection(path.parents)}
    files = {
        path
        for path in paths
        if path.name.endswith(SUFFIXES) and not folders.intersection(path.parents)
    }
    every = folders | files
    copies = {
        path
        for path in folders
        if path.name.endswith(".sched")
        and every.intersection((path.with_suffix(""), path.with_suffix(".capture")))
    }
    return sorted(map(str, every - copies))


def stored_identity(url: str) -> list[list[Any]] | None:
    """Name, size and version of every file of a trace in a store; None where the store does not
    report it.

    The version is the store's own: an ETag, or the time of the last change.
    """
    system, place = file_system(url)
    rows = []
    try:
        for name, info in _files(system, place):
            known = [info.get(key) for key in ("ETag", "etag", "LastModified", "mtime", "created")]
            version = next((str(value) for value in known if value is not None), None)
            if version is None:
                return None
            rows.append([name, info.get("size"), version])
    except Exception as error:
        raise unreadable(url, error) from error
    return rows or None


def _files(system: AbstractFileSystem, place: str) -> list[tuple[str, dict[str, Any]]]:
    system.invalidate_cache()
    if system.isfile(place):
        return [("", system.info(place))]
    found = system.find(place, detail=True)
    root = place.rstrip("/")
    return sorted((name.removeprefix(root).lstrip("/"), info) for name, info in found.items())


def fetch(url: str, folder: Path, limit: int) -> Path:
    """Copy a trace from a store into `folder`; at most `limit` bytes.

    Raises `StorageError` if it has more, or if the store does not give it.
    """
    system, place = file_system(url)
    target = folder / (PurePosixPath(place).name or "trace")
    try:
        files = _files(system, place)
    except Exception as error:
        raise unreadable(url, error) from error
    if not files:
        raise unreadable(url, FileNotFoundError())
    left = limit
    for name, _ in files:
        to = target / name if name else target
        if not to.resolve().is_relative_to(folder.resolve()):
            raise StorageError(f"{url} holds a file named {name!r}", "names below the trace's own")
        to.parent.mkdir(parents=True, exist_ok=True)
        try:
            source = system.open(f"{place.rstrip('/')}/{name}" if name else place, "rb")
        except Exception as error:
            raise unreadable(url, error) from error
        with source, to.open("wb") as copy:
            while True:
                try:
                    block = source.read(1 << 20)
                except Exception as error:
                    raise unreadable(url, error) from error
                if not block:
                    break
                left -= len(block)
                if left < 0:
                    raise StorageError(
                        f"{url} has more than {units.size(limit)}",
                        "a trace within the limit of what is fetched at a time",
                        "raise --fetch-limit",
                    )
                copy.write(block)
    return target
