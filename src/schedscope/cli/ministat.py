"""`schedscope ministat`: the options and words that its question does not declare."""

from __future__ import annotations

import argparse
import math
import re
import shutil
import sys
from typing import TextIO

from schedscope.errors import FormatError, StorageError, UsageError
from schedscope.present.answer import Answer, Facts

# Length of a line; a file with a longer one is not a table.
_LONGEST = 1 << 20
# What C's strtod reads, as far as it is a finite number.
_DECIMAL = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_HEX = re.compile(r"[+-]?0[xX]([0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)([pP][+-]?\d+)?")
_NOT_FINITE = re.compile(r"[+-]?(inf(inity)?|nan(\(\w*\))?)", re.IGNORECASE)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `schedscope ministat`."""
    parser.add_argument("files", metavar="FILE", nargs="*", help="up to seven; - is stdin")
    parser.add_argument("-A", action="store_true", dest="no_plot", help="no plot")
    parser.add_argument(
        "-n", action="store_true", dest="no_tests", help="statistics only: no plot, no comparison"
    )
    parser.add_argument(
        "-q", action="store_true", dest="quiet", help="leave out the names and the table head"
    )
    parser.add_argument(
        "-s",
        action="store_true",
        dest="separate",
        help="a line for each bar of the plot",
    )
    parser.add_argument(
        "-C", type=int, default=1, dest="column", help="column with the numbers (default: 1)"
    )
    parser.add_argument(
        "-c",
        type=float,
        default=95,
        dest="confidence",
        help="confidence in per cent: 80, 90, 95, 98, 99 or 99.5 (default: 95)",
    )
    parser.add_argument(
        "-d",
        default=" \t",
        dest="delimiters",
        help="characters that separate columns (default: space, tab)",
    )
    parser.add_argument(
        "-w", type=int, dest="width", help="width of the plot (default: the terminal's, or 74)"
    )
    parser.add_argument(
        "--relative",
        choices=("new", "old"),
        default="new",
        help="the margin in per cent as ministat prints it today, with the uncertainty of the"
        " reference included (new), or as it did before (old; default: new)",
    )
    parser.add_argument(
        "--format",
        choices=("table", "json", "csv"),
        default="table",
        help="ministat's page; json and csv have both margins (default: table)",
    )


def run(args: argparse.Namespace) -> Answer | Facts:
    """Print ministat's page."""
    if args.column < 1:
        raise UsageError(f"-C {args.column}", "a column number from 1 on")
    if not args.delimiters:
        raise UsageError("-d with no characters", "the characters between columns", "as in -d ,")
    names = args.files or ["<stdin>"]
    if len(names) > 7:
        raise UsageError(f"{len(names)} files", "seven at most, one for each symbol of the plot")
    if names.count("-") > 1:
        raise UsageError("- given twice", "standard input once", "it can be read only once")
    sets = [
        (name, _read(name if args.files else "-", args.column, args.delimiters)) for name in names
    ]
    if args.format == "table":
        from schedscope.analysis.ministat.text import ministat_text

        text = ministat_text(
            sets,
            confidence=args.confidence,
            width=_width() if args.width is None else args.width,
            plot=not args.no_plot,
            separate=args.separate,
            tests=not args.no_tests,
            headings=not args.quiet,
            relative=args.relative,
        )
        # ministat indents with tabs.
        return Facts({}, text.splitlines(), keep="	")
    from schedscope.analysis.ministat.ministat import ministat

    if len(dict(sets)) < len(sets):
        raise UsageError("a file given twice", "each once", f"or leave out --format {args.format}")
    frame = ministat(dict(sets), confidence=args.confidence)
    return Answer(frame, about={"confidence": args.confidence})


def _width() -> int:
    if not sys.stdout.isatty():
        return 74
    # The plot has a border on either side.
    return max(shutil.get_terminal_size(fallback=(76, 24)).columns - 2, 2)


def _read(name: str, column: int, delimiters: str) -> list[float]:
    try:
        # A stray byte is then reported as an invalid number with its line, not as a decoding error.
        with open(
            sys.stdin.fileno() if name == "-" else name,
            encoding="utf-8",
            errors="backslashreplace",
            closefd=name != "-",
        ) as file:
            where = "standard input" if name == "-" else name
            return _numbers(file, where, column, delimiters)
    except OSError as error:
        raise StorageError(
            f"cannot read {name}: {error.strerror}", "a text file of numbers", "check the path"
        ) from error


def _numbers(lines: TextIO, name: str, column: int, delimiters: str) -> list[float]:
    # Like strtok: several delimiters in a row are one, and none counts at the start.
    between = re.compile("[" + re.escape(delimiters) + "]+")
    found = []
    for number, line in enumerate(iter(lambda: lines.readline(_LONGEST + 1), ""), 1):
        if len(line) > _LONGEST:
            raise FormatError(
                f"line {number} of {name} has more than {_LONGEST} characters",
                "a text file of numbers",
            )
        words = [word for word in between.split(line.rstrip()) if word]
        if len(words) < column or words[column - 1].startswith("#"):
            continue
        found.append(_number(words[column - 1].lstrip(), number, name))
    return found


def _number(word: str, line: int, name: str) -> float:
    value = math.nan
    if _DECIMAL.fullmatch(word):
        value = float(word)
    elif _HEX.fullmatch(word):
        value = float.fromhex(word)
    elif not _NOT_FINITE.fullmatch(word):
        raise FormatError(
            f"{word[:40]!r} in line {line} of {name}",
            "a number",
            "choose the column with -C and the characters between columns with -d",
        )
    if not math.isfinite(value):
        raise FormatError(
            f"{word[:40]!r} in line {line} of {name}", "a finite number", "take the line out"
        )
    return value
