"""What did threads wait for when they gave up the CPU, and how long?

FreeBSD's traces name the wait message of a sleep and the lock of a contested one; Linux's
tell only whether a signal could have ended it. Waiting for a CPU is not in here: see
`schedscope latency`.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from schedscope import units
from schedscope.cli import _headline, _options, _output
from schedscope.cli._output import Column
from schedscope.errors import UsageError

if TYPE_CHECKING:
    import polars as pl

NAME = "off-cpu"
HELP = "what threads slept or were blocked for, and how long"
EXAMPLE = """\
  schedscope off-cpu world.capture
  schedscope off-cpu world.capture --by comm --top 10
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `schedscope off-cpu`."""
    _options.add_input(parser)
    parser.add_argument(
        "--by",
        choices=("all", "comm", "thread", "process"),
        default="all",
        help="reasons of all threads together, or of each name, thread or process (default: all)",
    )
    _options.add_top(parser, 20, what="the first N rows")
    _options.add_selection(parser, what="threads")
    _options.add_format(parser)


def run(args: argparse.Namespace) -> int:
    """Print the table."""
    from schedscope.analysis._base.by import keys_of
    from schedscope.analysis.off_cpu import off_cpu

    _options.check_top(args)
    if args.cpu:
        raise UsageError("--cpu", "threads to choose", "who is off the CPU is on none")
    trace = _options.open_input(args)
    by = keys_of(args.by, ("comm", "tid", "pid"))
    frame = off_cpu(trace, by=by, where=_options.where_threads(args, trace))
    shown = frame[: _options.top(args, 20)]
    foot = _output.more(len(frame) - len(shown), why=", of less time")
    if not len(frame):
        foot.append("nobody selected left a CPU without wanting it")
    elif not frame["kind"].count():
        foot.append("this source does not tell reasons: FreeBSD's DTrace and KTR traces do")
    _output.emit(
        _worded(shown) if args.format == "table" else shown,
        args.format,
        columns=_columns(frame, by),
        about={**_headline.about(trace), "rows_in_all": len(frame)},
        head=[*_headline.headline(trace), _totals(frame), ""],
        foot=foot,
    )
    return 0


def _totals(frame: pl.DataFrame) -> str:
    n, open_, unseen = (int(frame[name].sum()) for name in ("n", "n_censored", "n_excluded"))
    text = f"{units.count(n)} times off the CPU, {units.duration(int(frame['total'].sum()))} in all"
    if open_:
        text += f"; {units.count(open_)} still open at the end of sight"
    if unseen:
        text += f"; {units.count(unseen)} of unknown length: begin not seen"
    return text


def _worded(frame: pl.DataFrame) -> pl.DataFrame:
    import polars as pl

    reason = pl.when(pl.col("kind") == "lock").then(pl.lit("lock ")).otherwise(pl.lit(""))
    nameless = pl.when(pl.col("kind") == "interrupt").then(pl.lit("(no interrupt)"))
    return frame.with_columns(
        reason=pl.when(pl.col("reason").is_not_null())
        .then(reason + pl.col("reason"))
        .otherwise(nameless.when(pl.col("kind") == "suspended").then(pl.lit("(suspended)")))
    )


def _columns(frame: pl.DataFrame, by: list[str]) -> list[Column]:
    columns = [Column(name, rank=0) for name in by]
    if frame["kind"].count():
        columns.append(Column("reason"))
    columns += [
        Column("state"),
        Column("n", "times", "count"),
        Column("total", kind="time"),
        Column("mean", kind="time", rank=3),
        Column("p50", kind="time", rank=2),
        Column("p99", kind="time", rank=1),
        Column("max", kind="time"),
    ]
    if frame["n_censored"].sum():
        columns.append(Column("n_censored", "open", "count", rank=4))
    if frame["n_excluded"].sum():
        columns.append(Column("n_excluded", "unseen", "count", rank=5))
    return columns
