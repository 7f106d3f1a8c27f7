"""Sections about CPUs: what they did, who queued for them, avoidable idle time, data quality."""

from __future__ import annotations

from html import escape

import polars as pl
from matplotlib.axes import Axes

from schedscope import plot, units
from schedscope.analysis.asking.memo import once
from schedscope.analysis.asking.needs import has
from schedscope.analysis.check.check import check, verdict
from schedscope.analysis.cpus.many_cpus import FEW_CPUS, SHOWN_CPUS, grouping
from schedscope.analysis.cpus.topology import places
from schedscope.analysis.efficiency import efficiency
from schedscope.analysis.findings.avoidable_idle import STRETCHES
from schedscope.analysis.latency import latency
from schedscope.analysis.queue_depth import queue_depth
from schedscope.analysis.work_conservation import idle_episodes, work_conservation
from schedscope.present.columns import choose
from schedscope.present.html_table import html_table
from schedscope.report.section import Section, figure
from schedscope.report.subject import Subject
from schedscope.report.waiting import latency_table
from schedscope.store.trace import Trace

_MANY, _COLUMNS = 200_000, 1200
"""With more states than this, queues are drawn from sums, not from every step."""


def time(subject: Subject) -> Section:
    """Busy, idle and unknown time; switches."""
    trace = subject.trace
    frame = once(efficiency, trace)
    shown, text = _some(frame, "busy", "those that were busiest")
    drawn = plot.efficiency(frame, top=max(shown.height, 1))
    names = ["cpu", "busy", "idle", "unknown", "busy_frac", "switches", "switches_hz"]
    names += ["n_voluntary", "n_involuntary", "n_ambiguous?", "irq_hard?", "irq_soft?"]
    columns = choose(frame, names)
    return Section(
        "time",
        "What did the CPUs do?",
        "The whole window of each CPU. A switch is <em>involuntary</em> if the thread still wanted"
        " the CPU and the trace shows that it was preempted, <em>ambiguous</em> if the trace cannot"
        " tell that from a yield.",
        _by_place(trace, frame, ["busy", "idle", "unknown"], "busy", "efficiency")
        + text
        + figure(drawn, "busy, idle and unknown time per CPU", "time")
        + html_table(shown, columns, "time"),
        ("efficiency",),
    )


def cpus(subject: Subject) -> Section:
    """How many threads wanted each CPU, and how long they waited for it."""
    trace = subject.trace
    frame = latency(trace, by="cpu").sort("cpu")
    shown, text = _some(frame, "total", "those on which threads ran that had waited longest")
    drawn = "<p>Not known: a filter of the recorder left out threads that wanted a CPU.</p>"
    if has(trace, "competitors"):
        drawn = figure(depth(trace), "threads that wanted each CPU", "cpus")
    return Section(
        "cpus",
        "Which CPUs were in demand?",
        "The figure shows how many threads wanted each CPU over time: the mean of each pixel in"
        " dark, the maximum in light. In the table, a wait counts for the CPU on which the thread"
        " then ran.",
        drawn
        + _by_place(trace, frame, ["n", "total", "max"], "total", "latency")
        + text
        + latency_table(shown, "cpu", trace, "cpus"),
        ("queue-depth", "latency --by cpu"),
    )


def _some(frame: pl.DataFrame, most: str, which: str) -> tuple[pl.DataFrame, str]:
    """With many CPUs, those with `most` first, and a sentence that says so."""
    if frame.height <= FEW_CPUS:
        return frame, ""
    worst = frame.sort(most, "cpu", descending=[True, False], nulls_last=True).head(SHOWN_CPUS)
    return worst, f"<p>{SHOWN_CPUS} of {frame.height:,} CPUs, {which}:</p>"


def _by_place(trace: Trace, frame: pl.DataFrame, names: list[str], most: str, question: str) -> str:
    """With many CPUs, the sums (for `max` the largest) over each memory node, package or cache,
    that with `most` first; empty for few, and where the trace does not say.
    """
    over = grouping(trace) if frame.height > FEW_CPUS else None
    if over is None:
        return ""
    place = places(trace, over)
    of = pl.DataFrame(
        {"cpu": list(place), over: list(place.values())}, {"cpu": pl.UInt16, over: pl.Int64}
    )
    ways = [pl.col(name).max() if name == "max" else pl.col(name).sum() for name in names]
    rows = (
        frame.join(of, on="cpu")
        .group_by(over)
        .agg(pl.len().alias("cpus"), *ways)
        .sort(most, over, descending=[True, False])
    )
    columns = choose(rows, [over, "cpus", *names], question=question)
    table = html_table(rows.head(SHOWN_CPUS), columns)
    left = rows.height - SHOWN_CPUS
    return table + (f"<p>{left:,} more groups of CPUs with lower values.</p>" if left > 0 else "")


def depth(trace: Trace) -> Axes:
    """The queues over time."""
    # With more steps than pixels only means and maxima are visible.
    many = trace.states.select(pl.len()).collect().item() > _MANY
    steps = queue_depth(trace, every=trace.duration // _COLUMNS + 1 if many else None)
    return plot.queue_depth(steps, origin=trace.origin)


def idle(subject: Subject) -> Section:
    """CPU time that was idle although a thread waited."""
    trace = subject.trace
    machine = once(work_conservation, trace).row(0, named=True)
    every = subject.ask(work_conservation, by="comm")
    names = every.filter(pl.col("avoidable_high") > 0)
    columns = choose(
        names,
        ["comm", "waiting", "avoidable", "avoidable_frac", "n"],
        question="work_conservation",
    )
    shares = machine["wasted_idle_frac"], machine["wasted_idle_frac_high"]
    body = (
        f"<p>Avoidable idle time: {units.interval(machine['wasted'], machine['wasted_high'])} of"
        f" {units.duration(machine['idle'])} idle time"
        f" ({units.interval(*shares, units.percent)})."
    )
    if machine["pinned"]:
        body += (
            f" Threads that may use only one CPU, or whose mask had changed, waited"
            f" {units.duration(machine['pinned'])} for it while others were idle; that is not"
            " included elsewhere."
        )
    body += "</p>"
    if names.height:
        drawn = plot.work_conservation(every, top=15)
        body += figure(drawn, "avoidable waiting by thread name", "idle") + html_table(
            names, columns, "idle", most=15
        )
    if machine["wasted"]:
        body += _episodes(trace)
    return Section(
        "idle",
        "Did CPUs idle while threads waited?",
        "Avoidable idle time is CPU time that was idle although a thread that may use the CPU"
        " waited elsewhere. A thread's wait is avoidable while its CPU was busy and another one"
        " that it may use was free.",
        body,
        (*subject.commands("work-conservation"), "work-conservation --episodes"),
    )


def _episodes(trace: Trace) -> str:
    """The worst episodes, a row for the thread that waited longest in each."""
    found = once(idle_episodes, trace, longer_than=0, top=STRETCHES)
    rows = found.unique("episode", keep="first", maintain_order=True).head(8)
    names = ["ts", "dur", "wasted", "idle_cpus", "comm", "cpu", "waited", "cause"]
    columns = choose(rows, names, origin=trace.origin)
    return (
        "<p>The episodes with the most avoidable idle time, and the thread that waited longest in"
        " each: put on a busy CPU (<em>placed</em>), pushed off one (<em>preempted</em>) or not"
        " pulled by a CPU that became idle (<em>not_pulled</em>). Without a name: several threads"
        " waited on the queue of a CPU that was idle itself.</p>" + html_table(rows, columns)
    )


def trust(subject: Subject) -> Section:
    """What is missing from the trace."""
    found = once(check, subject.trace)
    open_points = found.filter(pl.col("level") != "ok")
    columns = choose(open_points, ["level", "check", "text"])
    body = f"<p><strong>{escape(verdict(found))}</strong></p>"
    if open_points.height:
        body += html_table(open_points, columns, "trust")
    return Section(
        "trust",
        "Data quality",
        "A recorder may lose events, start late, or miss some threads. What the trace does not"
        " show is treated as unknown; nothing is guessed. The checks that found something are"
        " listed here; <code>schedscope check</code> lists all of them.",
        body,
        ("check",),
    )
