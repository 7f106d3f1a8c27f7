"""Runs commands read from stdin, one JSON list a line, and answers each with a JSON line.

It is a separate process because an uncaught failure may end it.
"""

from __future__ import annotations

import contextlib
import faulthandler
import io
import json
import resource
import sys


class _Text(io.TextIOWrapper):
    """Accepts what a real stream would, and no more."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8", newline="")

    def text(self) -> str:
        self.flush()
        buffer = self.buffer
        assert isinstance(buffer, io.BytesIO)
        return buffer.getvalue().decode("utf-8", "backslashreplace")


def main() -> None:
    from schedscope import cli

    limit = 6 << 30
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    answers = sys.stdout
    for line in sys.stdin:
        words = json.loads(line)
        faulthandler.dump_traceback_later(float(sys.argv[1]), exit=True)
        out, err = _Text(), _Text()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = cli.main(words)
        faulthandler.cancel_dump_traceback_later()
        # Not ru_maxrss, which starts at the parent's value at the fork.
        with open("/proc/self/status") as status:
            peak = next(int(x.split()[1]) for x in status if x.startswith("VmHWM"))
        print(
            json.dumps({"code": code, "out": out.text(), "err": err.text(), "peak_kb": peak}),
            file=answers,
            flush=True,
        )


if __name__ == "__main__":
    main()
