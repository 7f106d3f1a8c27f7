"""Converted traces on disk: found again, never stale, never half written.

The rules, in one place:

* A converted trace lies beside its source (`web.capture` -> `web.sched`,
  `trace.dat` -> `trace.dat.sched`), or in the user's cache folder where the
  source's folder cannot be written or holds a foreign folder of that name. In a
  cache folder, also a chosen one, the source's path is part of the name, so that
  sources of one name do not share a copy.
* It is served only if table schema, native build and decoder options are the
  same and the source is unchanged: the same `stat` (size, inode, mtime and
  ctime, which no program can set), or else the same content. Content is
  compared up to 64 MiB; a larger source with another `stat` is converted again.
* It is served, and replaced, only if it belongs to this user, to root or to the owner of the
  source: where everybody may write, anybody could put a folder of that name.
* A copy that an open trace uses is not replaced: the new one is written beside it, under a hidden
  name, and removed when the first one could be replaced.
* It is as private as its source, and root does not write it below another user's folder
  (`schedscope.outputs`).
* It is written under a partial name and renamed when complete. Of two
  processes converting at once the first to finish wins and the other takes the
  winner's. Whatever ends a conversion early, its partial folder is removed; a
  killed process's partial folder is removed by the next conversion.
"""

from __future__ import annotations

import errno
import glob
import hashlib
import json
import os
import secrets
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from schedscope import outputs
from schedscope.errors import StorageError, UsageError
from schedscope.parsers import trace_json
from schedscope.parsers.files import read_small
from schedscope.store import looked_at, stored
from schedscope.store.in_use import unused
from schedscope.store.stored import METADATA

_CONTENT_LIMIT = 64 * 2**20
# Two writes within the file system's clock tick leave the same mtime: a stat
# younger than this says nothing.
_SETTLED_NS = 2_000_000_000

Convert = Callable[[Path], str]
"""Writes the tables into an existing folder, returns the text of trace.json."""


def find_or_build(
    source: Path,
    convert: Convert,
    *,
    folder: Path | None = None,
    refresh: bool = False,
    options: Mapping[str, str] | None = None,
) -> Path:
    """The `.sched` folder for `source`, converted now if it has to be.

    `folder` names the one place to look and write; without it the places of
    the module's docstring are tried in turn.
    """
    explicit = folder or _environment_folder()
    if explicit is not None:
        outputs.refuse_led(explicit)
        _make_folder(explicit)
    places = _places(source, options, explicit)
    key = _key(source, options)
    if not refresh and (found := _served(places, source, key)):
        outputs.tighten(found, source)
        return found
    for place in places[:-1]:
        if _is_ours(place, source) and _writable(place.parent):
            return build(source, place, convert, key=key, refresh=refresh)
    last = places[-1]
    if explicit is None:
        _make_folder(last.parent, 0o700)
    elif not _is_ours(last, source):
        raise UsageError(
            f"{last} exists and is not a converted copy of {source}",
            "a free name in the cache folder",
            "give another --cache folder, or move that file away",
        )
    return build(source, last, convert, key=key, refresh=refresh)


def _places(source: Path, options: Mapping[str, str] | None, explicit: Path | None) -> list[Path]:
    """Where a copy is looked for, in turn."""
    name = sched_name(source, options)
    if explicit is not None:
        return [explicit / _distinct(source, name)]
    return [source.absolute().parent / name, looked_at.user_folder() / _distinct(source, name)]


def _served(places: list[Path], source: Path, key: Mapping[str, Any]) -> Path | None:
    for place in places:
        if _serves(place, source, key):
            return place
        for other in _newer(place):
            if _serves(other, source, key):
                return other
    return None


def _newer(place: Path) -> list[Path]:
    """Copies that were written while an open trace used the one at `place`."""
    return sorted(place.parent.glob(f".{glob.escape(place.stem)}.newer-*.sched"))


def build(
    source: Path | None,
    target: Path,
    convert: Convert,
    *,
    key: Mapping[str, Any] | None = None,
    replace: bool = True,
    refresh: bool = False,
    sources: Iterable[Path] = (),
) -> Path:
    """Convert into a partial folder, then rename it to `target`; returns where it is.

    `source` is what is read, None where the tables come from memory, which `sources` were read
    into. With `key` the result may be served from a cache. An existing `target` is replaced only if
    `replace`; with `refresh` even by one that is as good. A cached one that an open trace uses
    stays, and the result is beside it.
    """
    made_of = [source] if source else list(sources)
    if outputs.user_of(target.absolute().parent) is not None:
        with outputs.whole(target, made_of) as made:
            build(source, made, convert, key=key, sources=made_of)
        return target
    first = target
    before = _stat(source) if source else []
    with _partial_folder(target, made_of) as partial:
        about = json.loads(convert(partial))
        if source and _stat(source) != before:
            raise StorageError(
                f"{source} changed while it was being read",
                "a finished recording",
                "wait until the recorder has ended, then try again",
            )
        if source:
            about.setdefault("source", {})["bytes"] = sum(row[1] for row in before)
        if source and key is not None:
            about["cache"] = {**key, **_identity(source, before)}
        about["files"] = stored.record(partial)
        (partial / METADATA).write_text(trace_json.written(about))
        outputs.give(partial, made_of)
        while not _published(partial, target, replace):
            if source and key is not None and not refresh and _serves(target, source, key):
                break  # another process was faster
            if source and _holds(target, about):
                # Another process may be reading these tables.
                os.replace(partial / METADATA, target / METADATA)
                break
            with unused(target) as free:
                if free or key is None:
                    _set_aside(target, partial.parent)
                    continue
            name = f".{target.stem}.newer-{secrets.token_hex(4)}.sched"
            target = target.with_name(name)
        else:
            looked_at.written(target, about["files"])
        for other in _newer(first):
            with unused(other) as free:
                if free and other != target and source and _is_ours(other, source):
                    _set_aside(other, partial.parent)
    return target


def write(
    target: Path, fill: Convert, *, replace: bool = False, sources: Iterable[Path] = ()
) -> Path:
    """Fill a new `.sched` folder that no source file is converted to, such as a simulation's."""
    return build(None, target, fill, replace=replace, sources=sources)


def free_target(target: Path, force: bool) -> None:
    """Raises unless a `.sched` folder may be written there, in place of one only with `force`."""
    if target.exists() or target.is_symlink():
        if not force:
            raise UsageError(f"{target} exists", "a free name", "give --force to replace it")
        if read_about(target) is None:
            raise UsageError(
                f"{target} is not a .sched folder",
                "a free name, or a .sched folder to replace",
                "choose another name",
            )
    needs_folder(target)


def needs_folder(target: Path) -> None:
    """Raises unless the folder is there in which `target` is going to be written."""
    if not target.absolute().parent.is_dir():
        raise StorageError(
            f"cannot create {target}: no folder {target.parent}", hint="create that folder first"
        )


def sched_name(source: Path, options: Mapping[str, str] | None = None) -> str:
    """The name of the folder that a source is converted to.

    >>> sched_name(Path("runs/web.capture")), sched_name(Path("trace.dat"))
    ('web.sched', 'trace.dat.sched')
    """
    name = source.name.removesuffix(".capture")
    if options:
        text = json.dumps(sorted(options.items()))
        name += "." + hashlib.sha256(text.encode()).hexdigest()[:8]
    return name + ".sched"


def read_about(folder: Path) -> dict[str, Any] | None:
    """trace.json of a `.sched` folder, or None where there is no readable one."""
    try:
        about = json.loads(read_small(folder / METADATA))
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(about, dict):
        return None
    about.pop(trace_json.SUM, None)
    return about


def _key(source: Path, options: Mapping[str, str] | None) -> dict[str, Any]:
    from schedscope._native import SCHEMA_VERSION

    return {
        "source": source.name,
        "schema_version": SCHEMA_VERSION,
        "build": _build(),
        "options": dict(sorted((options or {}).items())),
    }


@lru_cache(maxsize=1)
def _build() -> str:
    """Identifies a native engine build: a rebuilt decoder may read differently.

    A checksum suffices, since no one gains by forging it, and takes a quarter of a hash's time:
    every command computes it.
    """
    from schedscope import _native

    engine = Path(str(_native.__file__))
    return f"{engine.stat().st_size}-{stored.checksum(engine)}"


def _trusted(place: Path, source: Path) -> bool:
    """Does the folder, or a link of its name, belong to a user who may decide its content?"""
    try:
        return place.lstat().st_uid in {0, os.geteuid(), source.stat().st_uid}
    except OSError:
        return False


def _serves(place: Path, source: Path, key: Mapping[str, Any]) -> bool:
    if not _trusted(place, source):
        return False
    about = read_about(place)
    cache = (about or {}).get("cache")
    if not isinstance(cache, dict) or any(cache.get(k) != v for k, v in key.items()):
        return False
    try:
        # A crash of the host may leave files of the right name without content.
        sizes = {name: row["bytes"] for name, row in (about or {})["files"].items()}
        whole = all((place / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, KeyError, AttributeError, TypeError, ValueError):
        return False
    if not (whole and sizes):
        return False
    return unchanged(source, cache)


def served(source: Path, options: Mapping[str, str] | None = None) -> Path | None:
    """The converted copy that `find_or_build` would serve from where it looks by itself."""
    return _served(_places(source, options, _environment_folder()), source, _key(source, options))


def version(options: Mapping[str, str] | None = None) -> dict[str, Any]:
    """What a result depends on besides its source: the tables, the engine, decoder options."""
    return {name: value for name, value in _key(Path(), options).items() if name != "source"}


def identity(source: Path) -> dict[str, Any]:
    """Identity by which a source is later recognised as unchanged: `unchanged` compares it."""
    return _identity(source, _stat(source))


def _identity(source: Path, stat: list[list[Any]]) -> dict[str, Any]:
    settled = time.time_ns() - max(row[-1] for row in stat) > _SETTLED_NS
    return {"stat": stat if settled else None, "content": _content(source, stat)}


def unchanged(source: Path, known: Mapping[str, Any]) -> bool:
    """Is a source the one whose `identity` this was: the same `stat`, or the same content?"""
    now = _stat(source)
    if known.get("stat") == now:
        return True
    return known.get("content") is not None and known["content"] == _content(source, now)


def _holds(place: Path, about: Mapping[str, Any]) -> bool:
    """Are the tables in the folder exactly those that `about` describes?"""
    there = read_about(place)
    if there is None or there.get("files") != about["files"]:
        return False
    try:
        return bool(stored.record(place) == about["files"])
    except OSError:
        return False


def _is_ours(place: Path, source: Path) -> bool:
    """May `place` be replaced: is it free, or our copy of this very source?"""
    if not place.exists() and not place.is_symlink():
        return True
    cache = (read_about(place) or {}).get("cache")
    named = isinstance(cache, dict) and cache.get("source") == source.name
    return named and _trusted(place, source)


def _files(source: Path) -> Iterator[Path]:
    if source.is_dir():
        yield from sorted(path for path in source.rglob("*") if path.is_file())
    else:
        refuse_pipe(source, source.stat().st_mode)
        yield source


def refuse_pipe(source: Path, mode: int) -> None:
    """Raises unless it is a file or a folder: opening a pipe without a writer would block."""
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        expected = "a capture folder, a trace file or a .sched folder"
        raise StorageError(f"{source} is a pipe or device", expected, "save it to a file first")


def _stat(source: Path) -> list[list[Any]]:
    """Name, size, inode, mtime, ctime of every file of the source."""
    rows: list[list[Any]] = []
    for path in _files(source):
        s = path.stat()
        name = str(path.relative_to(source)) if path != source else path.name
        rows.append([name, s.st_size, s.st_ino, s.st_mtime_ns, s.st_ctime_ns])
    if not rows:
        raise StorageError(f"{source} is an empty folder", "a capture folder or a trace file")
    return rows


def _content(source: Path, rows: list[list[Any]]) -> str | None:
    """A hash over names and bytes; None where the source is too large."""
    if sum(row[1] for row in rows) > _CONTENT_LIMIT:
        return None
    digest = hashlib.sha256()
    for path in _files(source):
        name = str(path.relative_to(source)) if path != source else ""
        digest.update(f"{name}\0{path.stat().st_size}\0".encode("utf-8", "surrogateescape"))
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()


@contextmanager
def _partial_folder(target: Path, sources: list[Path]) -> Iterator[Path]:
    """A new folder, gone afterwards unless it was renamed."""
    doing = f"create {target}"
    try:
        with outputs.room(target, target.parent) as room, outputs.private(sources, target.parent):
            partial = room / target.name
            partial.mkdir()
            doing = f"write {target}"
            yield partial
    except OSError as error:
        raise _storage_error(doing, error) from error


def _published(partial: Path, target: Path, replace: bool) -> bool:
    """Rename to `target`; False if something is there that may be replaced."""
    try:
        partial.rename(target)  # fails on a folder that is not empty
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            raise
        if not replace:
            raise UsageError(
                f"{target} exists", "a free name", "give --force to replace it"
            ) from error
        return False
    return True


def _set_aside(target: Path, room: Path) -> None:
    with suppress(FileNotFoundError):  # another process was faster
        target.rename(room / f"{secrets.token_hex(4)}.before")


def _environment_folder() -> Path | None:
    text = os.environ.get("SCHEDSCOPE_CACHE")
    return Path(text) if text else None


def _distinct(source: Path, name: str) -> str:
    """Sources of one name in different folders must not share a cache."""
    place = os.fsencode(source.resolve())
    return f"{hashlib.sha256(place).hexdigest()[:12]}-{name}"


def _make_folder(folder: Path, mode: int = 0o777) -> None:
    try:
        folder.mkdir(mode, parents=True, exist_ok=True)
    except OSError as error:
        raise _storage_error(f"create the cache folder {folder}", error) from error


def _writable(folder: Path) -> bool:
    return os.access(folder, os.W_OK | os.X_OK) and outputs.user_of(folder) is None


def _storage_error(doing: str, error: OSError) -> StorageError:
    full = (errno.ENOSPC, errno.EDQUOT)
    place = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST, errno.ELOOP)
    hints = dict.fromkeys(full, "free some space, or choose another place with --cache DIR")
    hints |= dict.fromkeys(place, "choose a writable place with --cache DIR")
    return StorageError(
        f"cannot {doing}: {error.strerror or error}", hint=hints.get(error.errno or 0, "")
    )
