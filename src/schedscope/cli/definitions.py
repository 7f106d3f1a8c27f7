"""The latency figures that other tools would report for the same trace.

perf, bcc's and bpftrace's runqlat, LISA, Perfetto, lttng-analyses and schedscore start
and stop their clocks at different events. This command applies the rule of each to the
same events, and says what that rule excludes, so that figures from different tools can be
compared. `schedscope latency --definition NAME` shows the waits by any of these rules, by
thread, process or CPU.
"""

from __future__ import annotations

import argparse

from schedscope.cli import _options
from schedscope.present import headline
from schedscope.present.answer import Answer
from schedscope.present.columns import choose

NAME = "definitions"
GROUP = "compare"
HELP = "latency as perf, runqlat, LISA, Perfetto define it"
EXAMPLE = """\
  schedscope definitions web.capture
  schedscope definitions perf.data --process nginx --format csv
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `schedscope definitions`."""
    _options.add_input(parser)
    _options.add_selection(parser, what="waits of these threads, or for this CPU")
    _options.add_format(parser)


def run(args: argparse.Namespace) -> Answer:
    """The table, and what each tool counts."""
    from schedscope.analysis.definitions import definitions

    trace = _options.open_input(args)
    frame = definitions(trace, where=_options.where(args, trace))
    words = [
        f"{name}: {counts}. Excludes {leaves_out}."
        if not leaves_out.startswith("needs ")
        else f"{name}: {leaves_out}."
        for name, counts, leaves_out in frame.select(
            "definition", "counts", "leaves_out"
        ).iter_rows()
    ]
    return Answer(
        frame,
        choose(
            frame,
            ["definition", "n", "mean", "p50", "p99", "max", "total"],
            question="definitions",
        ),
        about=headline.about(trace),
        head=[*headline.headline(trace), ""],
        notes=["", *words],
    )
