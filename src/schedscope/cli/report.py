"""Write one self-contained HTML page about a trace, and say its findings.

The page needs no network and no script; send it to anyone. It answers who
waited for a CPU, how long, why, when, and how far the trace can be trusted.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from schedscope.cli import _headline, _options, _output
from schedscope.errors import UsageError

NAME = "report"
HELP = "write a self-contained HTML page about a trace"
EXAMPLE = "  schedscope report web.capture -o web.html"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `schedscope report`."""
    _options.add_input(parser)
    parser.add_argument(
        "-o", "--output", metavar="FILE.html", help="the file to write (default: INPUT's name)"
    )
    parser.add_argument("-f", "--force", action="store_true", help="replace an existing file")
    parser.add_argument(
        "--figures", metavar="DIR", help="write the figures as PNG files into this folder, too"
    )
    _options.add_format(parser)


def run(args: argparse.Namespace) -> int:
    """Write the page, print the findings."""
    source = Path(args.input)
    stem = source.absolute().name.removesuffix(".capture").removesuffix(".sched")
    target = Path(args.output) if args.output else Path(f"{stem}.html")
    if target.exists() and not args.force:
        raise UsageError(f"{target} exists", "a free name", "give --force to replace it")
    trace = _options.open_input(args)
    from schedscope.analysis.diagnosis import diagnosis
    from schedscope.analysis.once import once
    from schedscope.report.page import page
    from schedscope.report.summary import summary

    _output.write_whole(target, page(trace))
    written = [str(target)]
    if args.figures:
        from schedscope.report.figures import write_figures

        written += map(str, write_figures(trace, Path(args.figures)))
    said, found = summary(trace), once(diagnosis, trace)
    lines = [*_headline.headline(trace), ""]
    lines += [f"- {text}" for text in said]
    lines += ["", "What is wrong, the costliest first:" if found.height else "Nothing is wrong."]
    lines += [
        f"{i}. [{topic}] {text}"
        for i, (topic, text) in enumerate(found.select("topic", "text").iter_rows(), 1)
    ]
    lines += ["", "wrote " + ", ".join(written)]
    about = {
        **_headline.about(trace),
        "summary": said,
        "findings": found.to_dicts(),
        "written": written,
    }
    _output.emit_about(about, args.format, lines)
    return 0
