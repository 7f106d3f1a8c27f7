"""How many threads wanted each CPU, weighted by time?

The depth of a queue counts the threads that are runnable on a CPU and the one
that it runs. All statistics are over the time in which the trace tells what
the CPU did; p99 is the depth that is not exceeded for 99 % of that time.
Overload is the time in which more threads wanted the CPU than the one it can
run. Where the kernel reported its own queue lengths, the agreement is printed.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Literal

from schedscope import units
from schedscope.cli import _headline, _options, _output
from schedscope.cli._output import Column
from schedscope.errors import UsageError

if TYPE_CHECKING:
    import polars as pl

NAME = "queue"
HELP = "how many threads wanted each CPU, over time"
EXAMPLE = """\
  schedscope queue web.capture
  schedscope queue web.capture --machine --waiting-only
  schedscope queue web.capture --comm nginx --waiting-only
  schedscope queue web.capture --cpu 3 --steps --format csv
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `schedscope queue`."""
    _options.add_input(parser)
    parser.add_argument(
        "--machine", action="store_true", help="the sum over all CPUs instead of each"
    )
    parser.add_argument(
        "--waiting-only", action="store_true", help="leave the running thread out of the depth"
    )
    parser.add_argument(
        "--steps", action="store_true", help="the step function itself, a row per change"
    )
    _options.add_selection(parser, what="CPUs (--cpu), or how many of these threads are there")
    _options.add_format(parser)


def run(args: argparse.Namespace) -> int:
    """Print the table."""
    import polars as pl

    from schedscope.analysis._base.needs import has
    from schedscope.analysis._base.restrict_to_threads import only_threads
    from schedscope.analysis.queue_depth import (
        queue_depth,
        queue_depth_summary,
        queue_load_agreement,
    )

    if args.machine and args.cpu:
        raise UsageError("--machine with --cpu", "one of them", "leave one out")
    if args.steps and args.waiting_only:
        raise UsageError(
            "--steps with --waiting-only", "one of them", "the steps have waiting as a column"
        )
    trace = _options.open_input(args)
    recorded = trace
    if (threads := _options.where_threads(args, trace)) is not None:
        trace = only_threads(trace, threads)
    by: Literal["cpu", "all"] = "all" if args.machine else "cpu"
    head = [*_headline.headline(recorded)]
    if args.steps:
        frame = queue_depth(trace, by=by)
    else:
        frame = queue_depth_summary(trace, by=by, running=not args.waiting_only)
    if args.cpu:
        known = set(frame["cpu"])
        for cpu in args.cpu:
            if cpu not in known:
                possible = ", ".join(str(n) for n in sorted(known - {None}))
                raise UsageError(f"--cpu {cpu}", "a CPU of this trace", f"one of {possible}")
        frame = frame.filter(pl.col("cpu").is_in(args.cpu))
    about = _headline.about(recorded)
    foot: list[str] = []
    if args.steps:
        columns = _output.columns_of(frame, origin=trace.origin)
        columns = [
            Column(c.name, kind="count" if c.name in ("waiting", "running", "depth") else c.kind,
                   origin=c.origin)
            for c in columns
        ]  # fmt: skip
    else:
        agreement = queue_load_agreement(trace) if has(trace, "queue_load") else pl.DataFrame()
        about["queue_load"] = agreement.to_dicts()
        head.append(_totals(frame))
        foot = _foot(frame, agreement, args.machine)
        if not args.machine:
            # In the table "none" says more than "-".
            names = pl.col("cpu").cast(pl.String).fill_null("none")
            frame = frame.with_columns(names) if args.format == "table" else frame
        columns = _columns(frame, args.machine, trace.origin)
    _output.emit(frame, args.format, columns=columns, about=about, head=[*head, ""], foot=foot)
    return 0


def _totals(frame: pl.DataFrame) -> str:
    names = ("waiting", "waiting_unknown", "n_censored", "n_excluded")
    waiting, unknown, n_censored, n_excluded = (sum(frame[name].to_list()) for name in names)
    parts = [f"threads waited {units.duration(waiting + unknown)} in all"]
    if unknown:
        parts.append(f"{units.duration(unknown)} of it where no depth is known")
    if n_censored:
        waits = "wait" if n_censored == 1 else "waits"
        parts.append(f"{units.count(n_censored)} {waits} still open at the end of sight")
    if n_excluded:
        parts.append(f"{units.count(n_excluded)} not in it: begin not seen")
    return "; ".join(parts)


def _foot(frame: pl.DataFrame, agreement: pl.DataFrame, machine: bool) -> list[str]:
    lines = []
    if not machine and frame["cpu"].has_nulls():
        lines.append("none: runnable, but on no known queue; --machine counts these threads, too")
    for row in agreement.iter_rows(named=True):
        queue = "the shared queue" if row["cpu"] is None else f"CPU {row['cpu']}"
        if not row["n"]:
            lines.append(f"the kernel's own length of {queue}: nothing to compare it with")
            continue
        lines.append(
            f"the kernel's own length of {queue}: {units.percent(row['agree_frac'])} of"
            f" {units.several(row['n'], 'report')} agree at their instant,"
            f" {units.percent(row['near_frac'])} within 10 µs"
        )
    return lines


def _columns(frame: pl.DataFrame, machine: bool, origin: int) -> list[Column]:
    columns = [] if machine else [Column("cpu", "CPU", "right")]
    columns.append(Column("mean", kind="number"))
    columns += [
        Column(name, kind="count", rank=3 if name == "p90" else 0)
        for name in frame.columns
        if name.startswith("p") and name[1:].replace(".", "").isdigit()
    ]
    columns.append(Column("max", kind="count"))
    columns.append(Column("ts_max", "max at", "at", rank=6, origin=origin))
    columns.append(Column("overload_frac", "overload", "share"))
    columns.append(Column("waiting", kind="time", rank=1))
    if frame["waiting_unknown"].sum():
        columns.append(Column("waiting_unknown", "of unknown depth", "time", rank=7))
    columns.append(Column("unknown", kind="time", rank=2))
    columns.append(Column("n", "waits", "count", rank=4))
    if frame["n_censored"].sum():
        columns.append(Column("n_censored", "open", "count", rank=5))
    if frame["n_excluded"].sum():
        columns.append(Column("n_excluded", "unseen", "count", rank=5))
    return columns
