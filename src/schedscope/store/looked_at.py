"""Which tables' values were checked, or written, by this user's schedscope.

A checksum reveals damage, not malice: a program that writes a table writes its checksum, too. So
all values of a table are checked before its rows are read. A note in the user's own cache folder
says that this was done, so that it is done once. A note is about files: the table, and what its
values were compared with, trace.json and the threads. It holds as long as their inodes, sizes and
times are the same; no program can set one of these times, ctime. Where no note can be written, a
table is looked at each time. The oldest notes beyond a number go, since a note outlives its folder.
"""

from __future__ import annotations

import hashlib
import json
import os
import pwd
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path

from schedscope.errors import StorageError
from schedscope.outputs import user_of, whole

Identity = dict[str, list[int]]
"""Of files by name: device, inode, size, mtime and ctime."""

_BESIDE = ("trace.json", "threads.parquet")
# Two writes within the file system's clock tick leave the same times.
_SETTLED_NS = 2_000_000_000
_MOST = 4000
"""Notes, of about 3 KB each."""

_in_memory: dict[Path, Identity] | None = None


def user_folder() -> Path:
    """Where this user's programs keep what can be made again.

    For root never below the home of the invoking user, which sudo may leave in HOME.
    """
    if (text := os.environ.get("XDG_CACHE_HOME")) and user_of(Path(text)) is None:
        return Path(text) / "schedscope"
    home = Path.home()
    if user_of(home) is not None:
        home = Path(pwd.getpwuid(0).pw_dir)
    return home / ("Library/Caches" if sys.platform == "darwin" else ".cache") / "schedscope"


def identity(folder: Path, name: str) -> Identity:
    """Identity by which the file `name` and those beside it are recognised as unchanged.

    Empty if one of them is not there.
    """
    found = {}
    try:
        for file in {*_BESIDE, name}:
            s = (folder / file).stat()
            found[file] = [s.st_dev, s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns]
    except OSError:
        return {}
    return found


@contextmanager
def in_memory() -> Iterator[None]:
    """No note of the block outlives it: for folders that do not, either."""
    global _in_memory
    before, _in_memory = _in_memory, {}
    try:
        yield
    finally:
        _in_memory = before


def known(now: Identity, folder: Path) -> bool:
    """Were the values of these very files checked?"""
    if not now:
        return False
    try:
        noted = _read(_note(folder))
    except OSError:
        return False
    return all(noted.get(name) == files for name, files in now.items())


def note(seen: Identity, folder: Path) -> None:
    """The values of these files, as they were then, have been looked at."""
    if seen and time.time_ns() - max(files[-1] for files in seen.values()) > _SETTLED_NS:
        _write(seen, folder)


def written(folder: Path, names: Iterable[str]) -> None:
    """We wrote these files ourselves, just now."""
    _write({file: now for name in names for file, now in identity(folder, name).items()}, folder)


def _write(seen: Identity, folder: Path) -> None:
    # Without a home, or on a full disk, tables are checked again.
    with suppress(OSError, RuntimeError, StorageError):
        path = _note(folder)
        if _in_memory is not None:
            _in_memory[path] = _read(path) | seen
            return
        if not path.exists():
            path.parent.mkdir(0o700, parents=True, exist_ok=True)
            _forget_old(path.parent)
        with whole(path) as made:
            made.write_text(json.dumps({"engine": _engine(), "files": _read(path) | seen}))


def _read(path: Path) -> Identity:
    if _in_memory is not None and path in _in_memory:
        return _in_memory[path]
    try:
        said = json.loads(path.read_bytes())
        files = said["files"] if said["engine"] == _engine() else {}
    except (OSError, RuntimeError, ValueError, RecursionError, KeyError, TypeError):
        return {}
    return files if isinstance(files, dict) else {}


def _note(folder: Path) -> Path:
    s = folder.stat()
    name = hashlib.sha256(f"{s.st_dev} {s.st_ino}".encode()).hexdigest()[:24]
    return user_folder() / "looked-at" / f"{name}.json"


@lru_cache(maxsize=1)
def _engine() -> list[int]:
    """The engine that did the checks: another one may be stricter."""
    from schedscope import _native

    s = os.stat(str(_native.__file__))
    return [s.st_size, s.st_mtime_ns]


def _forget_old(notes: Path) -> None:
    """Makes room for many others at once: not each one shall look at all before it."""
    names = os.listdir(notes)
    if len(names) < _MOST:
        return

    def age(name: str) -> float:
        try:
            return (notes / name).stat().st_mtime
        except OSError:  # another process removed it
            return 0

    for name in sorted(names, key=age)[: len(names) - _MOST // 2]:
        (notes / name).unlink(missing_ok=True)
