"""Sections about waiting: who, why, when, and who starved."""

from __future__ import annotations

import polars as pl

from schedscope.analysis._base.memo import once
from schedscope.analysis.faults import EPISODES
from schedscope.analysis.process_efficiency import preemption_loss
from schedscope.analysis.runqueue_latency import runqueue_latency
from schedscope.analysis.starvation import starvation
from schedscope.analysis.starvation_timeline import starvation_timeline
from schedscope.analysis.survival import survival
from schedscope.analysis.worst_waits import worst_waits
from schedscope.cli._output import Column
from schedscope.plot.runqueue_latency import plot_runqueue_latency
from schedscope.plot.starvation import plot_starvation
from schedscope.plot.style import short
from schedscope.plot.survival import plot_survival
from schedscope.plot.worst_waits import plot_worst_waits
from schedscope.report.section import Section, figure
from schedscope.report.summary import WORST
from schedscope.report.table import table
from schedscope.trace import Trace

THRESHOLD = "100ms"
"""Where a wait begins to be starvation."""


def starved(trace: Trace) -> Section:
    """The longest waits of all, and what the CPUs did during the worst."""
    frame = once(starvation, trace, threshold=THRESHOLD, top=EPISODES)
    columns = [
        Column("ts", "from", "at", origin=trace.origin),
        Column("wait", kind="time"),
        Column("story", "what happened"),
    ]
    body = "<p>No wait of 100 ms and more.</p>"
    if frame.height:
        shown = starvation_timeline(trace, frame, frame["episode"][0])
        drawn = plot_starvation(shown, origin=trace.origin)
        body = figure(drawn, "the CPUs during the longest wait", "starved") + table(
            frame.head(15), columns, "starved"
        )
    return Section(
        "starved",
        "Who starved?",
        "Waits of 100 ms and more, the longest first: behind whom, and what idled meanwhile."
        " Those still open at the end count as long as they were. The figure shows the longest.",
        body,
        ("starvation",) if frame.height else (),
    )


def who(trace: Trace) -> Section:
    """Waits by thread name."""
    frame = once(runqueue_latency, trace, by="comm")
    drawn = plot_runqueue_latency(frame, top=15)
    return Section(
        "who",
        "Who waited, and how long?",
        "One line for each thread name, most waiting time first. p50 is the wait that half of"
        " the waits do not exceed, p99 is exceeded by one in a hundred. The scale is logarithmic.",
        figure(drawn, "quantiles of the wait by thread name", "who")
        + table(frame.head(20), latency_columns("comm", trace), "who"),
        ("latency --by comm",),
    )


def why(trace: Trace) -> Section:
    """Waits by cause, and the time that preemption cost."""
    frame = once(runqueue_latency, trace, by="cause").filter(pl.col("n") + pl.col("n_censored") > 0)
    drawn = plot_survival(survival(trace, by="cause"))
    body = figure(drawn, "share of waits that last longer", "why")
    body += table(frame, latency_columns("cause", trace), "why")
    commands = ["latency --by cause"]
    lost = preemption_loss(trace).head(6)
    if lost.height:
        columns = [
            Column("sched_class", "class that lost its CPU"),
            Column("by_class", "to class"),
            Column("n", "times", "count"),
            Column("n_untold", "maybe yields", "count"),
            Column("lost", kind="time"),
            Column("lost_frac", "share", "share"),
            Column("max", "longest", "time"),
        ]
        body += (
            "<p>Time between losing a CPU and getting one again, by scheduling class. Where the"
            " source does not tell a preemption from a yield, it counts and is said.</p>"
            + table(lost, columns, "lost")
        )
        commands.append("efficiency --preemption")
    return Section(
        "why",
        "Why did they wait?",
        "<em>wake</em>: the thread had slept and was woken. <em>preempt</em>: it had been running"
        " and lost its CPU to another. <em>yield</em>: it gave way. <em>new</em>: just created."
        " The curve shows which share of the waits lasted longer than a given time; waits still"
        " open at the end are taken into account (Kaplan-Meier).",
        body,
        commands,
    )


def when(trace: Trace) -> Section:
    """Waits over time, and the longest one by one."""
    origin = trace.origin
    bucket = bucket_for(trace.duration)
    over_time = plot_runqueue_latency(runqueue_latency(trace, every=bucket), origin=origin)
    worst = once(worst_waits, trace, n=WORST)
    columns = [
        Column("comm", "thread"),
        Column("tid", kind="id"),
        Column("wait", kind="time"),
        Column("ts_ready", "from", "at", origin=origin),
        Column("cause"),
        Column("cpu", kind="id"),
        Column("waker_comm", "woken by"),
    ]
    return Section(
        "when",
        "When was it bad?",
        f"Waits by the moment they began, in steps of {short(bucket)}, and the longest"
        " ones where they lie in the trace.",
        figure(over_time, "quantiles of the wait over time", "when")
        + figure(plot_worst_waits(worst, origin=origin), "the longest waits in time")
        + table(worst, columns, "when"),
        (f"latency --every {short(bucket).replace(' ', '').replace('µ', 'u')}",),
    )


def latency_columns(by: str, trace: Trace) -> list[Column]:
    """The columns of every table of waits."""
    columns = [Column(by), Column("n", "waits", "count"), Column("n_censored", "open", "count")]
    columns += [Column(name, kind="time") for name in ("total", "p50", "p90", "p99", "max")]
    return [*columns, Column("ts_max", "max at", "at", origin=trace.origin)]


def bucket_for(duration: int) -> int:
    """A round length that gives some 50 to 125 buckets: 1, 2 or 5 times a power of ten."""
    power = 1
    while True:
        for factor in (1, 2, 5):
            if duration <= 125 * factor * power:
                return factor * power
        power *= 10
