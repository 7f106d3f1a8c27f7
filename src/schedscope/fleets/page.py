"""The page of a fleet: hosts that stand out, groups compared, and the way to each trace."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from html import escape
from typing import Any

import polars as pl

from schedscope import __version__, plot, units
from schedscope.fleets import groups, hosts
from schedscope.fleets.intervals import SEED
from schedscope.fleets.measures import LEAST_WAITS, MEASURES, comparable, left_out
from schedscope.fleets.sketch import RELATIVE_ERROR, Sketch
from schedscope.fleets.sources import is_url
from schedscope.present.columns import choose
from schedscope.present.html_table import html_table
from schedscope.present.text_table import cells
from schedscope.report.document import document
from schedscope.report.section import Section, figure, prose

MOST_ROWS = 2_000
"""Traces that the page lists; the table has all."""
_SHOWN_HOSTS = 25
_TRACES = ("release", "dur", "n", "p50", "p99", "max", "waiting_frac", "level")


def page(
    name: str,
    table: pl.DataFrame,
    sketches: Mapping[str, Sketch],
    out: pl.DataFrame,
    divided: pl.DataFrame,
    resamples: int,
    selected: str = "",
) -> str:
    """The whole HTML document about a fleet of that `name`.

    `selected`: the options that selected the threads, of whose waits alone it is.
    `sketches`: those of the traces by path; `out` and `divided`: what `hosts.outliers` and
    `groups.grouped` say of the table, the latter after so many `resamples`.
    """
    order = _order(table, out)
    shown = order.head(MOST_ROWS)
    first: dict[str, int] = {}
    for number, host in enumerate(shown["host"].to_list()):
        if host is not None:
            first.setdefault(host, number)
    sections = [
        _hosts(table, out, first),
        _groups(divided, resamples),
        *_failed(table),
        _traces(order, shown, sketches, selected),
        _trust(table),
    ]
    body = "".join(section.html(name) for section in sections)
    facts = " · ".join(escape(part) for part in said(table, selected))
    return document(
        name,
        "a fleet",
        f"<p class=facts>{facts}</p>{_tiles(table, sketches)}",
        sections,
        body,
        f"Written by schedscope {escape(__version__)}. Counts, and the times of"
        f" single traces, are exact; quantiles over several traces are within"
        f" {_error()} of the exact order statistics.",
    )


def said(table: pl.DataFrame, selected: str = "") -> list[str]:
    """A description of the fleet, as parts of a line."""
    read = table.filter(pl.col("error").is_null())
    kernels = read["release"].drop_nulls().n_unique()
    parts = [units.several(table.height, "trace")]
    if named := read["host"].drop_nulls().n_unique():
        parts.append(units.several(named, "host"))
    parts.append(units.several(kernels, "kernel"))
    parts.append(f"{units.duration(int(read['dur'].sum()))} recorded")
    parts.append(units.several(int(read["events"].sum()), "event"))
    if selected:
        none = read.filter((pl.col("n") + pl.col("n_censored") + pl.col("n_excluded")) == 0).height
        parts.append(
            f"selected: {units.printable(selected)}"
            + (f" (no wait of such threads in {none})" if none else "")
        )
    if failed := table.height - read.height:
        parts.append(f"{failed} could not be summarised")
    return parts


def _error() -> str:
    return units.percent(RELATIVE_ERROR).replace(".0", "").replace(" ", "\u00a0")


def _tiles(table: pl.DataFrame, sketches: Mapping[str, Sketch]) -> str:
    read = table.filter(pl.col("error").is_null())
    whole = Sketch.merged(sketches.values())
    most = None if read["n_high"].has_nulls() else int(read["n_high"].sum())
    found = [("waits", units.interval(whole.n, most, units.count))]
    for name, share in (("median wait", 0.5), ("99 % within", 0.99), ("99.9 % within", 0.999)):
        if whole.n:
            found.append((f"{name}, ±{_error()}", units.duration(whole.wait_at(share))))
    if whole.n:
        longest = None if read["max_high"].has_nulls() else read["max_high"].max()
        found.append(("longest", units.interval(read["max"].max(), longest)))  # type: ignore[arg-type]
    levels = int(read["level"].is_in(["warning", "violated"]).sum())
    found.append(("traces to use with care", units.count(levels)))
    return (
        "<dl class=tiles>"
        + "".join(f"<div><dt>{escape(name)}</dt><dd>{value}</dd></div>" for name, value in found)
        + "</dl>"
    )


def _order(table: pl.DataFrame, out: pl.DataFrame) -> pl.DataFrame:
    """Hosts that stand out most first, each with its worst trace first; failed traces apart."""
    worst = out.group_by("host").agg(pl.col("score").max())
    return (
        table.filter(pl.col("error").is_null())
        .join(worst, on="host", how="left")
        .sort("score", "host", "p99", "path", descending=[True, False, True, False],
              nulls_last=True)
    )  # fmt: skip


def _hosts(table: pl.DataFrame, out: pl.DataFrame, first: Mapping[str, int]) -> Section:
    n = out["host"].n_unique()
    intro = (
        f"Each host's traces compared with those of the median host. A host stands out if it is"
        f" more than {hosts.CUT} robust standard deviations away, and its ratio to the median host"
        f" is above {hosts.LEAST_RATIO} or below {1 / hosts.LEAST_RATIO:.2f}. If the 95&nbsp;%"
        " interval of the ratio reaches back inside these limits, or there are too few traces for"
        " an interval, the verdict says <em>perhaps</em>."
    )
    if out.is_empty():
        body = (
            f"<p>Fewer than {hosts.LEAST_HOSTS} hosts have traces that can be compared: none can be"
            " said to stand out.</p>"
        )
        return Section("hosts", "Which hosts stand out?", intro, body + _not_compared(table))
    chance = hosts.by_chance(n) * n * len(MEASURES)
    bad = worded(out.filter(pl.col("verdict") != ""))
    frame = bad.head(_SHOWN_HOSTS)
    columns = choose(
        frame,
        ["verdict", "measure", "shown", "ratio", "lower", "upper", "score", "n_traces", "release"],
        question="fleet",
    )
    listed = f"<p>None of {n} hosts stands out.</p>"
    if frame.height:
        names = [_link(host, first) for host in frame["host"]]
        listed = _with_column("host", names, html_table(frame, columns, "hosts"))
        if bad.height > frame.height:
            listed += f"<p>{bad.height - frame.height} more rows, which stand out less.</p>"
    listed += (
        f"<p>If all hosts were alike and the logarithms of their values normally distributed, at"
        f" most {chance:.2g} of {len(MEASURES) * n} rows would be listed by chance on average.</p>"
    )
    drawn = figure(plot.fleet_hosts(out), "p99 of each host over the median host's", "hosts")
    return Section("hosts", "Which hosts stand out?", intro, drawn + listed + _not_compared(table))


def worded(frame: pl.DataFrame) -> pl.DataFrame:
    """With `shown`, the value in its measure's unit."""
    texts = [
        units.percent(value) if measure == "waiting_frac" else units.duration(value)
        for measure, value in frame.select("measure", "value").iter_rows()
    ]
    return frame.with_columns(pl.Series("shown", texts, dtype=pl.String))


def _link(host: str, first: Mapping[str, int]) -> str:
    text = escape(host)
    return f'<a href="#t{first[host]}">{text}</a>' if host in first else text


def _with_column(head: str, texts: list[str], table: str) -> str:
    """A table of ours with one more column in front, whose cells are HTML."""
    before, rows = table.split("<tbody>")
    parts = rows.split("<tr>")
    joined = parts[0] + "".join(
        f"<tr><td>{text}</td>{part}" for text, part in zip(texts, parts[1:], strict=True)
    )
    return before.replace("<thead><tr>", f"<thead><tr><th>{head}</th>") + "<tbody>" + joined


def _not_compared(table: pl.DataFrame) -> str:
    reasons = left_out(table)
    if not reasons:
        return ""
    parts = [f"{units.count(n)} {escape(reason)}" for reason, n in reasons.items()]
    return f"<p>Traces that are not compared: {'; '.join(parts)}.</p>"


def _groups(divided: pl.DataFrame, resamples: int) -> Section:
    intro = (
        "Hosts grouped by kernel, recorded setting or label. A value is the geometric mean over"
        " the hosts; a ratio compares it with that of the largest group, with a 95&nbsp;% interval"
        f" from {resamples:,} resamples of the hosts and of the traces of each (seed {SEED})."
        " <em>more</em> and <em>less</em> mark rows where an interval that holds for all rows at"
        " once excludes 1. Groups differ in other ways, too: this shows that they differ, not why."
    )
    title = "Does it depend on the kernel, a setting or a label?"
    if divided.is_empty():
        text = f"No two kernels, settings or labels have {groups.LEAST_HOSTS} hosts each."
        return Section("groups", title, intro, f"<p>{text}</p>")
    frame = worded(divided)
    columns = choose(
        frame,
        ["column", "group", "measure", "verdict", "shown", "ratio", "lower", "upper", "against",
         "n_hosts", "n_traces"],
        question="fleet",
    )  # fmt: skip
    drawn = figure(plot.fleet_groups(divided), "ratios of the groups", "groups")
    return Section("groups", title, intro, drawn + html_table(frame, columns, "groups"))


def _failed(table: pl.DataFrame) -> list[Section]:
    frame = table.filter(pl.col("error").is_not_null())
    if frame.is_empty():
        return []
    items = "".join(
        f"<li class=violated><p class=what><b>{escape(path)}</b></p><p>{prose(error)}</p></li>"
        for path, error in frame.select("path", "error").iter_rows()
    )
    return [
        Section(
            "failed",
            "Which traces could not be summarised?",
            "No number on this page includes them. The next run tries them again.",
            f"<ol class=wrong>{items}</ol>",
        )
    ]


def _traces(
    order: pl.DataFrame, shown: pl.DataFrame, sketches: Mapping[str, Sketch], selected: str
) -> Section:
    columns = choose(shown, _TRACES, question="fleet")
    texts = {column.name: cells(shown, column) for column in columns}
    labels = [name for name in shown.columns if name.startswith("label_")]
    merged = {
        host: Sketch.merged(sketches[path] for path in mine["path"])
        for (host,), mine in shown.group_by("host", maintain_order=True)
    }
    rows: list[str] = []
    before: object = rows  # not a host name
    width = len(columns) + 1
    for number, row in enumerate(shown.iter_rows(named=True)):
        if row["host"] != before:
            before = row["host"]
            whole = merged[before]
            quantiles = "".join(
                f" · {name} {units.duration(whole.wait_at(share))}"
                for name, share in (("p50", 0.5), ("p99", 0.99))
                if whole.n
            )
            # For hosts without a name it is unknown which traces belong together.
            said = "hosts not named"
            if before is not None:
                sums = f"{units.several(whole.n, 'wait')}{quantiles} (±{_error()})"
                said = f"{escape(str(before))} · {sums}"
            rows.append(f"<tr><th colspan={width}>{said}</th></tr>")
        tags = " ".join(
            f"{escape(name.removeprefix('label_'))}={escape(row[name])}"
            for name in labels
            if row[name] is not None
        )
        sides = (" class=n" if column.kind != "text" else "" for column in columns)
        body = "".join(
            f"<td{side}>{escape(texts[column.name][number].strip())}</td>"
            for side, column in zip(sides, columns, strict=True)
        )
        path = escape(row["path"])
        mine = f" {escape(selected)}" if selected else ""
        command = (
            f"copy <code>{path}</code>, then <code>schedscope report{mine}</code>"
            if is_url(row["path"])
            else f"<code>schedscope report {escape(shlex.quote(row['path']))}{mine}</code>"
        )
        more = f"<br>{tags}" if tags else ""
        rows.append(f'<tr id="t{number}"><td>{command}{more}</td>{body}</tr>')
    head = "".join(
        f"<th{' class=n' if column.kind != 'text' else ''}>{escape(column.title)}</th>"
        for column in columns
    )
    body = (
        "<div class=table id=traces-table tabindex=0 role=region aria-label='The traces'>"
        f"<table><thead><tr><th>trace</th>{head}</tr></thead>"
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )
    if order.height > shown.height:
        body += f"<p>{units.several(order.height - shown.height, 'more trace')} in the table.</p>"
    return Section(
        "traces",
        "The traces",
        "By host, those that stand out most first, and of each the trace with the longest p99"
        " first. The command writes a page about the trace; <code>schedscope findings</code>,"
        " <code>latency</code>, <code>check</code> and all others take the same path.",
        body,
    )


def _trust(table: pl.DataFrame) -> Section:
    read = table.filter(pl.col("error").is_null())
    order = {"violated": 0, "warning": 1, "note": 2, "ok": 3}
    counts = dict(read.group_by("level").len().iter_rows())
    items = "".join(
        f"<li>{escape(level)}: {units.several(counts[level], 'trace')}</li>"
        for level in sorted(counts, key=lambda level: order.get(str(level), 9))
    )
    censored, excluded, n = (int(read[name].sum()) for name in ("n_censored", "n_excluded", "n"))
    texts = [
        f"Of {units.several(n + censored + excluded, 'wait')}, {units.count(censored)} were"
        f" unfinished when last observed, and the start of {units.count(excluded)} was not"
        " recorded: bounds of each trace have what is known of them, and quantiles of several"
        " traces together do not.",
        f"Quantiles of several traces together come from sketches and are within {_error()} of the"
        " exact ones; counts, sums, longest waits and the quantiles of one trace are exact.",
        f"{units.several(comparable(table).height, 'trace')} of"
        f" {units.count(read.height)} are compared: those of known hosts with {LEAST_WAITS} waits"
        " or more.",
    ]
    return Section(
        "trust",
        "How far can it be trusted?",
        "By the most serious of each trace's checks (<code>schedscope check</code>): <em>note</em>"
        " is found and excluded, <em>warning</em> may move results, <em>violated</em> means that"
        " sums do not add up.",
        f"<ul class=findings>{items}</ul>" + "".join(f"<p>{prose(text)}</p>" for text in texts),
    )


def sketches_of(summaries: Mapping[str, Mapping[str, Any]]) -> dict[str, Sketch]:
    """The sketches of summaries."""
    return {path: Sketch.from_json(summary["waits"]) for path, summary in summaries.items()}
