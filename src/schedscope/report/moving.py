"""Sections about where threads ran, and whether they received what was due to them."""

from __future__ import annotations

import polars as pl

from schedscope import plot
from schedscope.analysis.affinity import affinity
from schedscope.analysis.asking.needs import has
from schedscope.analysis.fairness import fairness, jain_of
from schedscope.analysis.isolation import runs_outside_affinity
from schedscope.analysis.migration.migrations import migration_matrix, migration_summary, ping_pong
from schedscope.analysis.residency import residency
from schedscope.analysis.weights import weight_notes
from schedscope.present.columns import choose
from schedscope.present.html_table import html_table
from schedscope.report.section import Section, figure, prose
from schedscope.report.subject import Subject

_ROWS = 15


def moved(subject: Subject) -> Section:
    """Migrations: who, from where to where, why and how far."""
    trace, where = subject.trace, subject.where
    frame = migration_summary(trace, by="comm", where=where).filter(pl.col("n") > 0)
    intro = (
        "A migration is a run on another CPU than the run before. The thread loses its cached data,"
        " which pays off if it would have waited longer where it was."
    )
    title = "Who moved between CPUs?"
    if frame.is_empty():
        return Section("moved", title, intro, "<p>No thread migrated.</p>")
    numbers = ["n", "rate_hz", "moved_frac", "n_waited", "queued"]
    causes = migration_summary(trace, by=["cause", "distance"], where=where)
    by_name = choose(frame, ["comm", *numbers], question="migrations")
    by_cause = [name for name in numbers if name != "moved_frac"]
    kinds = choose(causes, ["cause", "distance", *by_cause], question="migrations")
    body = figure(
        plot.migration_matrix(migration_matrix(trace, where=where)),
        "migrations from CPU to CPU",
        "moved",
        square=True,
    )
    body += html_table(frame, by_name, "moved", most=_ROWS)
    body += "<p>What chose the new CPU, and how far away it was:</p>"
    body += html_table(causes, kinds)
    commands = ["migrations", "migrations --matrix"]
    back = subject.ask(ping_pong).filter(pl.col("n") > 1)
    if back.height:
        names = ["comm", "tid", "cpu_a", "cpu_b", "n", "away_p50", "wait"]
        columns = choose(back, names, question="ping_pong")
        body += "<p>Back and forth between two CPUs, within 10 ms:</p>"
        body += html_table(back, columns, "bounced", most=8)
        commands.append("migrations --ping-pong")
    return Section("moved", title, intro, body, subject.commands(*commands))


def kept(subject: Subject) -> Section:
    """Residency and returns; runs outside the mask."""
    trace, where = subject.trace, subject.where
    frame = affinity(trace, where=where)
    names = ["comm", "threads", "running", "effective_cpus", "top_cpu", "top_frac"]
    columns = choose(frame, [*names, "same_cpu_frac", "same_llc_frac?", "allowed"])
    spread = residency(trace, by="comm", where=where)
    body = figure(plot.residency(spread, top=_ROWS), "share of running time per CPU", "kept")
    body += html_table(frame, columns, "kept", most=_ROWS)
    commands = ["affinity", "affinity --residency cpu"]
    masks = trace.threads.select(pl.col("affinity").is_not_null().any()).collect().item()
    outside = subject.ask(runs_outside_affinity) if masks else pl.DataFrame()
    if outside.height:
        names = ["comm", "tid", "affinity", "cpu", "running", "runs", "ts_first"]
        columns = choose(outside, names, origin=trace.origin)
        body += "<p>Runs outside the recorded affinity mask, which may have changed since:</p>"
        body += html_table(outside, columns, "outside", most=8)
        commands.append("affinity --outside")
    return Section(
        "kept",
        "Where did threads run?",
        "Effective CPUs: 1 if all the time was on one CPU, two if it was spread evenly over two"
        " (the exponential of its entropy). A thread that returns to the CPU on which it last ran"
        " may find its data still in the cache.",
        body,
        subject.commands(*commands),
    )


def fair(subject: Subject) -> Section:
    """Shares due and received."""
    trace = subject.trace
    title = "Was CPU time shared fairly?"
    if not has(trace, "competitors"):
        told = "<p>Not known: a filter of the recorder left out threads that competed.</p>"
        return Section("fair", title, "", told)
    frame = subject.ask(fairness)
    classes = jain_of(frame).filter(pl.col("jain").is_not_null())
    intro = (
        "While threads compete for a CPU, each is due a part of the service in proportion to its"
        " weight. Jain's index of received over due time is 1 if all were treated alike,"
        " and 1/n if one of n received everything. Where control groups or sessions share a CPU"
        " first and were not recorded, threads seem to receive too much or too little."
    )
    if classes.is_empty():
        return Section("fair", title, intro, "<p>No two threads of a class competed.</p>")
    names = [
        "sharing",
        "jain",
        "n",
        "lag_most",
        "comm_least",
        "least",
        "comm_most",
        "most",
        "basis",
    ]
    columns = choose(classes, names, question="jain_index")
    behind = frame.filter(pl.col("due") > 0)
    names = ["comm", "tid", "sharing", "weight", "running", "due", "lag", "ratio"]
    rows = choose(behind, names, question="fairness")
    drawn = plot.fairness(frame, top=12)
    notes = "; ".join(weight_notes(trace))
    return Section(
        "fair",
        title,
        intro,
        f"<p>Weights: {prose(notes)}.</p>"
        + html_table(classes, columns)
        + figure(drawn, "shares due and received", "fair")
        + html_table(behind, rows, "fair", most=8),
        subject.commands("fairness"),
    )
