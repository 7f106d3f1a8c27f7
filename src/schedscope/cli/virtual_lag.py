"""`schedscope virtual-lag`: the options and words that its question does not declare."""

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

SORTS = ("lag_max", "lag", "competed", "picks", "utid")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `schedscope virtual-lag`."""
    _options.add_input(parser)
    models = "eevdf (Linux 6.17, the default; or eevdf-6.18, eevdf-6.12, eevdf-6.6), "
    models += "cfs (2.6.32; or cfs-2.6.31)"
    _options.add_model(parser, models, default="eevdf", tunable="base_slice=3ms", sorts=SORTS)
    _options.add_selection(
        parser, what="these threads, or threads that ever ran on this CPU (--cpu)"
    )
    _options.add_format(parser)


def run(args: argparse.Namespace) -> Answer:
    """A row per thread, or per change."""
    from schedscope.analysis.asking.policies import rules
    from schedscope.analysis.virtual_lag import (
        virtual_lag,
        virtual_lag_sentences,
        virtual_lag_series,
    )
    from schedscope.analysis.weights import weight_notes

    settings = _options.model_settings(args, SORTS)
    if args.model not in rules("keeps_virtual_time"):
        hint = "see `schedscope interactivity`" if args.model in rules("scores") else ""
        known = "one of " + ", ".join(rules("keeps_virtual_time"))
        what = "a scheduler that keeps virtual times"
        raise UsageError(f"--model {args.model}", what, hint or known)
    trace = _options.open_input(args)
    where = _options.where_ran(args, trace)
    notes, sentences = weight_notes(trace, groups=False), list[str]()
    if args.series:
        frame: pl.DataFrame = virtual_lag_series(trace, args.model, set=settings, where=where)
        names = ["ts", "comm", "tid", "cpu", "turn", "lag", "eligible", "settled"]
        narrow = ""
    else:
        frame = virtual_lag(trace, args.model, set=settings, where=where)
        by = args.sort or SORTS[0]
        frame = frame.sort(by, descending=by != "utid", nulls_last=True)
        sentences = virtual_lag_sentences(frame, origin=trace.window[0])
        names = ["comm", "tid", "weight", "lag_max", "ts_lag_max", "lag_min", "lag", "picks"]
        names += ["picks_eligible", "competed", "ts_settled"]
        names += ["unplaced?", "n_excluded?", "unknown?"]
        narrow = "n_excluded unknown unplaced ts_settled competed picks_eligible lag_min weight"
        narrow += " picks"
    shown = frame[: _options.top(args, _options.MODEL_ROWS)]
    about = {**headline.about(trace), "scheduler": args.model}
    about["weights"] = notes
    if not args.series:
        about["sentences"] = sentences[: shown.height]
    foot = ["", *sentences[: min(5, shown.height)]] if sentences else []
    question = "virtual_lag_series" if args.series else "virtual_lag"
    return Answer(
        shown,
        choose(shown, names, question=question, narrow=narrow, origin=trace.window[0]),
        about=about,
        head=[*headline.headline(trace), ""],
        notes=[*foot, *(f"weights: {note}" for note in notes)],
        rows_in_all=frame.height,
    )
