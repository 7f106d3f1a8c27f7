"""Which threads moved to another CPU, how far, why, and did it help?

A migration is a run on another CPU than the thread's last one, counted where
it runs: a thread that is moved twice before it runs migrated once. Causes say what
decided on the CPU: the wakeup, a balancing decision while the thread
was runnable, fork, exec, or a mask that forbids the CPU it left. "waited" counts
migrations after which the thread still waited on the new CPU's queue for longer than --waited.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from schedscope import units
from schedscope.cli import _headline, _options, _output
from schedscope.cli._output import Column
from schedscope.errors import UsageError

if TYPE_CHECKING:
    import polars as pl

    from schedscope.trace import Trace

NAME = "migrations"
HELP = "which threads moved to another CPU, how far, and why"
EXAMPLE = """\
  schedscope migrations web.capture --by tid,comm --top 20
  schedscope migrations web.capture --by cause,distance
  schedscope migrations web.capture --every 100ms --by cause --format csv
  schedscope migrations web.capture --ping-pong 5ms
"""

GROUPS = (
    *("comm", "pid", "tid", "utid", "sched_class", "kernel", "cause", "distance"),
    *("from_cpu", "to_cpu"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `schedscope migrations`."""
    _options.add_input(parser)
    parser.add_argument(
        "--by",
        metavar="COLUMN,...",
        help=f"one row for each of: {', '.join(GROUPS)}; or `all` (default: comm)",
    )
    parser.add_argument("--every", metavar="TIME", help="also by time bucket, as in 100ms")
    parser.add_argument(
        "--top",
        type=int,
        metavar="N",
        help="only the first N rows (default: all, but 20 of --list in a table)",
    )
    parser.add_argument(
        "--waited",
        metavar="TIME",
        default="100us",
        help="a wait on the new CPU's queue above this counts (default: 100us)",
    )
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument(
        "--matrix", action="store_true", help="from which CPU to which instead, a row per pair"
    )
    instead.add_argument(
        "--ping-pong",
        metavar="TIME",
        nargs="?",
        const="10ms",
        help="threads thrown back and forth within this time instead (default: 10ms)",
    )
    instead.add_argument("--list", action="store_true", help="every single migration instead")
    _options.add_selection(parser, what="migrations of (--cpu: to)")
    _options.add_format(parser)


def run(args: argparse.Namespace) -> int:
    """Print the table."""
    import polars as pl

    from schedscope.analysis.migration import (
        migration_matrix,
        migration_summary,
        migrations,
        ping_pong,
    )
    from schedscope.analysis.migration_cause import migration_agreement

    by = _options.groups(args.by or "comm", GROUPS)
    _options.check_top(args)
    instead = args.matrix or args.list or args.ping_pong
    for option, given in (("--every", args.every), ("--by", args.by)):
        if given and instead:
            raise UsageError(f"{option} with --matrix, --list or --ping-pong", "one of them")
    trace = _options.open_input(args)
    where = _options.where(args, trace)
    foot: list[str] = []
    if args.list:
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
        *_headline.headline(trace),
        _totals(totals, causes, distances, args.waited),
    ]
    if where is None:
        head.append(_agreement(agreement))
    about = {
        **_headline.about(trace),
        "rows_in_all": frame.height,
        "all": totals,
        "kernel_reports": agreement,
    }
    shown = frame
    if args.format == "table" and args.matrix:
        shown = frame.filter(pl.col("n") > 0)
    elif args.format == "table" and "moved_frac" in frame.columns:
        shown = frame.filter(pl.col("n") > 0) if by and frame.height > 1 else frame
        if still := frame.height - shown.height:
            foot.append(f"({still} more ran and never migrated)")
    rows = shown.height
    shown = shown[: _options.top(args, 20) if args.list else args.top]
    foot = _output.more(rows - shown.height) + foot
    columns = _columns(shown, by, trace, args)
    _output.emit(shown, args.format, columns=columns, about=about, head=[*head, ""], foot=foot)
    return 0


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
        parts.append("distance " + (", ".join(far) if far else "not known: no topology"))
        parts.append(f"{units.count(totals['n_waited'])} then waited over {waited} anyway")
    if totals["n_censored"]:
        parts.append(f"{units.count(totals['n_censored'])} moved and not yet running")
    if totals["n_excluded"]:
        parts.append(
            f"{units.several(totals['n_excluded'], 'run')} left out: where before, not seen"
        )
    return "; ".join(parts)


def _agreement(row: dict[str, int]) -> str:
    """How ours relate to the moves that the kernel reported."""
    if not row["n_events"]:
        return "the source reports no moves of its own"
    words = {
        "n_reported": "are these migrations",
        "n_repeated": "moved a thread again before it ran",
        "n_returned": "were undone before it ran",
        "n_open": "were not followed by a run",
        "n_early": "came where the run before was not seen",
        "n_idle": "were of idle threads",
    }
    told = [f"{units.count(row[name])} {word}" for name, word in words.items() if row[name]]
    text = f"the kernel reported {units.several(row['n_events'], 'move')}: " + ", ".join(told)
    silent = [
        f"{units.count(row[name])} {word}"
        for name, word in (("n_fork", "placed at fork"), ("n_silent", "others"))
        if row[name]
    ]
    text += f"; it did not report {', '.join(silent)}" if silent else ""
    if row["n_unseen"]:
        text += (
            f"; not in these: {units.several(row['n_unseen'], 'migration')} of which only"
            " the end of the run was recorded"
        )
    return text


def _columns(
    frame: pl.DataFrame, by: list[str], trace: Trace, args: argparse.Namespace
) -> list[Column]:
    origin = trace.origin
    if args.list:
        found = [Column("ts", "at", "at", origin=origin), Column("comm"), Column("tid", kind="id")]
        found += [Column("from_cpu", "from", "id"), Column("to_cpu", "to", "id"), Column("cause")]
        found.append(Column("distance", rank=2))
        return [
            *found,
            Column("since", "since last run", "time", rank=1),
            Column("wait", kind="time"),
            Column("queued", "on the queue", "time", rank=3),
        ]
    if args.matrix:
        found = [Column("from_cpu", "from", "id"), Column("to_cpu", "to", "id")]
        found += [Column("distance", rank=1), Column("n", "migrations", "count")]
        from schedscope.analysis.migration_cause import CAUSE

        found += [Column(c, kind="count", rank=2) for c in CAUSE.categories if frame[c].sum()]
        return [
            *found,
            Column("n_waited", "waited", "count"),
            Column("queued", "for", "time", rank=3),
        ]
    if args.ping_pong:
        return [
            Column("comm"),
            Column("tid", kind="id"),
            Column("cpu_a", "CPU", "id"),
            Column("cpu_b", "and CPU", "id"),
            Column("distance", rank=2),
            Column("n", "bounces", "count"),
            Column("n_migrations", "migrations", "count", rank=3),
            Column("away_p50", "away p50", "time", rank=1),
            Column("away_min", "min", "time", rank=4),
            Column("wait", "waited", "time"),
        ]
    found = [Column("ts", "from", "at", origin=origin)] if "ts" in frame.columns else []
    for name in by:
        found.append(Column(name, kind="id" if frame[name].dtype.is_integer() else "text"))
    found.append(Column("n", "migrations", "count"))
    found.append(Column("rate_hz", "per s", "number", rank=1))
    found.append(Column("runs", kind="count", rank=3))
    found.append(Column("moved_frac", "of runs", "share", rank=2))
    found.append(Column("n_waited", "waited", "count"))
    found.append(Column("queued", "for", "time", rank=4))
    if frame["n_censored"].sum():
        found.append(Column("n_censored", "open", "count", rank=5))
    if frame["n_excluded"].sum():
        found.append(Column("n_excluded", "unseen", "count", rank=6))
    return found
