"""One row of `check`: what one question about a trace's trustworthiness found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import polars as pl

from schedscope.units import count, percent, several

LEVEL = pl.Enum(["ok", "note", "warning", "violated"])
"""`note`: there, and accounted for; `warning`: it may move results; `violated`: a sum is off."""

WARN_SHARE = 0.01
"""Above this share of what it concerns, a row is a warning."""

WARN_WITHHELD = 0.2
"""Of the time that may have been waited: below this every figure has its bounds, and is of use."""

SCHEMA = {
    "check": pl.String(),
    "level": LEVEL,
    "found": pl.Int64(),
    "total": pl.Int64(),
    "unit": pl.Enum(["rows", "ns"]),
    "text": pl.String(),
}
"""Columns of the frame that `check` returns."""

Level = Literal["ok", "note", "warning", "violated"]
Unit = Literal["rows", "ns"]


@dataclass
class CheckRow:
    """The answer to one question; `found` and `total` are None where the trace cannot answer."""

    check: str
    level: Level
    found: int | None
    total: int | None
    unit: Unit
    text: str


def must_hold(check: str, off: int, total: int, unit: Unit, text: str) -> CheckRow:
    """A sum that holds for every trace: any difference violates it."""
    return CheckRow(check, "violated" if off else "ok", off, total, unit, text)


def part(
    check: str,
    found: int,
    total: int,
    text: str,
    *,
    unit: Unit = "rows",
    warn: float | None = WARN_SHARE,
) -> CheckRow:
    """A part of a whole: a warning above the share `warn`, never if that is None."""
    level: Level = "ok"
    if found:
        level = "warning" if warn is not None and found > warn * total else "note"
    return CheckRow(check, level, found, total, unit, text)


def unanswered(check: str, unit: Unit, why: str) -> CheckRow:
    """A question that the trace cannot answer."""
    return CheckRow(check, "ok", None, None, unit, why)


def of(found: int, total: int, what: str, rest: str = "", *, plural: str = "") -> str:
    """How many of how many; `rest` follows the noun.

    >>> of(5, 1000, "wait", " cut short"), of(0, 1000, "switch", plural="switches")
    ('5 of 1,000 waits cut short (0.50 %)', 'none of 1,000 switches')
    >>> of(0, 1, "wait", " cut short"), of(0, 0, "wait", " cut short")
    ('none of 1 wait cut short', 'there are no waits')
    """
    if not total and not found:
        return f"there are no {plural or what + 's'}"
    if not found:
        return f"none of {several(total, what, plural)}{rest}"
    share = percent(found / total if total else 1)
    return f"{count(found)} of {several(total, what, plural)}{rest} ({share})"
