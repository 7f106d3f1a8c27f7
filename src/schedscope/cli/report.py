"""Write one self-contained HTML page about a trace, and print its findings.

The page needs no network, so it can be sent to anyone. It ranks the findings, and says
who waited for a CPU, how long, why and when, and how far the trace can be trusted. Its
timeline shows the worst case, and can be zoomed and panned; everything else works without
scripts. With an option that changes something, the page also has the answer of `whatif`.

With a selection the page is about those threads: its findings are those that affect them,
its tables and figures show their waits, and its commands select the same threads. What
concerns the CPUs and the recording stays as it is.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from schedscope.cli import _change, _options, _output, _quantities
from schedscope.errors import UsageError
from schedscope.present import headline
from schedscope.present.answer import Facts

GROUP = "everything on one page"
HELP = "write a self-contained HTML page about a trace"
EXAMPLE = """\
  schedscope report web.capture -o web.html
  schedscope report web.capture --service nginx.service
  schedscope report web.capture --set-nice 'batch*=10'
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `schedscope report`."""
    _options.add_input(parser)
    parser.add_argument(
        "-o", "--output", metavar="FILE.html", help="the file to write (default: INPUT's name)"
    )
    parser.add_argument("-f", "--force", action="store_true", help="replace an existing file")
    parser.add_argument(
        "--figures", metavar="DIR", help="also write the figures as PNG files into this folder"
    )
    shown = parser.add_mutually_exclusive_group()
    shown.add_argument(
        "--at",
        metavar="TIME",
        help="the time that the timeline shows first: seconds from the start, as printed, or a time"
        " of day (default: the worst finding)",
    )
    _quantities.older(shown, "--timeline-around", "--at")
    shown.add_argument("--no-timeline", action="store_true", help="a page without scripts")
    _options.add_selection(parser, what="what affects these threads, and their waits")
    _change.add_change(
        parser, "a section more: what if this were changed? (as in `schedscope whatif`)"
    )
    _options.add_format(parser)


def run(args: argparse.Namespace) -> Facts:
    """Write the page; the findings."""
    source = Path(args.input)
    stem = source.absolute().name.removesuffix(".capture").removesuffix(".sched")
    target = Path(args.output) if args.output else Path(f"{stem}.html")
    if target.exists() and not args.force:
        raise UsageError(f"{target} exists", "a free name", "give --force to replace it")
    change = _change.asked(args)
    trace = _options.open_input(args)
    where = _options.where_no_cpu(args, trace, "a report", "a finding is not about a single CPU")
    from schedscope.analysis.cpus.occupancy import reading_once
    from schedscope.report.focus import focus
    from schedscope.report.page import page
    from schedscope.report.subject import Subject
    from schedscope.report.summary import summary

    subject = Subject(trace, where, _options.words(args))
    with reading_once(trace):
        shown = None if args.no_timeline else focus(subject, args.at)
        more = []
        if _change.is_asked(args):
            from schedscope.report.whatif import changed

            more = [changed(subject, change, _change.words(args))]
        _output.write_whole(target, page(subject, shown, more), trace.sources)
        written = [str(target)]
        if args.figures:
            from schedscope.report.figures import write_figures

            written += map(str, write_figures(subject, Path(args.figures)))
        said, found = summary(subject), subject.findings
    lines = [*headline.headline(trace), ""]
    lines += [f"- {text}" for text in said]
    lines += ["", "Findings, the worst first:" if found.height else "No findings."]
    lines += [
        f"{i}. [{topic}] {text}"
        for i, (topic, text) in enumerate(found.select("topic", "text").iter_rows(), 1)
    ]
    lines += ["", "wrote " + ", ".join(written)]
    about = {
        **headline.about(trace),
        "summary": said,
        "findings": found.to_dicts(),
        "written": written,
    }
    return Facts(about, lines)
