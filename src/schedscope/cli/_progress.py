"""A progress line on stderr, only where a person watches."""

from __future__ import annotations

import sys
import time
from types import TracebackType

from schedscope import units


class Progress:
    """Callable `(done, total)`; draws at most ten times a second.

    A context manager: the line is wiped on every way out, so that results
    and errors start on an empty line.
    """

    def __init__(self, label: str) -> None:
        """`label` says what is being done, as in "reading x.dat"."""
        self._label = label
        self._start = time.monotonic()
        self._next = self._start + 0.3  # short work shows nothing
        self._drawn = False
        self._watched = sys.stderr is not None and sys.stderr.isatty()

    def __call__(self, done: int, total: int) -> None:
        """Note that `done` of `total` bytes are behind us."""
        now = time.monotonic()
        if not self._watched or now < self._next:
            return
        self._next = now + 0.1
        share = min(1.0, done / total) if total else 0.0
        bar = ("#" * round(24 * share)).ljust(24, ".")
        rate = units.size(done / (now - self._start))
        sys.stderr.write(f"\r\x1b[K{self._label} [{bar}] {100 * share:3.0f} %  {rate}/s")
        sys.stderr.flush()
        self._drawn = True

    def __enter__(self) -> Progress:
        """Start."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Wipe the line."""
        if self._drawn:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
