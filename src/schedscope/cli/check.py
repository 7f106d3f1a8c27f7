"""`schedscope check`: the options and words that its question does not declare."""

from __future__ import annotations

import argparse

from schedscope.cli import _options
from schedscope.present import headline
from schedscope.present.answer import Answer
from schedscope.present.columns import choose


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `schedscope check`."""
    _options.add_input(parser)
    parser.add_argument("--strict", action="store_true", help="exit with code 1 for warnings, too")
    _options.add_selection(parser, what="these threads, in lines of their own")
    _options.add_format(parser)


def run(args: argparse.Namespace) -> Answer:
    """Print the findings and the verdict."""
    from schedscope.analysis.check.check import check, verdict

    _options.refuse_cpu(args, "check", "`schedscope info --cpu N` says what is known of a CPU")
    trace = _options.open_input(args)
    where = _options.where_threads(args, trace)
    findings = check(trace, where=where)
    levels = set(findings["level"])
    failing = {"violated", "warning"} if args.strict else {"violated"}
    return Answer(
        findings,
        choose(findings, ["level", "check", "text"]),
        about={**headline.about(trace), "verdict": verdict(findings)},
        head=[headline.headline(trace)[0], *_options.selected(args, trace, where), ""],
        notes=["", verdict(findings)],
        exit_code=1 if levels & failing else 0,
    )
