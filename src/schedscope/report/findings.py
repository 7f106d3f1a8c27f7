"""The first sections: the findings, and a summary."""

from __future__ import annotations

import shlex
from html import escape

from schedscope import units
from schedscope.analysis.latency import latency
from schedscope.report.section import Section, call, prose
from schedscope.report.subject import Subject
from schedscope.report.summary import summary
from schedscope.timelines.places import places

ABOUT = {
    "starvation": ("starved", "starved"),
    "overload": ("cpus", "cpus"),
    "quota": ("who", "who"),
    "avoidable idle time": ("idle", "idle"),
    "mask": ("idle", "idle"),
    "crowding": ("kept", "kept"),
    "weight": ("fair", "fair"),
    "real-time": ("who", "who"),
    "priority inversion": ("starved", "starved"),
    "interrupts": ("time", "time"),
    "lock convoy": ("", ""),
    "disk": ("", ""),
    "steal": ("trust", "time"),
    "wakeup migration": ("moved", "moved"),
    "fairness": ("fair", "fair"),
    "migration": ("moved", "moved"),
    "ping-pong": ("bounced", "moved"),
    "affinity": ("outside", "kept"),
    "isolation": ("kept", "kept"),
    "recorder": ("trust", "time"),
    "data quality": ("trust", "time"),
    "sums": ("trust", "time"),
    "trigger": ("starved", "starved"),
    "scheduler exit": ("trust", "time"),
    "watchdog": ("starved", "starved"),
    "late dispatch": ("idle", "idle"),
}
"""Where the page shows what a finding is about, by topic: the sections with its table and with
its figure, which it has not for sleeps."""
_WORDS = {"violated": "do not trust", "context": "explains others"}


def wrong(subject: Subject, anchors: set[str], shown: tuple[int, int] | None) -> Section:
    """The ranked findings; links lead to those of `anchors` that the page has.

    `shown` is the stretch of time that the page's timeline holds, if it has one: findings within
    lead there.
    """
    items = []
    trace, found = subject.trace, subject.findings
    name = units.printable(trace.name)
    for row, place in zip(found.iter_rows(named=True), places(trace, found), strict=True):
        topic, level = row["topic"], row["level"]
        table, figure = ABOUT[topic]
        links = [("table", f"{table}-table"), ("figure", f"{figure}-figure")]
        where = " · ".join(
            f'<a href="#{anchor}">{word}</a>' for word, anchor in links if anchor in anchors
        )
        view = place.view(trace)
        opened = call(f"view --at {shlex.quote(view)}", name)
        if shown and shown[0] <= place.ts and place.ts + place.dur <= shown[1]:
            where += f' · <a href="#timeline" data-view="{escape(view)}">timeline</a>'
        tested = f" Test it with {call(row['whatif'], name)}" if row["whatif"] else ""
        cost = units.cost(row["cost"], row["cost_high"], row["cost_frac"], " · {}")
        badge = _WORDS.get(level, level)
        items.append(
            f"<li class={level}><p class=what><b>{escape(topic)}</b> <i>{badge}</i>"
            f"<span class=cost>{cost}</span></p><p>{prose(row['text'])}</p>"
            f"<p>{prose('Try: ' + row['advice'])}{tested}</p>"
            f"<p class=where><span class=links>{where} · </span>"
            f"{call(row['command'], name)} · {opened}</p></li>"
        )
    body = (
        f"<ol class=wrong>{''.join(items)}</ol>"
        if items
        else "<p class=nothing>No findings: nothing that is checked here takes 1 % of the CPUs'"
        " time, and no events are missing.</p>"
    )
    return Section(
        "wrong",
        "Findings",
        "The worst first, by the thread or CPU time that is affected (and its share of the CPUs'"
        " time). Findings below 1 % are excluded. Topics overlap, so their times do not add up.",
        body,
    )


def short(subject: Subject) -> Section:
    """The trace in a few sentences."""
    items = "".join(f"<li>{prose(text)}</li>" for text in summary(subject))
    return Section(
        "short",
        "Summary",
        "A thread <em>waits for a CPU</em> from the moment it could run (because it was woken,"
        " created, or pushed off a CPU while it still had work) to the moment it runs.",
        f"<ul class=findings>{items}</ul>",
    )


def tiles(subject: Subject) -> str:
    """The most important numbers."""
    trace = subject.trace
    whole = subject.ask(latency).row(0, named=True)
    per_cpu = trace.info.get("per_cpu") or []
    capacity = trace.duration * trace.ncpu
    found = [("waits", units.interval(whole["n"], whole["n_high"], units.count))]
    found += [
        (name, units.interval(whole[column], whole[f"{column}_high"]))
        for name, column in (("median wait", "p50"), ("99 % within", "p99"), ("longest", "max"))
        if whole["n"]
    ]
    if per_cpu and capacity:
        found += [
            (word, units.percent(sum(cpu[name] for cpu in per_cpu) / capacity))
            for word, name in (("CPUs busy", "running"), ("idle", "idle"), ("unknown", "unknown"))
        ]
    return (
        "<dl class=tiles>"
        + "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in found)
        + "</dl>"
    )
