"""What did the CPUs do with their time, and what did it cost to share them?

By default one line per CPU: busy, idle, not known, context switches per second,
and the share of switches that threads did not want. Where the source does not
tell a preemption from a yield, that share is a range. With --runs, how long
threads run from switch-in to switch-out; with --processes, elapsed time and
waiting against CPU time; with --preemption, the time lost by threads
of each scheduling class to threads of each.
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

NAME = "efficiency"
HELP = "busy and idle time, context switches, run lengths, slowdown"
EXAMPLE = """\
  schedscope efficiency web.capture
  schedscope efficiency web.capture --runs --by comm --top 10
  schedscope efficiency web.capture --processes --by comm --comm 'make*'
  schedscope efficiency web.capture --preemption --format json
"""

_THREAD = ("comm", "pid", "tid", "utid", "kernel", "sched_class", "affinity", "recorder")
_GROUPS = {
    "runs": ("all", *_THREAD, "cpu", "end"),
    "processes": ("all", *_THREAD),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `schedscope efficiency`."""
    _options.add_input(parser)
    _options.add_selection(parser)
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--machine", action="store_true", help="the sum over all CPUs")
    what.add_argument(
        "--runs",
        action="store_true",
        help="how long threads run at a stretch; so too if threads are selected",
    )
    what.add_argument("--processes", action="store_true", help="elapsed time against CPU time")
    what.add_argument("--preemption", action="store_true", help="time lost, by scheduling class")
    parser.add_argument(
        "--by",
        metavar="COLUMN,...",
        help="group --runs (default: comm) or --processes (default: pid) by these;"
        f" of {', '.join(_GROUPS['runs'])}",
    )
    parser.add_argument("--top", type=int, metavar="N", help="only the first N rows")
    _options.add_format(parser)


def run(args: argparse.Namespace) -> int:
    """Print the table."""
    _options.check_top(args)
    if (args.comm or args.pid or args.tid) and not (args.processes or args.preemption):
        if args.machine:
            raise UsageError("--machine with threads selected", "one of them", "leave one out")
        # Of the tables about threads the one that any selection fits.
        args.runs = True
    by = _by(args)
    of_threads = args.runs or args.processes or args.preemption
    if args.machine and args.cpu:
        raise UsageError("--machine with --cpu", "one of them", "leave one out")
    if args.processes and args.cpu:
        raise UsageError("--processes with --cpu", "one of them", "a process has no one CPU")
    trace = _options.open_input(args)
    where = _options.where(args, trace)
    if args.runs:
        from schedscope.analysis.run_lengths import run_lengths

        frame = run_lengths(trace, by=by, where=where)
        columns = _columns_of_runs(frame)
    elif args.processes:
        from schedscope.analysis.process_efficiency import process_efficiency

        frame = process_efficiency(trace, by=by, where=where)
        columns = _columns_of_processes(frame)
    elif args.preemption:
        from schedscope.analysis.process_efficiency import preemption_loss

        frame = preemption_loss(trace, where=where)
        columns = _columns_of_preemption(frame)
    else:
        from schedscope.analysis.cpu_efficiency import cpu_efficiency

        frame = cpu_efficiency(trace, by="all" if args.machine else "cpu")
        frame = frame if where is None else frame.filter(where)
        columns = _columns_of_cpus(frame, args.machine)
    rows = frame.height
    shown = frame.head(args.top) if args.top else frame
    foot = _output.more(rows - shown.height)
    if not of_threads:
        foot += _notes(frame)
    _output.emit(
        shown,
        args.format,
        columns=columns,
        about={**_headline.about(trace), "rows_in_all": rows},
        head=[*_headline.headline(trace), ""],
        foot=foot,
    )
    return 0


def _by(args: argparse.Namespace) -> list[str]:
    table = "runs" if args.runs else "processes" if args.processes else ""
    if not table:
        if args.by:
            raise UsageError(f"--by {args.by}", "--runs or --processes with it")
        return []
    return _options.groups(args.by or ("comm" if args.runs else "pid"), _GROUPS[table])


def _notes(frame: pl.DataFrame) -> list[str]:
    notes = []
    untold = int(frame["n_untold"].sum())
    if untold:
        switches = "switch" if untold == 1 else "switches"
        notes.append(
            f"{units.count(untold)} {switches} may have been a preemption or not: the trace does"
            " not say; record yields, too"
        )
    if frame["irq_hard"].is_null().all():
        notes.append("the trace has no interrupts: the time in their handlers is not known")
    return notes


def _columns_of_cpus(frame: pl.DataFrame, machine: bool) -> list[Column]:
    columns = [] if machine else [Column("cpu", "CPU", "right")]
    columns += [
        Column("busy_frac", "busy", "share"),
        Column("busy", "busy time", "time", rank=4),
        Column("idle", kind="time", rank=3),
        Column("unknown", kind="time", rank=2),
        Column("switches", kind="count", rank=5),
        Column("switches_hz", "switches/s", "count"),
        Column("involuntary_frac_min", "forced at least", "share"),
        Column("involuntary_frac_max", "at most", "share"),
    ]
    if not frame["irq_hard"].is_null().all():
        columns.append(Column("irq_hard", "in irqs", "time", rank=1))
        columns.append(Column("irq_soft", "in softirqs", "time", rank=1))
    return columns


def _columns_of_runs(frame: pl.DataFrame) -> list[Column]:
    fixed = ("n", "n_censored", "mean", "max", "total", "total_censored")
    columns = []
    for name in frame.columns:
        if name in fixed:
            continue
        quantile = name[0] == "p" and name[1:].replace(".", "", 1).isdigit()
        columns.append(Column(name, kind="time" if quantile else "text"))
    keys = [column for column in columns if column.kind == "text"]
    quantiles = [column for column in columns if column.kind == "time"]
    return [
        *keys,
        Column("n", "runs", "count"),
        Column("mean", kind="time", rank=2),
        *quantiles,
        Column("max", kind="time"),
        Column("total", kind="time", rank=1),
        *([Column("n_censored", "cut", "count", rank=3)] if frame["n_censored"].sum() else []),
    ]


def _columns_of_processes(frame: pl.DataFrame) -> list[Column]:
    numbers = {"threads", "n_censored", "wall", "cpu", "waiting", "unknown", "preempted",
               "ratio", "slowdown"}  # fmt: skip
    return [
        *(Column(name) for name in frame.columns if name not in numbers),
        Column("threads", kind="count", rank=2),
        Column("wall", kind="time"),
        Column("cpu", kind="time"),
        Column("waiting", kind="time"),
        Column("preempted", kind="time", rank=1),
        *([Column("unknown", kind="time", rank=3)] if frame["unknown"].sum() else []),
        Column("ratio", "wall/CPU", "number"),
        Column("slowdown", kind="number"),
        Column("n_censored", "cut", "count", rank=4),
    ]


def _columns_of_preemption(frame: pl.DataFrame) -> list[Column]:
    columns = [
        Column("sched_class", "lost by"),
        Column("by_class", "to"),
        Column("n", "preemptions", "count"),
        Column("lost", kind="time"),
        Column("lost_frac", "share", "share"),
        Column("max", "longest", "time"),
        Column("n_censored", "open", "count", rank=1),
    ]
    if frame["n_untold"].sum():
        columns.append(Column("n_untold", "or yields", "count"))
    return columns
