"""`schedscope work-conservation`: the options and words that its question does not declare."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from schedscope import units
from schedscope.analysis.asking.command import THREAD_ROWS
from schedscope.cli import _options, _quantities
from schedscope.errors import UsageError
from schedscope.present import headline
from schedscope.present.answer import Answer
from schedscope.present.columns import choose


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `schedscope work-conservation`."""
    _options.add_input(parser)
    parser.add_argument(
        "--by",
        choices=("cpu", *THREAD_ROWS),
        help="what a row is about (default: cpu; thread if threads are selected)",
    )
    parser.add_argument(
        "--episodes", action="store_true", help="show when it happened, one row per waiting thread"
    )
    parser.add_argument(
        "--longer-than",
        type=_quantities.duration,
        metavar="DURATION",
        help="only episodes of this length or longer (default: 1ms)",
    )
    parser.add_argument(
        "--top",
        type=int,
        metavar="N",
        help="only the first N rows (default: 20 in a table, else all), the first N episodes"
        " (the same), or the N CPUs on whose queues threads waited longest (default: all; in a"
        " table 32 of more than 64 CPUs)",
    )
    _options.add_selection(parser)
    _options.add_format(parser)


def run(args: argparse.Namespace) -> Answer:
    """Print the table."""
    import polars as pl

    from schedscope.analysis.causes.throttled_waits import held_back
    from schedscope.analysis.work_conservation import idle_episodes, work_conservation

    _options.check_top(args)
    if args.longer_than and not args.episodes:
        raise UsageError("--longer-than", "--episodes as well: it selects among episodes")
    if args.by and args.episodes:
        raise UsageError(f"--by {args.by} with --episodes", "one of them")
    args.by = args.by or ("thread" if _options.selects_threads(args) else "cpu")
    about_threads = args.episodes or args.by != "cpu"
    if not about_threads and _options.selects_threads(args):
        raise UsageError(
            "threads selected, with rows about CPUs",
            "--by " + ", --by ".join(THREAD_ROWS) + " or --episodes",
            "leave --by cpu out",
        )
    if args.cpu and args.by != "cpu" and not args.episodes:
        raise UsageError(
            "--cpu with rows about threads",
            "--episodes, or --by cpu without a selection of threads",
            "leave --cpu out",
        )
    trace = _options.open_input(args)
    where = _options.where(args, trace)
    machine = work_conservation(trace).row(0, named=True)
    top = _options.top(args, 20)
    about: dict[str, Any] = {**headline.about(trace), "machine": machine}
    held = int(held_back(trace, work_conservation(trace, by="thread"))["held"].sum())
    about["held_by_quotas"] = held
    head = [*headline.headline(trace), *_totals(machine), *_quotas(held), ""]
    if args.episodes:
        every = idle_episodes(trace, longer_than=args.longer_than or "1ms", where=where)
        # One episode has a row for each thread that waited.
        kept = every["episode"].unique(maintain_order=True)[:top]
        frame = every.filter(pl.col("episode").is_in(kept.implode()))
        left_out = units.several(every["episode"].n_unique() - kept.len(), "more episode")
        names = ["episode", "ts", "dur", "wasted", "idle_cpus", "comm", "tid", "cpu", "waited"]
        columns = choose(
            frame, [*names, "cause"], narrow="tid wasted idle_cpus", origin=trace.origin
        )
        return Answer(
            frame,
            columns,
            about=about,
            head=head,
            notes=[] if len(every) else [f"no episode of {args.longer_than or '1ms'} or more"],
            rows_in_all=every.height,
            rest=f"{left_out}, with less wasted time",
        )
    frame = work_conservation(trace, by=args.by, where=where if about_threads else None)
    if where is not None and not about_threads:
        frame = frame.filter(where)
    rows = len(frame)
    frame = frame[:top] if about_threads else _options.top_cpus(args, frame, "waited", "idle")
    shown = frame
    if about_threads:
        names = [
            "comm",
            "tid",
            "process_name?",
            "pid",
            "cgroup",
            "service",
            "waiting",
            "throttled?",
            "avoidable",
            "avoidable_frac",
            "n",
        ]
        narrow = "n throttled"
    else:
        names = [
            "cpu",
            "idle",
            "available",
            "dispatch",
            "waiting",
            "waited",
            "throttled?",
            "unknown?",
        ]
        narrow = "dispatch throttled unknown"
        shown = shown.with_columns(pl.col("cpu").cast(pl.String).fill_null("none"))
    return Answer(
        frame,
        choose(shown, names, question="work_conservation", narrow=narrow),
        about=about,
        head=head,
        shown=shown,
        rows_in_all=rows,
        rest=("more row", "") if about_threads else ("more CPU", ", less waiting"),
    )


def _totals(row: dict[str, Any]) -> list[str]:
    lines = [
        f"avoidable idle time: {_amount(row, 'wasted')} of CPU time, "
        f"{_amount(row, 'wasted_frac', units.percent)} of the known time, "
        f"{_amount(row, 'wasted_idle_frac', units.percent)} of {units.duration(row['idle'])} idle"
    ]
    parts = [
        f"{units.duration(row['dispatch'])} dispatch delay (idle with a thread on its own queue)"
    ]
    if row["unplaced"]:
        lines.append(f"{units.duration(row['unplaced'])} of it for threads on no known queue")
    if row["pinned"]:
        parts.append(f"{units.duration(row['pinned'])} waited by threads that may use only one CPU")
    if row["throttled_high"]:
        parts.append(f"{_amount(row, 'throttled')} in which CPU quotas held threads back")
    if row["unknown"]:
        parts.append(f"{units.duration(row['unknown'])} of unknown CPU time")
    if row["n_excluded"]:
        waits = "wait" if row["n_excluded"] == 1 else "waits"
        parts.append(f"{units.count(row['n_excluded'])} {waits} whose start was not recorded")
    return [*lines, "not included: " + "; ".join(parts)]


def _amount(row: dict[str, Any], name: str, text: Callable[[float], str] = units.duration) -> str:
    return units.interval(row[name], row[f"{name}_high"], text)


def _quotas(held: int) -> list[str]:
    if not held:
        return []
    return [
        f"up to {units.duration(held)} of the avoidable waiting may be due to CPU quotas, and the"
        " trace does not show when they were used up"
    ]
