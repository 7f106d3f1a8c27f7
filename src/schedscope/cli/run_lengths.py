"""How long do threads run without leaving the CPU?

A run lasts from switch-in to switch-out; it is what a scheduler's slice or quantum
limits. Runs whose start or end was not recorded are counted as unfinished, and are
excluded from all statistics.
"""

from __future__ import annotations

import argparse

from schedscope.cli import _options
from schedscope.present import headline
from schedscope.present.answer import Answer
from schedscope.present.columns import choose

NAME = "run-lengths"
GROUP = "how well was the machine used?"
HELP = "how long threads run before they leave the CPU"
EXAMPLE = """\
  schedscope run-lengths web.capture --by comm --top 10
  schedscope run-lengths web.capture --by comm,end --comm nginx
"""
GROUPS = ("all", *_options.THREAD_GROUPS, "cpu", "end")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `schedscope run-lengths`."""
    _options.add_input(parser)
    _options.add_by(parser, GROUPS, "comm")
    parser.add_argument("--top", type=int, metavar="N", help="only the first N rows")
    _options.add_selection(parser)
    _options.add_format(parser)


def run(args: argparse.Namespace) -> Answer:
    """A row per group."""
    from schedscope.analysis.run_lengths import run_lengths

    _options.check_top(args)
    by = _options.groups(args.by, GROUPS)
    trace = _options.open_input(args)
    frame = run_lengths(trace, by=by, where=_options.where(args, trace))
    shown = frame.head(args.top) if args.top else frame
    keys = frame.columns[: frame.columns.index("n")]
    names = [*keys, "n", "mean", "p*", "max", "total", "n_censored?"]
    return Answer(
        shown,
        choose(frame, names, question="run_lengths", narrow="n_censored mean total"),
        about=headline.about(trace),
        head=[*headline.headline(trace), ""],
        rows_in_all=frame.height,
    )
