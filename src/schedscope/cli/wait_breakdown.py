"""What did waits for a CPU consist of?

The time that threads waited is divided by what the CPU on whose queue they were did
meanwhile: it ran threads of better, equal or worse priority, handled interrupts, could
not run the thread because its group's CPU quota was used up, or idled. The parts add up
to the wait exactly. `--by wait` shows the longest waits one by one.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from schedscope import units
from schedscope.cli import _options
from schedscope.present import bounds, headline
from schedscope.present.answer import Answer
from schedscope.present.columns import choose

if TYPE_CHECKING:
    import polars as pl

    from schedscope.trace import Trace

NAME = "wait-breakdown"
GROUP = "who waited, and why?"
HELP = "what the waits for a CPU consisted of"
EXAMPLE = """\
  schedscope wait-breakdown web.capture --by comm
  schedscope wait-breakdown web.capture --cgroup '/system.slice/web*' --by cgroup
  schedscope wait-breakdown web.capture --by wait --top 20 --comm nginx
"""
GROUPS = ("thread", "process", "all", "wait", *_options.THREAD_GROUPS)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `schedscope wait-breakdown`."""
    _options.add_input(parser)
    _options.add_by(parser, GROUPS, "thread")
    _options.add_top(parser, 20, what="the N rows that waited longest")
    _options.add_selection(parser)
    _options.add_format(parser)


def run(args: argparse.Namespace) -> Answer:
    """A row per group of threads, or per wait."""
    from schedscope.analysis.wait_breakdown import wait_breakdown

    _options.check_top(args)
    per_wait = args.by == "wait"
    by = "wait" if per_wait else _options.groups(args.by, GROUPS)
    trace = _options.open_input(args)
    where = _options.where(args, trace)
    frame = wait_breakdown(trace, by=by, where=where)
    shown = frame[: _options.top(args, 20)]
    notes = [] if len(frame) else ["no waits for this selection"]
    if "idle CPU" in frame["evidence"]:
        notes.append(
            "throttled: time in which CPUs idled although threads of a group that the kernel"
            " counted as throttled were runnable; a lower bound, as no event says when"
        )
    notes += _gone(trace, _options.where_threads(args, trace))
    notes += _limited(trace, where)
    covered = bounds.coverage_of(frame["wait"], frame["wait_high"])
    notes += [covered] if covered else []
    # A part that nothing was ever in says nothing.
    parts = ("behind_better", "behind_same", "behind_worse", "interrupted", "throttled")
    seen = [part for part in (*parts, "cpu_idle", "unknown") if frame[part].sum()]
    # On a narrow terminal the parts that took least go first; the largest stays.
    least = sorted(seen, key=lambda part: int(frame[part].sum()))[:-1]
    keys = frame.columns[: frame.columns.index("wait")]
    keys = [key for key in keys if not (per_wait and key == "utid")]
    worded = bounds.with_intervals(shown, question="wait_breakdown")
    return Answer(
        shown,
        choose(
            worded,
            [*keys, "wait", *seen],
            question="wait_breakdown",
            narrow=" ".join(["utid", "pid", "n", "cpu", *least]),
            origin=trace.origin,
        ),
        about=headline.about(trace),
        head=[*headline.headline(trace), ""],
        notes=notes,
        shown=worded,
        rows_in_all=frame.height,
        rest=("more row", " that waited less"),
    )


def _gone(trace: Trace, where: pl.Expr | None) -> list[str]:
    """Control groups of these threads whose quotas nobody could read any more."""
    from schedscope.analysis._base.memo import once
    from schedscope.analysis._base.of_threads import chosen_threads
    from schedscope.analysis._base.throttling import throttling
    from schedscope.analysis.findings.finding import listed

    gone = once(throttling, trace).gone
    if where is not None:
        keep = set(chosen_threads(trace, where))
        gone = {path: utids for path, utids in gone.items() if keep.intersection(utids)}
    if not gone:
        return []
    names = listed([units.printable(path) for path in gone])
    was = "was" if len(gone) == 1 else "were"
    return [
        f"{names} {was} gone when the recording ended: whether a CPU quota held their threads back"
        " is unknown, and such time would be in the other columns"
    ]


def _limited(trace: Trace, where: pl.Expr | None) -> list[str]:
    """Why a real-time or deadline thread waits for one that the kernel would run after it."""
    import polars as pl

    from schedscope.analysis._base.levels import linux_priorities
    from schedscope.analysis.wait_breakdown import wait_breakdown

    kind = pl.col("sched_class").cast(pl.String)
    first = trace.threads.filter(kind.is_in(list(_LIMITS))).select("utid").collect()["utid"]
    if first.is_empty() or not linux_priorities(trace):
        return []
    these = pl.col("utid").is_in(first.implode())
    # Nearly always they waited for less in all, and no sweep is needed.
    waited = trace.states.filter(pl.col("state") == "runnable", these).select(pl.col("dur").sum())
    if waited.collect(engine="streaming").item() < _WORTH * trace.duration:
        return []
    chosen = these if where is None else these & where
    rows = wait_breakdown(trace, by=["comm", "tid", "sched_class"], where=chosen)
    rows = rows.filter(pl.col("behind_worse") >= _WORTH * trace.duration)
    if rows.is_empty():
        return []
    worst = rows.sort("behind_worse", descending=True).row(0, named=True)
    name = f"{units.printable(worst['comm'] or '?')} ({worst['tid']})"
    return [
        f"{name} is a {worst['sched_class'].replace('time', '-time')} thread, and waited"
        f" {units.duration(worst['behind_worse'])} while threads of worse priority ran:"
        f" {_LIMITS[worst['sched_class']]}"
    ]


_LIMITS = {
    "deadline": "the runtime of its reservation was used up",
    "realtime": (
        "real-time threads had used up what they may (sched_rt_runtime_us, cpu.rt_runtime_us of a"
        " control group), or the kernel gave fair threads their part"
    ),
}
_WORTH = 0.01
