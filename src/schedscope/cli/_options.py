"""Options that several commands share, and what they stand for."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from schedscope.cli._progress import Progress
from schedscope.errors import UsageError

if TYPE_CHECKING:
    from schedscope.trace import Trace

INPUT_HELP = "a capture folder, a .sched folder, or a trace file of another tool"


def add_input(parser: argparse.ArgumentParser, name: str = "input") -> None:
    """The trace to work on, and how to cache it."""
    parser.add_argument(name, metavar=name.upper(), help=INPUT_HELP)
    add_cache(parser)


def add_cache(parser: argparse.ArgumentParser) -> None:
    """Where converted traces are kept."""
    parser.add_argument(
        "--cache",
        metavar="DIR",
        help="keep converted traces here (default: beside the source, else in the user's cache)",
    )
    parser.add_argument(
        "--refresh", action="store_true", help="convert again even if nothing changed"
    )
    add_decoder_options(parser)


def add_decoder_options(parser: argparse.ArgumentParser) -> None:
    """`-O KEY=VALUE`, for formats that leave a choice."""
    parser.add_argument(
        "-O",
        "--option",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="for the decoder of this format, as in -O buffer=NAME for a trace.dat",
    )


def add_format(parser: argparse.ArgumentParser) -> None:
    """table, json or csv."""
    parser.add_argument(
        "--format",
        choices=("table", "json", "csv"),
        default="table",
        help="table for people; json and csv in ns for programs (default: table)",
    )


def open_input(args: argparse.Namespace, name: str = "input") -> Trace:
    """Open the trace an `add_input` option names, with a progress line."""
    from schedscope.trace import open as open_trace

    path = getattr(args, name)
    with Progress(f"reading {path}") as progress:
        return open_trace(
            path,
            cache=args.cache,
            refresh=args.refresh,
            options=decoder_options(args),
            progress=progress,
        )


def decoder_options(args: argparse.Namespace) -> dict[str, str]:
    """`-O KEY=VALUE` options as a mapping."""
    options = {}
    for text in args.option:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise UsageError(f"-O {text}", "KEY=VALUE", "write for example -O buffer=judge")
        options[key] = value
    return options
