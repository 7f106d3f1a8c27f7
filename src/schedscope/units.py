"""Numbers as people read them; machines get nanoseconds and plain digits."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from numbers import Integral, Real

from schedscope.errors import UsageError

_STEPS = ((1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "µs"), (1, "ns"))
_FACTORS = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
}


def duration(ns: float | None) -> str:
    """A duration with three significant digits and its unit.

    >>> duration(4_523), duration(19_700_000), duration(0), duration(999_999)
    ('4.52 µs', '19.7 ms', '0 ns', '1.00 ms')
    >>> duration(3_725_000_000_000), duration(652_286_000_000_000)
    ('3,725 s', '652,286 s')
    >>> duration(None)
    '-'
    """
    if ns is None:
        return "-"
    if ns < 0:
        return "-" + duration(-ns)
    for step, unit in _STEPS:  # noqa: B007 - used after the loop
        # 999,999 ns would print as "1000 µs" in three digits: the unit is
        # chosen after rounding.
        if float(f"{ns:.3g}") >= step or step == 1:
            value = ns / step
            break
    if unit == "ns":
        return f"{value:.0f} ns" if value >= 1 or value == 0 else f"{value:.2g} ns"
    digits = 2 if value < 9.995 else 1 if value < 99.95 else 0
    return f"{value:,.{digits}f} {unit}"


def instant(ns: float | None, origin: int = 0) -> str:
    """A point in time, in seconds after `origin`.

    >>> instant(1_500_000_000, 1_000_000_000)
    '0.500000 s'
    """
    return "-" if ns is None else f"{(ns - origin) / 1e9:.6f} s"


def count(n: float | None) -> str:
    """A whole number with separators.

    >>> count(1302114)
    '1,302,114'
    """
    return "-" if n is None else f"{n:,.0f}"


def several(n: int, what: str, plural: str = "") -> str:
    """A number and its noun.

    >>> several(1, "gap"), several(2000, "life", "lives")
    ('1 gap', '2,000 lives')
    """
    return f"{count(n)} {what if n == 1 else plural or what + 's'}"


def percent(fraction: float | None) -> str:
    """A fraction as per cent; a nonzero fraction never prints as 0.

    >>> percent(0.1234), percent(0.0), percent(0.000001), percent(1.0), percent(0.99999)
    ('12.3 %', '0 %', '<0.01 %', '100 %', '>99.9 %')
    """
    if fraction is None:
        return "-"
    if fraction in (0, 1):
        return f"{100 * fraction:.0f} %"
    if 0 < fraction < 0.0001:
        return "<0.01 %"
    if 0.9995 <= fraction < 1:
        return ">99.9 %"
    return f"{100 * fraction:.{2 if abs(fraction) < 0.01 else 1}f} %"


def interval(low: float | None, high: float | None, text: Callable[[float], str] = duration) -> str:
    """A time, or the two between which it is; or another amount, with its `text`.

    >>> interval(573_000_000, 573_000_000), interval(573_000_000, None)
    ('573 ms', '>= 573 ms')
    >>> interval(34_900_000_000, 46_600_000_000), interval(999_000, 1_000_000)
    ('34.9 to 46.6 s', '999 µs to 1.00 ms')
    >>> interval(None, None), interval(0, 20_000), interval(None, 20_000)
    ('-', '<= 20.0 µs', '<= 20.0 µs')
    """
    if low is None:
        return "-" if high is None else f"<= {text(high)}"
    least = text(low)
    if high is None:
        return f">= {least}"
    most = text(high)
    if least == most:
        return least
    if low == 0:
        return f"<= {most}"
    number, _, unit = least.partition(" ")
    return f"{number if unit == most.partition(' ')[2] else least} to {most}"


def cost(ns: int, high: int, fraction: float, of: str = ", {} of the machine's time") -> str:
    """Time that a finding concerns, and its share of the CPUs' time where that is one.

    Threads that wait at the same time wait for more than all CPUs have.

    >>> cost(354_000_000, 354_000_000, 0.032), cost(11_400_000_000, 11_900_000_000, 5.7)
    ("354 ms, 3.2 % of the machine's time", '11.4 to 11.9 s')
    """
    most = fraction * high / ns if ns else fraction
    share = of.format(interval(fraction, most, percent)) if most <= 1 else ""
    return interval(ns, high) + share


def size(n: float) -> str:
    """Bytes in binary units.

    >>> size(512), size(2_451_436)
    ('512 B', '2.3 MiB')
    """
    if n < 1024:
        return f"{n:.0f} B"
    for unit in ("KiB", "MiB", "GiB"):
        n /= 1024
        if n < 1024:
            return f"{n:.1f} {unit}"
    return f"{n / 1024:.1f} TiB"


def printable(text: str, keep: str = "") -> str:
    r"""Text that cannot move the cursor or hide: threads choose their own names.

    What is not seen as itself (control characters, marks of the direction of writing, spaces
    without width) becomes its escape; characters in `keep` stay.

    >>> printable("evil\x1b[2J"), printable("txt.\u202eexe"), printable("lto cgu.05")
    ('evil\\x1b[2J', 'txt.\\u202eexe', 'lto cgu.05')
    """
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in text
    )


def nanoseconds(text: str | int) -> int:
    """A length of time in nanoseconds: a text has a unit, a whole number is of nanoseconds.

    0 needs no unit.

    >>> nanoseconds("10ms"), nanoseconds("1.5 s"), nanoseconds("250us"), nanoseconds("0")
    (10000000, 1500000000, 250000, 0)
    >>> nanoseconds(7)
    7
    """
    if isinstance(text, Integral) and not isinstance(text, bool):
        if abs(text) >= 2**63:
            raise UsageError(f"{text} ns is too long", "less than 292 years", "as in 10ms")
        return int(text)
    if text == "0":
        return 0
    match = None
    if isinstance(text, str):
        match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*([a-zµ]*)\s*", text)
    if match is None or match[2] not in _FACTORS:
        raise UsageError(
            f"{text!r} is not a duration", "a number and ns, us, ms, s, m or h", "as in 10ms"
        )
    ns = round(Decimal(match[1]) * _FACTORS[match[2]])
    if ns >= 2**63:
        raise UsageError(f"{text!r} is too long", "less than 292 years", "as in 10ms")
    return ns


def offset(when: str | float) -> int:
    """Nanoseconds from the start of a recording: a bare number is seconds, as tables print times.

    In the shell and in Python alike; a text may have another unit.

    >>> offset(1.5), offset("1.5"), offset("1.5s"), offset("250us"), offset(2)
    (1500000000, 1500000000, 1500000000, 250000, 2000000000)
    """
    if isinstance(when, str):
        bare = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*", when)
        return nanoseconds(f"{bare[1]}s" if bare else when)
    if isinstance(when, bool) or not isinstance(when, Real) or not abs(when) < 2**63 / 1e9:
        raise UsageError(f"{when!r} is not a time", "seconds from the start of the recording")
    return round(when * 1_000_000_000)
