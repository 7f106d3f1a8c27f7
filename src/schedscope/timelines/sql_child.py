"""The process in which a query runs, within its limits; `sql` starts it and reads its answer.

The request is one JSON document on the standard input. The answer is one letter, then either the
rows as an Arrow file ("F"), or the parts of the error as JSON ("E").
"""

from __future__ import annotations

import fcntl
import io
import json
import os
import resource
import select
import sys
from pathlib import Path
from typing import Any


def main() -> None:
    """Answer one request."""
    _end_with(int(sys.argv[1]))
    asked = json.loads(sys.stdin.buffer.read())
    # After loading, so that what the libraries take is not counted.
    import polars as pl

    from schedscope.errors import SchedscopeError, UsageError

    # Polars starts its threads with the first query. Under the limit one of them may get no memory
    # and end, and the others would wait for it without end.
    pl.LazyFrame({"started": [True]}).collect(engine="streaming")
    _limit(*asked["limits"])
    try:
        found = b"F" + _rows(asked)
        if len(found) > asked["limits"][2]:
            raise UsageError("a result of more than 64 MB", "fewer or shorter values")
    except SchedscopeError as error:
        found = b"E" + json.dumps([error.found, error.expected, error.hint]).encode()
    except pl.exceptions.PolarsError as error:
        # What follows is Polars' plan, with the names of files.
        message = " ".join(str(error).partition("Resolved plan")[0].split())[:300]
        said = [f"SQL: {message}", "a query that Polars' SQL knows"]
        found = b"E" + json.dumps(said).encode()
    sys.stdout.buffer.write(found)
    sys.stdout.buffer.flush()
    os._exit(0)


def _end_with(lifeline: int) -> None:
    """The kernel ends this process when the other end of the pipe closes, even while Polars
    computes, which holds Python's lock."""
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)
    if select.select([lifeline], [], [], 0)[0]:
        os._exit(1)


def _limit(seconds: int, memory: int, _result: int) -> None:
    # CPU time of all threads together; the parent limits the wall time.
    cpu = seconds * (os.cpu_count() or 1)
    resource.setrlimit(resource.RLIMIT_CPU, (cpu, cpu))
    # Polars' error output is kept in a file for a moment; nothing else is written.
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # On Linux it is of what is allocated, and not of files that are mapped.
    resource.setrlimit(resource.RLIMIT_DATA, (_allocated() + memory,) * 2)


def _allocated() -> int:
    try:
        text = Path("/proc/self/status").read_text()
        return int(text.partition("VmData:")[2].split()[0]) << 10
    except (OSError, ValueError, IndexError):
        return 0


def _rows(asked: dict[str, Any]) -> bytes:
    import polars as pl

    from schedscope.parsers.files import scan_parquet
    from schedscope.store.trace import Trace
    from schedscope.timelines.sql import MOST, _only_ours

    folder = Path(asked["folder"])
    written = {name: scan_parquet(folder / f"{name}.parquet") for name in asked["written"]}
    trace = Trace(asked["info"], written, Path(asked["path"]) if asked["path"] else None)
    part = trace.between(*asked["part"]) if asked["part"] else trace
    with pl.SQLContext({name: part.table(name) for name in asked["used"]}) as context:
        lazy = context.execute(asked["text"])
        _only_ours(lazy, trace, asked["folder"])
        frame = lazy.head(MOST + 1).collect(engine="streaming")
    out = io.BytesIO()
    frame.write_ipc(out)
    return out.getvalue()


if __name__ == "__main__":
    main()
