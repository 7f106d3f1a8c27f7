"""Says that nothing has come for a while, so that a busy host does not look like a dead program."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Silence:
    """Tracks the time of the last output; every output calls `broken`."""

    def __init__(self) -> None:
        """Counts from now."""
        self.lock = threading.Lock()
        self._last = self._told = time.monotonic()
        self.answered = False

    def broken(self) -> None:
        """Something was printed."""
        self.answered = True
        self._last = self._told = time.monotonic()

    def after(self, seconds: float) -> float | None:
        """How long nothing was printed, if that is at least `seconds`, also since the last non-null
        result.
        """
        now = time.monotonic()
        if now - self._told < seconds:
            return None
        self._told = now
        return now - self._last


@contextmanager
def told(seconds: float, say: Callable[[float, bool], None]) -> Iterator[Silence]:
    """In the block, `say` is called every so many seconds without an answer.

    It is given how long there was none, and whether there ever was one.
    """
    silence, ended = Silence(), threading.Event()

    def watch() -> None:
        while not ended.wait(seconds / 10):
            with silence.lock:
                length = silence.after(seconds)
                if length is not None and not ended.is_set():
                    say(length, silence.answered)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield silence
    finally:
        ended.set()
        watcher.join(1)
