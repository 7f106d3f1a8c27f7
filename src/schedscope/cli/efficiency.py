"""What did the CPUs do with their time, and what did it cost to share them?

By default one line per CPU: busy, idle and unknown time, context switches per
second, and the share of involuntary switches. Where the trace does not tell a
preemption from a yield, that share is a range. With --runs, how long
threads run from switch-in to switch-out; with --processes, elapsed time and
waiting against CPU time; with --preemption, the time that threads of each
scheduling class lost to threads of each class.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from schedscope import units
from schedscope.cli import _options
from schedscope.errors import UsageError
from schedscope.present import headline
from schedscope.present.answer import Answer, more
from schedscope.present.columns import choose

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
        help="how long threads run without leaving the CPU (also if threads are selected)",
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


def run(args: argparse.Namespace) -> Answer:
    """One of the four tables."""
    _options.check_top(args)
    if (args.comm or args.pid or args.tid) and not (args.processes or args.preemption):
        if args.machine:
            raise UsageError("--machine with threads selected", "one of them", "leave one out")
        # The only table about threads that fits every selection.
        args.runs = True
    by = _by(args)
    of_threads = args.runs or args.processes or args.preemption
    if args.machine and args.cpu:
        raise UsageError("--machine with --cpu", "one of them", "leave one out")
    if args.processes and args.cpu:
        raise UsageError(
            "--processes with --cpu", "one of them", "a process is not on a single CPU"
        )
    trace = _options.open_input(args)
    where = _options.where(args, trace)
    if args.runs:
        from schedscope.analysis.run_lengths import run_lengths

        frame = run_lengths(trace, by=by, where=where)
        keys = frame.columns[: frame.columns.index("n")]
        names = [*keys, "n", "mean", "p*", "max", "total", "n_censored?"]
        columns = choose(frame, names, question="run_lengths", narrow="n_censored mean total")
    elif args.processes:
        from schedscope.analysis.process_efficiency import process_efficiency

        frame = process_efficiency(trace, by=by, where=where)
        keys = frame.columns[: frame.columns.index("threads")]
        names = [*keys, "threads", "wall", "cpu", "waiting", "preempted", "unknown?", "ratio"]
        columns = choose(
            frame,
            [*names, "slowdown", "n_censored?"],
            question="processes",
            narrow="n_censored unknown threads preempted",
        )
    elif args.preemption:
        from schedscope.analysis.process_efficiency import preemption_loss

        frame = preemption_loss(trace, where=where)
        names = ["sched_class", "by_class", "n", "lost", "lost_frac", "max", "n_censored?"]
        columns = choose(frame, [*names, "n_untold?"], question="preemption", narrow="n_censored")
    else:
        from schedscope.analysis.cpu_efficiency import cpu_efficiency

        frame = cpu_efficiency(trace, by="all" if args.machine else "cpu")
        frame = frame if where is None else frame.filter(where)
        names = [*([] if args.machine else ["cpu"]), "busy_frac", "busy", "idle", "unknown"]
        names += ["switches", "switches_hz", "involuntary_frac_min", "involuntary_frac_max"]
        columns = choose(
            frame,
            [*names, "irq_hard?", "irq_soft?"],
            narrow="switches busy idle unknown irq_hard irq_soft",
        )
    rows = frame.height
    shown = frame.head(args.top) if args.top else frame
    foot = more(rows - shown.height)
    if not of_threads:
        foot += _notes(frame)
    return Answer(
        shown,
        columns,
        about={**headline.about(trace), "rows_in_all": rows},
        head=[*headline.headline(trace), ""],
        notes=foot,
    )


def _by(args: argparse.Namespace) -> list[str]:
    table = "runs" if args.runs else "processes" if args.processes else ""
    if not table:
        if args.by:
            raise UsageError(f"--by {args.by}", "--runs or --processes with it")
        return []
    return _options.groups(args.by or ("comm" if args.runs else "pid"), _GROUPS[table])


def _notes(frame: pl.DataFrame) -> list[str]:
    notes = []
    ambiguous = int(frame["n_untold"].sum())
    if ambiguous:
        switches = units.several(ambiguous, "ambiguous switch", "ambiguous switches")
        notes.append(
            f"{switches}: preemption or yield, the trace does not tell which; record yields as well"
        )
    if frame["irq_hard"].is_null().all():
        notes.append("the trace has no interrupts: the time in their handlers is unknown")
    return notes
