"""The folder of a fleet: a summary for each trace, found again as long as its trace is the same.

    fleet/summaries/NAME.json     one summary, with the identity of its trace
    fleet/fleet.parquet           the table, a row per trace
    fleet/index.html              the page

A file is written under a partial name and renamed, so that it is there whole or not at all. While
traces are summarised there is also `.scratch-...`, with what is fetched and converted; it is
removed at the end, and by the next run if this one was killed.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from schedscope import outputs
from schedscope.errors import StorageError
from schedscope.fleets.sources import is_url, stored_identity
from schedscope.fleets.summary import FORMAT
from schedscope.parsers.files import read_small
from schedscope.store import cache

TABLE = "fleet.parquet"
PAGE = "index.html"
_SUMMARIES = "summaries"
_FULL = (errno.ENOSPC, errno.EDQUOT)


def is_full(error: BaseException | None) -> bool:
    """Does this error, or what it was raised from, say that the disk is full?"""
    while error is not None:
        if isinstance(error, OSError) and error.errno in _FULL:
            return True
        # The engine's own errors have the system's words.
        if isinstance(error, StorageError) and any(os.strerror(n) in str(error) for n in _FULL):
            return True
        error = error.__cause__ or error.__context__
    return False


def full(sentence: str) -> StorageError:
    """The error of a run that ends because a worker's disk is full."""
    first = sentence.partition(". Hint:")[0]
    return StorageError(first, hint="free some space, then run it again: what is finished is kept")


def write_whole(target: Path, fill: Callable[[Path], object], traces: Iterable[str]) -> None:
    """Write a file about these traces, all of it or nothing."""
    try:
        with outputs.whole(target, [Path(trace) for trace in traces]) as made:
            fill(made)
    except OSError as error:
        hint = "free some space, then run it again: what is finished is kept"
        raise StorageError(
            f"cannot write {target}: {error.strerror or error}",
            hint=hint if is_full(error) else "",
        ) from error


class Folder:
    """The folder that `-o` names."""

    def __init__(
        self, path: Path, options: Mapping[str, str], select: Mapping[str, Any] | None = None
    ) -> None:
        """Make it if it is not there.

        Summaries depend on the `options` of decoders; those of a selection are beside the others.
        """
        self.path = path
        self._version = {"format": FORMAT, **cache.version(options)}
        self._of = json.dumps(select, sort_keys=True) if select else ""
        outputs.refuse_led(path)
        try:
            (path / _SUMMARIES).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StorageError(f"cannot write {path}: {error.strerror}") from error

    def kept(self, trace: str) -> dict[str, Any] | None:
        """The summary of a trace from an earlier run; None if it, or what made it, has changed."""
        try:
            document = json.loads(read_small(self._place(trace)))
            known = document["identity"]
            if document["version"] != self._version or known["path"] != _absolute(trace):
                return None
            same = (
                known["stored"] is not None and known["stored"] == stored_identity(trace)
                if is_url(trace)
                else cache.unchanged(Path(trace), known)
            )
            summary: dict[str, Any] = document["summary"]
        except (OSError, ValueError, KeyError, TypeError, StorageError):
            return None
        return summary if same else None

    def keep(self, trace: str, identity: Mapping[str, Any], summary: Mapping[str, Any]) -> None:
        """Write the summary of a trace with the `identity` that the trace had."""
        document = {
            "identity": {"path": _absolute(trace), **identity},
            "version": self._version,
            "summary": summary,
        }
        text = json.dumps(document, ensure_ascii=False)
        fill = partial(Path.write_text, data=text, encoding="utf-8")
        write_whole(self._place(trace), fill, [trace])

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """A folder for what is needed while traces are summarised; gone afterwards."""
        self._remove_abandoned()
        place = self.path / f".scratch-{secrets.token_hex(4)}"
        try:
            place.mkdir(0o700)
            descriptor = os.open(place, os.O_RDONLY)
        except OSError as error:
            raise StorageError(f"cannot write {self.path}: {error.strerror}") from error
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        try:
            yield place
        finally:
            shutil.rmtree(place, ignore_errors=True)
            os.close(descriptor)

    def _remove_abandoned(self) -> None:
        """Left by a killed run: a scratch folder whose lock is free."""
        for place in self.path.glob(".scratch-*"):
            try:
                descriptor = os.open(place, os.O_RDONLY | os.O_NOFOLLOW)
            except OSError:
                continue
            with suppress(OSError):
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(place, ignore_errors=True)
            os.close(descriptor)

    def _place(self, trace: str) -> Path:
        named = os.fsencode(_absolute(trace)) + (b"\0" + self._of.encode() if self._of else b"")
        digest = hashlib.sha256(named).hexdigest()
        return self.path / _SUMMARIES / f"{digest[:24]}.json"


def _absolute(trace: str) -> str:
    return trace if is_url(trace) else os.path.abspath(trace)
