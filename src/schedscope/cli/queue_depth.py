"""`schedscope queue-depth`: the options and words that its question does not declare."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from schedscope import units
from schedscope.cli import _options, _quantities
from schedscope.errors import UsageError
from schedscope.present import headline
from schedscope.present.answer import Answer
from schedscope.present.columns import choose

if TYPE_CHECKING:
    import polars as pl


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `schedscope queue-depth`."""
    _options.add_input(parser)
    _options.add_cpu_or_all(parser)
    parser.add_argument(
        "--waiting-only", action="store_true", help="exclude the running thread from the depth"
    )
    _options.add_top_cpus(parser, "waiting time")
    over_time = parser.add_mutually_exclusive_group()
    over_time.add_argument(
        "--steps", action="store_true", help="show one row per change of the depth"
    )
    over_time.add_argument(
        "--every", type=_quantities.duration, metavar="DURATION", help="by time bucket, as in 100ms"
    )
    _options.add_selection(parser, what="these CPUs (--cpu), or count only these threads")
    _options.add_format(parser)


def run(args: argparse.Namespace) -> Answer:
    """Depth by CPU, or its steps."""
    import polars as pl

    from schedscope.analysis.asking.needs import has
    from schedscope.analysis.cpus.topology import recorded_cpus
    from schedscope.analysis.queue_depth import (
        queue_depth,
        queue_depth_summary,
        queue_load_agreement,
    )
    from schedscope.analysis.threads.restrict_to_threads import restrict_to_threads

    if args.by == "all" and args.cpu:
        raise UsageError("--by all with --cpu", "one of them", "leave one out")
    _options.check_top(args)
    over_time = "--steps" if args.steps else "--every" if args.every else ""
    if over_time and args.waiting_only:
        raise UsageError(
            f"{over_time} with --waiting-only", "one of them", "waiting is a column there"
        )
    if over_time and args.top:
        raise UsageError(f"{over_time} with --top", "one of them", "select with --cpu")
    trace = _options.open_input(args)
    recorded = trace
    if (threads := _options.where_threads(args, trace)) is not None:
        trace = restrict_to_threads(trace, threads)
    head = [*headline.headline(recorded)]
    if over_time:
        frame = queue_depth(trace, by=args.by, cpus=args.cpu or None, every=args.every)
    else:
        frame = queue_depth_summary(trace, by=args.by, running=not args.waiting_only)
    if args.cpu:
        known = {*frame["cpu"], *recorded_cpus(trace)}
        for cpu in args.cpu:
            if cpu not in known:
                possible = ", ".join(str(n) for n in sorted(known - {None}))
                raise UsageError(f"--cpu {cpu}", "a CPU of this trace", f"one of {possible}")
        frame = frame.filter(pl.col("cpu").is_in(args.cpu))
    about = headline.about(recorded)
    if over_time:
        question = "queue_depth every" if args.every else "queue_depth"
        return Answer(
            frame,
            choose(frame, frame.columns, question=question, narrow="held dur", origin=trace.origin),
            about=about,
            head=[*head, ""],
        )
    agreement = queue_load_agreement(trace) if has(trace, "queue_load") else pl.DataFrame()
    about["queue_load"] = agreement.to_dicts()
    totals, rows = _totals(frame), frame.height
    foot = _foot(frame, agreement, args.by == "all")
    shown = frame = _options.top_cpus(args, frame, "waiting")
    if args.by != "all":
        # In the table "none" says more than "-".
        shown = frame.with_columns(pl.col("cpu").cast(pl.String).fill_null("none"))
    names = [] if args.by == "all" else ["cpu"]
    names += ["mean", "p*", "max", "ts_max", "overload_frac", "waiting", "waiting_unknown?"]
    names += ["unknown", "n", "n_censored?", "n_excluded?"]
    narrow = "waiting_unknown ts_max n_censored n_excluded n p90 unknown waiting"
    return Answer(
        frame,
        choose(shown, names, question="queue_depth_summary", narrow=narrow, origin=trace.origin),
        about=about,
        head=[*head, totals, ""],
        notes=foot,
        rows_in_all=rows,
        rest=("more CPU", ", less waiting"),
        shown=shown,
    )


def _totals(frame: pl.DataFrame) -> str:
    names = ("waiting", "waiting_unknown", "n_censored", "n_excluded")
    waiting, unknown, n_censored, n_excluded = (sum(frame[name].to_list()) for name in names)
    parts = [f"threads waited {units.duration(waiting + unknown)} in total"]
    if unknown:
        parts.append(f"{units.duration(unknown)} of it where the depth is unknown")
    if n_censored:
        waits = "wait" if n_censored == 1 else "waits"
        parts.append(f"{units.count(n_censored)} {waits} unfinished when last observed")
    if n_excluded:
        parts.append(f"{units.count(n_excluded)} excluded: start not recorded")
    return "; ".join(parts)


def _foot(frame: pl.DataFrame, agreement: pl.DataFrame, machine: bool) -> list[str]:
    lines = []
    if not machine and frame["cpu"].has_nulls():
        lines.append("none: runnable, but not on a known queue; --by all includes these threads")
    for row in agreement.iter_rows(named=True):
        queue = "the shared queue" if row["cpu"] is None else f"CPU {row['cpu']}"
        if not row["n"]:
            lines.append(f"the kernel's own length of {queue}: nothing to compare")
            continue
        lines.append(
            f"the kernel's own length of {queue}: {units.percent(row['agree_frac'])} of"
            f" {units.several(row['n'], 'report')} agree at their instant,"
            f" {units.percent(row['near_frac'])} within 10 µs"
        )
    return lines
