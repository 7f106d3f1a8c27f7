"""Write a timeline of a trace: one self-contained HTML page to zoom and pan.

There is one lane per CPU, and one for each thread of the worst waits. A pixel shows the
exact shares of the time that it covers; zoom in to see every interval. The size of the
page limits the detail: use --since and --until to see part of a long trace in full.

With a selection the page begins with the lanes of these threads beside those of the CPUs, and
steps through their longest waits and findings; with --cpu it begins with these CPUs. All other
threads can be searched.
"""

from __future__ import annotations

import argparse
import html
from pathlib import Path

from schedscope.cli import _options, _output, _quantities
from schedscope.errors import UsageError

GROUP = "everything on one page"
HELP = "write a timeline to zoom and pan, as one HTML page"
EXAMPLE = """\
  schedscope timeline web.capture -o web-timeline.html --since 2s --until 3s
  schedscope timeline web.capture --service nginx.service
"""

_PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
{policy}
<title>{title}</title>
<style>:root {{ color-scheme: light dark; scrollbar-gutter: stable; }}
body {{ font: 15px/1.4 system-ui, sans-serif; margin: 1.5rem; color: CanvasText; background: Canvas; }}
h1 {{ font-size: 1.2rem; }}</style></head>
<body data-alone><main><h1>{title}</h1>
{body}</main></body></html>
"""  # noqa: E501 - HTML


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `schedscope timeline`."""
    _options.add_input(parser)
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE.html",
        help="the file to write (default: INPUT's name with -timeline.html)",
    )
    parser.add_argument(
        "--at",
        metavar="TIME",
        help="the time to show first: seconds from the start, as printed, or a time of day"
        " (default: all)",
    )
    _options.add_selection(
        parser, what="lanes and longest waits of these threads and CPUs, at first"
    )
    parser.add_argument("-f", "--force", action="store_true", help="replace an existing file")
    parser.add_argument(
        "--max-size",
        type=_quantities.size,
        default=2_000_000,
        metavar="SIZE",
        help="how large the page may get, as in 8M (default: 2,000,000 bytes)",
    )
    _quantities.older(parser, "--max-bytes", "--max-size", int)


def run(args: argparse.Namespace) -> int:
    """Write the page."""
    source = Path(args.input)
    stem = source.absolute().name.removesuffix(".capture").removesuffix(".sched")
    target = Path(args.output) if args.output else Path(f"{stem}-timeline.html")
    if target.exists() and not args.force:
        raise UsageError(f"{target} exists", "a free name", "give --force to replace it")
    trace = _options.open_input(args)
    where = _options.where_threads(args, trace)
    cpus = _options.known_cpus(args, trace)
    from schedscope.timelines.content_policy import content_policy
    from schedscope.timelines.page import timeline_html
    from schedscope.timelines.places import around
    from schedscope.units import printable, size

    show = None
    if args.at is not None:
        since, until = map(trace.seconds, around(trace, args.at))
        show = since, until
    body = timeline_html(trace, show=show, max_bytes=args.max_size, where=where, cpus=cpus)
    title = html.escape(f"Timeline of {printable(trace.name)}")
    text = _PAGE.format(title=title, policy=content_policy(body), body=body)
    _output.write_whole(target, text, trace.sources)
    _output.say(f"wrote {target} ({size(len(text.encode()))})")
    return 0
