"""A progress line on stderr, only where a person watches."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import TracebackType

from schedscope import units


class Progress:
    """Callable `(done, total)`, in bytes; draws at most ten times a second.

    A context manager: the line is wiped however the block ends, so that results and errors start on
    an empty line.
    """

    def __init__(self, label: str) -> None:
        """`label` says what is being done, as in "reading x.dat"."""
        self._label = units.printable(label)
        self._start = time.monotonic()
        self._next = self._start + 0.3  # do not show short work
        self._drawn = False
        self._watched = sys.stderr is not None and sys.stderr.isatty()

    def __call__(self, done: int, total: int) -> None:
        """Reports that `done` of `total` bytes are processed."""
        rate = done / max(1e-9, time.monotonic() - self._start)
        self.note(done, total, lambda: f"{units.size(rate)}/s")

    def note(self, done: int, total: int, words: Callable[[], str]) -> None:
        """The same for other units: `words` describes the progress; no bar if `total` is 0."""
        now = time.monotonic()
        if not self._watched or now < self._next:
            return
        self._next = now + 0.1
        parts = [self._label]
        if total:
            share = min(1.0, done / total)
            bar = ("#" * round(24 * share)).ljust(24, ".")
            parts.append(f"[{bar}] {100 * share:3.0f} % ")
        self._drawn = True  # before drawing: Ctrl-C may come as soon as it is visible
        sys.stderr.write(f"\r\x1b[K{' '.join([*parts, words()])}")
        sys.stderr.flush()

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
