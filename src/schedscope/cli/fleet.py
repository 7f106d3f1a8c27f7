"""Summarise many traces, compare hosts, kernels, settings and labels, and write one page.

PATH is a trace, a folder of traces, or a URL of an object store (s3://bucket/traces). The
work is done by processes of this host, or by the workers of a Dask cluster (--scheduler).
Each trace gets a summary of some kB in the folder -o; a second run summarises only traces
that are new or have changed. The folder also holds fleet.parquet, with one row per trace,
and index.html, with the hosts that stand out, comparisons of groups of hosts, and the
command that shows more of each trace.

With a selection, everything is about the waits of these threads on each host; a trace
without such threads has no waits, and is not compared. Select by name, service, control
group or command line: process and thread ids differ between hosts.

If a worker dies, it is replaced and its trace is tried again. A trace that cannot be read
is named, and the others are still summarised.

Exit code: 0 if every trace has a summary, else 1.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from schedscope import units
from schedscope.cli import _options, _quantities
from schedscope.cli._output import complain
from schedscope.cli._progress import Progress
from schedscope.errors import UsageError
from schedscope.present.answer import Answer

GROUP = "compare"
HELP = "which of many hosts stand out, and by kernel or setting"
EXAMPLE = """\
  schedscope fleet recordings/ -o fleet/ --labels racks.csv
  schedscope fleet recordings/ -o nginx/ --service nginx.service
  schedscope fleet s3://bucket/recordings -o fleet/ --scheduler tcp://head:8786
"""

ROWS = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `schedscope fleet`."""
    parser.add_argument(
        "inputs",
        metavar="PATH",
        nargs="+",
        help="a trace, a folder of traces, or a URL such as s3://bucket/traces",
    )
    parser.add_argument(
        "-o", "--output", metavar="DIR", required=True, help="the folder for all that is written"
    )
    parser.add_argument(
        "--jobs", type=int, metavar="N", help="number of processes (default: one per CPU)"
    )
    parser.add_argument(
        "--scheduler", metavar="URL", help="use a Dask cluster, as in tcp://head:8786"
    )
    parser.add_argument(
        "--label",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="a label of all traces (repeat for more); `host` names their host",
    )
    parser.add_argument(
        "--labels",
        metavar="FILE.csv",
        help="labels of single traces: a column `trace` (path or file name), one for each label",
    )
    parser.add_argument(
        "--by",
        metavar="COLUMN,...",
        help="compare groups by these columns (default: every kernel, setting and label)",
    )
    parser.add_argument("--refresh", action="store_true", help="make all summaries again")
    parser.add_argument(
        "--keep-converted",
        action="store_true",
        help="keep converted traces beside their sources (default: in DIR while needed)",
    )
    _quantities.older(parser, "--keep", "--keep-converted")
    parser.add_argument(
        "--fetch-limit",
        metavar="SIZE",
        type=_quantities.size_once_in("M"),
        default="4G",
        help="fetch no trace larger than this from a store (default: 4G)",
    )
    _options.add_window(parser)
    _options.add_selection(parser, what="waits of these threads")
    _options.add_decoder_options(parser)
    _options.add_top(parser, ROWS, what="the N traces with the longest p99")
    _options.add_format(parser)


def run(args: argparse.Namespace) -> Answer | int:
    """Summarise; the table, with what stands out below it."""
    _options.check_top(args, "traces")
    from schedscope.fleets.fleet import summarised
    from schedscope.fleets.labels import Labels, parsed

    labels = Labels(parsed(args.label), args.labels)
    by = [name.strip() for name in args.by.split(",")] if args.by else None
    if args.fetch_limit < 1:
        raise UsageError(f"--fetch-limit {args.fetch_limit}", "more than nothing")
    select = _select(args)
    state = [0, 0]
    try:
        with Progress("summarising traces") as progress:

            def told(done: int, total: int) -> None:
                state[:] = done, total
                progress.note(done, total, lambda: f"{done} of {units.several(total, 'trace')}")

            found = summarised(
                args.inputs,
                args.output,
                labels=labels,
                scheduler=args.scheduler,
                jobs=args.jobs,
                keep=args.keep_converted,
                refresh=args.refresh,
                options=_options.decoder_options(args),
                fetch_limit=args.fetch_limit,
                select=select,
                since=args.since,
                until=args.until,
                told=told,
            )
    except KeyboardInterrupt:
        done, total = state
        complain(
            f"interrupted after {done} of {units.several(total, 'trace')}: the summaries are kept"
            f" in {args.output}, and the next run continues from there"
        )
        return 130
    from schedscope.fleets import groups, hosts, page, store

    out = hosts.outliers(found.table)
    divided, resamples = groups.grouped(found.table, by)
    name = Path(args.output).absolute().name
    words = _words(args)
    text = page.page(
        name, found.table, page.sketches_of(found.summaries), out, divided, resamples, words
    )
    folder = Path(args.output)
    traces = found.table["path"]
    store.write_whole(folder / store.PAGE, lambda to: to.write_text(text, encoding="utf-8"), traces)
    if args.scheduler and not found.computed and not found.failed:
        complain(f"every trace has a summary already: no connection to {args.scheduler} was made")
    if strange := labels.about_none(found.table["path"]):
        complain(f"{args.labels} labels traces that are not among these in {_some(strange)}")
    for path, error in found.failed:
        complain(error if path in error else f"{path}: {error}")
    if found.failed:
        complain(
            f"{len(found.failed)} of {units.several(found.table.height, 'trace')} could not be"
            " summarised; the others are in the table"
        )
    return _answer(args, found, out, divided)


def _select(args: argparse.Namespace) -> dict[str, Any]:
    """The selection, as it is said to the workers."""
    from schedscope.fleets.fleet import SELECTIONS

    _options.refuse_cpu(args, "fleet", "the CPUs of hosts are not compared one by one")
    for option in ("pid", "tid", "tree"):
        if getattr(args, option):
            raise UsageError(
                f"fleet with --{option}",
                "a name, which is the same on every host",
                "select with --comm, --process, --service, --cgroup or --cmdline",
            )
    return {name: value for name in SELECTIONS if (value := getattr(args, name))}


def _words(args: argparse.Namespace) -> str:
    """What was selected, as options of other commands."""
    import shlex

    window = [(name, getattr(args, name)) for name in ("since", "until")]
    words = [f"--{name} {shlex.quote(at)}" for name, at in window if at is not None]
    return " ".join([word for word in (_options.words(args), *words) if word])


def _some(names: Sequence[str], most: int = 3) -> str:
    """How many lines of a table, and what the first of them say."""
    more = ", ..." if len(names) > most else ""
    return f"{units.several(len(names), 'line')}: {', '.join(names[:most])}{more}"


def _answer(args: argparse.Namespace, found: object, out: object, divided: object) -> Answer:
    import polars as pl

    from schedscope.fleets import page, store
    from schedscope.fleets.fleet import Fleet
    from schedscope.present.columns import choose

    assert isinstance(found, Fleet)
    assert isinstance(out, pl.DataFrame)
    assert isinstance(divided, pl.DataFrame)
    table = found.table
    if args.format != "table" and args.top is None:
        shown = table
    else:
        read = table.filter(pl.col("error").is_null())
        shown = read.sort("p99", "path", descending=[True, False], nulls_last=True).head(
            args.top or ROWS
        )
    # Failed traces are listed below a table, and are rows in other formats.
    in_all = table.height - (len(found.failed) if args.format == "table" else 0)
    names = ["trace", "host?", "release?", "dur", "n", "n_censored?", "p50", "p99", "max",
             "waiting_frac", "unknown_frac", "level"]  # fmt: skip
    columns = choose(shown, names, question="fleet", narrow="unknown_frac release dur p50")
    apart = page.worded(out.filter(pl.col("verdict") != ""))
    notes = [
        f"{row['host']}: {row['measure']} {row['shown']}, {row['ratio']:.2f} times the median"
        f" host's{_interval(row)}: {row['verdict']}"
        for row in apart.head(ROWS).iter_rows(named=True)
    ]
    differing = divided.filter(pl.col("verdict").is_in(["more", "less"]))
    differences = [
        f"{row['column']} {row['group']}: {row['measure']} {row['ratio']:.2f} times that of"
        f" {row['against']}{_interval(row)}: {row['verdict']}"
        for row in differing.iter_rows(named=True)
    ]
    place = Path(args.output)
    written = [str(place / store.PAGE), str(place / store.TABLE)]
    about = {
        "traces": table.height,
        "failed": len(found.failed),
        "computed": found.computed,
        "hosts": out.to_dicts(),
        "groups": divided.to_dicts(),
        "written": written,
        "time_unit": "ns",
    }
    return Answer(
        shown,
        columns,
        about,
        head=[" · ".join(page.said(table, _words(args))), ""],
        notes=[
            "",
            "Hosts that stand out:" if notes else "No host stands out.",
            *notes,
            "Groups that differ:" if differences else "No groups differ beyond the noise.",
            *differences,
            "",
            f"{found.computed} of {units.several(table.height, 'summary', 'summaries')} made now;"
            f" wrote {', '.join(written)}",
        ],
        rows_in_all=in_all,
        rest=("more trace", ", all with a shorter p99"),
        exit_code=1 if found.failed else 0,
    )


def _interval(row: dict[str, float | None]) -> str:
    if row["lower"] is None or row["upper"] is None:
        return " (no interval: too few traces)"
    return f" ({row['lower']:.2f} to {row['upper']:.2f})"
