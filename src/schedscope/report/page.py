"""Assemble the page: sections in order, each a question with its answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

import polars as pl

from schedscope import units
from schedscope.analysis.check import check, verdict
from schedscope.analysis.diagnosis import diagnosis
from schedscope.analysis.migration import migration_matrix, migration_summary
from schedscope.analysis.once import once
from schedscope.analysis.queue_depth import queue_depth
from schedscope.analysis.runqueue_latency import runqueue_latency
from schedscope.analysis.starvation import starvation
from schedscope.analysis.survival import survival
from schedscope.analysis.work_conservation import wasted_time
from schedscope.analysis.worst_waits import worst_waits
from schedscope.cli import _headline
from schedscope.cli._output import Column, cells
from schedscope.plot.migration import plot_migration_matrix
from schedscope.plot.queue_depth import plot_queue_depth
from schedscope.plot.runqueue_latency import plot_runqueue_latency
from schedscope.plot.survival import plot_survival
from schedscope.plot.worst_waits import plot_worst_waits
from schedscope.report.look import CSS
from schedscope.report.summary import summary
from schedscope.report.svg import inline_svg
from schedscope.trace import Trace


@dataclass(frozen=True)
class Section:
    """One question: its name in links, its heading, what a newcomer has to know, the answer."""

    anchor: str
    title: str
    intro: str
    body: str


def page(trace: Trace) -> str:
    """The whole HTML document about `trace`."""
    sections = [make(trace) for make in SECTIONS]
    name = escape(units.printable(trace.name))
    contents = "".join(
        f'<li><a href="#{section.anchor}">{escape(section.title)}</a></li>' for section in sections
    )
    body = "".join(
        f'<section id="{section.anchor}"><h2>{escape(section.title)}</h2>'
        f"<p class=intro>{section.intro}</p>{section.body}</section>"
        for section in sections
    )
    facts = " · ".join(escape(part) for part in _headline.headline(trace)[0].split(" · ")[1:])
    return (
        "<!doctype html>\n"
        '<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>{name}: who waited for a CPU</title><style>{CSS}</style></head><body><main>"
        f"<header><h1>{name}</h1><p class=facts>{facts}</p></header>"
        f"<nav><ol>{contents}</ol></nav>{body}"
        f"<footer>Written by {escape(str(trace.info.get('generator') or 'schedscope'))}. Times are"
        " exact; quantiles are order statistics over the waits seen from begin to end.</footer>"
        "</main></body></html>\n"
    )


def _summary(trace: Trace) -> Section:
    items = "".join(f"<li>{escape(text)}</li>" for text in summary(trace))
    return Section(
        "short",
        "In short",
        "A thread <em>waits for a CPU</em> from the moment it could run (because it was woken,"
        " created, or pushed off a CPU while it still had work) to the moment it runs. Meanwhile"
        " it is ready, and nothing happens.",
        f"<ul class=findings>{items}</ul>",
    )


# Where the page shows what a finding is about.
_ABOUT = {
    "starvation": "starved",
    "overload": "cpus",
    "idle": "idle",
    "migration": "moved",
    "ping-pong": "moved",
    "affinity": "moved",
    "recorder": "trust",
    "trust": "trust",
    "sums": "trust",
}


def _wrong(trace: Trace) -> Section:
    found = once(diagnosis, trace)
    items = "".join(
        f'<li class={level}><a href="#{_ABOUT[topic]}">{escape(topic)}</a> {escape(text)}'
        f" <code>schedscope {escape(command)}</code></li>"
        for topic, level, text, command in found.select(
            "topic", "level", "text", "command"
        ).iter_rows()
    )
    body = f"<ol class=wrong>{items}</ol>" if items else "<p>Nothing that costs 0.1 % of it.</p>"
    return Section(
        "wrong",
        "What is wrong?",
        "Ranked by the thread or CPU time that it concerns; what concerns less than 0.1 % of the"
        " CPUs' time is left out. Topics overlap, so their times do not add up.",
        body,
    )


def _trust(trace: Trace) -> Section:
    found = once(check, trace)
    open_points = found.filter(pl.col("level") != "ok")
    columns = [Column("level"), Column("check"), Column("text", "finding")]
    body = f"<p><strong>{escape(verdict(found))}</strong></p>"
    if open_points.height:
        body += _html_table(open_points, columns)
    return Section(
        "trust",
        "How far to trust it",
        "A recorder may lose events, start late, or not see some threads. What the trace cannot"
        " tell is treated as unknown; nothing is guessed. What follows was found beside the sums"
        " that hold; <code>schedscope check</code> lists those, too.",
        body,
    )


def _who(trace: Trace) -> Section:
    frame = once(runqueue_latency, trace, by="comm")
    figure = inline_svg(
        plot_runqueue_latency(frame, top=15), "quantiles of the wait by thread name"
    )
    return Section(
        "who",
        "Who waited, and how long?",
        "One line for each thread name, most waiting time first. p50 is the wait that half of"
        " the waits do not exceed, p99 is exceeded by one in a hundred. The scale is logarithmic.",
        f"<figure>{figure}</figure>" + _html_table(frame.head(20), _latency_columns("comm", trace)),
    )


def _why(trace: Trace) -> Section:
    frame = once(runqueue_latency, trace, by="cause")
    figure = inline_svg(
        plot_survival(survival(trace, by="cause")), "share of waits that last longer"
    )
    return Section(
        "why",
        "Why did they wait?",
        "<em>wake</em>: the thread had slept and was woken. <em>preempt</em>: it had been running"
        " and lost its CPU to another. <em>yield</em>: it gave way. <em>new</em>: just created."
        " The curve shows which share of the waits lasted longer than a given time; waits still"
        " open at the end are taken into account (Kaplan-Meier).",
        f"<figure>{figure}</figure>" + _html_table(frame, _latency_columns("cause", trace)),
    )


def _when(trace: Trace) -> Section:
    origin = trace.origin
    bucket = bucket_for(trace.duration)
    over_time = plot_runqueue_latency(runqueue_latency(trace, every=bucket), origin=origin)
    worst = worst_waits(trace, 15)
    columns = [
        Column("comm", "thread"),
        Column("tid", kind="id"),
        Column("wait", kind="time"),
        Column("ts_ready", "from", "at", origin=origin),
        Column("cause"),
        Column("cpu", kind="id"),
        Column("waker_comm", "woken by"),
    ]
    figures = inline_svg(over_time, "quantiles of the wait over time")
    bars = inline_svg(plot_worst_waits(worst, origin=origin), "the longest waits in time")
    return Section(
        "when",
        "When was it bad?",
        f"Waits by the moment they began, in steps of {units.duration(bucket)}, and the longest"
        " ones where they lie in the trace.",
        f"<figure>{figures}</figure><figure>{bars}</figure>" + _html_table(worst, columns),
    )


def _starved(trace: Trace) -> Section:
    frame = once(starvation, trace, threshold="100ms", top=15)
    columns = [
        Column("ts", "from", "at", origin=trace.origin),
        Column("wait", kind="time"),
        Column("story"),
    ]
    body = _html_table(frame, columns) if frame.height else "<p>No wait of 100 ms and more.</p>"
    return Section(
        "starved",
        "Who starved?",
        "Waits of 100 ms and more, the longest first: behind whom, and what idled meanwhile."
        " Those still open at the end count as long as they were.",
        body,
    )


def _idle(trace: Trace) -> Section:
    machine = once(wasted_time, trace).row(0, named=True)
    frame = once(wasted_time, trace, by="comm").filter(pl.col("avoidable") > 0).head(15)
    columns = [
        Column("comm"),
        Column("waiting", kind="time"),
        Column("avoidable", kind="time"),
        Column("avoidable_frac", "share", "share"),
        Column("n", "stretches", "count"),
    ]
    body = (
        f"<p>Wasted: {units.duration(machine['wasted'])} of {units.duration(machine['idle'])} idle"
        f" time ({units.percent(machine['wasted_idle_frac'])}).</p>"
    )
    return Section(
        "idle",
        "Did CPUs idle while threads waited?",
        "Wasted time is the CPU time that idled although a thread waited elsewhere that may run"
        " there. A thread's wait is avoidable while its CPU was busy and another one free.",
        body + (_html_table(frame, columns) if frame.height else ""),
    )


def _moved(trace: Trace) -> Section:
    frame = migration_summary(trace, by="comm").filter(pl.col("n") > 0).head(15)
    columns = [
        Column("comm"),
        Column("n", "migrations", "count"),
        Column("rate_hz", "per second", "number"),
        Column("moved_frac", "of its runs", "share"),
        Column("n_waited", "waited anyway", "count"),
        Column("queued", "for", "time"),
    ]
    body = "<p>No thread ran on another CPU than before.</p>"
    if frame.height:
        figure = inline_svg(
            plot_migration_matrix(migration_matrix(trace)), "migrations from CPU to CPU"
        )
        body = f"<figure class=square>{figure}</figure>" + _html_table(frame, columns)
    return Section(
        "moved",
        "Who moved between CPUs?",
        "A migration is a run on another CPU than the one before. It costs what the thread had in"
        " its caches, and pays if the thread would have waited longer where it was.",
        body,
    )


def _where(trace: Trace) -> Section:
    depth = inline_svg(
        plot_queue_depth(queue_depth(trace), origin=trace.origin), "threads that wanted each CPU"
    )
    frame = runqueue_latency(trace, by="cpu").sort("cpu")
    per_cpu = trace.info.get("per_cpu") or []
    if per_cpu and trace.duration:
        shares = pl.DataFrame(per_cpu).select(
            pl.col("cpu").cast(frame.schema["cpu"]),
            (pl.col("running", "idle", "unknown") / trace.duration).name.suffix("_frac"),
        )
        frame = shares.join(frame, on="cpu", how="full", coalesce=True).sort("cpu")
    columns = [
        Column("cpu", kind="id"),
        Column("running_frac", "running", "share"),
        Column("idle_frac", "idle", "share"),
        Column("unknown_frac", "unknown", "share"),
        *_latency_columns("cpu", trace)[1:],
    ]
    return Section(
        "cpus",
        "On which CPUs?",
        "Above: how many threads wanted each CPU over time, the mean of each pixel dark and the"
        " most of it light. Below, a wait counts where it ended: on the CPU that the thread then"
        " ran on.",
        f"<figure>{depth}</figure>"
        + _html_table(frame, [c for c in columns if c.name in frame.columns]),
    )


SECTIONS: Sequence[Callable[[Trace], Section]] = (
    _summary,
    _wrong,
    _trust,
    _who,
    _why,
    _when,
    _starved,
    _where,
    _idle,
    _moved,
)


def _latency_columns(by: str, trace: Trace) -> list[Column]:
    columns = [Column(by), Column("n", "waits", "count"), Column("n_censored", "open", "count")]
    columns += [Column(name, kind="time") for name in ("total", "p50", "p90", "p99", "max")]
    return [*columns, Column("ts_max", "max at", "at", origin=trace.origin)]


def _html_table(frame: pl.DataFrame, columns: Sequence[Column]) -> str:
    texts = [cells(frame, column) for column in columns]
    sides = ["" if column.kind == "text" else " class=n" for column in columns]
    head = "".join(
        f"<th{side}>{escape(column.title)}</th>"
        for side, column in zip(sides, columns, strict=True)
    )
    rows = "".join(
        "<tr>"
        + "".join(
            f"<td{side}>{escape(text.strip())}</td>" for side, text in zip(sides, row, strict=True)
        )
        + "</tr>"
        for row in zip(*texts, strict=True)
    )
    return (
        f"<div class=table><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def bucket_for(duration: int) -> int:
    """A round length that gives some 50 to 125 buckets: 1, 2 or 5 times a power of ten."""
    power = 1
    while True:
        for factor in (1, 2, 5):
            if duration <= 125 * factor * power:
                return factor * power
        power *= 10
