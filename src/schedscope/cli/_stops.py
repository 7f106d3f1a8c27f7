"""What ends a command from outside: Ctrl-C and the signals that ask a process to end."""

from __future__ import annotations

import signal
import sys
from types import FrameType
from typing import NoReturn

# Delay before a signal whose exception was lost is raised again, in seconds.
_AGAIN = 0.02


class _Asked(SystemExit):
    """A signal asked the process to end."""

    def __init__(self, number: int) -> None:
        super().__init__(128 + number)
        self.number = number


def heed_stops() -> None:
    """Make signals that ask a process to end raise an exception, until one has been noticed.

    As an exception, so that every `finally` runs: partial output is removed, recorders are stopped.
    Python delivers signals between any two instructions, also within callbacks of its garbage
    collection, where exceptions are not propagated: Python would print a traceback, and the command
    would go on. There the signal is raised once more.
    """
    for number in (signal.SIGTERM, signal.SIGHUP):
        try:
            signal.signal(number, _stop)
        except ValueError:  # not the main thread: the embedding program decides
            return
    if sys.unraisablehook is not _lost:
        global _before
        _before, sys.unraisablehook = sys.unraisablehook, _lost


_before = sys.unraisablehook


def _stop(number: int, _frame: FrameType | None) -> NoReturn:
    raise _Asked(number)


def _lost(told: sys.UnraisableHookArgs) -> None:
    if isinstance(told.exc_value, KeyboardInterrupt):
        number = int(signal.SIGINT)
    elif isinstance(told.exc_value, _Asked):
        number = told.exc_value.number
    else:
        _before(told)
        return
    from threading import Timer

    again = Timer(_AGAIN, signal.raise_signal, [number])
    again.daemon = True
    again.start()
