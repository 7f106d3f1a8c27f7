"""How long did requests to a server take, and what did that time consist of?

A request is what a thread reads from a socket or pipe, and lasts until the answer is
written, as the system calls show. Its time is divided exactly into running, waiting for a
CPU, throttling, interrupts, locks, I/O, timers and other sleep. A second row shows the
slowest 1 % alone. This needs `capture --with syscalls`. Choose the server with --process,
--comm or --pid: a client that asks again after each answer looks the same, unless it was
seen to open the connection.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from schedscope import units
from schedscope.cli import _options
from schedscope.present import headline
from schedscope.present.answer import Answer
from schedscope.present.columns import choose

if TYPE_CHECKING:
    import polars as pl

    from schedscope.trace import Trace

NAME = "requests"
GROUP = "who waited, and why?"
HELP = "how long requests to a server took, and what for"
EXAMPLE = """\
  schedscope requests web.capture --process nginx
  schedscope requests web.capture --process nginx --by thread
  schedscope requests web.capture --process nginx --by request --top 20
  schedscope requests filter.capture --reply any
"""
GROUPS = ("process", "thread", "all", "request", *_options.THREAD_GROUPS)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `schedscope requests`."""
    _options.add_input(parser)
    _options.add_by(parser, GROUPS, "process")
    parser.add_argument(
        "--reply",
        choices=("same", "any"),
        default="same",
        help="answers are written to the descriptor that was read, as with sockets (same, the"
        " default), or to any descriptor, as with pipes (any)",
    )
    _options.add_top(parser, 20, what="the first N rows, or the N slowest requests")
    _options.add_selection(parser, what="requests to these threads")
    _options.add_format(parser)


def run(args: argparse.Namespace) -> Answer:
    """Two rows per group of threads, or one per request."""
    from schedscope.analysis.requests.parts import PARTS
    from schedscope.analysis.requests.requests import requests

    _options.check_top(args)
    _options.refuse_cpu(args, "requests", "requests have no CPU")
    single = args.by == "request"
    by = "request" if single else _options.groups(args.by, GROUPS)
    trace = _options.open_input(args)
    frame = requests(trace, by=by, where=_options.where_threads(args, trace), reply=args.reply)
    shown = frame[: _options.top(args, 20)]
    notes = []
    if not len(frame):
        notes.append(
            "no requests for this selection: a request is read from a descriptor and answered by a"
            " write to the same one (--reply any: to any)"
        )
        recorded = trace.metadata("ftrace", "calls_of")
        if recorded not in (None, "all"):
            whose = "the command" if recorded == "command" else f"process {recorded}"
            notes.append(
                f"only the system calls of {whose} and of what it started were recorded: for"
                " another server, capture with --of PID, or --of all"
            )
    seen = [part for part in PARTS if frame[part].sum()]
    if single:
        notes += _views(trace, shown, args.input)
        names = ["ts", "comm", "tid", "by_comm", "fd", "dur", *seen, "at_least"]
    else:
        keys = frame.columns[: frame.columns.index("which")]
        names = [*keys, "which", "n", "p50", "p99", "max", "total", *seen]
        names += ["n_at_least", "n_censored?", "n_excluded?"]
    # On a narrow terminal the parts that made least of any row go first; the largest stays.
    whole = frame["dur" if single else "total"].clip(1)
    least = sorted(seen, key=lambda part: float((frame[part] / whole).max() or 0))[:-1]  # type: ignore[arg-type]
    return Answer(
        shown,
        choose(
            shown,
            names,
            question="requests",
            narrow=" ".join(["utid", "fd", "by_comm", "p50", "n_at_least", "p99", *least]),
            origin=trace.origin,
        ),
        about=headline.about(trace),
        head=[*headline.headline(trace), ""],
        notes=notes,
        rows_in_all=frame.height,
        rest=("more row", ", of less time"),
    )


def _views(trace: Trace, rows: pl.DataFrame, source: str) -> list[str]:
    """For each row the command that opens the viewer there."""
    import shlex

    from schedscope.timelines.places import Place

    lines = ["", "in the viewer:"] if len(rows) else []
    for ts, dur, utid in rows.select("ts", "dur", "utid").iter_rows():
        view = shlex.quote(Place(ts, dur, f"utid:{utid}").view(trace))
        when = units.instant(ts, trace.origin)
        lines.append(f"  {when}  schedscope view {shlex.quote(source)} --at {view}")
    return lines
