"""`schedscope interference`: the options and words that its question does not declare."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from schedscope import units
from schedscope.analysis.asking.command import THREAD_ROWS
from schedscope.cli import _options
from schedscope.errors import UsageError
from schedscope.present import bounds, headline
from schedscope.present.answer import Answer
from schedscope.present.columns import choose
from schedscope.present.who import who

if TYPE_CHECKING:
    import polars as pl


VICTIMS = 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `schedscope interference`."""
    _options.add_input(parser)
    parser.add_argument(
        "--by",
        choices=THREAD_ROWS,
        default="thread",
        help="one row per thread, name, process, control group or service (default: thread)",
    )
    parser.add_argument(
        "--victims",
        type=int,
        metavar="N",
        help=f"only the N victims that waited longest (default: {VICTIMS} in a table, else all)",
    )
    parser.add_argument(
        "--together", action="store_true", help="treat all selected threads as one victim"
    )
    _options.add_top(parser, 10, what="the N threads that ran longest, for each victim")
    _options.add_selection(parser, what="these threads as victims, or waits for this CPU")
    _options.add_format(parser)


def run(args: argparse.Namespace) -> Answer:
    """Print the table."""
    from schedscope.analysis.interference import interference

    _options.check_top(args)
    if args.together and args.victims is not None:
        raise UsageError("--together with --victims", "one of them", "leave one out")
    if args.victims is not None and args.victims < 1:
        raise UsageError(f"--victims {args.victims}", "a number of victims, 1 or more")
    trace = _options.open_input(args)
    where = _options.where(args, trace)
    frame = interference(trace, where=where, by=args.by, together=args.together)
    keys = [name for name in frame.columns if name.startswith("victim_")]
    victims = args.victims or (VICTIMS if args.format == "table" else None)
    shown, left_out = frame, 0
    if keys and victims:
        every = frame.select(keys).unique(maintain_order=True)
        left_out = max(0, len(every) - victims)
        shown = frame.join(
            every[:victims], on=keys, how="semi", nulls_equal=True, maintain_order="left"
        )
    rows = len(shown)
    if top := _options.top(args, 10):
        shown = shown.group_by(keys, maintain_order=True).head(top) if keys else shown[:top]
        shown = shown.select(frame.columns)
    rest = f"{units.several(rows - len(shown), 'more row')} of less time"
    foot = [] if len(frame) else ["no waits for this selection"]
    if left_out:
        foot.append(f"({units.several(left_out, 'more victim')} that waited less: --victims)")
    if "no_queue" in shown["kind"]:
        foot.append(
            "on no known queue (4BSD has one queue for all CPUs): a thread on any CPU may have been"
            " in the way; `schedscope starvation` counts those on all allowed CPUs"
        )
    causes = [f"cause_{cause}" for cause in ("wake", "new", "preempt", "yield", "unknown")]
    causes = [name for name in causes if frame[name].sum()]
    names = [*(["victim"] if keys else []), "wait", "ran", "time", "share", "n", "n_waits"]
    names += causes if len(causes) > 1 else []
    worded = _worded(shown, keys)
    waited = frame.unique(keys) if keys else frame[:1]
    covered = bounds.coverage_of(waited["wait"], waited["wait_high"])
    foot += [covered] if covered else []
    return Answer(
        shown,
        choose(worded, names, question="interference", narrow=" ".join([*causes, "n", "n_waits"])),
        about=headline.about(trace),
        head=[*headline.headline(trace), ""],
        notes=foot,
        shown=worded,
        rows_in_all=len(frame),
        rest=rest if rows > len(shown) else "",
    )


def _worded(frame: pl.DataFrame, keys: list[str]) -> pl.DataFrame:
    """The victim and the thread that ran, as one text each; the former only where it changes."""
    import polars as pl

    words = {
        "idle": "(the CPU idled)",
        "unknown": "(unknown)",
        "no_queue": "(on no known queue)",
        "others": "(others)",
    }
    victims, others, before = [], [], None
    for row in frame.iter_rows(named=True):
        victim = who(row, "victim_") if keys else ""
        victims.append(victim if victim != before else "")
        before = victim
        others.append(words.get(row["kind"]) or who(row, ""))
    return frame.with_columns(
        pl.Series("victim", victims, dtype=pl.String), pl.Series("ran", others, dtype=pl.String)
    )
