"""`schedscope fairness`: the options and words that its question does not declare."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from schedscope import units
from schedscope.analysis.asking.command import THREAD_ROWS
from schedscope.cli import _options, _quantities
from schedscope.errors import UsageError
from schedscope.present import bounds, headline
from schedscope.present.answer import Answer
from schedscope.present.columns import choose

if TYPE_CHECKING:
    import polars as pl


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `schedscope fairness`."""
    _options.add_input(parser)
    parser.add_argument(
        "--by",
        choices=THREAD_ROWS,
        default="thread",
        help="one row per thread, name, process, control group or service (default: thread)",
    )
    parser.add_argument(
        "--per",
        choices=("cpu", "machine"),
        help="who competes: threads of one CPU, or all"
        " (default: machine if all CPUs share a queue, else cpu)",
    )
    parser.add_argument(
        "--every",
        type=_quantities.duration,
        metavar="DURATION",
        help="the lag of each thread over time, one row per interval",
    )
    _options.add_top(parser, 20, what="the N with the largest lag")
    _options.add_selection(parser)
    _options.add_format(parser)


def run(args: argparse.Namespace) -> Answer:
    """Jain's index per class, and a row per thread, process or name."""
    import polars as pl

    from schedscope.analysis.fairness import fairness, jain_of, summed
    from schedscope.analysis.lag import lag
    from schedscope.analysis.weights import weight_notes

    _options.check_top(args)
    top = _options.top(args, 20)
    if args.every and args.cpu:
        raise UsageError("--every with --cpu", "one of them", "the lag over time covers all CPUs")
    if args.every and args.by not in (None, "thread"):
        raise UsageError(f"--every with --by {args.by}", "one of them", "it has rows of threads")
    trace = _options.open_input(args)
    where = _options.where(args, trace)
    notes = weight_notes(trace, groups=args.per != "machine")
    about = {**headline.about(trace), "weights": notes}
    head = [*headline.headline(trace)]
    if args.every:
        frame = lag(trace, every=args.every, per=args.per, where=where)
        farthest = pl.col("lag").abs().max()
        threads = frame.group_by("utid", maintain_order=True).agg(farthest)
        order = threads.sort("lag", descending=True, maintain_order=True)["utid"][:top]
        shown = order.to_frame().join(frame, on="utid", how="left", maintain_order="left_right")
        names = ["ts", "comm", "tid", "lag", "due", "received", "unknown?"]
        left_out = units.several(threads.height - order.len(), "more thread")
        return Answer(
            shown,
            choose(shown, names, origin=trace.window[0]),
            about=about,
            head=[*head, ""],
            notes=[f"weights: {note}" for note in notes],
            rows_in_all=frame.height,
            rest=f"{left_out}, with smaller peak lag",
        )
    threads = fairness(trace, per=args.per, where=where)
    index = jain_of(threads)
    about["jain"] = index.to_dicts()
    head += [*_jain(index), ""]
    everyone = summed(trace, threads, args.by)
    certainly = pl.max_horizontal("lag", -pl.col("lag_high"))
    furthest = everyone.sort(certainly, descending=True, maintain_order=True)
    frame = furthest[:top].sort("lag", descending=True, maintain_order=True)
    known = everyone["running"] + everyone["waiting"]
    covered = bounds.coverage_of(known, known + everyone["unknown"], "time of these threads")
    foot = [covered] if covered else []
    if unplaced := int(threads["unplaced"].sum()):
        foot.append(f"not included: {units.duration(unplaced)} of waiting on no known queue")
    keys = {"thread": ["comm", "tid"], "process": ["comm", "pid", "threads"]}
    names = keys.get(args.by, [args.by, "threads"])
    names += ["sharing"] if frame["sharing"].n_unique() > 1 else []
    names += ["weight", "running", "waiting", "due", "lag", "share_due", "share_received", "ratio"]
    names += ["unknown?"]
    narrow = "threads sharing ratio waiting share_due share_received weight"
    return Answer(
        frame,
        choose(frame, names, question="fairness", narrow=narrow),
        about=about,
        head=head,
        notes=[*foot, *(f"weights: {note}" for note in notes)],
        rows_in_all=everyone.height,
        rest=("more row", ", with smaller lag"),
    )


def _jain(index: pl.DataFrame) -> list[str]:
    lines = []
    for row in index.iter_rows(named=True):
        left = f", {row['n_excluded']} excluded, entitlement too small" if row["n_excluded"] else ""
        if row["jain"] is None:
            if row["n"]:
                lines.append(f"{row['sharing']}: one thread, nothing to compare{left}")
            continue
        fair = units.interval(row["jain"], row["jain_high"], "{:.3f}".format)
        lines.append(
            f"{row['sharing']}: Jain's index {fair} of {row['n']} threads"
            f" ({row['comm_least']} received {_times(row['least'])} its due,"
            f" {row['comm_most']} {_times(row['most'])}){left}"
        )
    return lines


def _times(ratio: float) -> str:
    return f"{ratio:.2f} times" if ratio < 9.995 else f"{ratio:.0f} times"
