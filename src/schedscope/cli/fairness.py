"""Did every thread get the CPU time that was due to it by weight?

While threads compete for a CPU, each is due a part of what their class gets there, in
proportion to its weight (generalised processor sharing). `lag` is what was due less
what was received: above zero a thread is behind, and over all threads of a class it
sums to zero. Jain's index says in one number how evenly a class was treated: 1 if all
got the same part of what was due to them.
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

NAME = "fairness"
HELP = "CPU time received against CPU time due, by weight"
EXAMPLE = """\
  schedscope fairness web.capture
  schedscope fairness web.capture --by process --top 30
  schedscope fairness web.capture --per machine
  schedscope fairness web.capture --comm nginx --every 10ms --format csv
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `schedscope fairness`."""
    _options.add_input(parser)
    parser.add_argument(
        "--by",
        choices=("thread", "process", "comm"),
        default="thread",
        help="a row for each (default: thread)",
    )
    parser.add_argument(
        "--per",
        choices=("cpu", "machine"),
        help="who competes: those on one CPU, or all (default: as the trace's queues are)",
    )
    parser.add_argument(
        "--every", metavar="TIME", help="the lag of each thread over time, a row for each so often"
    )
    _options.add_top(parser, 20, what="the N furthest off")
    _options.add_selection(parser)
    _options.add_format(parser)


def run(args: argparse.Namespace) -> int:
    """Print Jain's index per class and the table."""
    import polars as pl

    from schedscope.analysis.fairness import fairness, jain_of, summed
    from schedscope.analysis.lag import lag
    from schedscope.analysis.weights import weight_notes

    _options.check_top(args)
    top = _options.top(args, 20)
    if args.every and args.cpu:
        raise UsageError("--every with --cpu", "one of them", "the lag over time is over all CPUs")
    if args.every and args.by not in (None, "thread"):
        raise UsageError(f"--every with --by {args.by}", "one of them", "it has rows of threads")
    trace = _options.open_input(args)
    where = _options.where(args, trace)
    notes = weight_notes(trace)
    about = {**_headline.about(trace), "weights": notes}
    head = [*_headline.headline(trace)]
    if args.every:
        frame = lag(trace, every=args.every, per=args.per, where=where)
        farthest = pl.col("lag").abs().max()
        threads = frame.group_by("utid", maintain_order=True).agg(farthest)
        order = threads.sort("lag", descending=True, maintain_order=True)["utid"][:top]
        shown = order.to_frame().join(frame, on="utid", how="left", maintain_order="left_right")
        foot = _output.more(threads.height - order.len(), "more thread", ", never as far off")
        columns = [
            Column("ts", "at", "at", origin=trace.window[0]),
            Column("comm"),
            Column("tid", kind="id"),
            Column("lag", kind="time"),
            Column("due", kind="time"),
            Column("received", kind="time"),
        ]
        about["rows_in_all"] = frame.height
        foot += [f"weights: {note}" for note in notes]
        _output.emit(shown, args.format, columns=columns, about=about, head=[*head, ""], foot=foot)
        return 0
    threads = fairness(trace, per=args.per, where=where)
    index = jain_of(threads)
    about["jain"] = index.to_dicts()
    head += [*_jain(index), ""]
    everyone = summed(threads, args.by)
    furthest = everyone.sort(pl.col("lag").abs(), descending=True, maintain_order=True)
    frame = furthest[:top].sort("lag", descending=True, maintain_order=True)
    about["rows_in_all"] = everyone.height
    foot = _output.more(everyone.height - frame.height, "more row", ", closer to their due")
    if unplaced := int(threads["unplaced"].sum()):
        foot.append(f"not in it: {units.duration(unplaced)} of waiting on no known queue")
    foot += [f"weights: {note}" for note in notes]
    _output.emit(
        frame, args.format, columns=_columns(frame, args.by), about=about, head=head, foot=foot
    )
    return 0


def _jain(index: pl.DataFrame) -> list[str]:
    lines = []
    for row in index.iter_rows(named=True):
        left = f", {row['n_excluded']} with too little due left out" if row["n_excluded"] else ""
        if row["jain"] is None:
            if row["n"]:
                lines.append(f"{row['sharing']}: one thread, nobody to be fair to{left}")
            continue
        lines.append(
            f"{row['sharing']}: Jain's index {row['jain']:.3f} of {row['n']} threads"
            f" ({row['comm_least']} got {_times(row['least'])} its due,"
            f" {row['comm_most']} {_times(row['most'])}){left}"
        )
    return lines


def _times(ratio: float) -> str:
    return f"{ratio:.2f} times" if ratio < 9.995 else f"{ratio:.0f} times"


def _columns(frame: pl.DataFrame, by: str) -> list[Column]:
    columns = [Column("comm")]
    if by == "thread":
        columns.append(Column("tid", kind="id"))
    if by == "process":
        columns.append(Column("pid", kind="id"))
    if by != "thread":
        columns.append(Column("threads", kind="count", rank=6))
    if frame["sharing"].n_unique() > 1:
        columns.append(Column("sharing", "class", rank=5))
    return [
        *columns,
        Column("weight", kind="id", rank=1),
        Column("running", kind="time"),
        Column("waiting", kind="time", rank=3),
        Column("due", kind="time"),
        Column("lag", kind="time"),
        Column("share_due", "share due", "share", rank=2),
        Column("share_received", "received", "share", rank=2),
        Column("ratio", "times its due", "number", rank=4),
    ]
