"""Who woke whom, how often, and how long did the woken threads then wait for a CPU?

Counts the wakeups and forks that started a wait. Wakeups from interrupt context
are shown as such, with the name of the handler where interrupts were recorded.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from schedscope import units
from schedscope.cli import _options
from schedscope.present import headline
from schedscope.present.answer import Answer
from schedscope.present.columns import choose
from schedscope.present.who import who

if TYPE_CHECKING:
    import polars as pl

NAME = "wakers"
GROUP = "who waited, and why?"
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
        choices=_options.THREADS,
        default="comm",
        help="wakers and woken by thread, name, process, control group or service (default: comm)",
    )
    _options.add_top(parser, 20, what="the first N rows")
    _options.add_selection(parser, what="wakeups of these threads")
    _options.add_format(parser)


def run(args: argparse.Namespace) -> Answer:
    """Print the table."""
    from schedscope.analysis.wakers import wakers

    _options.check_top(args)
    trace = _options.open_input(args)
    frame = wakers(trace, by=args.by, where=_options.where(args, trace))
    shown = frame[: _options.top(args, 20)]
    worded = _worded(shown)
    names = ["waker", "woken", "n", "mean", "p50", "p99", "max", "total"]
    narrow = "n_censored n_excluded n_new total p50 p99"
    return Answer(
        shown,
        choose(
            worded,
            [*names, "n_new?", "n_censored?", "n_excluded?"],
            question="wakers",
            narrow=narrow,
        ),
        about=headline.about(trace),
        head=[*headline.headline(trace), _totals(frame), ""],
        notes=[] if len(frame) else ["no wakeups for this selection"],
        rows_in_all=len(frame),
        rest=("rarer pair", ""),
        shown=worded,
    )


def _totals(frame: pl.DataFrame) -> str:
    n, open_, unseen, new = (
        int(frame[name].sum()) for name in ("n", "n_censored", "n_excluded", "n_new")
    )
    parts = [f"{units.several(n + open_ + unseen, 'wait')} started with a wakeup"]
    parts[0] += f", {units.count(new)} of them of new threads"
    if open_:
        parts.append(f"{units.count(open_)} unfinished when last observed")
    if unseen:
        parts.append(f"{units.count(unseen)} excluded: start not recorded")
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
                wakers.append("(unknown)")
            case _:
                wakers.append(who(row, "waker_"))
        woken.append(who(row, ""))
    return frame.with_columns(
        pl.Series("waker", wakers, dtype=pl.String), pl.Series("woken", woken, dtype=pl.String)
    )
