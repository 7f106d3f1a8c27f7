"""`schedscope starvation`: the options and words that its question does not declare."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from schedscope import units
from schedscope.analysis.asking.command import THREAD_ROWS
from schedscope.cli import _options, _quantities
from schedscope.errors import UsageError
from schedscope.present import headline
from schedscope.present.answer import Answer
from schedscope.present.columns import Column, choose

if TYPE_CHECKING:
    import polars as pl

    from schedscope.store.trace import Trace


DEFAULT = "100ms"
ROWS = 10
# A CPU may take this long, at the very most, from idling to the thread on its queue.
_DISPATCH = 10_000_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `schedscope starvation`."""
    _options.add_input(parser)
    parser.add_argument(
        "--threshold",
        type=_quantities.duration,
        metavar="DURATION",
        help=f"waits at least this long (default: {DEFAULT}; off with --share or --lag alone)",
    )
    parser.add_argument(
        "--share",
        type=float,
        metavar="K",
        help="waits K times as long as a fair scheduler would let the thread wait for its turn",
    )
    parser.add_argument(
        "--turn",
        type=_quantities.duration,
        metavar="DURATION",
        help="length of a turn for --share (default: 3ms)",
    )
    parser.add_argument(
        "--lag",
        type=_quantities.duration,
        metavar="DURATION",
        help="windows in which a thread received this much less than was due to it",
    )
    _options.add_top(parser, ROWS, what="the N longest, or the first N rows of --by")
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--culprits",
        action="store_true",
        help="one row per thread that had the CPU during an episode",
    )
    what.add_argument(
        "--by",
        choices=THREAD_ROWS,
        help="show only how often each thread, name, process, control group or service starved",
    )
    _options.add_selection(parser, what="episodes of these threads, or on this CPU")
    _options.add_format(parser)


def run(args: argparse.Namespace) -> Answer:
    """Episodes, each in a sentence and a row; or sums of them."""
    from schedscope.analysis.starvation.episode_interference import episode_interference
    from schedscope.analysis.starvation.starvation import starvation, starvation_summary
    from schedscope.analysis.weights import weight_notes

    _options.check_top(args)
    alone = args.share is None and args.lag is None
    if args.turn and args.share is None:
        raise UsageError(f"--turn {args.turn}", "--share K as well: K turns of this length")
    limits: dict[str, Any] = {
        "threshold": args.threshold or (DEFAULT if alone else None),
        "share": args.share,
        "lag": args.lag,
        "turn": args.turn or "3ms",
    }
    trace = _options.open_input(args)
    where = _options.where(args, trace)
    total = starvation_summary(trace, by="all", where=where, **limits).row(0, named=True)
    about = {**headline.about(trace), "limits": limits, "all": total}
    head = [*headline.headline(trace), _totals(total, limits), ""]
    if total["n_high"] is not None:
        may = total["n_high"] - total["n"]
        about["possible"] = may
        if may:
            head.insert(-1, f"{units.several(may, 'more wait')} may have lasted that long")
    about["weights"] = [] if alone else weight_notes(trace)
    notes = [f"weights: {note}" for note in about["weights"]]
    if alone and not total["n"]:
        notes.append(_longest(trace, where))
    if args.by:
        by = starvation_summary(trace, by=args.by, where=where, **limits)
        by = by.filter((by["n"] > 0) | (by["n_high"] > 0).fill_null(False))
        rows = by[: _options.top(args, ROWS)]
        names = [
            "process_name?",
            "pid",
            "cgroup",
            "service",
            "comm",
            "tid",
            "threads",
            "n",
            "n_censored?",
            "total",
            "longest",
            "ts_longest",
        ]
        return Answer(
            rows,
            choose(
                rows,
                names,
                question="starvation",
                narrow="n_censored threads ts_longest",
                origin=trace.origin,
            ),
            about=about,
            head=head,
            notes=notes,
            rows_in_all=by.height,
        )
    top = _options.top(args, ROWS)
    frame = starvation(trace, where=where, top=None if args.culprits else top, **limits)
    rest = units.several(total["n"] - min(total["n"], top or total["n"]), "more episode")
    in_all = total["n"]
    if args.culprits:
        everyone = episode_interference(trace, frame)
        frame = frame[:top]
        episodes = frame.select("episode", victim="comm", waited="comm")
        rows = everyone.join(episodes, on="episode", maintain_order="left")
        in_all = everyone.height
        shown = _nameless(rows)
        names = ["episode", "victim", "comm", "tid", "prio", "sched_class", "time", "time_frac"]
        columns = choose(shown, [*names, "worse"], narrow="worse tid sched_class")
        rows = rows.drop("victim")
    else:
        rows = shown = frame
        columns = _columns(frame, trace)
    head += [*frame["story"].to_list(), ""] if frame.height else []
    return Answer(
        rows,
        columns if rows.height else [],
        about=about,
        head=head,
        notes=[*_notes(frame), *notes],
        shown=shown,
        rows_in_all=in_all,
        rest=rest,
    )


def _longest(trace: Trace, where: pl.Expr | None) -> str:
    import polars as pl

    from schedscope.analysis.latency import latency
    from schedscope.analysis.waits.wait_bounds import begun_before

    waits = latency(trace, by="all", where=where).row(0, named=True)
    if waits["max"] is None:
        return "no wait was recorded"
    lasted = (pl.col("until") - pl.col("since")).max()
    before = begun_before(trace, where).select(lasted).collect().item()
    older = ""
    if before is not None and before > waits["max"]:
        older = f", and one may have begun before the recording and lasted {units.duration(before)}"
    return (
        f"the longest wait was {units.interval(waits['max'], waits['max_high'])}{older}:"
        " --threshold lowers the limit, and `wait-breakdown --by wait` shows what each wait was"
        " spent on"
    )


def _totals(total: dict[str, int], limits: dict[str, Any]) -> str:
    asked = []
    if limits["threshold"]:
        asked.append(f"of {limits['threshold']} or more")
    if limits["share"]:
        asked.append(f"of {limits['share']:g} fair turns of {limits['turn']} or more")
    if limits["lag"]:
        asked.append(f"with a lag of {limits['lag']} or more")
    n = total["n"]
    parts = [f"{units.count(n)} episode{'s' * (n != 1)} {', or '.join(asked)}"]
    if n:
        threads = f"{units.count(total['threads'])} thread{'s' * (total['threads'] != 1)}"
        bound = "at least " if total["n_censored"] else ""
        parts[0] += f" in {threads}, {bound}{units.duration(total['total'])} of waiting in total"
    if total["n_censored"]:
        parts.append(f"{units.count(total['n_censored'])} unfinished when last observed")
    if total["n_excluded"]:
        parts.append(f"{units.several(total['n_excluded'], 'wait')} excluded: start not recorded")
    return "; ".join(parts)


def _notes(frame: pl.DataFrame) -> list[str]:
    lines = []
    if frame["affinity"].null_count():
        lines.append(
            "the affinity of some threads was not recorded: an idle CPU may not be allowed for them"
        )
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
    names = ["comm", "tid", "prio", "ts"]
    names += ["criterion"] if (frame["criterion"].cast(str) != "wait").any() else []
    names += ["due", "received"] if frame["due"].null_count() < frame.height else []
    names += ["wait", "cpus", "culprit", "culprit_frac", "others", "idle", "unknown"]
    names += ["idle_allowed", "behind_worse", "inversion?"]
    names += ["censored"] if (frame["censored"] == "right").any() else []
    narrow = "unknown idle others criterion ts tid behind_worse received inversion"
    return choose(
        frame,
        names,
        narrow=f"{narrow} due censored idle_allowed",
        origin=trace.origin,
    )


def _nameless(rows: pl.DataFrame) -> pl.DataFrame:
    import polars as pl

    kind = pl.col("kind").cast(pl.String)
    return rows.with_columns(
        comm=pl.when(kind == "thread").then(pl.col("comm")).otherwise("(" + kind + ")")
    )
