"""Converts instants to times of day, by the recorder's pairs of its clock and the host's wall
clock.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from decimal import Decimal
from typing import Any, Protocol

from schedscope.errors import UsageError
from schedscope.units import duration

_TEXT = re.compile(
    r"\s*(?:(\d{4})-(\d\d)-(\d\d)[T ]\s*)?(\d\d?):(\d\d)(?::(\d\d(?:\.\d*)?))?"
    r"\s*(Z|UTC|[+-]\d\d(?::?\d\d)?)?\s*"
)
_EXAMPLES = "as in 12:03, 12:03:05.25, 2026-11-28 12:03 or 12:03 +01:00"
_SECOND = 1_000_000_000
_SLEW = 2000
"""Linux speeds a clock up or slows it down by 500 parts in a million at most; more is a step."""


class Recording(Protocol):
    """A trace's information about its clocks."""

    @property
    def name(self) -> str:
        """The recording's name for people."""

    @property
    def window(self) -> tuple[int, int]:
        """Start and end in ns."""

    @property
    def duration(self) -> int:
        """Its length in ns."""

    def metadata(self, key: str, part: str) -> Any:
        """`info[key][part]`."""


def at(trace: Recording, ts: int) -> datetime | None:
    """The time of day at an instant, in this machine's zone; None if the trace does not say."""
    known = _line(trace)
    if known is None:
        return None
    begin, origin, ran, passed = known
    return _datetime(origin + (ts - begin) * passed // ran, None)


def error(trace: Recording) -> int | None:
    """By how many ns the recorder may have read the two clocks apart; None if it does not say."""
    apart = trace.metadata("clock", "pair_error_ns")
    return None if apart is None else int(apart)


def is_one(text: object) -> bool:
    """Whether a text is meant as a time of day, not as seconds from the start."""
    return isinstance(text, str) and ":" in text


def instant(trace: Recording, text: str) -> int:
    """The instant of a time of day; without a date, the first such one in the recording.

    Raises `UsageError` for any other text, and if the trace does not say when it was recorded.
    """
    match = _TEXT.fullmatch(text)
    if match is None:
        raise UsageError(f"{text!r} is not a time of day", _EXAMPLES)
    known = _line(trace)
    if known is None:
        raise UsageError(
            f"{trace.name} does not say what time of day it was",
            "a recording with the times of two clocks",
            "give seconds from its start, as in 2.5",
        )
    begin, origin, ran, passed = known
    window = [origin + (ts - begin) * passed // ran for ts in trace.window]
    zone = _zone(match[7])
    first, last = (_datetime(ns, zone).date() for ns in window)
    try:
        if match[1] is not None:
            days = [date(*(int(part) for part in match.group(1, 2, 3)))]
        else:
            days = [first + timedelta(n - 1) for n in range((last - first).days + 3)]
        found = [_wall(day, match, zone) for day in days]
    except (ValueError, OverflowError) as wrong:
        raise UsageError(f"{text!r} is not a time of day ({wrong})", _EXAMPLES) from None
    wall = min(found, key=lambda ns: max(window[0] - ns, ns - window[1], 0))
    return begin + (wall - origin) * ran // passed


def _wall(day: date, match: re.Match[str], zone: tzinfo | None) -> int:
    """ns since 1970 of the time of day on that day."""
    seconds = Decimal(match[6] or 0)
    whole = datetime(
        day.year, day.month, day.day, int(match[4]), int(match[5]), int(seconds), tzinfo=zone
    )
    return int(whole.timestamp()) * _SECOND + int(seconds % 1 * _SECOND)


def _zone(text: str | None) -> tzinfo | None:
    """None is this machine's zone."""
    if text is None:
        return None
    if text in ("Z", "UTC"):
        return UTC
    hours, minutes = int(text[1:3]), int(text[3:].lstrip(":") or 0)
    try:
        return timezone((1 if text[0] == "+" else -1) * timedelta(hours=hours, minutes=minutes))
    except ValueError:
        raise UsageError(f"{text!r} is not a zone", _EXAMPLES) from None


def _datetime(ns: int, zone: tzinfo | None) -> datetime:
    seconds, rest = divmod(ns, _SECOND)
    moment = datetime.fromtimestamp(seconds, UTC) + timedelta(microseconds=rest // 1000)
    return moment.astimezone(zone)


def _line(trace: Recording) -> tuple[int, int, int, int] | None:
    """An instant, the time of day then (ns since 1970), and how far both clocks ran from there.

    Time of day is interpolated between pairs from both ends of the recording; else both clocks are
    assumed to run alike.
    """
    pairs = trace.metadata("clock", "pairs")
    if not pairs:
        return None
    (begin, origin), (end, then) = (tuple(map(int, pair)) for pair in (pairs[0], pairs[-1]))
    ran, passed = end - begin, then - origin
    # From close together, the errors of the two would be extrapolated.
    if 2 * ran < trace.duration or ran <= 0:
        return begin, origin, 1, 1
    off = abs(passed - ran)
    if off > ran // _SLEW + 2 * (error(trace) or _SECOND):
        raise UsageError(
            f"the host's time of day was set while {trace.name} was recorded, by {duration(off)}",
            "a clock that was not set",
            "give seconds from its start, as in 2.5",
        )
    return begin, origin, ran, passed
