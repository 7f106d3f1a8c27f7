"""Which `.sched` folders open traces use, so that none is replaced under a reader.

An open trace holds a shared lock on its folder. The kernel drops it with the trace, or with the
process, however that ends. Where a file system has no locks, nothing is known to be in use.
"""

from __future__ import annotations

import fcntl
import os
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class Lease:
    """Holds the lock as long as it is referred to."""

    def __init__(self, folder: Path) -> None:
        """Lock the folder that has this name now; do nothing if that is not possible."""
        while True:
            try:
                descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            except OSError:
                return
            try:
                fcntl.flock(descriptor, fcntl.LOCK_SH)
                current = os.path.samestat(os.fstat(descriptor), folder.stat())
            except OSError:
                os.close(descriptor)
                return
            if current:
                weakref.finalize(self, os.close, descriptor)
                return
            os.close(descriptor)  # it was replaced just now


@contextmanager
def unused(folder: Path) -> Iterator[bool]:
    """Whether no open trace uses the folder; until the end of the block, none begins to."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        yield True
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        free = True
    except BlockingIOError:
        free = False
    except OSError:
        free = True
    try:
        yield free
    finally:
        os.close(descriptor)
