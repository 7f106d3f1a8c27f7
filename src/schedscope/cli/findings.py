"""`schedscope findings`: the options and words that its question does not declare."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from schedscope import units
from schedscope.cli import _options, _quantities
from schedscope.present import headline
from schedscope.present.answer import Answer

if TYPE_CHECKING:
    import polars as pl

    from schedscope.store.trace import Trace

FAILED = 3
FAIL_ON = ("violated", "warning", "note")  # from the worst on


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `schedscope findings`."""
    _options.add_input(parser)
    parser.add_argument(
        "--threshold",
        default="100ms",
        type=_quantities.duration,
        metavar="DURATION",
        help="waits at least this long count as starvation (default: 100ms)",
    )
    parser.add_argument("--top", type=int, metavar="N", help="only the first N")
    parser.add_argument(
        "--fail-on",
        choices=FAIL_ON,
        help="exit with code 3 if a finding is of this level or worse",
    )
    _options.add_selection(parser, what="findings that affect these threads")
    _options.add_format(parser)


def run(args: argparse.Namespace) -> Answer:
    """A few lines for each finding."""
    from schedscope.analysis.findings.findings import findings
    from schedscope.present.selection import narrowed
    from schedscope.timelines.places import places

    _options.check_top(args, "findings")
    trace = _options.open_input(args)
    where = _options.where_no_cpu(args, trace, "findings", "a finding is not about a single CPU")
    frame = findings(trace, threshold=args.threshold, where=where)
    frame = narrowed(frame, _options.words(args))
    shown = frame.head(args.top) if args.top else frame
    chosen = where is not None
    lines = [""]
    if where is not None and "threads" not in frame["about"]:
        lines = ["", *_unexplained(trace, where, args), ""]
    elif not chosen and trace.metadata("workload", "pid") is not None:
        lines = ["", "recorded while a command ran: --workload shows what affects it", ""]
    for number, (row, place) in enumerate(
        zip(shown.iter_rows(named=True), places(trace, shown), strict=True), 1
    ):
        lines += _lines(number, row, args.input, place.view(trace), chosen)
    if not chosen and not len(frame):
        lines.append("nothing costs 1 % of the machine's time")
    worst = _at_least(frame, args.fail_on)
    return Answer(
        shown,
        [],
        about=headline.about(trace),
        head=[*headline.headline(trace), *lines],
        rows_in_all=len(frame),
        rest=("finding", ""),
        notes=[f"exit code {FAILED}: --fail-on {args.fail_on}, and {worst}"] if worst else [],
        exit_code=FAILED if worst else 0,
    )


def _at_least(frame: pl.DataFrame, level: str | None) -> str:
    """How many findings are of this level or worse, by topic; empty if none is."""
    if level is None:
        return ""
    levels = FAIL_ON[: FAIL_ON.index(level) + 1]
    topics = [row["topic"] for row in frame.iter_rows(named=True) if row["level"] in levels]
    or_worse = "" if level == FAIL_ON[0] else " or worse"
    what = units.several(len(topics), "finding")
    verb = "is" if len(topics) == 1 else "are"
    return f"{what} {verb} {level}{or_worse} ({', '.join(dict.fromkeys(topics))})" if topics else ""


def _unexplained(trace: Trace, where: pl.Expr, args: argparse.Namespace) -> list[str]:
    """What the selected threads did, where no finding is about them: they may have waited."""
    import shlex

    from schedscope.analysis.findings.finding import WORTH
    from schedscope.analysis.latency import latency
    from schedscope.analysis.slowdown import slowdown
    from schedscope.analysis.threads.of_threads import chosen_threads

    threads = chosen_threads(trace, where)
    ran = int(slowdown(trace, by=[], where=where)["cpu"].sum())
    waited, most = latency(trace, where=where, quantiles=())["total", "total_high"].row(0)
    did = f"they ran {units.duration(ran)} and waited {units.interval(waited, most)} for CPUs"
    if most < WORTH * trace.duration * max(min(trace.ncpu, len(threads)), 1):
        return [f"nothing costs the selected threads 1 % of the time of that many CPUs: {did}"]
    rest = f"{shlex.quote(args.input)} {_options.words(args)}"
    return [
        f"no finding is about the selected threads: {did}.",
        "What these waits consisted of, and which threads ran meanwhile:",
        f"   schedscope wait-breakdown {rest}",
        f"   schedscope interference {rest}",
    ]


def _lines(number: int, row: dict[str, Any], source: str, view: str, chosen: bool) -> list[str]:
    """One finding; where threads were chosen, those about the machine say so."""
    import shlex
    import textwrap

    def call(command: str) -> str:
        words = command.split(" ", 1)
        return " ".join(["schedscope", words[0], shlex.quote(source), *words[1:]])

    def wrapped(text: str) -> list[str]:
        return [f"   {line}" for line in textwrap.wrap(text, 76, break_on_hyphens=False)]

    tested = [f"   {call(row['whatif'])}"] if row["whatif"] else []
    level = f"{row['level']}, about the machine" if chosen and row["about"] == "machine" else ""
    cost = units.cost(row["cost"], row["cost_high"], row["cost_frac"])
    return [
        f"{number}. {row['topic']} ({level or row['level']}): {cost}",
        *wrapped(row["text"]),
        f"   {call(row['command'])}",
        f"   {call(f'view --at {shlex.quote(view)}')}",
        *wrapped(f"Try: {row['advice']}"),
        *tested,
        "",
    ]
