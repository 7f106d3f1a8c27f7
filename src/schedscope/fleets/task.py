"""What a worker does with one trace: fetch it if it lies in a store, convert it, summarise it.

It answers with a plain dictionary, so that a bad trace is an answer and not a failed task; only a
worker that ended is tried again.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from schedscope.errors import InternalError, SchedscopeError, StorageError
from schedscope.extras import explained
from schedscope.fleets.sources import fetch, is_url, stored_identity
from schedscope.fleets.store import is_full
from schedscope.fleets.summary import summarise
from schedscope.store import cache
from schedscope.store.opening import open as open_trace
from schedscope.store.trace import Trace


def task(
    trace: str,
    scratch: str,
    keep: bool,
    options: Mapping[str, str],
    limit: int,
    select: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The `summary` and `identity` of a trace; or the `error`, a sentence, and whether `full`.

    `scratch`: a folder for what is fetched and converted meanwhile; with `keep` a local trace is
    converted beside itself instead, as other commands do. At most `limit` bytes are fetched.
    `select`: as in `summarise`.
    """
    # Named after the trace, so that the next attempt removes what a killed worker left.
    digest = hashlib.sha256(os.fsencode(trace)).hexdigest()[:16]
    place = Path(scratch) / digest
    try:
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        return _summarised(trace, place, keep, options, limit, select)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a Rust panic in Polars is not an Exception
        return {"error": _sentence(error), "full": is_full(error)}
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _summarised(
    trace: str,
    place: Path,
    keep: bool,
    options: Mapping[str, str],
    limit: int,
    select: Mapping[str, Any] | None,
) -> dict[str, Any]:
    if is_url(trace):
        stored = stored_identity(trace)
        opened = _open(fetch(trace, place / "fetched", limit), place, False, options)
        summary = summarise(opened, select)
        if stored_identity(trace) != stored:
            raise _changed(trace)
        return {"summary": summary, "identity": {"stored": stored}}
    source = Path(trace)
    if not source.exists():
        open_trace(source)  # raises
    known = cache.identity(source)
    summary = summarise(_open(source, place, keep, options), select)
    if not cache.unchanged(source, known):
        raise _changed(trace)
    return {"summary": summary, "identity": known}


def _open(source: Path, place: Path, keep: bool, options: Mapping[str, str]) -> Trace:
    """The trace, from a copy converted earlier if there is one."""
    if not keep and (copy := cache.served(source, options)):
        return Trace.read(copy)
    # One thread: there are as many workers as CPUs to use.
    return open_trace(source, cache=None if keep else place / "converted", options=options, jobs=1)


def _changed(trace: str) -> StorageError:
    return StorageError(
        f"{trace} changed while it was being read",
        "a finished recording",
        "wait until the recorder has ended, then try again",
    )


def _sentence(error: BaseException) -> str:
    known = explained(error)
    if isinstance(known, SchedscopeError):
        return str(known)
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror or error}"
    text = " ".join(str(error).split())[:300]
    if type(error).__name__ == "ComputeError" and text.startswith("parquet: "):
        return f"a table is damaged: {text[:200]}; expected whole Parquet files"
    return str(InternalError(f"{type(error).__name__}: {text}"))
