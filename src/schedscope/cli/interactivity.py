"""Which threads would a scheduler have called interactive?

The recorded runs and sleeps of each thread, under whatever scheduler they were
recorded, are given to the rule by which FreeBSD's ULE tells interactive
threads from others: a score from 0 (asleep) to 100 (running), interactive
below 30; or to that of Linux 2.6.10, a bonus from 0 to 10, interactive from 7
on. A thread that was there when the recording began is scored from an
empty history; the column `settled` says from when on that no longer matters.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from schedscope.cli import _headline, _options, _output
from schedscope.cli._output import Column
from schedscope.errors import UsageError

if TYPE_CHECKING:
    import polars as pl

NAME = "interactivity"
HELP = "which threads a scheduler would call interactive"
EXAMPLE = """\
  schedscope interactivity web.capture --scheduler ule
  schedscope interactivity web.capture --comm 'nginx*' --set interact=20
  schedscope interactivity web.capture --tid 712 --series --format csv
"""
SORTS = ("observed", "interactive", "score", "transitions", "utid")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `schedscope interactivity`."""
    _options.add_input(parser)
    parser.add_argument(
        "--scheduler",
        default="ule",
        metavar="NAME",
        help="whose rule: ule (FreeBSD 14, the default), ule-2011, o1 (Linux 2.6.10)",
    )
    parser.add_argument(
        "--set",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="a tunable of it, as in --set interact=20 (see simulate --policies)",
    )
    parser.add_argument("--series", action="store_true", help="every change of a score instead")
    parser.add_argument(
        "--sort", choices=SORTS, default="observed", help="largest first (default: observed)"
    )
    parser.add_argument("--top", type=int, metavar="N", help="only the first N rows")
    _options.add_selection(parser)
    _options.add_format(parser)


def run(args: argparse.Namespace) -> int:
    """Print the table."""
    from schedscope.analysis.interactivity import (
        interactivity,
        interactivity_sentences,
        interactivity_series,
    )

    if args.top is not None and args.top < 1:
        raise UsageError(f"--top {args.top}", "a number of rows, 1 or more")
    if args.cpu:
        raise UsageError(
            f"--cpu {args.cpu[0]}",
            "threads: a score is of a thread, wherever it runs",
            "select with --comm, --pid or --tid",
        )
    given = dict(_setting(text) for text in args.set)
    trace = _options.open_input(args)
    where = _options.where(args, trace)
    ask = interactivity_series if args.series else interactivity
    frame = ask(trace, args.scheduler, set=given, where=where)
    if not args.series:
        frame = frame.sort(args.sort, descending=args.sort != "utid", nulls_last=True)
    rows = frame.height
    frame = frame.head(args.top) if args.top else frame
    origin = trace.window[0]
    foot = (
        [f"({rows - frame.height} more rows; give a larger --top)"] if frame.height < rows else []
    )
    about = {**_headline.about(trace), "scheduler": args.scheduler, "rows_in_all": rows}
    if not args.series:
        sentences = interactivity_sentences(frame, origin=origin)
        about["sentences"] = sentences
        foot += ["", *sentences[:5]] if sentences else []
    _output.emit(
        frame,
        args.format,
        columns=_columns(frame, args.series, origin),
        about=about,
        head=[*_headline.headline(trace), ""],
        foot=foot,
    )
    return 0


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise UsageError(f"--set {text}", "NAME=VALUE", "write for example --set interact=20")
    return name, value


def _columns(frame: pl.DataFrame, series: bool, origin: int) -> list[Column]:
    if series:
        return [
            Column("ts", "at", "at", origin=origin),
            Column("comm"),
            Column("utid", kind="id"),
            Column("score", kind="right"),
            Column("interactive"),
        ]
    columns = [
        Column("comm"),
        Column("tid", kind="id"),
        Column("score", kind="right"),
        Column("score_min", "min", "right", rank=5),
        Column("score_max", "max", "right", rank=4),
        Column("is_interactive", "at end"),
        Column("ts_interactive", "first", "at", origin=origin),
        Column("interactive_frac", "interactive", "share"),
        Column("transitions", "changes", "count", rank=2),
        Column("observed", kind="time", rank=1),
        Column("ts_settled", "settled", "at", rank=3, origin=origin),
        Column("n", "sleeps", "count", rank=6),
    ]
    if frame["unknown"].sum():
        columns.append(Column("unknown", kind="time", rank=7))
    if frame["n_excluded"].sum():
        columns.append(Column("n_excluded", "unseen", "count", rank=8))
    return columns
