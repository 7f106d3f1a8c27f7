"""How long did threads wait for a CPU, who, and why?

A wait runs from the moment a thread could run (woken, created, preempted, or
having yielded) to the moment it ran. Quantiles are exact order statistics over
the waits seen from begin to end; waits still open at the end are counted, and
the longest of them is shown as a lower bound where it exceeds the maximum.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from schedscope import units
from schedscope.cli import _headline, _options, _output
from schedscope.cli._output import Column

if TYPE_CHECKING:
    import polars as pl

    from schedscope.trace import Trace

NAME = "latency"
HELP = "how long threads waited for a CPU"
EXAMPLE = """\
  schedscope latency web.capture --by comm --top 20
  schedscope latency web.capture --by tid --comm nginx --sort p99
  schedscope latency web.capture --every 100ms --cause preempt --format csv
"""

GROUPS = (
    "comm",
    "pid",
    "tid",
    "utid",
    "cpu",
    "cause",
    "prio",
    "sched_class",
    "queue_cpu",
    "prev_cpu",
    "waker_cpu",
)
CAUSES = ("wake", "new", "preempt", "yield", "unknown")
SORTS = ("total", "n", "mean", "p50", "p90", "p99", "p99.9", "max")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `schedscope latency`."""
    _options.add_input(parser)
    parser.add_argument(
        "--by",
        metavar="COLUMN,...",
        default="comm",
        help=f"one row for each of: {', '.join(GROUPS)}; or `all` (default: comm)",
    )
    parser.add_argument("--every", metavar="TIME", help="also by time bucket, as in 100ms")
    parser.add_argument("--top", type=int, metavar="N", help="only the first N rows")
    parser.add_argument(
        "--sort", choices=SORTS, help="largest first (default: total; by time with --every)"
    )
    _options.add_selection(parser, what="waits of")
    parser.add_argument("--cause", choices=CAUSES, action="append", help="only of this cause")
    parser.add_argument(
        "--kaplan-meier",
        action="store_true",
        help="quantiles that take open waits into account (Kaplan-Meier)",
    )
    parser.add_argument(
        "--definition",
        metavar="TOOL",
        help="count waits as this tool does (see `schedscope definitions`)",
    )
    _options.add_format(parser)


def run(args: argparse.Namespace) -> int:
    """Print the table."""
    import polars as pl

    from schedscope.analysis.runqueue_latency import runqueue_latency

    by = _options.groups(args.by, GROUPS)
    _options.check_top(args)
    trace = _options.open_input(args)
    if args.definition:
        from schedscope.analysis.definitions import as_defined

        trace = as_defined(trace, args.definition)
    where = _selection(args, trace)
    frame = runqueue_latency(
        trace,
        by=by,
        where=where,
        every=args.every,
        censored="kaplan-meier" if args.kaplan_meier else "exclude",
    )
    if args.sort:
        frame = frame.sort(args.sort, descending=True, nulls_last=True)
    rows = len(frame)
    totals = frame.select(pl.col("n", "n_censored", "n_excluded", "total").sum()).row(0, named=True)
    frame = frame.head(args.top) if args.top else frame
    about = {**_headline.about(trace), "rows_in_all": rows, "all": totals}
    head = [*_headline.headline(trace), _totals(totals), ""]
    foot = _output.more(rows - len(frame))
    if frame["n_censored"].sum():
        foot.append(
            "open: waits that had not ended when they went out of sight; >= marks a lower bound"
        )
    _output.emit(
        _marked(frame) if args.format == "table" else frame,
        args.format,
        columns=_columns(frame, by, trace.origin),
        about=about,
        head=head,
        foot=foot,
    )
    return 0


def _selection(args: argparse.Namespace, trace: Trace) -> pl.Expr | None:
    import polars as pl

    chosen = _options.where(args, trace)
    if not args.cause:
        return chosen
    of_cause = pl.col("cause").cast(pl.String).is_in(args.cause)
    return of_cause if chosen is None else chosen & of_cause


def _totals(row: dict[str, int]) -> str:
    parts = [f"{units.several(row['n'], 'wait')}, {units.duration(row['total'])} in all"]
    if row["n_censored"]:
        parts.append(f"{row['n_censored']:,} still open at the end of sight")
    if row["n_excluded"]:
        parts.append(f"{row['n_excluded']:,} left out: begin not seen")
    return "; ".join(parts)


def _marked(frame: pl.DataFrame) -> pl.DataFrame:
    """The longest wait as text: an open wait may be the longest of all."""
    longest = [
        f">={units.duration(open_wait)}"
        if open_wait is not None and open_wait > (most or 0)
        else units.duration(most)
        for most, open_wait in frame.select("max", "max_censored").iter_rows()
    ]
    import polars as pl

    return frame.with_columns(pl.Series("max", longest, dtype=pl.String))


def _columns(frame: pl.DataFrame, by: list[str], origin: int) -> list[Column]:
    columns = [Column("ts", "from", "at", origin=origin)] if "ts" in frame.columns else []
    for name in by:
        text = frame[name].dtype in ("String",) or not frame[name].dtype.is_numeric()
        columns.append(Column(name, kind="text" if text else "id"))
    columns.append(Column("n", "waits", "count"))
    if frame["n_censored"].sum():
        columns.append(Column("n_censored", "open", "count"))
    if frame["n_excluded"].sum():
        columns.append(Column("n_excluded", "unseen", "count", rank=5))
    columns.append(Column("total", kind="time", rank=2))
    columns.append(Column("mean", kind="time", rank=4))
    ranks = {"p90": 3, "p99.9": 6}
    columns += [
        Column(name, kind="time", rank=ranks.get(name, 0))
        for name in frame.columns
        if name.startswith("p") and name[1:].replace(".", "").isdigit()
    ]
    columns.append(Column("max", kind="right"))
    columns.append(Column("ts_max", "max at", "at", rank=1, origin=origin))
    return columns
