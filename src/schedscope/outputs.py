"""How every file and folder is written: whole, as private as its source, and never where another
user could redirect root.

* It appears under its name when it is complete (`whole`), and is made in a folder that only its
  writer can enter, so that no link that lies there is followed.
* What is made of a trace has the mode and, if root writes it, the owner of the trace: only users
  who could read its sources can read it (`private`).
* root does not write below a folder that another user owns, or where anyone may replace what it
  writes (`user_of`): the files are made elsewhere, then written there by that user.
"""

from __future__ import annotations

import fcntl
import glob
import os
import pwd
import shutil
import stat
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from schedscope.errors import StorageError, UsageError
from schedscope.invoking_user import acting_as

_OTHERS = 0o077
ANYONE = -1
"""In place of a user: anyone may write there."""

_lock = threading.Lock()
_masks: list[int] = []
_umask = 0


@contextmanager
def private(sources: Iterable[Path], folder: Path) -> Iterator[None]:
    """Files that this process makes meanwhile in `folder` are no more readable than its `sources`.

    By the process's umask, which Polars, matplotlib and the engine heed, too. Several threads may
    be in it at once: the strictest mask holds for all.
    """
    global _umask
    mask = denied(sources, folder)
    with _lock:
        before = os.umask(_OTHERS)
        _umask = before if not _masks else _umask
        _masks.append(mask)
        os.umask(_strictest())
    try:
        yield
    finally:
        with _lock:
            _masks.remove(mask)
            os.umask(_strictest())


def _strictest() -> int:
    found = _umask
    for mask in _masks:
        found |= mask
    return found


def denied(sources: Iterable[Path], folder: Path) -> int:
    """The permissions that others than the owner lack for one of the sources.

    All of them for a source that cannot be inspected, such as one in a store.
    """
    found = 0
    for source in sources:
        try:
            same_group = source.stat().st_gid == _new_group(folder, source)
            for path in _within(source):
                mode = path.stat().st_mode
                group, other = mode >> 3 & 7, mode & 7
                found |= _lacking(other) | _lacking(group if same_group else group & other) << 3
        except OSError:
            return _OTHERS
    return found


def _lacking(bits: int) -> int:
    """Users who cannot read may not enter either; data files are not executable."""
    return 7 if not bits & 4 else 2 if not bits & 2 else 0


def _within(source: Path) -> Iterator[Path]:
    yield source
    if source.is_dir():
        yield from source.rglob("*")


def _new_group(folder: Path, source: Path) -> int:
    """The group of what is made in the folder."""
    if os.geteuid() == 0:
        return source.stat().st_gid  # as `give` does
    there = folder.stat()
    return there.st_gid if there.st_mode & stat.S_ISGID else os.getegid()


def tighten(made: Path, source: Path) -> None:
    """Removes permissions of an earlier output that its source no longer grants."""
    mask = denied([source], made.parent)
    for path in _within(made) if mask else ():
        with suppress(OSError):
            mode = stat.S_IMODE(path.lstat().st_mode)
            if mode & mask and not path.is_symlink() and user_of(path.parent) is None:
                path.chmod(mode & ~mask)


def give(made: Path, sources: Iterable[Path]) -> None:
    """Hands it to the owner of its sources if root made it, in a folder that only root can
    enter.
    """
    if os.geteuid() != 0:
        return
    try:
        owners = {(there.st_uid, there.st_gid) for there in (path.stat() for path in sources)}
    except OSError:
        return
    if len(owners) != 1 or owners == {(0, 0)}:
        return
    ((uid, gid),) = owners
    # Contents before their folder: once the folder is theirs, they may put links there.
    for path in reversed(list(_within(made))):
        os.chown(path, uid, gid, follow_symlinks=False)


@contextmanager
def whole(target: Path, sources: Iterable[Path] = ()) -> Iterator[Path]:
    """The path of a file or folder to make, which gets the name `target` once it is whole.

    What had that name is replaced. Raises `OSError`, `StorageError` for a target that root must
    leave alone, and `UsageError` for one of the sources: a recording cannot be made again.
    """
    sources = list(sources)
    for source in sources:
        with suppress(OSError):
            if target.samefile(source):
                raise UsageError(f"{target} is what is read", "another name for what is written")
    parent = target.absolute().parent
    user = user_of(parent)
    if user == ANYONE:
        raise _refused(parent, user)
    with room(target, parent if user is None else temporary()) as place:
        made = place / target.name
        with private(sources, parent):
            yield made
        if user is None:
            give(made, sources)
            _publish(made, target)
        else:
            _hand_over(made, target, sources, user)


@contextmanager
def room(target: Path, parent: Path) -> Iterator[Path]:
    """A folder in `parent` that only this user can enter, to make `target` in; removed afterwards.

    Its lock marks it as in use. The kernel drops the lock with the process, however that ends: what
    killed processes left is removed first.
    """
    stem, suffix = os.fsdecode(os.fsencode(target.stem)[:200]), target.suffix
    _remove_abandoned(parent, stem, suffix)
    while True:
        place = parent / f".{stem}.{os.urandom(4).hex()}{suffix}.partial"
        place.mkdir(0o700)
        try:
            descriptor = os.open(place, os.O_RDONLY | os.O_NOFOLLOW)
        except FileNotFoundError:
            continue  # another process took it for abandoned: it was not locked yet
        except OSError:
            place.rmdir()
            raise
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), place.stat()):
                break
        os.close(descriptor)
    try:
        yield place
    finally:
        try:
            place.rmdir()  # its content has been renamed
        except OSError:
            shutil.rmtree(place, ignore_errors=True)
        os.close(descriptor)


def _remove_abandoned(parent: Path, stem: str, suffix: str) -> None:
    for path in parent.glob(f".{glob.escape(stem)}.*{glob.escape(suffix)}.partial"):
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY)
        except OSError:
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path, ignore_errors=True)
        except OSError:
            pass  # in use
        finally:
            os.close(descriptor)


def make_folder(folder: Path, sources: Iterable[Path]) -> None:
    """Make a folder for several files, if there is none, as private as their sources."""
    refuse_led(folder)
    sources = list(sources)
    if not folder.is_dir():
        with private(sources, folder.absolute().parent):
            folder.mkdir(parents=True)
        give(folder, sources)


def _publish(made: Path, target: Path) -> None:
    if made.is_dir() and target.is_dir() and not target.is_symlink():
        os.rename(target, made.with_name(f"{made.name}.before"))
    os.replace(made, target)


def _hand_over(made: Path, target: Path, sources: list[Path], uid: int) -> None:
    """Copy what root made as the owner of the folder, who must be able to read the sources."""
    descriptors = {path: os.open(path, os.O_RDONLY) for path in _within(made) if not path.is_dir()}
    try:
        with acting_as(uid):
            for source in sources:
                if not os.access(source, os.R_OK, effective_ids=True):
                    raise _refused(target.absolute().parent, uid, f", who cannot read {source}")
            with whole(target, sources) as copy:
                if made in descriptors:
                    _copy(descriptors[made], copy)
                    return
                copy.mkdir()
                for path, descriptor in descriptors.items():
                    to = copy / path.relative_to(made)
                    to.parent.mkdir(parents=True, exist_ok=True)
                    _copy(descriptor, to)
    finally:
        for descriptor in descriptors.values():
            os.close(descriptor)


def _copy(descriptor: int, to: Path) -> None:
    with os.fdopen(os.dup(descriptor), "rb") as source, to.open("xb") as copy:
        shutil.copyfileobj(source, copy)


def user_of(folder: Path) -> int | None:
    """The user who can replace what root writes into a folder: a user, anyone (-1), or no one else
    (None).

    The owner of the folder or of one above it, if that is not root. Always None for a process that
    is not root's, which has no rights to lend.
    """
    if os.geteuid() != 0:
        return None
    found: int | None = None
    place = Path(os.path.realpath(folder))
    for one in (place, *place.parents):
        try:
            there = one.stat()
        except OSError:
            continue  # to be made
        if there.st_uid != 0:
            return there.st_uid
        shared = there.st_mode & 0o002 or (there.st_mode & 0o020 and there.st_gid != 0)
        if shared and not there.st_mode & stat.S_ISVTX:
            found = ANYONE
    return found


def refuse_led(folder: Path) -> None:
    """Raises `StorageError` if root must not write into the folder."""
    if (user := user_of(folder)) is not None:
        raise _refused(folder, user)


def _refused(folder: Path, user: int, why: str = "") -> StorageError:
    if user == ANYONE:
        said = f"{folder} is writable by others, who could replace what root writes there"
        return StorageError(said, hint="give a folder that only root can write to")
    try:
        name = pwd.getpwuid(user).pw_name
    except KeyError:
        name = f"user {user}"
    return StorageError(
        f"root does not write into {folder}, which is below a folder of {name}{why}",
        hint=f"run it as {name}, or give a folder that only root can write to",
    )


def temporary() -> Path:
    """The folder for temporary files; for root one where no other user can replace them."""
    import tempfile  # slow to load, and needed by few commands

    for place in (tempfile.gettempdir(), "/var/tmp", "/tmp", "/root"):
        if os.path.isdir(place) and user_of(Path(place)) is None:
            return Path(place)
    raise StorageError("root has no folder of its own", hint="make /var/tmp, with mode 1777")
