"""Which threads were kept from a CPU for too long, behind whom, and did a CPU idle meanwhile?

An episode of starvation is a single wait over a threshold: a time, or so many times the wait that a
fair scheduler would impose (--share), or a window in which a thread got less than was due to
it by weight (--lag). Each is told in a sentence, then as a row of the table. What had the CPU, what
idled and what the trace does not tell add up to the wait, to the nanosecond.
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

    from schedscope.trace import Trace

NAME = "starvation"
HELP = "threads that waited too long, and who ran meanwhile"
EXAMPLE = """\
  schedscope starvation web.capture
  schedscope starvation web.capture --threshold 20ms --comm nginx --culprits
  schedscope starvation web.capture --share 5 --by comm
  schedscope starvation web.capture --lag 50ms --format json
"""

DEFAULT = "100ms"
# A CPU may take this long, at the very most, from idling to the thread on its queue.
_DISPATCH = 10_000_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `schedscope starvation`."""
    _options.add_input(parser)
    parser.add_argument(
        "--threshold",
        metavar="TIME",
        help=f"waits at least this long (default: {DEFAULT}; off with --share or --lag alone)",
    )
    parser.add_argument(
        "--share",
        type=float,
        metavar="K",
        help="waits K times as long as a fair scheduler would make the thread wait for its turn",
    )
    parser.add_argument("--turn", metavar="TIME", help="of this length (default: 3ms)")
    parser.add_argument(
        "--lag", metavar="TIME", help="windows in which service fell short of the due by this much"
    )
    parser.add_argument(
        "--top",
        type=int,
        metavar="N",
        help="only the N longest (default: 10), or rows of --by (10 in a table, else all)",
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--culprits", action="store_true", help="a row for whoever had the CPU in each episode"
    )
    what.add_argument(
        "--by",
        choices=("comm", "thread"),
        help="how often each one starved; no stories",
    )
    _options.add_selection(parser, what="episodes of")
    _options.add_format(parser)


def run(args: argparse.Namespace) -> int:
    """Print the stories and the table."""
    from schedscope.analysis.culprits import culprits
    from schedscope.analysis.starvation import starvation, starvation_summary
    from schedscope.analysis.weights import weight_notes

    _options.check_top(args)
    alone = args.share is None and args.lag is None
    if args.turn and args.share is None:
        raise UsageError(f"--turn {args.turn}", "--share K with it: K such turns")
    limits: dict[str, Any] = {
        "threshold": args.threshold or (DEFAULT if alone else None),
        "share": args.share,
        "lag": args.lag,
        "turn": args.turn or "3ms",
    }
    trace = _options.open_input(args)
    where = _options.where(args, trace)
    total = starvation_summary(trace, by="all", where=where, **limits).row(0, named=True)
    about = {**_headline.about(trace), "limits": limits, "all": total}
    head = [*_headline.headline(trace), _totals(total, limits), ""]
    foot = [] if alone else [f"weights: {note}" for note in weight_notes(trace)]
    about["weights"] = [] if alone else weight_notes(trace)
    if args.by:
        by = starvation_summary(trace, by=args.by, where=where, **limits)
        by = by.filter(by["n"] > 0)
        shown = by[: _options.top(args, 10)]
        foot = [*_output.more(by.height - shown.height), *foot]
        columns = _summary_columns(shown, trace.window[0])
        _output.emit(shown, args.format, columns=columns, about=about, head=head, foot=foot)
        return 0
    frame = starvation(trace, where=where, top=args.top or 10, **limits)
    head += [*frame["story"].to_list(), ""] if frame.height else []
    foot = [*_output.more(total["n"] - frame.height), *_foot(frame), *foot]
    if args.culprits:
        rows = culprits(trace, frame)
        names = frame.select("episode", waited="comm")
        shown = rows.join(names, on="episode", how="left", maintain_order="left")
        columns = _culprit_columns()
        if args.format == "table":
            shown = _nameless(shown)
    else:
        shown, columns = frame, _columns(frame, trace)
    if args.format == "table" and not shown.height:
        columns = []
    _output.emit(shown, args.format, columns=columns, about=about, head=head, foot=foot)
    return 0


def _totals(total: dict[str, int], limits: dict[str, Any]) -> str:
    asked = []
    if limits["threshold"]:
        asked.append(f"of {limits['threshold']} or more")
    if limits["share"]:
        asked.append(f"of {limits['share']:g} fair turns of {limits['turn']} or more")
    if limits["lag"]:
        asked.append(f"with a shortfall of {limits['lag']} or more")
    n = total["n"]
    parts = [f"{units.count(n)} episode{'s' * (n != 1)} {', or '.join(asked)}"]
    if n:
        threads = f"{units.count(total['threads'])} thread{'s' * (total['threads'] != 1)}"
        bound = "at least " if total["n_censored"] else ""
        parts[0] += f" of {threads}, {bound}{units.duration(total['total'])} waited in them"
    if total["n_censored"]:
        parts.append(f"{units.count(total['n_censored'])} unfinished when last observed")
    if total["n_excluded"]:
        parts.append(f"{units.several(total['n_excluded'], 'wait')} left out: begin not seen")
    return "; ".join(parts)


def _foot(frame: pl.DataFrame) -> list[str]:
    lines = []
    if frame["affinity"].null_count():
        lines.append("affinity was not recorded for all: a CPU that idled may be barred to them")
    own = int(((frame["idle"] > frame["wait"] // 2) & (frame["idle"] > _DISPATCH)).sum())
    if own:
        lines.append(
            f"in {units.several(own, 'episode')} the CPU waited for was idle most of the time: the"
            " thread may be throttled by a cgroup quota, or events are missing (schedscope check)"
        )
    if frame["inversion"].sum():
        lines.append("inversion: waited behind a worse priority where priority decides")
    return lines


def _columns(frame: pl.DataFrame, trace: Trace) -> list[Column]:
    columns = [
        Column("comm"),
        Column("tid", kind="id", rank=5),
        Column("prio", kind="id"),
        Column("ts", "at", "at", rank=6, origin=trace.window[0]),
    ]
    if (frame["criterion"].cast(str) != "wait").any():
        columns.append(Column("criterion", "over", rank=7))
    if frame["due"].null_count() < frame.height:
        columns += [
            Column("due", kind="time", rank=2),
            Column("received", "got", "time", rank=3),
        ]
    columns += [
        Column("wait", kind="time"),
        Column("cpus", "on CPU", "right"),
        Column("culprit"),
        Column("culprit_frac", "its share", "share"),
        Column("others", kind="time", rank=8),
        Column("idle", kind="time", rank=9),
        Column("unknown", kind="time", rank=10),
        Column("idle_allowed", "idle elsewhere", "time", rank=1),
        Column("behind_worse", "behind worse", "time", rank=4),
    ]
    if frame["inversion"].sum():
        columns.append(Column("inversion", kind="time", rank=3))
    if (frame["censored"] == "right").any():
        columns.append(Column("censored", rank=2))
    return columns


def _culprit_columns() -> list[Column]:
    return [
        Column("episode", kind="id"),
        Column("waited"),
        Column("comm", "behind"),
        Column("tid", kind="id", rank=2),
        Column("prio", kind="id"),
        Column("sched_class", "class", rank=1),
        Column("time", kind="time"),
        Column("time_frac", "share", "share"),
        Column("worse", "worse prio", "time", rank=3),
    ]


def _nameless(rows: pl.DataFrame) -> pl.DataFrame:
    import polars as pl

    kind = pl.col("kind").cast(pl.String)
    return rows.with_columns(
        comm=pl.when(kind == "thread").then(pl.col("comm")).otherwise("(" + kind + ")")
    )


def _summary_columns(frame: pl.DataFrame, origin: int) -> list[Column]:
    columns = [Column("comm")]
    if "tid" in frame.columns:
        columns.append(Column("tid", kind="id"))
    columns += [
        Column("threads", kind="count", rank=2),
        Column("n", "episodes", "count"),
        Column("n_censored", "open", "count", rank=3),
        Column("total", kind="time"),
        Column("longest", kind="time"),
        Column("ts_longest", "longest at", "at", rank=1, origin=origin),
    ]
    return columns
