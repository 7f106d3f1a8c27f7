"""What would a scheduler think of the recorded threads?

The recorded runs and sleeps of each thread, under whatever scheduler they were
recorded, are given to the arithmetic of another one. FreeBSD's ULE tells
interactive threads from others by a score from 0 (asleep) to 100 (running),
interactive below 30; Linux 2.6.10 by a bonus from 0 to 10, interactive from 7 on.
EEVDF and CFS keep virtual times instead: they tell how much CPU time each
thread is owed. A thread that was there when the recording began is followed
from an empty history; the column `settled` says from when on that no longer matters.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from schedscope.cli import _headline, _options, _output
from schedscope.cli._output import Column
from schedscope.errors import UsageError

if TYPE_CHECKING:
    import polars as pl

    from schedscope.trace import Trace

NAME = "interactivity"
HELP = "whom a scheduler would call interactive, or owe CPU time"
EXAMPLE = """\
  schedscope interactivity web.capture --model ule-14
  schedscope interactivity web.capture --model eevdf --comm 'nginx*'
  schedscope interactivity web.capture --tid 712 --series --format csv
"""
SORTS = ("observed", "interactive", "score", "transitions", "utid")
LAG_SORTS = ("lag_max", "lag", "competed", "picks", "utid")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `schedscope interactivity`."""
    _options.add_input(parser)
    parser.add_argument(
        "--model",
        "--scheduler",
        dest="model",
        default="ule",
        metavar="NAME",
        help="whose rule: ule-14 (FreeBSD 14, the default), ule-2011, ule-2003, o1 (Linux 2.6.10),"
        " eevdf (Linux 6.17; or eevdf-6.18, eevdf-6.12, eevdf-6.6), cfs (2.6.32; or cfs-2.6.31)",
    )
    parser.add_argument(
        "--set",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="a tunable of it, as in --set interact=20 (see simulate --policies)",
    )
    parser.add_argument("--series", action="store_true", help="every change over time instead")
    parser.add_argument(
        "--sort",
        choices=sorted({*SORTS, *LAG_SORTS}),
        help="largest first (default: observed; of eevdf and cfs lag_max)",
    )
    parser.add_argument("--top", type=int, metavar="N", help="only the first N rows")
    _options.add_selection(parser, what="threads that are, or that ever ran on (--cpu)")
    _options.add_format(parser)


def run(args: argparse.Namespace) -> int:
    """Print the table."""
    from schedscope.analysis._base.policies import rules

    _options.check_top(args)
    owes = args.model in rules("keeps_virtual_time")
    sorts = LAG_SORTS if owes else SORTS
    if args.sort and args.sort not in sorts:
        raise UsageError(f"--sort {args.sort} with --model {args.model}", f"one of {sorts}")
    if args.sort and args.series:
        raise UsageError(f"--sort {args.sort} with --series", "one of them: a series is over time")
    args.sort = args.sort or sorts[0]
    given = dict(_setting(text) for text in args.set)
    trace = _options.open_input(args)
    notes: list[str] = []
    if owes:
        frame, sentences, notes = _owed(args, trace, given)
    else:
        frame, sentences = _scored(args, trace, given)
    rows = frame.height
    frame = frame.head(args.top) if args.top else frame
    origin = trace.window[0]
    foot = _output.more(rows - frame.height)
    about = {**_headline.about(trace), "scheduler": args.model, "rows_in_all": rows}
    if owes:
        about["weights"] = notes
    if not args.series:
        about["sentences"] = sentences[: frame.height]
        foot += ["", *sentences[: min(5, frame.height)]] if sentences else []
    foot += [f"weights: {note}" for note in notes]
    columns = _lag_columns if owes else _columns
    _output.emit(
        frame,
        args.format,
        columns=columns(frame, args.series, origin),
        about=about,
        head=[*_headline.headline(trace), ""],
        foot=foot,
    )
    return 0


def _scored(
    args: argparse.Namespace, trace: Trace, given: dict[str, Any]
) -> tuple[pl.DataFrame, list[str]]:
    from schedscope.analysis._base.policies import rules
    from schedscope.analysis.interactivity import (
        interactivity,
        interactivity_sentences,
        interactivity_series,
    )

    if args.model not in rules("scores"):
        raise UsageError(
            f"--model {args.model}",
            "a scheduler with a rule for threads",
            "one of " + ", ".join([*rules("scores"), *rules("keeps_virtual_time")]),
        )
    where = _where(args, trace)
    if args.series:
        return interactivity_series(trace, args.model, set=given, where=where), []
    frame = interactivity(trace, args.model, set=given, where=where)
    frame = frame.sort(args.sort, descending=args.sort != "utid", nulls_last=True)
    return frame, interactivity_sentences(frame, origin=trace.window[0])


def _owed(
    args: argparse.Namespace, trace: Trace, given: dict[str, Any]
) -> tuple[pl.DataFrame, list[str], list[str]]:
    from schedscope.analysis.virtual_lag import (
        virtual_lag,
        virtual_lag_sentences,
        virtual_lag_series,
    )
    from schedscope.analysis.weights import weight_notes

    where = _where(args, trace)
    notes = weight_notes(trace)
    if args.series:
        return virtual_lag_series(trace, args.model, set=given, where=where), [], notes
    frame = virtual_lag(trace, args.model, set=given, where=where)
    frame = frame.sort(args.sort, descending=args.sort != "utid", nulls_last=True)
    return frame, virtual_lag_sentences(frame, origin=trace.window[0]), notes


def _where(args: argparse.Namespace, trace: Trace) -> pl.Expr | None:
    """The selected threads; with `--cpu` those that ever ran there: a score has no CPU."""
    import polars as pl

    where = _options.where_threads(args, trace)
    if not args.cpu:
        return where
    there = trace.states.filter(
        pl.col("state") == "running", pl.col("cpu").is_in(_options.known_cpus(args, trace))
    )
    ran = pl.col("utid").is_in(there.select("utid").unique().collect()["utid"].implode())
    return ran if where is None else where & ran


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
            Column("tid", kind="id"),
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


def _lag_columns(frame: pl.DataFrame, series: bool, origin: int) -> list[Column]:
    if series:
        return [
            Column("ts", "at", "at", origin=origin),
            Column("comm"),
            Column("tid", kind="id"),
            Column("cpu", "CPU", "id"),
            Column("turn"),
            Column("lag", "owed", "time"),
            Column("eligible"),
            Column("settled"),
        ]
    columns = [
        Column("comm"),
        Column("tid", kind="id"),
        Column("weight", kind="right", rank=2),
        Column("lag_max", "owed most", "time"),
        Column("ts_lag_max", "at", "at", origin=origin),
        Column("lag_min", "ahead most", "time", rank=3),
        Column("lag", "at last", "time"),
        Column("picks", "runs", "count", rank=1),
        Column("picks_eligible", "eligible", "count", rank=4),
        Column("competed", kind="time", rank=5),
        Column("ts_settled", "settled", "at", rank=6, origin=origin),
    ]
    if frame["unplaced"].sum():
        columns.append(Column("unplaced", kind="time", rank=7))
    if frame["n_excluded"].sum():
        columns.append(Column("n_excluded", "unseen", "count", rank=8))
    return columns
