"""Sections about CPUs: what they did, who queued for them, what they wasted, and trust."""

from __future__ import annotations

from html import escape

import polars as pl
from matplotlib.axes import Axes

from schedscope import units
from schedscope.analysis._base.memo import once
from schedscope.analysis.check import check, verdict
from schedscope.analysis.cpu_efficiency import cpu_efficiency
from schedscope.analysis.faults import STRETCHES
from schedscope.analysis.queue_depth import queue_depth, queue_depth_parts
from schedscope.analysis.runqueue_latency import runqueue_latency
from schedscope.analysis.work_conservation import idle_episodes, wasted_time
from schedscope.cli._output import Column
from schedscope.plot.cpu_efficiency import plot_cpu_efficiency
from schedscope.plot.queue_depth import plot_queue_depth
from schedscope.plot.work_conservation import plot_wasted_time
from schedscope.report.section import Section, figure
from schedscope.report.table import table
from schedscope.report.waiting import latency_columns
from schedscope.trace import Trace

_MANY = 200_000
"""States from which on the queues are drawn from sums, not from every step."""


def time(trace: Trace) -> Section:
    """Busy, idle, not known; switches."""
    frame = once(cpu_efficiency, trace)
    columns = [
        Column("cpu", kind="id"),
        Column("busy", kind="time"),
        Column("idle", kind="time"),
        Column("unknown", "not known", "time"),
        Column("busy_frac", "of known", "share"),
        Column("switches", kind="count"),
        Column("switches_hz", "per second", "fixed"),
        Column("n_voluntary", "voluntary", "count"),
        Column("n_involuntary", "forced", "count"),
        Column("n_untold", "either", "count"),
    ]
    if frame["irq_hard"].null_count() < frame.height:
        columns += [Column("irq_hard", "interrupts", "time"), Column("irq_soft", kind="time")]
    return Section(
        "time",
        "What did the CPUs do?",
        "The whole window of each CPU. A switch is <em>forced</em> if the thread still wanted the"
        " CPU and the source says that it was preempted, <em>either</em> if the source cannot tell"
        " that from a yield.",
        figure(plot_cpu_efficiency(frame), "busy, idle and unknown time per CPU", "time")
        + table(frame.head(64), columns, "time"),
        ("efficiency",),
    )


def cpus(trace: Trace) -> Section:
    """How many wanted each CPU, and how long they waited for it."""
    frame = runqueue_latency(trace, by="cpu").sort("cpu")
    columns = [Column("cpu", kind="id"), *latency_columns("cpu", trace)[1:]]
    return Section(
        "cpus",
        "Which CPUs were wanted?",
        "Above: how many threads wanted each CPU over time, the mean of each pixel dark and the"
        " most of it light. Below, a wait counts where it ended: on the CPU that the thread then"
        " ran on.",
        figure(depth(trace), "threads that wanted each CPU", "cpus")
        + table(frame, columns, "cpus"),
        ("queue", "latency --by cpu"),
    )


def depth(trace: Trace) -> Axes:
    """The queues over time."""
    # Of more steps than there are pixels only means and maxima can be seen.
    many = trace.states.select(pl.len()).collect().item() > _MANY
    steps = queue_depth_parts(trace) if many else queue_depth(trace)
    return plot_queue_depth(steps, origin=trace.origin)


def idle(trace: Trace) -> Section:
    """CPU time that idled although somebody waited."""
    machine = once(wasted_time, trace).row(0, named=True)
    every = once(wasted_time, trace, by="comm")
    names = every.filter(pl.col("avoidable") > 0).head(15)
    columns = [
        Column("comm"),
        Column("waiting", kind="time"),
        Column("avoidable", kind="time"),
        Column("avoidable_frac", "share", "share"),
        Column("n", "stretches", "count"),
    ]
    body = (
        f"<p>Wasted: {units.duration(machine['wasted'])} of {units.duration(machine['idle'])} idle"
        f" time ({units.percent(machine['wasted_idle_frac'])})."
    )
    if machine["pinned"]:
        body += (
            f" While threads with one allowed CPU waited for it, others idled"
            f" {units.duration(machine['pinned'])}: that is in no other number here."
        )
    body += "</p>"
    if names.height:
        drawn = plot_wasted_time(every, top=15)
        body += figure(drawn, "avoidable waiting by thread name", "idle") + table(
            names, columns, "idle"
        )
    if machine["wasted"]:
        body += _episodes(trace)
    return Section(
        "idle",
        "Did CPUs idle while threads waited?",
        "Wasted time is the CPU time that idled although a thread waited elsewhere that may run"
        " there. A thread's wait is avoidable while its CPU was busy and another one free.",
        body,
        ("idle", "idle --episodes"),
    )


def _episodes(trace: Trace) -> str:
    """The worst stretches, a row for the thread that waited longest in each."""
    found = once(idle_episodes, trace, longer_than=0, top=STRETCHES)
    rows = found.unique("episode", keep="first", maintain_order=True).head(8)
    columns = [
        Column("ts", "from", "at", origin=trace.origin),
        Column("dur", "for", "time"),
        Column("wasted", kind="time"),
        Column("idle_cpus", "idle CPUs", "right"),
        Column("comm", "who waited"),
        Column("cpu", "for CPU", "id"),
        Column("waited", kind="time"),
        Column("cause", "why"),
    ]
    return (
        "<p>The stretches in which most was wasted, and who waited longest in each: put on a busy"
        " CPU (<em>placed</em>), pushed off one (<em>preempted</em>) or left where it was by a CPU"
        " that became idle (<em>not_pulled</em>). Without a name: several did, on the queue of a"
        " CPU that idled, too.</p>" + table(rows, columns)
    )


def trust(trace: Trace) -> Section:
    """What the trace cannot tell."""
    found = once(check, trace)
    open_points = found.filter(pl.col("level") != "ok")
    columns = [Column("level"), Column("check"), Column("text", "found")]
    body = f"<p><strong>{escape(verdict(found))}</strong></p>"
    if open_points.height:
        body += table(open_points, columns, "trust")
    return Section(
        "trust",
        "How far to trust it",
        "A recorder may lose events, start late, or not see some threads. What the trace cannot"
        " tell is treated as unknown; nothing is guessed. What follows was found beside the sums"
        " that hold; <code>schedscope check</code> lists those, too.",
        body,
        ("check",),
    )
