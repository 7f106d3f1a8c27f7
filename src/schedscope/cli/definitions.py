"""The latency figures that other tools would report for the same trace.

perf, bcc's and bpftrace's runqlat, LISA, Perfetto, lttng-analyses and
schedscore start and stop their clocks at different events. This runs each
one's rule over the same events and says what it leaves out, so that figures
from different tools can be compared. `schedscope latency --definition NAME`
shows any of them by thread, process or CPU.
"""

from __future__ import annotations

import argparse

from schedscope.cli import _headline, _options, _output
from schedscope.cli._output import Column

NAME = "definitions"
HELP = "latency as perf, runqlat, LISA, Perfetto define it"
EXAMPLE = """\
  schedscope definitions web.capture
  schedscope definitions perf.data --format csv
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `schedscope definitions`."""
    _options.add_input(parser)
    _options.add_format(parser)


def run(args: argparse.Namespace) -> int:
    """Print the table, and what the words in it mean."""
    from schedscope.analysis.definitions import definitions

    trace = _options.open_input(args)
    frame = definitions(trace)
    words = [
        f"{name}: {counts}. Leaves out {leaves_out}."
        if not leaves_out.startswith("needs ")
        else f"{name}: {leaves_out}."
        for name, counts, leaves_out in frame.select(
            "definition", "counts", "leaves_out"
        ).iter_rows()
    ]
    _output.emit(
        frame,
        args.format,
        columns=[
            Column("definition", kind="text"),
            Column("n", "waits", "count"),
            Column("mean", kind="time"),
            Column("p50", kind="time"),
            Column("p99", kind="time"),
            Column("max", kind="time"),
            Column("total", kind="time"),
        ],
        about=_headline.about(trace),
        head=[*_headline.headline(trace), ""],
        foot=["", *words],
    )
    return 0
