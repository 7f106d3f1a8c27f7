"""Notes that people write into a timeline, kept in a file beside the converted trace."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from schedscope.errors import StorageError, UsageError
from schedscope.outputs import whole
from schedscope.parsers.files import read_small

if TYPE_CHECKING:
    from schedscope.store.trace import Trace

MOST, LONGEST = 1_000, 2_000


class Notes:
    """A list of notes: `at`, ns after the start of the recording, `lane` or none, and `text`.

    In memory only, where the trace has no folder.
    """

    def __init__(self, trace: Trace) -> None:
        """Take what was kept for this trace."""
        self.path: Path | None = None
        self._sources = trace.sources
        if trace.path is not None:
            self.path = trace.path.with_name(trace.path.name.removesuffix(".sched") + ".notes.json")
        self.rows: list[dict[str, Any]] = []
        if self.path is not None and self.path.is_file():
            try:
                self.rows = _checked(json.loads(read_small(self.path)))
            except (OSError, ValueError, RecursionError) as error:
                raise StorageError(
                    f"{self.path} holds no notes", "the notes of a timeline", "move it away"
                ) from error

    def keep(self, rows: Any) -> None:
        """These notes from now on, all or nothing.

        Raises `UsageError` for what are no notes, `StorageError` if they cannot be written.
        """
        found = _checked(rows)
        if self.path is not None:
            try:
                with whole(self.path, self._sources) as made:
                    made.write_text(json.dumps(found, ensure_ascii=False, indent=1), "utf-8")
            except OSError as error:
                raise StorageError(f"cannot keep notes in {self.path}: {error.strerror}") from error
        self.rows = found


def _checked(rows: Any) -> list[dict[str, Any]]:
    if not isinstance(rows, list) or len(rows) > MOST:
        raise UsageError("these notes", f"a list of at most {MOST} notes")
    found = []
    for row in rows:
        at, lane, text = (
            (row.get(key) for key in ("at", "lane", "text"))
            if isinstance(row, dict)
            else (None, None, None)
        )
        if type(at) is not int or not isinstance(text, str) or len(text) > LONGEST:
            raise UsageError("a note", f"an instant, and a text of at most {LONGEST} characters")
        if lane is not None and not (isinstance(lane, str) and len(lane) < 40):
            raise UsageError("a note", "the name of a lane")
        try:
            f"{text}{lane}".encode()
        except UnicodeEncodeError:
            raise UsageError("a note", "text that can be written as UTF-8") from None
        found.append({"at": at, "lane": lane, "text": text})
    return found
