"""A timeline in a notebook: one canvas that asks Python for what it shows."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from schedscope.errors import SchedscopeError
from schedscope.extras import missing

if TYPE_CHECKING:
    from schedscope.trace import Trace

SCRIPT = Path(__file__).with_name("timeline.js")


def timeline(
    trace: Trace,
    *,
    since: str | float | None = None,
    until: str | float | None = None,
    lanes: Sequence[str] | None = None,
) -> Any:
    """A widget that shows which threads ran and waited, for a notebook's output cell.

    One lane per CPU, and one for each thread of the worst waits; or `lanes`: `cpu:N`, `tid:N`,
    `utid:N`, `comm:NAME`. `since` and `until` cut the trace first (`Trace.between`). A pixel shows
    the exact share of its time that was spent in each state; where there is room, the intervals
    themselves. The browser holds only what it shows, so traces of any length work.

    Wheel zooms, dragging and the arrow keys pan, `n` and `p` go to the next and
    the previous of the worst waits. Raises `MissingExtraError` without the package
    anywidget, `UsageError` for lanes the trace does not have and for times outside it.
    """
    from schedscope.timelines.answer import Timeline

    if since is not None or until is not None:
        trace = trace.between(since, until)
    return _widget_class()(Timeline(trace, lanes))


@cache
def _widget_class() -> Any:
    # The class can only be made where its base is installed.
    try:
        import anywidget
        import traitlets
    except ImportError as error:
        raise missing("anywidget") from error

    class TimelineWidget(anywidget.AnyWidget):
        _esm = SCRIPT
        about = traitlets.Dict().tag(sync=True)

        def __init__(self, source: Any) -> None:
            super().__init__(about=source.about())
            self._source = source
            self.on_msg(self._reply)

        def _reply(self, _widget: Any, content: Any, _buffers: Any) -> None:
            try:
                answer, buffers = self._source.answer(content)
            except SchedscopeError as error:
                # The picture says it: nobody reads a kernel's log.
                self.send({"kind": "error", "id": content.get("id"), "text": str(error)})
            else:
                self.send(answer, buffers)

    return TimelineWidget
