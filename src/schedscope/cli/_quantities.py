"""Durations and sizes of the command line: each has its unit, in every command.

A bare number is accepted where it always was, and only there.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from decimal import Decimal

from schedscope.cli._output import complain
from schedscope.errors import UsageError
from schedscope.units import nanoseconds

SIZES = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def duration(text: str) -> str:
    """A length of time, checked: `units.nanoseconds` reads it.

    >>> duration("100ms"), duration("1.5 s")
    ('100ms', '1.5 s')
    """
    try:
        nanoseconds(text)
    except UsageError as error:  # argparse adds the name of the option
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def seconds(text: str) -> str:
    """A length of time as a bare number of seconds; a number without a unit is one.

    >>> seconds("10"), seconds("10s"), seconds("2m"), seconds("250ms")
    ('10', '10', '120', '0.25')
    """
    if not text.strip() or not text.strip()[-1].isalpha():
        return text
    return f"{Decimal(nanoseconds(duration(text))).scaleb(-9):f}".rstrip("0").rstrip(".") or "0"


def size(text: str) -> int:
    """Bytes of a size, in binary units, as the capture program reads them.

    >>> size("64M"), size("2G"), size("0")
    (67108864, 2147483648, 0)
    """
    found = re.fullmatch(r"([1-9][0-9]*)([KMGT])", text)
    if found is None and text != "0":
        said = f"{text!r} is not a size; expected a number and K, M, G or T. Hint: as in 64M"
        raise argparse.ArgumentTypeError(said)
    return int(found[1]) * SIZES[found[2]] if found else 0


def size_once_in(unit: str) -> Callable[[str], int]:
    """The same, where a bare number used to be of this unit."""

    def size_or_number(text: str) -> int:
        if not text.isdigit() or text == "0":
            return size(text)
        complain(f"a size has a unit now: {text} is taken as {text}{unit}")
        return size(f"{text}{unit}")

    return size_or_number


def older(
    parser: argparse._ActionsContainer,
    name: str,
    new: str,
    reads: Callable[[str], object] | None = None,
) -> None:
    """`name` stays another spelling of the option `new`, unlisted, and says what it is called now.

    `reads` is how its value was read, where that is not how the option's is now.
    """
    target = parser._option_string_actions[new]

    class Older(argparse.Action):
        said = False

        def __call__(self, *words: object) -> None:
            if not self.said:
                complain(f"{name} is called {new} now")
            self.said = True
            target(*words)  # type: ignore[arg-type]

    parser.add_argument(
        name,
        action=Older,
        dest=target.dest,
        nargs=target.nargs,
        type=reads or target.type,  # type: ignore[arg-type]
        default=argparse.SUPPRESS,
        help=argparse.SUPPRESS,
    )
