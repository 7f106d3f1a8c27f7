"""`schedscope migrations`: the options and words that its question does not declare."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from schedscope import units
from schedscope.analysis.asking.command import THREAD_GROUPS
from schedscope.cli import _options, _quantities
from schedscope.errors import UsageError
from schedscope.present import headline
from schedscope.present.answer import Answer
from schedscope.present.columns import Column, choose

if TYPE_CHECKING:
    import polars as pl

    from schedscope.store.trace import Trace


GROUPS = (*THREAD_GROUPS, "cause", "distance", "from_cpu", "to_cpu")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `schedscope migrations`."""
    _options.add_input(parser)
    parser.add_argument(
        "--by",
        metavar="COLUMN,...",
        help=f"one row for each of: {', '.join(GROUPS)}; or `all` (default: comm)",
    )
    parser.add_argument(
        "--every",
        type=_quantities.duration,
        metavar="DURATION",
        help="also by time bucket, as in 100ms",
    )
    parser.add_argument(
        "--top",
        type=int,
        metavar="N",
        help="only the first N rows (default: all; 20 with --each in a table)",
    )
    parser.add_argument(
        "--waited",
        type=_quantities.duration,
        metavar="DURATION",
        default="100us",
        help="count waits on the new CPU's queue that are longer than this (default: 100us)",
    )
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument(
        "--matrix", action="store_true", help="show one row per pair of CPUs (from, to) instead"
    )
    instead.add_argument(
        "--ping-pong",
        type=_quantities.duration,
        metavar="DURATION",
        nargs="?",
        const="10ms",
        help="show threads that moved to a CPU and back within this time instead (default: 10ms)",
    )
    instead.add_argument("--each", action="store_true", help="show one row per migration instead")
    _quantities.older(instead, "--list", "--each")
    _options.add_selection(parser, what="migrations of these threads, or to this CPU (--cpu)")
    _options.add_format(parser)


def run(args: argparse.Namespace) -> Answer:
    """Migrations by group, or as a matrix, or one by one."""
    import polars as pl

    from schedscope.analysis.migration.causes import migration_agreement
    from schedscope.analysis.migration.migrations import (
        migration_matrix,
        migration_summary,
        migrations,
        ping_pong,
    )

    by = _options.groups(args.by or "comm", GROUPS)
    _options.check_top(args)
    instead = args.matrix or args.each or args.ping_pong
    for option, given in (("--every", args.every), ("--by", args.by)):
        if given and instead:
            raise UsageError(f"{option} with --matrix, --each or --ping-pong", "one of them")
    trace = _options.open_input(args)
    where = _options.where(args, trace)
    foot: list[str] = []
    if args.each:
        frame = migrations(trace, where=where, waited=args.waited)
    elif args.matrix:
        frame = migration_matrix(trace, where=where, waited=args.waited)
    elif args.ping_pong:
        frame = ping_pong(trace, args.ping_pong, where=where)
    else:
        frame = migration_summary(trace, by, every=args.every, where=where, waited=args.waited)
    causes = migration_summary(trace, "cause", where=where, waited=args.waited)
    distances = migration_summary(trace, "distance", where=where, waited=args.waited)
    totals = migration_summary(trace, [], where=where, waited=args.waited).row(0, named=True)
    agreement = migration_agreement(trace).row(0, named=True)
    head = [
        *headline.headline(trace),
        _totals(totals, causes, distances, args.waited),
    ]
    if where is None:
        head.append(_agreement(agreement))
    about = {
        **headline.about(trace),
        "all": totals,
        "kernel_reports": agreement,
    }
    shown = frame
    if args.format == "table" and args.matrix:
        shown = frame.filter(pl.col("n") > 0)
        if still := frame.height - shown.height:
            foot.append(f"({units.several(still, 'more pair')} of CPUs without migrations)")
    elif args.format == "table" and "moved_frac" in frame.columns:
        shown = frame.filter(pl.col("n") > 0) if by and frame.height > 1 else frame
        if still := frame.height - shown.height:
            foot.append(f"({still} more ran but never migrated)")
    rows = shown.height
    shown = shown[: _options.top(args, 20) if args.each else args.top]
    columns = _columns(shown, by, trace, args)
    return Answer(shown, columns, about=about, head=[*head, ""], notes=foot, rows_in_all=rows)


def _totals(
    totals: dict[str, int], causes: pl.DataFrame, distances: pl.DataFrame, waited: str
) -> str:
    n, runs = totals["n"], totals["runs"]
    parts = [f"{units.several(n, 'migration')} in {units.several(runs, 'run')}"]
    if n:
        parts[0] += f" ({units.percent(n / runs)})" if runs else ""
        words = [f"{units.count(k)} {word}" for word, k in causes.select("cause", "n").iter_rows()]
        parts.append("by " + ", ".join(words))
        known = distances.drop_nulls("distance")
        far = [f"{units.count(k)} {word}" for word, k in known.select("distance", "n").iter_rows()]
        parts.append("distance " + (", ".join(far) if far else "unknown: no topology"))
        parts.append(f"{units.count(totals['n_waited'])} then waited over {waited} anyway")
    if totals["n_censored"]:
        parts.append(f"{units.count(totals['n_censored'])} moved but not yet running")
    if totals["n_excluded"]:
        parts.append(f"{units.several(totals['n_excluded'], 'run')} excluded: previous CPU unknown")
    return "; ".join(parts)


def _agreement(row: dict[str, int]) -> str:
    """How ours relate to the moves that the kernel reported."""
    if not row["n_events"]:
        return "the trace has no migration events of its own"
    words = {
        "n_reported": "are these migrations",
        "n_repeated": "moved a thread again before it ran",
        "n_returned": "were undone before the thread ran",
        "n_open": "were not followed by a run",
        "n_early": "had no recorded run before",
        "n_idle": "were of idle threads",
    }
    found = [f"{units.count(row[name])} {word}" for name, word in words.items() if row[name]]
    text = f"the kernel reported {units.several(row['n_events'], 'move')}: " + ", ".join(found)
    silent = [
        f"{units.count(row[name])} {word}"
        for name, word in (("n_fork", "placed at fork"), ("n_silent", "others"))
        if row[name]
    ]
    text += f"; it did not report {', '.join(silent)}" if silent else ""
    if row["n_unseen"]:
        text += (
            f"; not included: {units.several(row['n_unseen'], 'migration')} of which only"
            " the end of the run was recorded"
        )
    return text


def _columns(
    frame: pl.DataFrame, by: list[str], trace: Trace, args: argparse.Namespace
) -> list[Column]:
    if args.each:
        names = ["ts", "comm", "tid", "from_cpu", "to_cpu", "cause", "distance", "since", "wait"]
        return choose(
            frame, [*names, "queued"], narrow="queued distance since", origin=trace.origin
        )
    if args.matrix:
        from schedscope.analysis.migration.causes import CAUSE

        causes = [f"{cause}?" for cause in CAUSE.categories]
        names = ["from_cpu", "to_cpu", "distance", "n", *causes, "n_waited", "queued"]
        narrow = " ".join(["queued", *CAUSE.categories, "distance"])
        return choose(frame, names, question="migration_matrix", narrow=narrow)
    if args.ping_pong:
        names = ["comm", "tid", "cpu_a", "cpu_b", "distance", "n", "n_migrations"]
        names += ["away_p50", "away_min", "wait"]
        return choose(
            frame, names, question="ping_pong", narrow="away_min n_migrations distance away_p50"
        )
    names = ["ts", *by, "n", "rate_hz", "runs", "moved_frac", "n_waited", "queued"]
    return choose(
        frame,
        [*names, "n_censored?", "n_excluded?"],
        question="migrations",
        narrow="n_excluded n_censored queued runs moved_frac rate_hz",
        origin=trace.origin,
    )
