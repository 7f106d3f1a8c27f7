"""`schedscope dispatch-queues`: the options and words that its question does not declare."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from schedscope import units
from schedscope.cli import _options
from schedscope.errors import UsageError
from schedscope.present import headline
from schedscope.present.answer import Answer
from schedscope.present.columns import choose

if TYPE_CHECKING:
    import polars as pl

GROUPS = ("all", "comm", "tid", "pid", "utid", "process_name", "cgroup", "service")
ROWS = 30


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `schedscope dispatch-queues`."""
    _options.add_input(parser)
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--slices", action="store_true", help="show slices given and used, and the longest waits"
    )
    what.add_argument(
        "--steps", action="store_true", help="show one row per change of a queue's length"
    )
    what.add_argument(
        "--kicks", action="store_true", help="show which CPUs were kicked, and when they switched"
    )
    parser.add_argument(
        "--by",
        metavar="COLUMN,...",
        help=f"one row for each of: {', '.join(GROUPS)} (default: all; with --slices comm)",
    )
    _options.add_top(parser, ROWS, what="the first N rows")
    _options.add_selection(parser, what="waits of these threads, or for this CPU")
    _options.add_format(parser)


def run(args: argparse.Namespace) -> Answer:
    """A row per queue, per thread, per step, or per kind of kick."""
    from schedscope.analysis.dispatch_queues import dispatch_queues

    _options.check_top(args)
    whole = "--steps" if args.steps else "--kicks" if args.kicks else ""
    if whole and args.by:
        raise UsageError(f"{whole} with --by", "one of them", "leave one out")
    trace = _options.open_input(args)
    about, head = headline.about(trace), [*headline.headline(trace), ""]
    if whole and (_options.selects_threads(args) or args.cpu):
        counted = "a queue's length counts all threads" if args.steps else "CPUs are kicked"
        raise UsageError(f"{whole} with a selection", f"no selection: {counted}", "leave it out")
    if args.kicks:
        from schedscope.analysis.kicks import kicks

        frame = kicks(trace)
        names, question, narrow = frame.columns, "kicks", "ts_max n_unknown"
    elif args.steps:
        from schedscope.analysis.dispatch_depth import dispatch_depth

        frame = dispatch_depth(trace)
        names, question, narrow = frame.columns, "dispatch_depth", ""
    elif args.slices:
        from schedscope.analysis.dispatch_slices import dispatch_slices

        by = _options.groups(args.by or "comm", GROUPS)
        why = "slices are given to threads, not to CPUs"
        where = _options.where_no_cpu(args, trace, "--slices", why)
        frame = dispatch_slices(trace, by=by, where=where)
        names = [*by, "n", "given", "ran", "ran_frac", "n_whole", "vtime_ratio", "wait_max"]
        names += ["limit_frac?"]
        question, narrow = "dispatch_slices", "n_whole given ran"
    else:
        by = _options.groups(args.by or "all", GROUPS)
        frame = dispatch_queues(trace, by=by, where=_options.where(args, trace))
        names = [*by, "queue", "n_waits", "total", "total_frac", "p*", "max", "ts_max"]
        question, narrow = "dispatch_queues", "ts_max p50 n_waits"
        head[-1:] = [_totals(frame), ""]
    rows = frame.height
    frame = frame[: _options.top(args, ROWS)]
    return Answer(
        frame,
        choose(frame, names, question=question, narrow=narrow, origin=trace.origin),
        about=about,
        head=head,
        rows_in_all=rows,
    )


def _totals(frame: pl.DataFrame) -> str:
    from schedscope.analysis.waits.queue_stays import UNKNOWN

    unknown = int(frame.filter(queue=UNKNOWN)["total"].sum())
    text = f"threads waited {units.duration(int(frame['total'].sum()))} in total"
    return text + (f", {units.duration(unknown)} of it in unknown queues" if unknown else "")
