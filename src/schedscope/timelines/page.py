"""A timeline as a piece of HTML that needs no network and no Python."""

from __future__ import annotations

import base64
import gzip
import html
import json
from collections.abc import Collection, Container
from typing import TYPE_CHECKING, Any

import polars as pl

from schedscope.analysis.asking.arguments import check_trace
from schedscope.analysis.threads.of_threads import chosen_threads
from schedscope.errors import UsageError
from schedscope.store import overview
from schedscope.timelines.answer import Answer, Timeline
from schedscope.timelines.places import listed
from schedscope.timelines.quality import quality
from schedscope.timelines.requests import has_calls, marks
from schedscope.timelines.script import script
from schedscope.timelines.threads import MOST, as_rows, thread_list
from schedscope.units import printable

if TYPE_CHECKING:
    from schedscope.store.trace import Trace

_ROUGH = 3
"""No interval takes fewer bytes than this when packed: it is not worth trying."""
_FINE = 2_000
"""Stretches that the time around one wait is cut into, where its intervals do not fit."""
_CHOSEN = 16
"""Lanes of threads that were asked for."""
_CHUNK = 40
"""Lanes of other threads that are tried at once."""


def timeline_html(
    trace: Trace,
    *,
    since: str | float | None = None,
    until: str | float | None = None,
    show: tuple[str | float, str | float] | None = None,
    max_bytes: int = 2_000_000,
    found: pl.DataFrame | None = None,
    where: pl.Expr | None = None,
    cpus: Collection[int] = (),
) -> str:
    """The timeline of a trace as a self-contained fragment of HTML, with its data.

    It holds every interval if all of them fit into `max_bytes`; otherwise the exact shares of time
    in a few thousand stretches, and every interval around the worst waits. The picture says at
    which scale its detail ends, and how to get a page with more.

    `since` and `until` cut the trace first (`Trace.between`). `show`, two such times, is the
    stretch that is shown first, by default everything; where not all intervals fit, this stretch is
    the first to get them. `found` are the findings to step through, by default those of what is
    shown.

    `where` selects threads by columns of `threads`. The page then begins with the CPUs and with
    those of these threads that waited longest, at most 16. It steps through their longest waits and
    through the findings that affect them; all other threads can be searched. With `cpus` it begins
    with these CPUs only, and steps through the longest waits for them.

    Raises `UsageError` if not even a coarse picture fits, or for times outside the trace.
    """
    check_trace(trace, "timeline_html")
    if since is not None or until is not None:
        trace = trace.between(since, until)
    chosen = None if where is None else chosen_threads(trace, where).to_list()
    known = overview.of(trace)
    if chosen is None:
        source = Timeline(trace, overview=known, cpus=cpus)
    else:
        source = Timeline(trace, overview=known, threads=_CHOSEN, chosen=chosen, cpus=cpus)
    code = script()
    begin = trace.window[0]
    first = None
    if show is not None:
        first = trace.instant(show[0]) - begin, trace.instant(show[1]) - begin
    about = {**source.about(), "findings": listed(trace, found, chosen), "quality": quality(trace)}
    if has_calls(trace) and known is None:
        about["marks"] = marks(trace)
    about["grain"] = None  # All that the page will ever show is in it.
    if first is not None:
        about["show"] = list(first)
    data = _data(source, about, max_bytes - len(code.encode()) - 1000)
    if data is None:
        raise UsageError(
            f"a timeline of {len(source.first)} lanes takes more than {max_bytes:,} bytes",
            f"room for a coarse picture beside the script, which takes {len(code.encode()):,}",
            "use a larger max_bytes",
        )
    # "<" could end the element: a thread chooses its own name.
    text = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
    name = html.escape(printable(trace.name))
    return (
        f'<div class="schedscope-timeline" aria-label="timeline of {name}">'
        "<noscript>This timeline is drawn by a script, but scripts are disabled here."
        "</noscript>"
        f'<script type="application/json">{text}</script></div>\n'
        f'<script type="module">\n{code}\nmountAll(document);\n</script>\n'
    )


def _data(source: Timeline, about: dict[str, Any], room: int) -> dict[str, Any] | None:
    """What the page holds; None if not even a coarse picture fits into `room`."""
    duration = max(1, source.lanes.duration)
    trace = source.lanes.trace
    shown = [int(key[5:]) for key in source.first if key.startswith("utid:")]
    known = thread_list(trace, chosen=source.chosen, most=MOST, also=shown)
    threads = as_rows(known)
    there = trace.threads.filter(pl.col("utid") >= trace.ncpu).select(pl.len()).collect().item()
    # Names to search in: as many as take a tenth of the page, those that waited most.
    length = len(json.dumps(threads["rows"], separators=(",", ":")).encode())
    many = len(threads["rows"])
    kept = many if length < room // 10 else room // 10 * many // length
    rows = threads["rows"][:kept]
    # Include the threads shown, for their names.
    searched = {row["utid"] for row in rows}
    rows += as_rows(known, utids=[utid for utid in shown if utid not in searched])["rows"]
    about["threads"] = {"rows": rows, "more": there - len(rows)}
    if source.lanes.overview is None:
        intervals = sum(len(lane.starts) for lane in source.lanes.get(source.first))
    elif (intervals := source.lanes.count(source.first)) * _ROUGH < room:
        source.lanes.overview = None  # There is room for all of them.
    if intervals * _ROUGH < room:
        whole = {"lanes": source.first, "first": 0, "bins": 1, "scale": duration}
        parts = [*_of_groups(source), source.answer({**whole, "intervals": intervals})]
        data = _embed(about, parts, None)
        if _length(data) <= room:
            return _with_threads(source, about, whole, intervals, room)
    if source.lanes.overview is not None:
        source.lanes.hold(source.first)
    for most in (4096, 2048, 1024, 512, 256):
        bins, scale = most, -(-duration // most)
        if source.lanes.overview is not None:
            # What the overview has sums of: the CPUs' rows are too many to be held.
            grain = source.lanes.overview.width
            scale = -(-scale // grain) * grain
            bins = -(-duration // scale)
        base = {"lanes": source.first, "first": 0, "bins": bins, "scale": scale, "intervals": -1}
        parts = [*_of_groups(source), source.answer({**base, "now": True})]
        # Half of the page is for the worst waits, unless that leaves too coarse a picture.
        if _length(_embed(about, parts, scale)) <= (room // 2 if most > 256 else room):
            return _with_details(source, about, parts, scale, room)
    return None


def _of_groups(source: Timeline) -> list[Answer]:
    """The lanes of groups of CPUs, where there are any."""
    if not source.groups:
        return []
    return [source.answer({"lanes": source.groups, "first": 0, "bins": 1, "scale": 1})]


def _with_threads(
    source: Timeline, about: dict[str, Any], whole: dict[str, Any], rows: int, room: int
) -> dict[str, Any]:
    """Every interval of the lanes shown first, and of as many other threads as fit."""
    parts = [*_of_groups(source), source.answer({**whole, "intervals": rows})]
    left = room - _length(_embed(about, parts, None))
    others = [f"utid:{row['utid']}" for row in about["threads"]["rows"]]
    others = [key for key in others if key not in source.first]
    for start in range(0, len(others), _CHUNK):
        keys = others[start : start + _CHUNK]
        rows = sum(len(lane.starts) for lane in source.lanes.get(keys))
        if rows * 2 > left:
            break
        part = source.answer({**whole, "lanes": keys, "intervals": rows})
        size = _length(_embed({}, [part], None, level=1))
        if size > left:
            break
        parts, left = [*parts, part], left - size
    return _embed(about, parts, None)


def _with_details(
    source: Timeline, about: dict[str, Any], parts: list[Answer], scale: int, room: int
) -> dict[str, Any]:
    """Finer, and as far as possible every interval, around as many worst waits as fit."""
    left = room - _length(_embed(about, parts, scale))
    windows, named = [], _names(parts)
    if "show" in about:
        begin, end = about["show"]
        windows.append((begin, end - begin, source.first))
    for wait in source.waits:
        margin = max(wait["wait"], 20_000)
        begin = max(0, wait["ready"] - margin)
        # First the waiting thread and the CPU that it waited for.
        lanes = [f"utid:{wait['utid']}"]
        if wait["queue"] is not None:
            lanes.append(f"cpu:{wait['queue']}")
        windows.append((begin, wait["ready"] + wait["wait"] + margin - begin, lanes))
    for begin, length, lanes in windows:
        if left < 10_000:
            break
        fine = -(-length // _FINE)
        bins = -(-length // fine) + 1
        window = {"first": begin // fine, "bins": bins, "scale": fine, "now": True}
        others = [lane for lane in source.first if lane not in lanes]
        for most in (20_000, 2_000):
            more = [
                source.answer({"lanes": lanes, **window, "intervals": most}),
                source.answer({"lanes": others, **window, "intervals": most // 2}),
            ]
            # Pack each wait separately: packing everything again for every wait would take minutes.
            size = _length(_embed({}, more, None, level=1, known=named))
            if size <= left:
                parts, left = [*parts, *more], left - size
                named |= _names(more)
                break
    return _embed(about, parts, scale)


def _names(parts: list[Answer]) -> dict[str, str]:
    return {utid: name for answer, _ in parts for utid, name in answer["names"].items()}


def _embed(
    about: dict[str, Any],
    parts: list[Answer],
    finest: int | None,
    level: int = 6,
    known: Container[str] = (),
) -> dict[str, Any]:
    """Answers with all their buffers in one: gzip finds more in it.

    A thread's name is written once, and not if it is `known` from other parts.
    """
    names = {utid: name for utid, name in _names(parts).items() if utid not in known}
    answers: list[dict[str, Any]] = []
    blob: list[bytes] = []
    sizes: list[int] = []
    for answer, buffers in parts:
        answers.append({**answer, "names": {}, "buffer": len(sizes)})
        for data in buffers:
            sizes.append(len(data))
            blob.append(data)
    packed = gzip.compress(b"".join(blob), compresslevel=level, mtime=0)
    return {
        "about": {**about, "names": {**about.get("names", {}), **names}, "finest": finest},
        "answers": answers,
        "sizes": sizes,
        "data": base64.b64encode(packed).decode(),
    }


def _length(data: dict[str, Any]) -> int:
    return len(json.dumps(data, separators=(",", ":")))
