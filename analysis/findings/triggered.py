"""Why was the flight recorder's snapshot taken?"""

from __future__ import annotations

from collections.abc import Iterator

from schedscope.analysis.findings.facts import Facts
from schedscope.analysis.findings.finding import Finding
from schedscope.analysis.recording.ring_trigger import trigger


def triggered(facts: Facts) -> Iterator[Finding]:
    """What the recorder saw, whether or not the trace shows it."""
    trace = facts.trace
    found = trigger(trace)
    if found is None:
        return
    sentence = f"{found.text[0].upper()}{found.text[1:]}."
    if found.wait is None:
        yield Finding(
            "trigger", 0, sentence, "info", found.at, 0, level="note", always=True,
            advice="Look at what happened just before: the recording ends with it.",
        )  # fmt: skip
        return
    begin = max(trace.window[0], found.at - found.wait)
    shown = found.shown and found.ts is not None
    yield Finding(
        "trigger",
        found.wait,
        sentence,
        "starvation" if shown else "check",
        found.ts if shown else begin,
        found.longest if shown else found.at - begin,
        utid=found.utid,
        always=True,
        advice=None
        if shown
        else "Find out what is missing around its end, and record with a larger ring.",
    )
