"""Lengths of time in words."""

from __future__ import annotations


def length(ns: float) -> str:
    """As in "3.5 ms".

    >>> length(3_500_000), length(10_000), length(2e9)
    ('3.5 ms', '10 us', '2 s')
    """
    for unit, name in ((1e9, "s"), (1e6, "ms"), (1e3, "us")):
        if abs(ns) >= unit:
            return f"{ns / unit:.4g} {name}"
    return f"{ns:.0f} ns"
