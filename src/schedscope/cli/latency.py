"""`schedscope latency`: the options and words that its question does not declare."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from schedscope import units
from schedscope.analysis.asking.command import THREAD_GROUPS
from schedscope.cli import _options, _output, _quantities
from schedscope.errors import UsageError
from schedscope.present import bounds, headline
from schedscope.present.answer import Answer
from schedscope.present.columns import choose

if TYPE_CHECKING:
    import polars as pl

    from schedscope.store.trace import Trace


GROUPS = (
    *THREAD_GROUPS,
    *("cpu", "cause", "prio", "queue_cpu", "prev_cpu", "waker_cpu", "dsq"),
)
CAUSES = ("wake", "new", "preempt", "yield", "unknown")
ROWS = 100
SORTS = ("total", "n", "mean", "p50", "p90", "p99", "p99.9", "max")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `schedscope latency`."""
    _options.add_input(parser)
    parser.add_argument(
        "--by",
        metavar="COLUMN,...",
        help=f"one row for each of: {', '.join(GROUPS)}; or `all` (default: comm)",
    )
    parser.add_argument(
        "--every",
        type=_quantities.duration,
        metavar="DURATION",
        help="also by time bucket, as in 100ms",
    )
    parser.add_argument(
        "--histogram",
        action="store_true",
        help="show how the lengths of the waits are distributed instead",
    )
    _options.add_top(parser, ROWS, what="the first N rows")
    parser.add_argument(
        "--sort", choices=SORTS, help="largest first (default: total; by time with --every)"
    )
    _options.add_selection(parser, what="waits of these threads, or for this CPU")
    parser.add_argument(
        "--cause", choices=CAUSES, action="append", help="only waits with this cause"
    )
    parser.add_argument(
        "--kaplan-meier",
        action="store_true",
        help="quantiles that account for unfinished waits (Kaplan-Meier)",
    )
    parser.add_argument(
        "--definition",
        metavar="TOOL",
        help="count waits as this tool does (see `schedscope definitions`)",
    )
    _options.add_format(parser)


def run(args: argparse.Namespace) -> Answer:
    """Waits by group."""
    import polars as pl

    from schedscope.analysis.latency import latency

    by = _options.groups(args.by or "comm", GROUPS)
    _options.check_top(args)
    for name in ("by", "every", "sort", "top", "kaplan_meier"):
        if args.histogram and getattr(args, name):
            option = f"--{name.replace('_', '-')}"
            raise UsageError(f"--histogram with {option}", "one of them", "select with --comm")
    trace = _options.open_input(args)
    if args.definition:
        from schedscope.analysis.definitions import as_defined

        trace = as_defined(trace, args.definition)
    where = _selection(args, trace)
    if args.histogram:
        return _histogram(trace, where)
    frame = latency(
        trace,
        by=by,
        where=where,
        every=args.every,
        censored="kaplan-meier" if args.kaplan_meier else "exclude",
    )
    if args.sort:
        frame = frame.sort(args.sort, descending=True, nulls_last=True)
    rows = len(frame)
    sums = ("n", "n_high", "n_censored", "n_excluded", "total", "total_high")
    totals = frame.select(pl.col(*sums).sum()).row(0, named=True)
    if frame["n_high"].has_nulls():
        totals["n_high"] = None
    measured = (frame["coverage"] * frame["total_high"]).sum()
    possible = totals["total_high"]
    totals["coverage"] = measured / possible if possible else 1.0
    frame = frame[: _options.top(args, ROWS)]
    about = {**headline.about(trace), "all": totals}
    covered = bounds.coverage_line(totals["coverage"])
    first = [covered] if covered and totals["coverage"] < bounds.BARELY_COVERED else []
    head = [*headline.headline(trace), *first, _totals(totals), ""]
    foot = []
    if covered and not first:
        foot.append(covered)
    foot += _begun_before(trace, where, frame, totals)
    if frame["n_censored"].sum():
        foot.append("unfinished: waits not over when last observed; >= marks a lower bound")
    if args.kaplan_meier:
        foot.append("quantiles: estimates, if waits were cut independently of their length")
        from schedscope.analysis.survival.survival import EXACT, STEP

        if totals["n"] + totals["n_censored"] > EXACT:
            foot.append(f"quantiles: up to {STEP:.1%} too long, since lengths are counted in steps")
    names = ["ts", *by, "n", "n_censored?", "n_excluded?", "total", "mean", "p*", "max", "ts_max"]
    narrow = "p99.9 n_excluded mean p90 total ts_max n_censored"
    return Answer(
        frame,
        choose(frame, names, question="latency", narrow=narrow, origin=trace.origin),
        about=about,
        head=head,
        notes=foot,
        rows_in_all=rows,
    )


def _histogram(trace: Trace, where: pl.Expr | None) -> Answer:
    """A row per range of lengths, with a bar for people."""
    import polars as pl

    from schedscope.analysis.latency_histogram import latency_histogram

    frame = latency_histogram(trace, where=where)
    most = int(frame["n"].max() or 0)  # type: ignore[arg-type]
    wide = _output.width()
    bar = _BAR if wide is None else max(_BAR // 2, min(2 * _BAR, wide - _NUMBERS))
    bars = ["#" * (-(-bar * n // most)) if most else "" for n in frame["n"]]
    shown = frame.with_columns(waits=pl.Series(bars, dtype=pl.String))
    totals = {"n": int(frame["n"].sum()), "total": int(frame["total"].sum())}
    return Answer(
        frame,
        choose(shown, ["from", "to", "n", "waits"], question="latency_histogram"),
        about={**headline.about(trace), "all": totals},
        head=[*headline.headline(trace), _totals({**totals, "n_censored": 0, "n_excluded": 0}), ""],
        notes=[] if len(frame) else ["no waits for this selection"],
        shown=shown,
    )


_BAR = 40
"""Length of the longest bar where it is not a terminal that it has to fit into."""
_NUMBERS = 36
"""Room for the numbers before it."""


def _selection(args: argparse.Namespace, trace: Trace) -> pl.Expr | None:
    import polars as pl

    chosen = _options.where(args, trace)
    if not args.cause:
        return chosen
    of_cause = pl.col("cause").cast(pl.String).is_in(args.cause)
    return of_cause if chosen is None else chosen & of_cause


_WORTH_SAYING = 0.01
"""Part of the waiting time that a figure may leave out unsaid."""


def _begun_before(
    trace: Trace, where: pl.Expr | None, frame: pl.DataFrame, totals: dict[str, Any]
) -> list[str]:
    """A line for waits that no figure above includes, if they may change those."""
    import polars as pl

    from schedscope.analysis.waits.wait_bounds import begun_before

    if not totals["n_excluded"]:
        return []
    lasted = begun_before(trace, where).select(lasted=pl.col("until") - pl.col("since")).collect()
    waited, longest = lasted.select(all=pl.col("lasted").sum(), one=pl.col("lasted").max()).row(0)
    totals["excluded_high"] = waited
    if not waited:
        return []
    seen = frame.select(pl.col("max").max()).item() or 0
    if waited <= _WORTH_SAYING * totals["total_high"] and longest <= seen:
        return []
    return [
        f"excluded: {units.several(len(lasted), 'wait')} may have begun before the recording, and"
        f" lasted up to {units.duration(longest)} of it, {units.duration(waited)} in all"
    ]


def _totals(row: dict[str, int]) -> str:
    waits = bounds.several(row["n"], row.get("n_high", row["n"]), "wait")
    total = units.interval(row["total"], row.get("total_high", row["total"]))
    parts = [f"{waits}, {total} in total"]
    if row["n_censored"]:
        parts.append(f"{row['n_censored']:,} unfinished when last observed")
    if row["n_excluded"]:
        parts.append(f"{row['n_excluded']:,} excluded: start not recorded")
    return "; ".join(parts)
