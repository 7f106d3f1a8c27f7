"""`schedscope events`: only runs after a long wait."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from schedscope.cli import _quantities
from schedscope.errors import UsageError

if TYPE_CHECKING:
    import polars as pl

    from schedscope.store.trace import Trace


def add_options(parser: argparse.ArgumentParser) -> None:
    """`--longer-than`."""
    parser.add_argument(
        "--longer-than",
        type=_quantities.duration,
        metavar="DURATION",
        help="only runs after a wait of at least this long",
    )


def ask(args: argparse.Namespace, trace: Trace, *, where: pl.Expr | None) -> pl.DataFrame:
    """A row per run."""
    import polars as pl

    from schedscope.analysis.events import events

    frame = events(trace, where=where)
    if args.longer_than is None:
        return frame
    return frame.filter(pl.col("wait") >= _nanoseconds(args.longer_than))


def _nanoseconds(text: str) -> int:
    from schedscope.units import nanoseconds

    if (least := nanoseconds(text)) < 0:
        raise UsageError(f"--longer-than {text}", "a duration of 0 or more", "as in 10ms")
    return least
