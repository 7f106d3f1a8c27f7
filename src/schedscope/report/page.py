"""Assemble the page: findings first, then one section for each question."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from html import escape

from schedscope import units
from schedscope.analysis.asking.memo import once
from schedscope.analysis.check.check import check, verdict
from schedscope.analysis.cpus.occupancy import reading_once
from schedscope.analysis.threads.of_threads import chosen_threads
from schedscope.present import headline
from schedscope.report import findings, machine, moving, waiting
from schedscope.report.document import document
from schedscope.report.focus import Focus
from schedscope.report.section import Section
from schedscope.report.subject import Subject
from schedscope.store.trace import Trace
from schedscope.timelines.page import timeline_html

SECTIONS: Sequence[Callable[[Subject], Section]] = (
    waiting.starved,
    waiting.who,
    waiting.why,
    waiting.when,
    machine.time,
    machine.cpus,
    machine.idle,
    moving.moved,
    moving.kept,
    moving.fair,
    machine.trust,
)
TIMELINE_BYTES = 800_000
"""Room for the timeline in the page, its script included."""
_WHOLE = 60_000
"""A trace with at most this many events is included whole; the timeline first shows a part."""


def page(subject: Subject, focus: Focus | None = None, more: Sequence[Section] = ()) -> str:
    """The whole HTML document about `subject`; with a timeline of the stretch in `focus`.

    `more`: sections that were asked for, ahead of the one about trust.
    """
    with reading_once(subject.trace):
        return _page(subject, focus, more)


def _page(subject: Subject, focus: Focus | None, more: Sequence[Section]) -> str:
    trace = subject.trace
    sections = [make(subject) for make in SECTIONS]
    sections[-1:-1] = more
    if focus is not None:
        sections.insert(0, _timeline(subject, focus))
    sections.insert(0, findings.short(subject))
    name = units.printable(trace.name)
    body = "".join(section.html(name) for section in sections)
    anchors = set(re.findall(r' id="([^"]+)"', body))
    first = findings.wrong(subject, anchors, _held(trace, focus) if focus else None)
    sections.insert(0, first)
    body = first.html(name) + body
    facts = " · ".join(escape(part) for part in headline.headline(trace)[0].split(" · ")[1:])
    if subject.where is not None:
        chosen = units.several(len(chosen_threads(trace, subject.where)), "selected thread")
        facts += (
            f"</p><p class=facts>About {chosen} (<code>{escape(subject.words)}</code>); whom they"
            " waited behind may be anyone. What concerns CPUs and the recording is about the whole"
            " machine."
        )
    trusted = escape(verdict(once(check, trace)).partition(". ")[0].rstrip(".") + ".")
    return document(
        name,
        "who waited for a CPU",
        f'<p class=facts>{facts}</p><p class=facts><a href="#trust">{trusted}</a></p>'
        f"{findings.tiles(subject)}",
        sections,
        body,
        f"Written by {escape(str(trace.info.get('generator') or 'schedscope'))}. Times are"
        " exact; quantiles are order statistics over the waits recorded from start to end."
        " Run the commands in the folder that holds the trace.",
    )


def _held(trace: Trace, focus: Focus) -> tuple[int, int]:
    """The stretch of time that the page's timeline holds."""
    return trace.window if trace.events <= _WHOLE else (focus.since, focus.until)


def _timeline(subject: Subject, focus: Focus) -> Section:
    trace = subject.trace
    start, end = (units.instant(ts, trace.origin) for ts in (focus.since, focus.until))
    shown = trace.seconds(focus.since), trace.seconds(focus.until)
    whole = _held(trace, focus) == trace.window
    body = timeline_html(
        trace,
        since=None if whole else shown[0],
        until=None if whole else shown[1],
        show=shown if whole else None,
        max_bytes=TIMELINE_BYTES,
        found=subject.findings,
        where=subject.where,
    )
    return Section(
        "timeline",
        "What did it look like?",
        f"{start} to {end}: {escape(focus.why)}. A pixel shows the exact share of its time in each"
        " state. Drag to pan, turn the wheel to zoom, point at something for details; the keys"
        " <kbd>n</kbd> and <kbd>p</kbd> step through the longest waits, <kbd>g</kbd> and"
        " <kbd>G</kbd> through the findings, <kbd>0</kbd> shows everything.",
        f"<div class=live>{body}</div>",
        subject.commands(
            f"timeline --since {_text(focus.since, trace)} --until {_text(focus.until, trace)}"
        ),
    )


def _text(ts: int, trace: Trace) -> str:
    return f"{(ts - trace.origin) / 1e9:.6f}s"
