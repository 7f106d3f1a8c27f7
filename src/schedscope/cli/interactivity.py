"""What would a scheduler think of the recorded threads?

The recorded runs and sleeps of each thread, whatever scheduler they were recorded
under, are fed to the arithmetic of another one. FreeBSD's ULE tells
interactive threads from others by a score from 0 (asleep) to 100 (running),
interactive below 30; Linux 2.6.10 by a bonus from 0 to 10, interactive from 7 on.
EEVDF and CFS keep virtual times instead, from which the lag of each thread follows:
the CPU time due to it minus the time received. A thread that existed when the recording
started is followed from an empty history; the column `settled` shows from when on that no
longer matters.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from schedscope.cli import _options
from schedscope.errors import UsageError
from schedscope.present import headline
from schedscope.present.answer import Answer, more
from schedscope.present.columns import Column, choose

if TYPE_CHECKING:
    import polars as pl

    from schedscope.trace import Trace

NAME = "interactivity"
HELP = "which threads a scheduler calls interactive, or owes time"
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
        help="which rule: ule-14 (FreeBSD 14, the default), ule-2011, ule-2003, o1 (Linux 2.6.10),"
        " eevdf (Linux 6.17; or eevdf-6.18, eevdf-6.12, eevdf-6.6), cfs (2.6.32; or cfs-2.6.31)",
    )
    parser.add_argument(
        "--set",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="a tunable of it, as in --set interact=20 (`simulate --policies` lists them)",
    )
    parser.add_argument("--series", action="store_true", help="instead, every change over time")
    parser.add_argument(
        "--sort",
        choices=sorted({*SORTS, *LAG_SORTS}),
        help="largest first (default: observed; of eevdf and cfs lag_max)",
    )
    parser.add_argument("--top", type=int, metavar="N", help="only the first N rows")
    _options.add_selection(parser, what="threads of, or threads that ever ran on (--cpu)")
    _options.add_format(parser)


def run(args: argparse.Namespace) -> Answer:
    """A row per thread, or per change."""
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
    foot = more(rows - frame.height)
    about = {**headline.about(trace), "scheduler": args.model, "rows_in_all": rows}
    if owes:
        about["weights"] = notes
    if not args.series:
        about["sentences"] = sentences[: frame.height]
        foot += ["", *sentences[: min(5, frame.height)]] if sentences else []
    foot += [f"weights: {note}" for note in notes]
    return Answer(
        frame,
        _columns(frame, owes, args.series, trace.window[0]),
        about=about,
        head=[*headline.headline(trace), ""],
        notes=foot,
    )


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


def _columns(frame: pl.DataFrame, owes: bool, series: bool, origin: int) -> list[Column]:
    narrow = ""
    if series:
        names = ["ts", "comm", "tid"]
        names += ["cpu", "turn", "lag", "eligible", "settled"] if owes else ["score", "interactive"]
    elif owes:
        names = ["comm", "tid", "weight", "lag_max", "ts_lag_max", "lag_min", "lag", "picks"]
        names += ["picks_eligible", "competed", "ts_settled", "unplaced?", "n_excluded?"]
        narrow = "n_excluded unplaced ts_settled competed picks_eligible lag_min weight picks"
    else:
        names = ["comm", "tid", "score", "score_min", "score_max", "is_interactive"]
        names += ["ts_interactive", "interactive_frac", "transitions", "observed", "ts_settled"]
        names += ["n", "unknown?", "n_excluded?"]
        narrow = "n_excluded unknown n score_min score_max ts_settled transitions observed"
    question = "interactivity_series" if series else "interactivity"
    return choose(frame, names, question=question, narrow=narrow, origin=origin)
