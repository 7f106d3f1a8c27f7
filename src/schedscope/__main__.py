"""`schedscope` and `python -m schedscope`."""

from __future__ import annotations

# The module behind `signal`, which would load others first.
import _signal  # type: ignore[import-not-found]

# Ctrl-C while the program is still loading ends it silently.
_HANDLER = _signal.signal(_signal.SIGINT, _signal.SIG_DFL)

import atexit  # noqa: E402 - see above
import os  # noqa: E402
import signal  # noqa: E402
import sys  # noqa: E402

from schedscope.cli import main as _main  # noqa: E402


def main() -> int:
    """Run one command; returns the exit code of the process."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, _HANDLER)
    try:
        code = _main()
    except KeyboardInterrupt:  # a second time, during exit
        code = 128 + signal.SIGINT
    # Only the exit remains. One Ctrl-C may be reported twice: by Polars and by Python.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _end(code)
    return code


def _end(code: int) -> None:
    """End the process, unless threads still run or output is left that cannot be written.

    Python would take Polars' modules apart first, object by object: an eighth of the time of a
    short command, for memory that the system takes back at once.
    """
    threads = sys.modules.get("threading")
    if threads is not None and threads.active_count() > 1:
        return
    try:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
    except (OSError, ValueError):
        return  # Python says so
    atexit._run_exitfuncs()
    os._exit(code)


if __name__ == "__main__":
    sys.exit(main())
