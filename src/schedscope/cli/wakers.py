"""Who woke whom, how often, and how long did the woken wait for a CPU then?

Counts the wakeups and forks that began a wait. Wakeups from interrupt context
are named as such, by their handler where interrupts were recorded.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from schedscope import units
from schedscope.cli import _headline, _options, _output
from schedscope.cli._output import Column

if TYPE_CHECKING:
    import polars as pl

NAME = "wakers"
HELP = "who woke whom, and the wait that followed"
EXAMPLE = """\
  schedscope wakers web.capture --top 10
  schedscope wakers web.capture --by thread --comm nginx
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `schedscope wakers`."""
    _options.add_input(parser)
    parser.add_argument(
        "--by",
        choices=("comm", "thread", "process"),
        default="comm",
        help="wakers and woken by name, thread or process (default: comm)",
    )
    _options.add_top(parser, 20, what="the first N rows")
    _options.add_selection(parser, what="woken threads")
    _options.add_format(parser)


def run(args: argparse.Namespace) -> int:
    """Print the table."""
    from schedscope.analysis.wakers import wakers

    _options.check_top(args)
    trace = _options.open_input(args)
    frame = wakers(trace, by=args.by, where=_options.where(args, trace))
    shown = frame[: _options.top(args, 20)]
    foot = _output.more(len(frame) - len(shown), "rarer pair")
    if not len(frame):
        foot.append("nobody selected was woken")
    about = {**_headline.about(trace), "rows_in_all": len(frame)}
    _output.emit(
        _worded(shown) if args.format == "table" else shown,
        args.format,
        columns=_columns(frame),
        about=about,
        head=[*_headline.headline(trace), _totals(frame), ""],
        foot=foot,
    )
    return 0


def _totals(frame: pl.DataFrame) -> str:
    n, open_, unseen, new = (
        int(frame[name].sum()) for name in ("n", "n_censored", "n_excluded", "n_new")
    )
    parts = [f"{units.several(n + open_ + unseen, 'wait')} began with a wakeup"]
    parts[0] += f", {units.count(new)} of them of a new thread"
    if open_:
        parts.append(f"{units.count(open_)} still open at the end of sight")
    if unseen:
        parts.append(f"{units.count(unseen)} of unknown length: begin not seen")
    return "; ".join(parts)


def _worded(frame: pl.DataFrame) -> pl.DataFrame:
    import polars as pl

    wakers, woken = [], []
    for row in frame.iter_rows(named=True):
        match row["waker_kind"]:
            case "interrupt":
                wakers.append(f"({row['interrupt']})")
            case "idle":
                wakers.append("(interrupt, CPU idle)")
            case "unknown":
                wakers.append("(not known)")
            case _:
                wakers.append(_name(row, "waker_"))
        woken.append(_name(row, ""))
    return frame.with_columns(
        pl.Series("waker", wakers, dtype=pl.String), pl.Series("woken", woken, dtype=pl.String)
    )


def _name(row: dict[str, object], prefix: str) -> str:
    if f"{prefix}comm" not in row:
        return f"process {row.get(f'{prefix}pid') or 'unknown'}"
    names = [row.get(f"{prefix}{key}") for key in ("comm", "tid")]
    return " ".join(str(name) for name in names if name is not None)


def _columns(frame: pl.DataFrame) -> list[Column]:
    columns = [
        Column("waker"),
        Column("woken"),
        Column("n", "times", "count"),
        Column("mean", "mean wait", "time"),
        Column("p50", kind="time", rank=2),
        Column("p99", kind="time", rank=1),
        Column("max", kind="time"),
        Column("total", kind="time", rank=3),
    ]
    if frame["n_new"].sum():
        columns.append(Column("n_new", "forks", "count", rank=4))
    if frame["n_censored"].sum():
        columns.append(Column("n_censored", "open", "count", rank=5))
    if frame["n_excluded"].sum():
        columns.append(Column("n_excluded", "unseen", "count", rank=5))
    return columns
