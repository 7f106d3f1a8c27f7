"""Reads rows in the background that a picture can do without for the moment."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock, Thread


class Background:
    """One reading at a time, in a thread of its own."""

    def __init__(self) -> None:
        """Read nothing yet."""
        self._lock = Lock()
        self.busy = False
        self.failed: BaseException | None = None

    def begin(self, read: Callable[[], object]) -> None:
        """Begin to read, unless something is being read: a caller that still needs this asks
        again.
        """
        with self._lock:
            if not self.busy:
                self.busy = True
                Thread(target=self._run, args=(read,), daemon=True).start()

    def check(self) -> None:
        """Raises what went wrong, once."""
        failed, self.failed = self.failed, None
        if failed is not None:
            raise failed

    def _run(self, read: Callable[[], object]) -> None:
        try:
            read()
        except BaseException as error:  # the next caller gets the error
            self.failed = error
        finally:
            self.busy = False
