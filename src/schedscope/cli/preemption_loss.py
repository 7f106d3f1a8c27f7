"""Whose time was lost to preemption, and to whom?

A thread that is made to leave its CPU loses the time until it runs again. There is one
line per pair of scheduling classes: the class that lost the time, and the class of the
thread that came onto the CPU.
"""

from __future__ import annotations

import argparse

from schedscope.cli import _options
from schedscope.present import headline
from schedscope.present.answer import Answer
from schedscope.present.columns import choose

NAME = "preemption-loss"
GROUP = "who waited, and why?"
HELP = "time lost to preemption, by scheduling class"
EXAMPLE = """\
  schedscope preemption-loss web.capture
  schedscope preemption-loss web.capture --comm nginx --format json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `schedscope preemption-loss`."""
    _options.add_input(parser)
    parser.add_argument("--top", type=int, metavar="N", help="only the first N rows")
    _options.add_selection(parser)
    _options.add_format(parser)


def run(args: argparse.Namespace) -> Answer:
    """A row per pair of classes."""
    from schedscope.analysis.preemption_loss import preemption_loss

    _options.check_top(args)
    trace = _options.open_input(args)
    frame = preemption_loss(trace, where=_options.where(args, trace))
    shown = frame.head(args.top) if args.top else frame
    names = ["sched_class", "by_class", "n", "lost", "lost_frac", "max", "n_censored?"]
    names += ["n_ambiguous?", "n_excluded?"]
    return Answer(
        shown,
        choose(frame, names, question="preemption_loss", narrow="n_censored"),
        about=headline.about(trace),
        head=[*headline.headline(trace), ""],
        rows_in_all=frame.height,
    )
