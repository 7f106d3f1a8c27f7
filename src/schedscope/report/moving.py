"""Sections about where threads ran, and whether they got what was due to them."""

from __future__ import annotations

import polars as pl

from schedscope.analysis._base.memo import once
from schedscope.analysis.affinity import affinity
from schedscope.analysis.fairness import fairness, jain_of
from schedscope.analysis.isolation import runs_outside_affinity
from schedscope.analysis.migration import migration_matrix, migration_summary, ping_pong
from schedscope.analysis.residency import residency
from schedscope.analysis.weights import weight_notes
from schedscope.cli._output import Column
from schedscope.plot.affinity import plot_residency
from schedscope.plot.fairness import plot_fairness
from schedscope.plot.migration import plot_migration_matrix
from schedscope.report.section import Section, figure, prose
from schedscope.report.table import table
from schedscope.trace import Trace

_ROWS = 15


def moved(trace: Trace) -> Section:
    """Migrations: who, from where to where, why and how far."""
    frame = migration_summary(trace, by="comm").filter(pl.col("n") > 0).head(_ROWS)
    intro = (
        "A migration is a run on another CPU than the one before. It costs what the thread had in"
        " its caches, and pays if the thread would have waited longer where it was."
    )
    title = "Who moved between CPUs?"
    if frame.is_empty():
        return Section("moved", title, intro, "<p>No thread ran on another CPU than before.</p>")
    numbers = [
        Column("n", "migrations", "count"),
        Column("n_waited", "waited anyway", "count"),
        Column("queued", "for", "time"),
    ]
    of_runs = [Column("rate_hz", "per second", "fixed"), Column("moved_frac", "of runs", "share")]
    causes = migration_summary(trace, by=["cause", "distance"])
    kinds = [Column("cause"), Column("distance")]
    body = figure(
        plot_migration_matrix(migration_matrix(trace)),
        "migrations from CPU to CPU",
        "moved",
        square=True,
    )
    body += table(frame, [Column("comm"), *numbers[:1], *of_runs, *numbers[1:]], "moved")
    body += "<p>What decided on the new CPU, and how far away it was:</p>"
    body += table(causes, [*kinds, *numbers[:1], *of_runs[:1], *numbers[1:]])
    commands = ["migrations", "migrations --matrix"]
    back = once(ping_pong, trace).filter(pl.col("n") > 1).head(8)
    if back.height:
        columns = [
            Column("comm"),
            Column("tid", kind="id"),
            Column("cpu_a", "CPU", "id"),
            Column("cpu_b", "and", "id"),
            Column("n", "times", "count"),
            Column("away_p50", "away (median)", "time"),
            Column("wait", "waited", "time"),
        ]
        body += "<p>Back and forth between two CPUs, within 10 ms:</p>"
        body += table(back, columns, "bounced")
        commands.append("migrations --ping-pong")
    return Section("moved", title, intro, body, commands)


def kept(trace: Trace) -> Section:
    """Residency and returns; runs outside the mask."""
    frame = affinity(trace).head(_ROWS)
    columns = [
        Column("comm"),
        Column("threads", kind="count"),
        Column("running", "ran", "time"),
        Column("effective_cpus", "effective CPUs", "fixed"),
        Column("top_cpu", "most on CPU", "id"),
        Column("top_frac", "share", "share"),
        Column("same_cpu_frac", "same CPU again", "share"),
        Column("allowed", "may use"),
    ]
    if frame["same_llc_frac"].null_count() < frame.height:
        columns.insert(7, Column("same_llc_frac", "same cache again", "share"))
    spread = residency(trace, by="comm")
    body = figure(plot_residency(spread, top=_ROWS), "share of running time per CPU", "kept")
    body += table(frame, columns, "kept")
    commands = ["affinity", "affinity --residency cpu"]
    masks = trace.threads.select(pl.col("affinity").is_not_null().any()).collect().item()
    outside = once(runs_outside_affinity, trace).head(8) if masks else pl.DataFrame()
    if outside.height:
        columns = [
            Column("comm"),
            Column("tid", kind="id"),
            Column("affinity", "may use"),
            Column("cpu", "ran on CPU", "id"),
            Column("running", "for", "time"),
            Column("runs", kind="count"),
            Column("ts_first", "first at", "at", origin=trace.origin),
        ]
        body += "<p>Runs outside the recorded mask, or from before it was changed:</p>"
        body += table(outside, columns, "outside")
        commands.append("affinity --outside")
    return Section(
        "kept",
        "Who kept to which CPUs?",
        "Effective CPUs: 1 if all the time was on one CPU, two if it was spread evenly over two"
        " (the exponential of its entropy). A thread that comes back to the CPU it last ran on may"
        " find its data still in the cache.",
        body,
        commands,
    )


def fair(trace: Trace) -> Section:
    """Shares due and received."""
    frame = once(fairness, trace)
    classes = jain_of(frame).filter(pl.col("jain").is_not_null())
    intro = (
        "While threads compete for a CPU, each is due a part of the service in proportion to its"
        " weight. Jain's index of what they got over what was due is 1 if all were treated alike,"
        " and 1/n if one of n got everything. Groups of threads (cgroups, autogroup) are in no"
        " trace; where they share the CPU before threads do, threads seem to get too much or too"
        " little."
    )
    title = "Was it shared fairly?"
    if classes.is_empty():
        return Section("fair", title, intro, "<p>No two threads of a class competed.</p>")
    columns = [
        Column("sharing", "class"),
        Column("jain", "Jain's index", "fixed"),
        Column("n", "threads", "count"),
        Column("lag_most", "most behind", "time"),
        Column("comm_least", "worst off"),
        Column("least", "got of its due", "share"),
        Column("comm_most", "best off"),
        Column("most", "got of its due", "share"),
        Column("basis", "weights"),
    ]
    behind = frame.filter(pl.col("due") > 0).head(8)
    rows = [
        Column("comm"),
        Column("tid", kind="id"),
        Column("sharing", "class"),
        Column("weight", kind="right"),
        Column("running", "got", "time"),
        Column("due", kind="time"),
        Column("lag", "behind", "time"),
        Column("ratio", "got of its due", "share"),
    ]
    drawn = plot_fairness(frame, top=12)
    notes = ". ".join(note[0].upper() + note[1:] for note in weight_notes(trace))
    return Section(
        "fair",
        title,
        intro,
        f"<p>{prose(notes)}.</p>"
        + table(classes, columns)
        + figure(drawn, "shares due and received", "fair")
        + table(behind, rows, "fair"),
        ("fairness",),
    )
