"""Assemble the page: sections in order, each a question with its answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

import polars as pl

from schedscope import units
from schedscope.analysis.check import check, verdict
from schedscope.analysis.runqueue_latency import runqueue_latency
from schedscope.analysis.survival import survival
from schedscope.analysis.worst_waits import worst_waits
from schedscope.cli import _headline
from schedscope.cli._output import Column, cells
from schedscope.plot.runqueue_latency import plot_runqueue_latency
from schedscope.plot.survival import plot_survival
from schedscope.plot.worst_waits import plot_worst_waits
from schedscope.report.findings import findings
from schedscope.report.look import CSS
from schedscope.report.svg import inline_svg
from schedscope.trace import Trace


@dataclass(frozen=True)
class Section:
    """One question: its heading, what a newcomer has to know, and the answer as HTML."""

    title: str
    intro: str
    body: str


def page(trace: Trace) -> str:
    """The whole HTML document about `trace`."""
    sections = [make(trace) for make in SECTIONS]
    name = escape(units.printable(trace.name))
    contents = "".join(
        f'<li><a href="#s{i}">{escape(section.title)}</a></li>'
        for i, section in enumerate(sections)
    )
    body = "".join(
        f'<section id="s{i}"><h2>{escape(section.title)}</h2>'
        f"<p class=intro>{section.intro}</p>{section.body}</section>"
        for i, section in enumerate(sections)
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
    items = "".join(f"<li>{escape(text)}</li>" for text in findings(trace))
    return Section(
        "In short",
        "A thread <em>waits for a CPU</em> from the moment it could run (because it was woken,"
        " created, or pushed off a CPU while it still had work) to the moment it runs. Meanwhile"
        " it is ready, and nothing happens.",
        f"<ul class=findings>{items}</ul>",
    )


def _trust(trace: Trace) -> Section:
    found = check(trace)
    open_points = found.filter(pl.col("level") != "ok")
    columns = [Column("level"), Column("check"), Column("text", "finding")]
    body = f"<p><strong>{escape(verdict(found))}</strong></p>"
    if open_points.height:
        body += _html_table(open_points, columns)
    return Section(
        "How far to trust it",
        "A recorder may lose events, start late, or not see some threads. What the trace cannot"
        " tell is treated as unknown; nothing is guessed. What follows was found beside the sums"
        " that hold; <code>schedscope check</code> lists those, too.",
        body,
    )


def _who(trace: Trace) -> Section:
    frame = runqueue_latency(trace, by="comm")
    figure = inline_svg(
        plot_runqueue_latency(frame, top=15), "quantiles of the wait by thread name"
    )
    return Section(
        "Who waited, and how long?",
        "One line for each thread name, most waiting time first. p50 is the wait that half of"
        " the waits do not exceed, p99 is exceeded by one in a hundred. The scale is logarithmic.",
        f"<figure>{figure}</figure>" + _html_table(frame.head(20), _latency_columns("comm", trace)),
    )


def _why(trace: Trace) -> Section:
    frame = runqueue_latency(trace, by="cause")
    figure = inline_svg(
        plot_survival(survival(trace, by="cause")), "share of waits that last longer"
    )
    return Section(
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
        "When was it bad?",
        f"Waits by the moment they began, in steps of {units.duration(bucket)}, and the longest"
        " ones where they lie in the trace.",
        f"<figure>{figures}</figure><figure>{bars}</figure>" + _html_table(worst, columns),
    )


def _where(trace: Trace) -> Section:
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
        "On which CPUs?",
        "A wait counts where it ended: on the CPU that the thread then ran on.",
        _html_table(frame, [c for c in columns if c.name in frame.columns]),
    )


SECTIONS: Sequence[Callable[[Trace], Section]] = (_summary, _trust, _who, _why, _when, _where)


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
