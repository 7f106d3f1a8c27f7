"""Which threads ran when, and how long did each wait before it ran?

One line per run of a thread: when it came onto which CPU, how long it had been off the
CPU, how much of that time it waited for a CPU and who woke it, how long it then ran, and
in which state it left. Use --since and --until to select a part. What
`perf sched timehist` calls wait time is `off CPU` here, and its sch delay is `wait`.
"""

from __future__ import annotations

import argparse

from schedscope.cli import _options, _quantities
from schedscope.errors import UsageError
from schedscope.present import headline
from schedscope.present.answer import Answer
from schedscope.present.columns import choose

NAME = "events"
GROUP = "who waited, and why?"
HELP = "every run in order of time, with the wait before it"
EXAMPLE = """\
  schedscope events web.capture --since 2.5 --until 2.52 --cpu 3
  schedscope events web.capture --comm nginx --longer-than 10ms
  schedscope events web.capture --tid 4711 --format csv
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `schedscope events`."""
    _options.add_input(parser)
    parser.add_argument(
        "--longer-than",
        type=_quantities.duration,
        metavar="DURATION",
        help="only runs after a wait of at least this long",
    )
    _options.add_top(parser, 50, what="the first N runs")
    _options.add_selection(parser, what="runs of these threads, or on this CPU (--cpu)")
    _options.add_format(parser)


def run(args: argparse.Namespace) -> Answer:
    """A row per run."""
    import polars as pl

    from schedscope.analysis.events import events

    _options.check_top(args)
    trace = _options.open_input(args)
    frame = events(trace, where=_options.where(args, trace))
    if args.longer_than is not None:
        least = _nanoseconds(args.longer_than)
        frame = frame.filter(pl.col("wait") >= least)
    shown = frame[: _options.top(args, 50)]
    names = ["ts", "cpu", "comm", "tid", "off", "wait", "cause", "waker", "waker_tid", "running"]
    return Answer(
        shown,
        choose(
            shown,
            [*names, "state", "end"],
            narrow="waker_tid end cause off waker",
            origin=trace.origin,
        ),
        about=headline.about(trace),
        head=[*headline.headline(trace), ""],
        notes=[] if len(frame) else ["no runs for this selection"],
        rows_in_all=len(frame),
        rest=("later run", ""),
    )


def _nanoseconds(text: str) -> int:
    from schedscope.units import nanoseconds

    if (least := nanoseconds(text)) < 0:
        raise UsageError(f"--longer-than {text}", "a duration of 0 or more", "as in 10ms")
    return least
