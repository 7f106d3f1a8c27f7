"""`schedscope outliers`: the options and words that its question does not declare."""

from __future__ import annotations

import argparse
import shlex
from typing import TYPE_CHECKING

from schedscope.cli import _options, _quantities
from schedscope.cli._asking import Words
from schedscope.units import duration, several

if TYPE_CHECKING:
    import polars as pl

    from schedscope.store.trace import Trace


def add_options(parser: argparse.ArgumentParser) -> None:
    """`--every` and `--all`."""
    parser.add_argument(
        "--every",
        type=_quantities.duration,
        metavar="DURATION",
        help="length of a part, as in 1m (default: at most 120 parts)",
    )
    parser.add_argument("--all", action="store_true", help="also show what does not stand out")


def ask(args: argparse.Namespace, trace: Trace, *, where: pl.Expr | None) -> pl.DataFrame:
    """A row per part."""
    from schedscope.analysis.outliers import outliers

    return outliers(trace, every=args.every, where=where)


def rows(args: argparse.Namespace, frame: pl.DataFrame) -> pl.DataFrame:
    """The parts that stand out, or all with `--all`."""
    return frame if args.all else frame.filter("outlier")


def words(
    args: argparse.Namespace, trace: Trace, frame: pl.DataFrame, shown: pl.DataFrame
) -> Words:
    """How many parts there are, and what to ask next."""
    import polars as pl

    from schedscope.analysis.outliers import LEAST_PARTS

    judged = frame.filter(pl.col("outlier").is_not_null()).height
    found = frame.filter("outlier")
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
    # Without rows, only the note is shown.
    columns = None if shown.height else ""
    return Words(about={"parts": frame.height}, notes=notes, columns=columns)


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
