"""`schedscope interactivity`: the options and words that its question does not declare."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from schedscope.cli import _options
from schedscope.errors import UsageError
from schedscope.present import headline
from schedscope.present.answer import Answer
from schedscope.present.columns import choose

if TYPE_CHECKING:
    import polars as pl

SORTS = ("observed", "interactive", "score", "transitions", "utid")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `schedscope interactivity`."""
    _options.add_input(parser)
    models = "ule-14 (FreeBSD 14, the default), ule-2011, ule-2003, o1 (Linux 2.6.10)"
    _options.add_model(parser, models, default="ule", tunable="interact=20", sorts=SORTS)
    _options.add_selection(
        parser, what="these threads, or threads that ever ran on this CPU (--cpu)"
    )
    _options.add_format(parser)


def run(args: argparse.Namespace) -> Answer:
    """A row per thread, or per change."""
    from schedscope.analysis.asking.policies import rules
    from schedscope.analysis.interactivity import (
        interactivity,
        interactivity_sentences,
        interactivity_series,
    )

    settings = _options.model_settings(args, SORTS)
    if args.model not in rules("scores"):
        hint = "see `schedscope virtual-lag`" if args.model in rules("keeps_virtual_time") else ""
        known = "one of " + ", ".join(rules("scores"))
        raise UsageError(f"--model {args.model}", "a scheduler that scores threads", hint or known)
    trace = _options.open_input(args)
    where = _options.where_ran(args, trace)
    sentences: list[str] = []
    if args.series:
        frame: pl.DataFrame = interactivity_series(trace, args.model, set=settings, where=where)
        names, narrow = ["ts", "comm", "tid", "score", "interactive"], ""
    else:
        frame = interactivity(trace, args.model, set=settings, where=where)
        by = args.sort or SORTS[0]
        frame = frame.sort(by, descending=by != "utid", nulls_last=True)
        sentences = interactivity_sentences(frame, origin=trace.window[0])
        names = ["comm", "tid", "score", "score_min", "score_max", "is_interactive"]
        names += ["ts_interactive", "interactive_frac", "transitions", "observed", "ts_settled"]
        names += ["n", "by_kernel?", "unknown?", "n_excluded?"]
        narrow = "n_excluded unknown n score_min score_max ts_settled transitions observed"
    shown = frame[: _options.top(args, _options.MODEL_ROWS)]
    about = {**headline.about(trace), "scheduler": args.model}
    if not args.series:
        about["sentences"] = sentences[: shown.height]
    foot = ["", *sentences[: min(5, shown.height)]] if sentences else []
    if trace.info.get("os") == "FreeBSD" and "by_kernel" in frame and not frame["by_kernel"].any():
        foot += [
            "",
            "estimated from switches: beside a real kernel's scores, threads that sleep came out"
            " 12 to 28 points too low in their first seconds; capture --with inter records the"
            " kernel's",
        ]
    question = "interactivity_series" if args.series else "interactivity"
    return Answer(
        shown,
        choose(shown, names, question=question, narrow=narrow, origin=trace.window[0]),
        about=about,
        head=[*headline.headline(trace), ""],
        notes=foot,
        rows_in_all=frame.height,
    )
