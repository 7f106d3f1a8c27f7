"""Every question of an open timeline, for both the notebook kernel and the server."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from threading import Event, RLock
from typing import TYPE_CHECKING, Any

import polars as pl

from schedscope.errors import SchedscopeError, UsageError
from schedscope.store import overview, overview_writer
from schedscope.timelines.answer import Answer, Timeline
from schedscope.timelines.levels import Levels
from schedscope.timelines.notes import Notes
from schedscope.timelines.requests import has_calls, marks

if TYPE_CHECKING:
    from schedscope.store.trace import Trace

KINDS = (
    *("lanes", "threads", "slice", "path", "chain", "range", "sql", "schema", "notes", "findings"),
    *("quality", "requests", "marks"),
)
"""What can be asked; a page that carries its data knows fewer (timelines/sources.js)."""


_THREADS = 12
"""Lanes of threads at first: as many as fit a window beside those of a few CPUs."""


MOST_HELD = 20_000_000
"""Intervals of a trace without an overview that are held, about 60 bytes each."""


def opened(
    whole: Trace,
    since: str | None,
    until: str | None,
    chosen: Collection[int] | None = None,
    cpus: Collection[int] = (),
) -> tuple[Questions, str]:
    """The questions about a trace, or a part of it, and what the address says of the view.

    `chosen`, by `utid`, and `cpus` are those that it begins with. A part that is itself long has no
    overview: instead the whole trace is shown, at that stretch.
    Raises `UsageError` for more intervals than can be held.
    """
    known = overview.of(whole)
    if since is None and until is None:
        if known is None and _rows(whole) > MOST_HELD:
            raise UsageError(
                f"{_rows(whole):,} intervals in tables that schedscope did not write",
                f"at most {MOST_HELD:,}",
                "convert the recording with this version, or select a part with --since, --until",
            )
        return Questions(whole, chosen=chosen, cpus=cpus), ""
    part = whole.between(since, until)
    begin, end = (ts - whole.window[0] for ts in part.window)
    if known is not None and known.rows_within(begin, end) > overview_writer.LEAST:
        at = "-".join(str(ts - whole.origin) for ts in part.window)
        return Questions(whole, chosen=chosen, cpus=cpus), f"view={at}"
    if known is None and _rows(part) > MOST_HELD:
        raise UsageError(
            f"{_rows(part):,} intervals in the part",
            f"at most {MOST_HELD:,}",
            "select a shorter part with --since and --until",
        )
    return Questions(part, whole=whole, chosen=chosen, cpus=cpus), ""


def _rows(trace: Trace) -> int:
    return int(trace.states.select(pl.len()).collect(engine="streaming").item())


class Questions:
    """Answers by `kind` of the request, whichever thread asks.

    Pictures do not wait for the slower answers, nor do those for the slowest, the checks and the
    findings, which rest on them: each has a lock of its own.
    """

    def __init__(
        self,
        trace: Trace,
        lanes: Sequence[str] | None = None,
        whole: Trace | None = None,
        chosen: Collection[int] | None = None,
        cpus: Collection[int] = (),
    ) -> None:
        """About `trace`; notes are kept with `whole`, of which it may be a part.

        `chosen` and `cpus` as in `Timeline`: its first lanes and longest waits; of `chosen` also
        the findings, and they stand first among the threads.
        """
        known = overview.of(trace)
        # In a long trace each lane's rows are read from the whole table, and held.
        threads = _THREADS if known is None else _THREADS // 3
        self.timeline = Timeline(
            trace, lanes, overview=known, threads=threads, chosen=chosen, cpus=cpus
        )
        self.notes = Notes(whole or trace)
        self._listed: pl.DataFrame | None = None
        self._turns: dict[str, int] = {}
        self._pictures, self._others, self._finds = RLock(), RLock(), RLock()

    def about(self) -> dict[str, Any]:
        """What the picture knows before any request."""
        return {
            **self.timeline.about(),
            "can": [kind for kind in KINDS if self._can(kind)],
            "notes": self.notes.rows,
            "more": self.timeline.levels.offered(),
        }

    def reply(self, request: Any, stop: Event | None = None) -> Answer:
        """The answer and its buffers; a refusal is an answer, too, of kind `error`.

        When `stop` is set, the answer is no longer wanted and a query ends.
        """
        try:
            if not isinstance(request, Mapping):
                raise UsageError("this request", "an object")
            return self._answer(request, stop)
        except SchedscopeError as error:
            number = request.get("id") if isinstance(request, Mapping) else None
            return {"kind": "error", "id": number, "text": str(error)}, []

    def _answer(self, request: Mapping[str, Any], stop: Event | None) -> Answer:
        kind = request.get("kind", "lanes")
        if kind == "lanes":
            with self._pictures:
                return self.timeline.answer(request)
        if kind not in KINDS:
            raise UsageError(f"a question about {kind!r:.40}", "one of " + ", ".join(KINDS))
        if kind == "sql":  # in a process of its own, for which others do not wait
            from schedscope.timelines.sql import query

            rows = query(self.timeline.lanes.trace, request.get("text"), stop)
            return {"kind": "answer", "id": request.get("id"), "tables": [rows]}, []
        with self._finds if kind in ("findings", "quality") else self._others:
            found = getattr(self, f"_{kind}")(request)
        return {"kind": "answer", "id": request.get("id"), **found}, []

    def _threads(self, request: Mapping[str, Any]) -> dict[str, Any]:
        from schedscope.timelines.threads import as_rows, thread_list

        if self._listed is None:
            lanes = self.timeline.lanes
            known = None if lanes.overview is None else lanes.overview.thread_totals()
            self._listed = thread_list(lanes.trace, known, self.timeline.chosen)
        return as_rows(self._listed, request.get("text", ""), request.get("utids"))

    def _slice(self, request: Mapping[str, Any]) -> dict[str, Any]:
        from schedscope.timelines.slice import slice_at

        lane, at = str(request.get("lane")), _at(request, "at")
        if Levels.names(lane):
            return self.timeline.levels.at(lane, at)
        return slice_at(self.timeline.lanes, lane, at)

    def _path(self, request: Mapping[str, Any]) -> dict[str, Any]:
        from schedscope.timelines.slice import path_to

        utid, begin, end = (_at(request, name) for name in ("utid", "begin", "end"))
        return {"tables": [path_to(self.timeline.lanes, utid, begin, end)]}

    def _chain(self, request: Mapping[str, Any]) -> dict[str, Any]:
        from schedscope.timelines.slice import chain_from

        utid, begin, end = (_at(request, name) for name in ("utid", "begin", "end"))
        return {"tables": [chain_from(self.timeline.lanes, utid, begin, end)]}

    def _range(self, request: Mapping[str, Any]) -> dict[str, Any]:
        from schedscope.timelines.stretch import stretch

        return stretch(self.timeline.lanes, _at(request, "begin"), _at(request, "end"))

    def _schema(self, _request: Mapping[str, Any]) -> dict[str, Any]:
        from schedscope.timelines.sql import schema

        return {"schema": schema()}

    def _findings(self, _request: Mapping[str, Any]) -> dict[str, Any]:
        from schedscope.timelines.places import listed

        return {"rows": listed(self.timeline.lanes.trace, chosen=self.timeline.chosen)}

    def _quality(self, request: Mapping[str, Any]) -> dict[str, Any]:
        from schedscope.timelines.quality import quality

        return quality(self.timeline.lanes.trace, brief=request.get("brief") is True)

    def _can(self, kind: str) -> bool:
        if kind not in ("requests", "marks"):
            return True
        # The marks on the axis are unrequested: a long trace is not read for them.
        lanes = self.timeline.lanes
        return has_calls(lanes.trace) and (kind == "requests" or lanes.overview is None)

    def _marks(self, _request: Mapping[str, Any]) -> dict[str, Any]:
        return {"rows": marks(self.timeline.lanes.trace)}

    def _requests(self, request: Mapping[str, Any]) -> dict[str, Any]:
        from schedscope.timelines.requests import listed

        trace = self.timeline.lanes.trace
        return listed(trace, request.get("process"), request.get("reply", "same"))

    def _notes(self, request: Mapping[str, Any]) -> dict[str, Any]:
        page, turn = request.get("from"), request.get("turn")
        if isinstance(page, str) and type(turn) is int:
            # Requests overtake each other on their way here.
            if turn <= self._turns.get(page, 0):
                return {"rows": self.notes.rows}
            self._turns[page] = turn
        self.notes.keep(request.get("rows"))
        return {"rows": self.notes.rows}


def _at(request: Mapping[str, Any], name: str) -> int:
    value = request.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) >= 1 << 53:
        raise UsageError(f"{name}={value!r:.40}", "a whole number")
    return value
