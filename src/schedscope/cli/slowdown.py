"""How much longer did processes take than the CPU time they used?

One line per process: elapsed time, CPU time, the time that it waited for a CPU, and the
slowdown that results. Threads can be grouped by other columns.
"""

from __future__ import annotations

import argparse

from schedscope.cli import _options
from schedscope.present import headline
from schedscope.present.answer import Answer
from schedscope.present.bounds import with_intervals
from schedscope.present.columns import choose

NAME = "slowdown"
GROUP = "how well was the machine used?"
HELP = "elapsed time of processes against their CPU time"
EXAMPLE = """\
  schedscope slowdown web.capture --by comm --comm 'make*'
  schedscope slowdown web.capture --top 10 --format json
"""
GROUPS = ("all", *_options.THREAD_GROUPS)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `schedscope slowdown`."""
    _options.add_input(parser)
    _options.add_by(parser, GROUPS, "pid")
    parser.add_argument("--top", type=int, metavar="N", help="only the first N rows")
    _options.add_selection(parser, what="rows about these threads")
    _options.add_format(parser)


def run(args: argparse.Namespace) -> Answer:
    """A row per group of threads."""
    from schedscope.analysis.slowdown import slowdown

    _options.check_top(args)
    by = _options.groups(args.by, GROUPS)
    _options.refuse_cpu(args, "slowdown", "a process is not on a single CPU")
    trace = _options.open_input(args)
    frame = slowdown(trace, by=by, where=_options.where(args, trace))
    shown = frame.head(args.top) if args.top else frame
    worded = with_intervals(shown, question="slowdown")
    keys = frame.columns[: frame.columns.index("threads")]
    names = [*keys, "threads", "wall", "cpu", "waiting", "preempted", "unknown?", "ratio"]
    narrow = "n_censored unknown threads preempted"
    return Answer(
        shown,
        choose(worded, [*names, "slowdown", "n_censored?"], question="slowdown", narrow=narrow),
        about=headline.about(trace),
        head=[*headline.headline(trace), ""],
        rows_in_all=frame.height,
        shown=worded,
    )
