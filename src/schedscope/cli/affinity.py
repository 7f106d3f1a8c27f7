"""Where did threads run, was it allowed, and did they come back to the same CPU?

"effective" is exp of the entropy of a group's running time over the CPUs: 1 if all
of it was on one, k if it was spread evenly over k. "same CPU" is the share of
the times that a thread got a CPU on which it was the one it had run on last.
--isolated shows who ran on CPUs that were meant to be left alone.
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

NAME = "affinity"
HELP = "where threads ran, were allowed to, and came back to"
EXAMPLE = """\
  schedscope affinity web.capture --by tid,comm --top 20
  schedscope affinity web.capture --residency cpu --comm nginx
  schedscope affinity web.capture --returns
  schedscope affinity web.capture --isolated 2-3
"""

GROUPS = ("comm", "pid", "tid", "utid", "sched_class", "kernel", "affinity")
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
        "--residency", choices=PLACES, help="the time on each CPU (or cache ...) instead"
    )
    instead.add_argument(
        "--returns",
        action="store_true",
        help="who came back, by the time since the last run, instead",
    )
    instead.add_argument(
        "--outside", action="store_true", help="runs outside the recorded masks instead"
    )
    instead.add_argument(
        "--isolated",
        metavar="CPUS",
        nargs="?",
        const="",
        help="who ran on these CPUs, as in 2-3, instead (default: those the capture says)",
    )
    _options.add_selection(parser, what="threads that are, or runs that were on (--cpu)")
    _options.add_format(parser)


def run(args: argparse.Namespace) -> int:
    """Print the table."""
    from schedscope.analysis._base.topology import cpu_text
    from schedscope.analysis.affinity import affinity
    from schedscope.analysis.cpu_returns import cpu_returns
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
    head = [*_headline.headline(trace)]
    about = _headline.about(trace)
    foot: list[str] = []
    if args.returns:
        frame = cpu_returns(trace, where=where)
        columns = _return_columns(frame)
        head.append(_returned(frame))
    elif args.isolated is not None:
        frame = isolation_leaks(trace, args.isolated or None, where=where)
        cpus = args.isolated or cpu_text(isolated_cpus(trace) or [])
        columns = _leak_columns(trace)
        about["isolated"] = cpus
        head.append(_leaked(frame, cpus))
    elif args.outside:
        frame = runs_outside_affinity(trace, where=where)
        columns = _leak_columns(trace)
        head.append(_outside(trace, frame))
    elif args.residency:
        frame = residency(trace, by, over=args.residency, where=where)
        columns = _residency_columns(frame, by, args.residency)
        head.append(f"{units.duration(int(frame['running'].sum()))} of running time in all")
    else:
        frame = affinity(trace, by, where=where)
        columns = _columns(frame, by)
        totals = affinity(trace, [], where=where)
        about["all"] = totals.to_dicts()
        head.append(_totals(totals))
    rows = frame.height
    about["rows_in_all"] = rows
    shown = frame.head(args.top) if args.top else frame
    if args.format == "table" and args.returns:
        shown = _labelled(shown)
    if not args.returns:
        foot += _output.more(rows - shown.height)
    _output.emit(shown, args.format, columns=columns, about=about, head=[*head, ""], foot=foot)
    return 0


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
        parts.append(f"{units.several(row['outside_runs'], 'run')} outside of masks (--outside)")
    if row["n_censored"]:
        parts.append(f"{units.count(row['n_censored'])} still waiting at the end of sight")
    if row["n_excluded"]:
        parts.append(f"{units.several(row['n_excluded'], 'run')} left out: where before, not seen")
    return "; ".join(parts)


def _returned(frame: pl.DataFrame) -> str:
    last = frame.row(-1, named=True)
    parts = [f"{units.several(int(frame['n'].sum()), 'run')} with a known last one"]
    if last["n_excluded"]:
        parts.append(f"{units.count(last['n_excluded'])} left out: the last run's end not seen")
    if last["n_censored"]:
        parts.append(f"{units.count(last['n_censored'])} still waiting at the end of sight")
    return "; ".join(parts)


def _leaked(frame: pl.DataFrame, cpus: str) -> str:
    import polars as pl

    if not cpus:
        return "the capture says that no CPU was isolated; --isolated CPUS names some"
    leaks = frame.filter("leak")
    unknown = frame.filter(pl.col("leak").is_null())
    text = (
        f"isolated: {cpus}; {units.several(leaks['utid'].n_unique(), 'thread')} that could have"
        f" run elsewhere ran there for {units.duration(int(leaks['running'].sum()))}"
    )
    if unknown.height:
        count = units.count(unknown["utid"].n_unique())
        text += (
            f"; {count} more of unknown mask for {units.duration(int(unknown['running'].sum()))}"
        )
    return text


def _outside(trace: Trace, frame: pl.DataFrame) -> str:
    if not trace.threads.select(has=(_mask().is_not_null()).any()).collect().item():
        return "the trace has no masks"
    return (
        f"{units.several(int(frame['runs'].sum()), 'run')} of"
        f" {units.several(frame['utid'].n_unique(), 'thread')} on CPUs outside of recorded masks;"
        " a mask may have changed since"
    )


def _mask() -> pl.Expr:
    import polars as pl

    return pl.col("affinity")


def _labelled(frame: pl.DataFrame) -> pl.DataFrame:
    """Ranges of time as words; the row of what is left out is in the head."""
    import polars as pl

    ranges = frame.filter(pl.col("since_from").is_not_null())
    words = [
        f"from {units.duration(low)}" if high is None else f"under {units.duration(high)}"
        for low, high in ranges.select("since_from", "since_to").iter_rows()
    ]
    return ranges.with_columns(pl.Series("since_from", words, dtype=pl.String))


def _return_columns(frame: pl.DataFrame) -> list[Column]:
    found = [
        Column("since_from", "since last run", "right"),
        Column("n", "runs", "count"),
        Column("same_cpu", "same CPU", "count", rank=2),
        Column("same_cpu_frac", "share", "share"),
    ]
    if frame["same_llc"].count():
        found.append(Column("same_llc", "same cache", "count", rank=3))
        found.append(Column("same_llc_frac", "share", "share", rank=1))
    return [*found, Column("wait_p50", "wait p50", "time", rank=4)]


def _leak_columns(trace: Trace) -> list[Column]:
    return [
        Column("cpu", "CPU", "id"),
        Column("comm"),
        Column("tid", kind="id"),
        Column("kernel", rank=5),
        Column("affinity", "may use"),
        Column("leak"),
        Column("running", kind="time"),
        Column("runs", kind="count", rank=2),
        Column("cpu_frac", "of the CPU", "share", rank=1),
        Column("ts_first", "first at", "at", rank=3, origin=trace.origin),
        Column("ts_last", "last at", "at", rank=4, origin=trace.origin),
    ]


def _residency_columns(frame: pl.DataFrame, by: list[str], over: str) -> list[Column]:
    return [
        *_key_columns(frame, by),
        Column(over, "CPU" if over == "cpu" else over, "id"),
        Column("running", kind="time"),
        Column("running_frac", "share", "share"),
        Column("runs", kind="count", rank=1),
    ]


def _columns(frame: pl.DataFrame, by: list[str]) -> list[Column]:
    found = _key_columns(frame, by)
    found.append(Column("threads", kind="count", rank=7))
    found.append(Column("running", kind="time", rank=1))
    found.append(Column("effective_cpus", "effective", "number"))
    found.append(Column("top_cpu", "most on", "id", rank=6))
    found.append(Column("top_frac", "share", "share", rank=6))
    found.append(Column("n", "returns", "count", rank=4))
    found.append(Column("same_cpu_frac", "same CPU", "share"))
    if frame["same_llc_frac"].count():
        found.append(Column("same_llc_frac", "same cache", "share", rank=3))
    found.append(Column("used", "used", "right"))
    if frame["allowed"].count():
        found.append(Column("allowed", "may use", "right", rank=2))
    if frame["outside_runs"].sum():
        found.append(Column("outside_runs", "outside", "count", rank=5))
    return found


def _key_columns(frame: pl.DataFrame, by: list[str]) -> list[Column]:
    return [Column(n, kind="id" if frame[n].dtype.is_integer() else "text") for n in by]
