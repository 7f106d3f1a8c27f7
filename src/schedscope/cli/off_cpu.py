"""What did threads wait for when they gave up the CPU, and for how long?

FreeBSD's traces name the wait message of a sleep and the lock that a thread blocked on.
Linux's traces name the system call, if they were recorded with `capture --with syscalls`;
otherwise they show only whether a signal could have ended the sleep. Waiting for a CPU is
not included: see `schedscope latency`.
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

NAME = "off-cpu"
GROUP = "who waited, and why?"
HELP = "what threads slept or blocked on, and for how long"
EXAMPLE = """\
  schedscope off-cpu world.capture
  schedscope off-cpu world.capture --by comm --top 10
  schedscope off-cpu world.capture --by cause --tree 4711
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `schedscope off-cpu`."""
    _options.add_input(parser)
    parser.add_argument(
        "--by",
        choices=("all", *_options.THREADS, "cause"),
        default="all",
        help="reasons for all threads together, or for each thread, name, process, control group or"
        " service; or causes alone, if system calls or requests to disks were recorded"
        " (default: all)",
    )
    _options.add_top(parser, 20, what="the first N rows")
    _options.add_selection(parser, what="these threads")
    _options.add_format(parser)


def run(args: argparse.Namespace) -> Answer:
    """Print the table."""
    from schedscope.analysis._base.by import keys_of
    from schedscope.analysis.off_cpu import off_cpu

    _options.check_top(args)
    _options.refuse_cpu(args, "off-cpu", "off-CPU time has no CPU")
    trace = _options.open_input(args)
    by = keys_of(args.by, ("comm", "tid", "pid", "process_name", "cgroup", "service", "cause"))
    frame = off_cpu(trace, by=by, where=_options.where_threads(args, trace))
    shown = frame[: _options.top(args, 20)]
    foot = []
    if not len(frame):
        foot.append("no off-CPU time for this selection")
    elif "cause" in by:
        pass
    elif not (frame["kind"].count() or frame["cause"].count()):
        foot.append(
            "this trace has no reasons: on Linux `capture --with syscalls` records them;"
            " FreeBSD's DTrace and KTR traces do"
        )
    worded = shown if "cause" in by else _worded(shown)
    reason = [] if "cause" in by else ["cause?", "reason?", "evidence?", "state"]
    locks = ["lock?", "lock_time?", "released_by?"]
    names = [
        *("process_name?" if name == "process_name" else name for name in by),
        *reason,
        "n",
        "total",
        "mean",
        "p50",
        "p99",
        "max",
        *locks,
    ]
    return Answer(
        shown,
        choose(
            worded,
            [*names, "n_censored?", "n_excluded?"],
            question="off_cpu",
            narrow="n_excluded n_censored mean p50 p99 lock_time evidence max",
        ),
        about=headline.about(trace),
        head=[*headline.headline(trace), _totals(frame), ""],
        notes=foot,
        rows_in_all=len(frame),
        rest=("more row", ", of less time"),
        shown=worded,
    )


def _totals(frame: pl.DataFrame) -> str:
    n, open_, unseen = (int(frame[name].sum()) for name in ("n", "n_censored", "n_excluded"))
    text = (
        f"{units.count(n)} times off the CPU, {units.duration(int(frame['total'].sum()))} in total"
    )
    if open_:
        text += f"; {units.count(open_)} unfinished when last observed"
    if unseen:
        text += f"; {units.count(unseen)} excluded: start not recorded"
    return text


def _worded(frame: pl.DataFrame) -> pl.DataFrame:
    import polars as pl

    reason = pl.when(pl.col("kind") == "lock").then(pl.lit("lock ")).otherwise(pl.lit(""))
    nameless = pl.when(pl.col("kind") == "interrupt").then(pl.lit("(no interrupt)"))
    return frame.with_columns(
        reason=pl.when(pl.col("reason").is_not_null())
        .then(reason + pl.col("reason"))
        .otherwise(nameless.when(pl.col("kind") == "suspended").then(pl.lit("(suspended)")))
    )
