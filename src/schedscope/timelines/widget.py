"""A timeline in a notebook: one canvas that asks Python for what it shows."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from schedscope.extras import missing
from schedscope.timelines.script import script

if TYPE_CHECKING:
    import polars as pl

    from schedscope.store.trace import Trace


def timeline(
    trace: Trace,
    *,
    since: str | float | None = None,
    until: str | float | None = None,
    lanes: Sequence[str] | None = None,
    where: pl.Expr | None = None,
) -> Any:
    """A widget that shows which threads ran and waited, for a notebook's output cell.

    There is one lane per CPU, and one for each thread of the worst waits; `lanes` asks for others:
    `cpu:N`, `tid:N`, `utid:N`, `comm:NAME`. `where` selects threads by columns of `threads`: the
    lanes in addition to the CPUs, the longest waits and the findings are then those of these
    threads; all others can be searched. `since` and `until` cut the trace first (`Trace.between`).
    A pixel shows the exact share of its time that was spent in each state; where there is room, the
    intervals themselves. The browser holds only what it shows, so traces of any length work.

    docs/view.md describes how to search, select and ask; `?` lists the keys. Raises
    `MissingExtraError` without the package anywidget, `UsageError` for lanes the trace does not
    have and for times outside it.
    """
    from schedscope.analysis.asking.arguments import check_trace
    from schedscope.analysis.threads.of_threads import chosen_threads
    from schedscope.timelines.questions import Questions

    part = check_trace(trace, "timeline")
    if since is not None or until is not None:
        part = trace.between(since, until)
    chosen = None if where is None else chosen_threads(part, where).to_list()
    return _widget_class()(Questions(part, lanes, whole=trace, chosen=chosen))


def findings_widget(trace: Trace, cards: str) -> Any:
    """Cards whose buttons open, below them, the timeline of the trace at the place of each."""
    return _widget_class()(trace, cards)


@cache
def _widget_class() -> Any:
    # The class can only be defined where its base is installed.
    try:
        import anywidget
        import traitlets
    except ImportError as error:
        raise missing("anywidget") from error

    class TimelineWidget(anywidget.AnyWidget):
        _esm = script()
        about = traitlets.Dict().tag(sync=True)
        cards = traitlets.Unicode().tag(sync=True)

        def __init__(self, source: Any, cards: str = "") -> None:
            # With cards a timeline may never be needed: it is made on demand.
            super().__init__(about={} if cards else source.about(), cards=cards)
            self._source = source
            self.on_msg(self._reply)

        def _reply(self, _widget: Any, content: Any, _buffers: Any) -> None:
            if self.cards and isinstance(content, dict) and content.get("kind") == "about":
                from schedscope.timelines.questions import Questions

                self._source = Questions(self._source)
                self.send({"kind": "about", "id": content.get("id"), **self._source.about()}, [])
                return
            answer, buffers = self._source.reply(content)
            self.send(answer, buffers)

    return TimelineWidget
