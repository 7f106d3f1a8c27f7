"""A timeline as a piece of HTML that needs nobody: no network, no Python."""

from __future__ import annotations

import base64
import gzip
import html
import json
from typing import TYPE_CHECKING, Any

from schedscope.errors import UsageError
from schedscope.timelines.answer import MOST_BINS, Timeline
from schedscope.timelines.widget import SCRIPT

if TYPE_CHECKING:
    from schedscope.trace import Trace

_ROUGH = 3
"""No interval takes fewer bytes than this when packed: it is not worth trying."""


def timeline_html(
    trace: Trace,
    *,
    since: str | int | None = None,
    until: str | int | None = None,
    max_bytes: int = 2_000_000,
) -> str:
    """The timeline of a trace as a self-contained fragment of HTML, with its data.

    Holds every interval if they fit into `max_bytes`; else the exact shares of
    time in a few thousand stretches, and every interval around the worst waits. The
    picture says below which scale it can tell no more, and how to get a page
    that can. `since` and `until` cut the trace first (`Trace.between`).

    Raises `UsageError` if not even a coarse picture fits, or for times out of
    the trace.
    """
    if since is not None or until is not None:
        trace = trace.between(since, until)
    source = Timeline(trace)
    script = SCRIPT.read_text(encoding="utf-8")
    data = _data(source, max_bytes - len(script.encode()) - 1000)
    # "<" could end the element: a thread chooses its own name.
    text = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
    return (
        f'<div class="schedscope-timeline" aria-label="timeline of {html.escape(trace.name)}">'
        "<noscript>This timeline is drawn by a script, which is switched off here."
        "</noscript>"
        f'<script type="application/json">{text}</script></div>\n'
        f'<script type="module">\n{script}\nmountAll(document);\n</script>\n'
    )


def _data(source: Timeline, room: int) -> dict[str, Any]:
    about = source.about()
    duration = max(1, source.lanes.duration)
    rows = sum(len(lane.starts) for lane in source.lanes.get(source.first))
    if rows * _ROUGH < room:
        whole = {"lanes": source.first, "first": 0, "bins": 1, "scale": duration}
        data = _embed(about, [source.answer({**whole, "intervals": rows})], None)
        if _length(data) <= room:
            return data
    bins = 4096
    while bins >= 256:
        scale = -(-duration // bins)
        base = {"lanes": source.first, "first": 0, "bins": bins, "scale": scale, "intervals": 0}
        parts = [source.answer(base)]
        data = _embed(about, parts, scale)
        left = room - _length(data)
        if left > 0:
            return _with_details(source, about, parts, scale, room)
        bins //= 2
    raise UsageError(
        f"a timeline of {len(source.first)} lanes takes more than {room} bytes",
        "room for a coarse picture",
        "give a larger max_bytes",
    )


def _with_details(
    source: Timeline, about: dict[str, Any], parts: list[Any], scale: int, room: int
) -> dict[str, Any]:
    """Every interval around as many of the worst waits as there is room for."""
    data = _embed(about, parts, scale)
    for wait in source.waits[:20]:
        margin = max(wait["wait"], 20_000)
        begin = max(0, wait["ready"] - margin)
        length = wait["ready"] + wait["wait"] + margin - begin
        fine = -(-length // MOST_BINS)
        first = begin // fine
        window = {"first": first, "bins": min(MOST_BINS, -(-length // fine) + 1), "scale": fine}
        lanes = [*source.first]
        if f"utid:{wait['utid']}" not in lanes:
            lanes.append(f"utid:{wait['utid']}")
        part = source.answer({"lanes": lanes, **window})
        kept = [row for row in part[0]["lanes"] if row["kind"] == "intervals"]
        tried = _embed(about, [*parts, ({**part[0], "lanes": kept}, part[1])], scale)
        if _length(tried) > room:
            break
        parts = [*parts, ({**part[0], "lanes": kept}, part[1])]
        data = tried
    return data


def _embed(about: dict[str, Any], parts: list[Any], finest: int | None) -> dict[str, Any]:
    """Answers with all their buffers in one: gzip finds more in it."""
    answers, blob, sizes = [], [], []
    for answer, buffers in parts:
        answers.append({**answer, "buffer": len(sizes)})
        for data in buffers:
            sizes.append(len(data))
            blob.append(data)
    packed = gzip.compress(b"".join(blob), compresslevel=6, mtime=0)
    return {
        "about": {**about, "finest": finest},
        "answers": answers,
        "sizes": sizes,
        "data": base64.b64encode(packed).decode(),
    }


def _length(data: dict[str, Any]) -> int:
    return len(json.dumps(data, separators=(",", ":")))
