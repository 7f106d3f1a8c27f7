"""Sections about waiting: which threads, why, when, and starvation."""

from __future__ import annotations

import polars as pl

from schedscope import plot
from schedscope.analysis.findings.starved import EPISODES
from schedscope.analysis.latency import latency
from schedscope.analysis.preemption_loss import preemption_loss
from schedscope.analysis.starvation.starvation import starvation
from schedscope.analysis.starvation.timeline import starvation_timeline
from schedscope.analysis.survival.survival import survival
from schedscope.analysis.worst_waits import worst_waits
from schedscope.plot.starvation import TOP, names_drawn
from schedscope.plot.style import short
from schedscope.present.columns import choose
from schedscope.present.html_table import html_table
from schedscope.report.section import Section, figure
from schedscope.report.subject import Subject
from schedscope.report.summary import WORST
from schedscope.store.trace import Trace

THRESHOLD = "100ms"
"""From this length on a wait is starvation."""


def starved(subject: Subject) -> Section:
    """The longest waits of all, and what the CPUs did during the worst."""
    trace = subject.trace
    frame = subject.ask(starvation, threshold=THRESHOLD, top=EPISODES)
    columns = choose(frame, ["ts", "wait", "story"], origin=trace.origin)
    body = "<p>No wait of 100 ms or more.</p>"
    if frame.height:
        shown = starvation_timeline(trace, frame, frame["episode"][0])
        drawn = plot.starvation(shown, origin=trace.origin)
        body = (
            figure(drawn, "the CPUs during the longest wait", "starved")
            + _names(shown)
            + html_table(frame, columns, "starved", most=15)
        )
    return Section(
        "starved",
        "Who starved?",
        "Waits of 100 ms or more, the longest first: behind whom, and what was idle meanwhile."
        " Unfinished waits count with the time observed. The figure shows the longest.",
        body,
        subject.commands("starvation") if frame.height else (),
    )


def _names(shown: pl.DataFrame) -> str:
    """All threads in the figure, also those drawn in grey."""
    names = names_drawn(shown)
    if names.height <= TOP:
        return ""
    columns = choose(names, ["comm", "held_back", "drawn"], question="starvation_timeline")
    return (
        f"<details><summary>All {names.height} names in the figure, and how long each ran; the"
        f" first {TOP} have a colour</summary>{html_table(names, columns)}</details>"
    )


def who(subject: Subject) -> Section:
    """Waits by thread name."""
    frame = subject.ask(latency, by="comm")
    drawn = plot.latency(frame, top=15)
    return Section(
        "who",
        "Who waited, and how long?",
        "One line for each thread name, most waiting time first. Half of the waits do"
        " not exceed p50; one in a hundred exceeds p99. The scale is logarithmic.",
        figure(drawn, "quantiles of the wait by thread name", "who")
        + latency_table(frame, "comm", subject.trace, "who", most=20),
        subject.commands("latency --by comm"),
    )


def why(subject: Subject) -> Section:
    """Waits by cause, and the time that preemption cost."""
    trace, where = subject.trace, subject.where
    frame = subject.ask(latency, by="cause").filter(pl.col("n") + pl.col("n_censored") > 0)
    drawn = plot.survival(survival(trace, by="cause", where=where))
    body = figure(drawn, "share of waits that last longer", "why")
    body += latency_table(frame, "cause", trace, "why")
    commands = ["latency --by cause"]
    lost = preemption_loss(trace, where=where)
    if lost.height:
        names = ["sched_class", "by_class", "n", "n_ambiguous?", "lost", "lost_frac", "max"]
        columns = choose(lost, names, question="preemption_loss")
        body += (
            "<p>Time between losing a CPU and running again, by scheduling class. Where the trace"
            " cannot tell a preemption from a yield, it is counted and flagged.</p>"
            + html_table(lost, columns, "lost", most=6)
        )
        commands.append("preemption-loss")
    return Section(
        "why",
        "Why did they wait?",
        "<em>wake</em>: the thread had slept and was woken. <em>preempt</em>: it had been running"
        " and lost its CPU to another. <em>yield</em>: it gave up the CPU. <em>new</em>: just"
        " created. The curve shows which share of the waits lasted longer than a given time;"
        " unfinished waits are taken into account (Kaplan-Meier). Its bands are 95&nbsp;%"
        " intervals at each time. They are about this recording: another one may differ by more.",
        body,
        subject.commands(*commands),
    )


def when(subject: Subject) -> Section:
    """Waits over time, and the longest one by one."""
    trace = subject.trace
    origin = trace.origin
    bucket = bucket_for(trace.duration)
    over_time = plot.latency(latency(trace, every=bucket, where=subject.where), origin=origin)
    worst = subject.ask(worst_waits, n=WORST)
    names = ["comm", "tid", "wait", "ts_ready", "cause", "cpu", "waker_comm"]
    columns = choose(worst, names, origin=origin)
    return Section(
        "when",
        "When was it bad?",
        f"Waits by the time at which they started, in steps of {short(bucket)}, and when the"
        " longest ones happened.",
        figure(over_time, "quantiles of the wait over time", "when")
        + figure(plot.worst_waits(worst, origin=origin), "the longest waits in time")
        + html_table(worst, columns, "when"),
        subject.commands(f"latency --every {short(bucket).replace(' ', '').replace('µ', 'u')}"),
    )


def latency_table(
    frame: pl.DataFrame, by: str, trace: Trace, name: str, *, most: int | None = None
) -> str:
    """A table of waits, with both bounds of what is not known exactly."""
    names = [by, "n", "n_censored?", "total", "p50", "p90", "p99", "max", "ts_max"]
    columns = choose(frame, names, question="latency", origin=trace.origin)
    return html_table(frame, columns, name, most=most)


def bucket_for(duration: int) -> int:
    """A round length that gives some 50 to 125 buckets: 1, 2 or 5 times a power of ten."""
    power = 1
    while True:
        for factor in (1, 2, 5):
            if duration <= 125 * factor * power:
                return factor * power
        power *= 10
