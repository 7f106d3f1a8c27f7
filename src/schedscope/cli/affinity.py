"""`schedscope affinity`: the options and words that its question does not declare."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from schedscope import units
from schedscope.analysis.asking.command import THREAD_GROUPS
from schedscope.cli import _options
from schedscope.errors import UsageError
from schedscope.present import headline
from schedscope.present.answer import Answer
from schedscope.present.columns import Column, choose

if TYPE_CHECKING:
    import polars as pl

    from schedscope.store.trace import Trace


GROUPS = THREAD_GROUPS
PLACES = ("cpu", "core", "llc", "package", "numa_node")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `schedscope affinity`."""
    _options.add_input(parser)
    parser.add_argument(
        "--by",
        metavar="COLUMN,...",
        help=f"one row for each of: {', '.join(GROUPS)}; or `all` (default: comm)",
    )
    parser.add_argument("--top", type=int, metavar="N", help="only the first N rows")
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument(
        "--residency", choices=PLACES, help="show the time on each CPU, cache, package, ... instead"
    )
    instead.add_argument(
        "--returns",
        action="store_true",
        help="show who returned to the same CPU instead, by the time since the last run",
    )
    instead.add_argument(
        "--outside",
        action="store_true",
        help="show runs outside the recorded affinity masks instead",
    )
    instead.add_argument(
        "--isolated",
        metavar="CPUS",
        nargs="?",
        const="",
        help="show who ran on these CPUs instead, as in 2-3 (default: those the capture reports)",
    )
    _options.add_selection(parser, what="these threads, or runs on this CPU (--cpu)")
    _options.add_format(parser)


def run(args: argparse.Namespace) -> Answer:
    """Where threads ran, by group; or one of the other tables."""
    from schedscope.analysis.affinity import affinity
    from schedscope.analysis.cpu_returns import cpu_returns
    from schedscope.analysis.cpus.topology import cpu_text
    from schedscope.analysis.isolation import (
        isolated_cpus,
        isolation_leaks,
        runs_outside_affinity,
    )
    from schedscope.analysis.residency import residency

    by = _options.groups(args.by or "comm", GROUPS)
    _options.check_top(args)
    if args.by and (args.returns or args.outside or args.isolated is not None):
        raise UsageError("--by with --returns, --outside or --isolated", "one of them")
    trace = _options.open_input(args)
    where = _options.where(args, trace)
    head = [*headline.headline(trace)]
    about = headline.about(trace)
    if args.returns:
        frame = cpu_returns(trace, where=where)
        head.append(_returned(frame))
    elif args.isolated is not None:
        frame = isolation_leaks(trace, args.isolated or None, where=where)
        cpus = args.isolated or cpu_text(isolated_cpus(trace) or [])
        about["isolated"] = cpus
        head.append(_leaked(frame, cpus))
    elif args.outside:
        frame = runs_outside_affinity(trace, where=where)
        head.append(_outside(trace, frame))
    elif args.residency:
        frame = residency(trace, by, over=args.residency, where=where)
        head.append(f"{units.duration(int(frame['running'].sum()))} of running time in total")
    else:
        frame = affinity(trace, by, where=where)
        totals = affinity(trace, [], where=where)
        about["all"] = totals.to_dicts()
        head.append(_totals(totals))
    shown = frame.head(args.top) if args.top else frame
    worded = _labelled(shown) if args.returns else shown
    return Answer(
        shown,
        _columns(args, worded, by, trace.origin),
        about=about,
        head=[*head, ""],
        rows_in_all=frame.height,
        shown=worded,
    )


def _totals(totals: pl.DataFrame) -> str:
    if totals.is_empty():
        return "no thread ran"
    row = totals.row(0, named=True)
    parts = [
        f"{units.several(row['threads'], 'thread')} ran {units.duration(row['running'])}",
        f"{units.percent(row['same_cpu_frac'])} of {units.several(row['n'], 'return')}"
        " to the same CPU",
    ]
    if row["same_llc_frac"] is not None:
        parts.append(f"{units.percent(row['same_llc_frac'])} to the same last-level cache")
    if row["outside_runs"]:
        parts.append(
            f"{units.several(row['outside_runs'], 'run')} outside the allowed CPUs (--outside)"
        )
    if row["n_censored"]:
        parts.append(f"{units.count(row['n_censored'])} still waiting when last observed")
    if row["n_excluded"]:
        parts.append(f"{units.several(row['n_excluded'], 'run')} excluded: previous CPU unknown")
    return "; ".join(parts)


def _returned(frame: pl.DataFrame) -> str:
    last = frame.row(-1, named=True)
    parts = [f"{units.several(int(frame['n'].sum()), 'run')} with a known previous run"]
    if last["n_excluded"]:
        parts.append(
            f"{units.count(last['n_excluded'])} excluded: end of the previous run not recorded"
        )
    if last["n_censored"]:
        parts.append(f"{units.count(last['n_censored'])} still waiting when last observed")
    return "; ".join(parts)


def _leaked(frame: pl.DataFrame, cpus: str) -> str:
    import polars as pl

    if not cpus:
        return "the capture reports no isolated CPUs; name some with --isolated CPUS"
    leaks = frame.filter("leak")
    unknown = frame.filter(pl.col("leak").is_null())
    text = (
        f"isolated: {cpus}; {units.several(leaks['utid'].n_unique(), 'thread')} that could have"
        f" run elsewhere ran there for {units.duration(int(leaks['running'].sum()))}"
    )
    if unknown.height:
        count = units.count(unknown["utid"].n_unique())
        ran = units.duration(int(unknown["running"].sum()))
        text += f"; {count} more of unknown affinity for {ran}"
    return text


def _outside(trace: Trace, frame: pl.DataFrame) -> str:
    if not trace.threads.select(has=(_mask().is_not_null()).any()).collect().item():
        return "the trace has no affinity masks"
    return (
        f"{units.several(int(frame['runs'].sum()), 'run')} of"
        f" {units.several(frame['utid'].n_unique(), 'thread')} on CPUs outside the recorded masks;"
        " a mask may have changed since"
    )


def _mask() -> pl.Expr:
    import polars as pl

    return pl.col("affinity")


def _labelled(frame: pl.DataFrame) -> pl.DataFrame:
    """Ranges of time as words; the heading line says what is excluded."""
    import polars as pl

    ranges = frame.filter(pl.col("since_from").is_not_null())
    words = [
        f"from {units.duration(low)}" if high is None else f"under {units.duration(high)}"
        for low, high in ranges.select("since_from", "since_to").iter_rows()
    ]
    return ranges.with_columns(pl.Series("since_from", words, dtype=pl.String))


def _columns(
    args: argparse.Namespace, frame: pl.DataFrame, by: list[str], origin: int
) -> list[Column]:
    if args.returns:
        names = ["since_from", "n", "same_cpu", "same_cpu_frac", "same_llc?", "same_llc_frac?"]
        narrow = "wait_p50 same_llc same_cpu same_llc_frac"
        return choose(frame, [*names, "wait_p50"], question="cpu_returns", narrow=narrow)
    if args.isolated is not None or args.outside:
        names = ["cpu", "comm", "tid", "kernel", "affinity", "leak", "running", "runs", "cpu_frac"]
        narrow = "kernel ts_last ts_first runs cpu_frac"
        return choose(frame, [*names, "ts_first", "ts_last"], narrow=narrow, origin=origin)
    if args.residency:
        return choose(
            frame, [*by, args.residency, "running", "running_frac", "runs"], narrow="runs"
        )
    names = ["threads", "running", "effective_cpus", "top_cpu", "top_frac", "n", "same_cpu_frac"]
    names += ["same_llc_frac?", "used", "allowed?", "outside_runs?"]
    narrow = "threads top_cpu top_frac outside_runs n same_llc_frac allowed running"
    return choose(frame, [*by, *names], question="cpu_returns", narrow=narrow)
