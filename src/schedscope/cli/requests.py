"""`schedscope requests`: the options and words that its question does not declare."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from schedscope import units
from schedscope.cli._asking import Words

if TYPE_CHECKING:
    import polars as pl

    from schedscope.store.trace import Trace


def add_options(parser: argparse.ArgumentParser) -> None:
    """`--reply`."""
    parser.add_argument(
        "--reply",
        choices=("same", "any"),
        default="same",
        help="answers are written to the descriptor that was read, as with sockets (same, the"
        " default), or to any descriptor, as with pipes (any)",
    )


def ask(
    args: argparse.Namespace, trace: Trace, *, by: str | list[str], where: pl.Expr | None
) -> pl.DataFrame:
    """Two rows per group of threads, or one per request."""
    from schedscope.analysis.requests.requests import requests

    return requests(trace, by=by, where=where, reply=args.reply)


def words(
    args: argparse.Namespace, trace: Trace, frame: pl.DataFrame, shown: pl.DataFrame
) -> Words:
    """Where each of the requests is seen, and why there may be none."""
    from schedscope.analysis.requests.parts import PARTS

    single = args.by == "request"
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
    return Words(
        notes=notes,
        columns=" ".join(names),
        narrow=" ".join(["utid fd by_comm p50 n_at_least p99", *least]),
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
