"""`schedscope compare`: the options and words that its question does not declare."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from schedscope import units
from schedscope.cli import _options, _quantities
from schedscope.errors import UsageError
from schedscope.present import bounds, headline
from schedscope.present.answer import Answer

if TYPE_CHECKING:
    import polars as pl

    from schedscope.store.trace import Trace


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `schedscope compare`."""
    parser.add_argument(
        "inputs", metavar="INPUT", nargs="+", help=f"{_options.INPUT_HELP}; A B [A2 B2 ...]"
    )
    parser.add_argument(
        "--settings", type=int, default=2, metavar="N", help="number of settings (default: 2)"
    )
    parser.add_argument(
        "--name", action="append", metavar="NAME", help="name of each setting (default: A, B, ...)"
    )
    _quantities.older(parser, "--label", "--name")
    parser.add_argument(
        "--match",
        choices=("role", "name", "behaviour"),
        default="role",
        help="match threads by name pattern and by main thread or not (role, the default), by"
        " nothing else (name), or by hog or sleeper (behaviour)",
    )
    parser.add_argument(
        "--measure", action="append", metavar="NAME", help="compare only this measure"
    )
    parser.add_argument(
        "--confidence",
        type=float,
        default=95,
        metavar="%",
        help="confidence in per cent (default: 95)",
    )
    parser.add_argument(
        "--top", type=int, default=8, metavar="N", help="thread groups to compare (default: 8)"
    )
    parser.add_argument("--all", action="store_true", help="also show what does not stand out")
    _options.add_window(parser)
    _options.add_selection(parser)
    parser.add_argument(
        "--cause",
        choices=("wake", "new", "preempt", "yield", "unknown"),
        help="only waits with this cause, and the switches that ended them",
    )
    _options.add_cache(parser)
    _options.add_format(parser)


def run(args: argparse.Namespace) -> Answer:
    """A row per measure, of all threads and of thread groups."""
    import polars as pl

    from schedscope.analysis.comparison.compare import compare, setting_labels, thread_groups

    if args.settings < 2:
        raise UsageError(f"--settings {args.settings}", "2 or more")
    if len(args.inputs) < args.settings or len(args.inputs) % args.settings:
        raise UsageError(
            f"{len(args.inputs)} input{'s' * (len(args.inputs) != 1)}",
            f"{args.settings} settings in turn, with as many runs of each",
            "as in schedscope compare A B A2 B2",
        )
    if args.top < 0:
        raise UsageError(f"--top {args.top}", "0 or more")
    if not 0 < args.confidence < 100:
        raise UsageError(
            f"--confidence {args.confidence:g}", "per cent between 0 and 100", "as in 95"
        )
    labels = setting_labels(args.name, args.settings)
    traces = [_options.open_path(args, path) for path in args.inputs]
    # Threads may exist in only some of the traces; process ids differ between them.
    wheres = _options.where_of_each(args, traces, _options.where)
    nothing = pl.lit(False) if _options.selects_threads(args) or args.cpu else None
    where_of = {
        id(trace): nothing if one is None else one
        for trace, one in zip(traces, wheres, strict=True)
    }
    settings = [traces[i :: args.settings] for i in range(args.settings)]
    frame = compare(
        settings[0],
        settings[1],
        *settings[2:],
        match=args.match,
        where=lambda trace: where_of[id(trace)],
        cause=args.cause,
        measures=args.measure,
        confidence=args.confidence / 100,
        top=args.top,
        labels=labels,
    )
    head = []
    names = [trace.name for trace in traces]
    if len(set(names)) < len(names):
        from schedscope.fleets.gathered import told_apart

        names = told_apart(args.inputs)
    for number, (label, runs) in enumerate(zip(labels, settings, strict=True)):
        for trace, named in zip(runs, names[number :: args.settings], strict=True):
            gaps = "; ".join(headline.gaps(trace)) or headline.COMPLETE
            name, length = units.printable(named), units.duration(trace.duration)
            head.append(f"{label}: {name} · {length} · {trace.events:,} events · {gaps}")
    head += _unlike(labels, settings)
    shown = frame
    if not args.all:
        shown = frame.filter(pl.col("thread").is_null() | pl.col("verdict").is_in(["more", "less"]))
    of = thread_groups(traces, args.match, [where_of[id(trace)] for trace in traces])
    left_out = max(0, of - args.top)
    about = {
        "thread_groups_in_all": of,
        "settings": {
            label: [headline.about(trace) for trace in runs]
            for label, runs in zip(labels, settings, strict=True)
        },
        "confidence": args.confidence,
        "time_unit": "ns",
    }
    # Imported here: it loads Polars, which `--help` does not need.
    from schedscope.present.compare_table import difference_columns, worded_differences

    worded = worded_differences(shown, several=args.settings > 2)
    return Answer(
        frame,
        difference_columns(worded, labels),
        about=about,
        head=[*head, ""],
        notes=[
            "",
            *_not_compared(left_out),
            *_conclusion(frame, labels, args.confidence, frame.height - shown.height),
        ],
        shown=worded,
    )


def _not_compared(left_out: int) -> list[str]:
    if not left_out:
        return []
    groups = units.several(left_out, "more thread group")
    return [f"not compared: {groups}, which ran and waited less; use a larger --top"]


def _unlike(labels: list[str], settings: list[list[Trace]]) -> list[str]:
    """What else is different between the settings, and may be the reason."""
    lines = []
    for key, what in (("os", "system"), ("release", "release"), ("ncpu", "CPUs"), ("hz", "HZ")):
        seen = {
            label: {trace.info.get(key) for trace in runs if trace.info.get(key) is not None}
            for label, runs in zip(labels, settings, strict=True)
        }
        if len(set().union(*seen.values())) > 1:
            each = [f"{label} {' '.join(sorted(map(str, v))) or '?'}" for label, v in seen.items()]
            lines.append(f"also different: {what} ({'; '.join(each)})")
    return lines


def _conclusion(
    frame: pl.DataFrame, labels: list[str], confidence: float, hidden: int
) -> list[str]:
    import polars as pl

    tested = frame.filter(pl.col("verdict") != "untested")
    differ = tested.filter(pl.col("verdict").is_in(["more", "less"]))
    unclear = tested.filter(pl.col("verdict") == "unclear")
    whole = frame.filter(pl.col("thread").is_null())
    lines = []
    for label, side in zip(labels, ("a", "b"), strict=False):
        least = whole[f"coverage_{side}"].min()
        if covered := bounds.coverage_line(least, label):  # type: ignore[arg-type]
            lines.append(covered)
    if unclear.height:
        lines.append(
            f"{unclear.height} differences are unclear: the missing events may be the reason"
        )
    lines += [
        f"{differ.height} of {tested.height} differences that could be tested are larger than their"
        f" noise ({confidence:g} % for the rows of all threads together, and for those of thread"
        " groups)"
    ]
    if frame.filter(pl.col("basis") == "blocks").height:
        lines.append(
            "one run each: the noise between runs is unknown, so neither is called better;"
            " record both again, alternating"
        )
    else:
        wins = {
            label: n for label in labels if (n := frame.filter(pl.col("better") == label).height)
        }
        if not wins:
            lines.append("no winner: no wait differs by more than its noise")
        else:
            parts = [f"{label} in {n} measure{'s' * (n != 1)}" for label, n in wins.items()]
            lines.append("better: " + ", ".join(parts))
    if hidden:
        lines.append(
            f"{hidden} more rows of thread groups, within the noise or untested; --all shows them"
        )
    return lines
