"""How long did a CPU idle while a thread that may run there waited for another one?

At every instant the idle CPUs could run some of the threads that wait for other
CPUs; the time for which they did not is wasted. A CPU that idles with a thread
on its own queue is on its way to it, which is no waste. Threads with one
allowed CPU could not have gone elsewhere and are counted apart. --episodes
lists when it happened: which CPUs idled, who waited where, and why.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from schedscope import units
from schedscope.cli import _headline, _options, _output
from schedscope.cli._output import Column
from schedscope.errors import UsageError

if TYPE_CHECKING:
    import polars as pl

NAME = "idle"
HELP = "CPU time that idled while threads waited elsewhere"
EXAMPLE = """\
  schedscope idle web.capture
  schedscope idle web.capture --by comm --top 10
  schedscope idle web.capture --episodes --longer-than 500us --comm nginx
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `schedscope idle`."""
    _options.add_input(parser)
    parser.add_argument(
        "--by",
        choices=("cpu", "thread", "comm", "process"),
        help="a row for each (default: cpu; thread if threads are selected)",
    )
    parser.add_argument(
        "--episodes", action="store_true", help="when it happened, a row per waiting thread"
    )
    parser.add_argument(
        "--longer-than",
        metavar="TIME",
        help="only episodes of this length or longer (default: 1ms)",
    )
    parser.add_argument(
        "--top",
        type=int,
        metavar="N",
        help="only the first N rows (default: 20 in a table, else all), or episodes (20)",
    )
    _options.add_selection(parser)
    _options.add_format(parser)


def run(args: argparse.Namespace) -> int:
    """Print the table."""
    import polars as pl

    from schedscope.analysis.work_conservation import idle_episodes, wasted_time

    _options.check_top(args)
    if args.longer_than and not args.episodes:
        raise UsageError("--longer-than", "--episodes with it: those are what it chooses from")
    if args.by and args.episodes:
        raise UsageError(f"--by {args.by} with --episodes", "one of them")
    args.by = args.by or ("thread" if args.comm or args.pid or args.tid else "cpu")
    about_threads = args.episodes or args.by != "cpu"
    if not about_threads and (args.comm or args.pid or args.tid):
        raise UsageError(
            "--comm, --pid or --tid with rows about CPUs",
            "--by thread, --by comm, --by process or --episodes",
            "leave --by cpu out",
        )
    if args.cpu and args.by != "cpu" and not args.episodes:
        raise UsageError(f"--cpu with --by {args.by}", "rows about CPUs, or --episodes")
    trace = _options.open_input(args)
    where = _options.where(args, trace)
    machine = wasted_time(trace).row(0, named=True)
    top = _options.top(args, 20)
    about: dict[str, Any] = {**_headline.about(trace), "machine": machine}
    foot: list[str] = []
    if args.episodes:
        frame = idle_episodes(
            trace, longer_than=args.longer_than or "1ms", top=args.top or 20, where=where
        )
        columns = _episode_columns(trace.origin)
    else:
        frame = wasted_time(trace, by=args.by, where=where if about_threads else None)
        if where is not None and not about_threads:
            frame = frame.filter(where)
        about["rows_in_all"] = rows = len(frame)
        frame = frame[: top if about_threads else args.top]
        foot += _output.more(rows - len(frame))
        columns = _cpu_columns(frame) if args.by == "cpu" else _thread_columns(frame)
        if args.by == "cpu" and args.format == "table":
            frame = frame.with_columns(pl.col("cpu").cast(pl.String).fill_null("none"))
    _output.emit(
        frame,
        args.format,
        columns=columns,
        about=about,
        head=[*_headline.headline(trace), *_totals(machine), ""],
        foot=foot,
    )
    return 0


def _totals(row: dict[str, Any]) -> list[str]:
    lines = [
        f"wasted: {units.duration(row['wasted'])} of CPU time, "
        f"{units.percent(row['wasted_frac'])} of what is known, "
        f"{units.percent(row['wasted_idle_frac'])} of {units.duration(row['idle'])} idle"
    ]
    parts = [f"{units.duration(row['dispatch'])} idle on the way to a waiting thread"]
    if row["unplaced"]:
        lines.append(f"{units.duration(row['unplaced'])} of it for threads on no known queue")
    if row["pinned"]:
        parts.append(
            f"{units.duration(row['pinned'])} waited by threads that may run on one CPU only"
        )
    if row["unknown"]:
        parts.append(f"{units.duration(row['unknown'])} of CPU time not known")
    if row["n_excluded"]:
        waits = "wait" if row["n_excluded"] == 1 else "waits"
        parts.append(f"{units.count(row['n_excluded'])} {waits} of which the begin was not seen")
    return [*lines, "not in that: " + "; ".join(parts)]


def _cpu_columns(frame: pl.DataFrame) -> list[Column]:
    return [
        Column("cpu", "CPU", "right"),
        Column("idle", kind="time"),
        Column("available", "idle while needed", "time"),
        Column("dispatch", "idle on the way", "time", rank=2),
        Column("waiting", "threads waited", "time"),
        Column("waited", "while a CPU idled", "time"),
        *([Column("unknown", kind="time", rank=1)] if frame["unknown"].sum() else []),
    ]


def _thread_columns(frame: pl.DataFrame) -> list[Column]:
    names = [name for name in ("comm", "tid", "pid") if name in frame.columns]
    return [
        *(Column(name, kind="text" if name == "comm" else "id") for name in names),
        Column("waiting", "waited", "time"),
        Column("avoidable", "while a CPU idled", "time"),
        Column("avoidable_frac", "share", "share"),
        Column("n", "stretches", "count", rank=1),
    ]


def _episode_columns(origin: int) -> list[Column]:
    return [
        Column("episode", "#", "count"),
        Column("ts", "at", "at", origin=origin),
        Column("dur", "lasted", "time"),
        Column("wasted", kind="time"),
        Column("idle_cpus", "idle CPUs", "right"),
        Column("comm", "waiting"),
        Column("tid", kind="id", rank=1),
        Column("cpu", "on CPU", "id"),
        Column("waited", kind="time"),
        Column("cause", kind="text"),
    ]
