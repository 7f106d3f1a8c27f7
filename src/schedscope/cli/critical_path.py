"""`schedscope critical-path`: the options and words that its question does not declare."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from schedscope import units
from schedscope.cli import _options
from schedscope.present import headline
from schedscope.present.answer import Answer
from schedscope.present.columns import choose

if TYPE_CHECKING:
    import polars as pl

    from schedscope.store.trace import Trace


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `schedscope critical-path`."""
    _options.add_input(parser)
    _options.add_one_thread(
        parser,
        at="the end of the path",
        worst="what led through the N-th longest wait for a CPU",
    )
    parser.add_argument(
        "--by",
        choices=("step", "thread", "kind"),
        default="step",
        help="each step, or their sums by thread and kind, or by kind (default: step)",
    )
    _options.add_top(parser, 20, what="the last N steps, or the first N sums")
    _options.add_format(parser)


def run(args: argparse.Namespace) -> Answer:
    """The steps, or their sums."""
    import polars as pl

    from schedscope.analysis.critical_path import critical_path

    _options.check_top(args)
    top = _options.top(args, 20)
    trace = _options.open_input(args)
    if args.worst is not None:
        utid, since, end = _worst(args, trace)
        path = critical_path(trace, since, end, utid=utid)
    else:
        utid = _options.one_thread(args, trace)
        # A cut trace ends at the cut; in a whole one the thread may end earlier.
        until = trace.seconds(trace.window[1]) if args.until is not None else None
        path = critical_path(trace, until=until, utid=utid)
    sums = path.group_by("kind").agg(n=pl.len(), dur=pl.col("dur").sum()).sort("kind")
    total = int(path["dur"].sum())
    if args.by == "step":
        frame = path if top is None else path.tail(top)
        rows = len(path)
        shown = frame.with_columns(_ended(frame))
        names = ["ts", "dur", "kind", "comm", "tid", "cpu", "ended"]
    else:
        keys = ["kind"] if args.by == "kind" else ["comm", "tid", "utid", "kind"]
        frame = (
            path.group_by(keys, maintain_order=True)
            .agg(n=pl.len(), dur=pl.col("dur").sum())
            .with_columns(share=pl.col("dur") / total)
            .sort("dur", descending=True, maintain_order=True)
        )
        rows = len(frame)
        frame = frame[:top]
        shown = frame
        names = ["comm", "tid", "kind", "dur", "share", "n"]
    text = ", ".join(
        f"{kind} {units.duration(dur)} ({units.percent(dur / total)})"
        for kind, _, dur in sums.iter_rows()
    )
    start = units.instant(int(path["ts"][0]), trace.origin)
    end_at = units.instant(int(path["ts"][-1] + path["dur"][-1]), trace.origin)
    return Answer(
        frame,
        choose(shown, names, question="critical_path", origin=trace.origin),
        about={**headline.about(trace), "utid": utid, "total": total, "sums": sums.to_dicts()},
        head=[
            *headline.headline(trace),
            f"{start} to {end_at}: {units.duration(total)} in {units.several(len(path), 'step')}",
            text,
            "",
        ],
        rows_in_all=rows,
        rest=("earlier step" if args.by == "step" else "more row", ""),
        shown=shown,
    )


def _worst(args: argparse.Namespace, trace: Trace) -> tuple[int, float, float]:
    """Thread, start and end for the n-th longest wait; the path starts one wait's length before it.

    The wait alone would have only one step before it: the wakeup.
    """
    row = _options.worst_wait(args, trace)
    start = max(trace.window[0], 2 * row["ts_ready"] - row["ts_run"])
    return row["utid"], trace.seconds(start), trace.seconds(row["ts_run"])


def _ended(frame: pl.DataFrame) -> pl.Series:
    import polars as pl

    words = {
        "woke": "woke",
        "slept": "went to sleep",
        "preempted": "preempted",
        "yielded": "yielded",
        "ran": "got the CPU",
        "moved": "moved to another queue",
        "enqueued": "on the queue",
        "woken": "woken by an interrupt",
        "end": "end of the path",
        "unknown": "unknown before",
    }
    texts = []
    for ended, comm, tid in frame.select("ended", "other_comm", "other_tid").iter_rows():
        other = " ".join(str(v) for v in (comm, tid) if v is not None)
        texts.append(f"{words[ended]} {other}" if ended == "woke" else words[ended])
    return pl.Series("ended", texts, dtype=pl.String)
