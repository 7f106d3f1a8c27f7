"""Which parts of a trace stand out: where to look first in a long one?

The trace is cut into parts of equal length. Each is compared with all others: its waits,
queues, busy CPUs, context switches, threads blocked, quotas and interrupts. A part stands
out if one of these lies more than three interquartile ranges beyond the nearer quartile
of all parts. Each row ends with the options that select that part in any other command.
With a selection all of this is about the selected threads: when was this service slower
than usual?
"""

from __future__ import annotations

import argparse
import shlex
from typing import TYPE_CHECKING

from schedscope.cli import _options, _quantities
from schedscope.present import headline
from schedscope.present.answer import Answer
from schedscope.present.columns import choose
from schedscope.units import duration, several

if TYPE_CHECKING:
    import polars as pl

    from schedscope.trace import Trace

NAME = "outliers"
GROUP = "who waited, and why?"
HELP = "where to look first: parts of a trace that stand out"
EXAMPLE = """\
  schedscope outliers night.capture
  schedscope outliers night.capture --every 1m
  schedscope outliers night.capture --service nginx.service
  schedscope findings night.capture --since 5040 --until 5100
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `schedscope outliers`."""
    _options.add_input(parser)
    parser.add_argument(
        "--every",
        type=_quantities.duration,
        metavar="DURATION",
        help="length of a part, as in 1m (default: at most 120 parts)",
    )
    parser.add_argument("--all", action="store_true", help="also show what does not stand out")
    _options.add_top(parser, 10, what="the N parts that stand out most")
    _options.add_selection(parser, what="what these threads did and waited for")
    _options.add_format(parser)


def run(args: argparse.Namespace) -> Answer:
    """A row per part that stands out."""
    import polars as pl

    from schedscope.analysis.outliers import LEAST_PARTS, outliers

    _options.check_top(args)
    trace = _options.open_input(args)
    _options.refuse_cpu(args, "outliers", "a part is not about a single CPU")
    frame = outliers(trace, every=args.every, where=_options.where_threads(args, trace))
    judged = frame.filter(pl.col("outlier").is_not_null()).height
    found = frame.filter("outlier")
    rows = frame if args.all else found
    shown = rows[: _options.top(args, 10)]
    length = f" of {duration(int(frame['dur'].max()))}" if frame.height else ""  # type: ignore[arg-type]
    parts = f"{several(frame.height, 'part')}{length}"
    if not judged:
        notes = [
            f"{parts}: too few to say what is usual; at least {LEAST_PARTS} are needed of which the"
            " trace shows half (--every makes them shorter)"
        ]
    elif found.is_empty():
        notes = [f"{parts}: none stands out from the others"]
    else:
        notes = [f"{parts}: {several(found.height, 'stands', 'stand')} out"]
    if 0 < judged < frame.height:
        notes.append(f"{several(frame.height - judged, 'part')} could not be judged")
    if found.height:
        whose = f" {given}" if (given := _options.words(args)) else ""
        notes.append(
            f"go on with: schedscope findings {shlex.quote(args.input)}"
            f" {_together(trace, found)}{whose}"
        )
    # Without rows, the note says it all.
    names = ["ts", "dur", "deviation", "story", "select"] if shown.height else []
    return Answer(
        shown,
        choose(
            shown, names, question="outliers", narrow="dur deviation select", origin=trace.origin
        ),
        about={**headline.about(trace), "parts": frame.height},
        head=[*headline.headline(trace), ""],
        notes=notes,
        rows_in_all=rows.height,
        rest=("more part", ""),
    )


def _together(trace: Trace, found: pl.DataFrame) -> str:
    """Options that select the part that stands out most, and those around it that do so, too."""
    from schedscope.analysis.outliers import selecting

    ends = dict(zip(found["ts"].to_list(), (found["ts"] + found["dur"]).to_list(), strict=True))
    begins = {end: begin for begin, end in ends.items()}
    since = found["ts"][0]
    until = ends[since]
    while since in begins:
        since = begins[since]
    while until in ends:
        until = ends[until]
    return selecting(trace, since, until)
