"""Student's t distribution, of any number of degrees of freedom: tail and quantile.

The two-sided tail is the regularised incomplete beta function I_x(df/2, 1/2) at
x = df / (df + t²), computed by its continued fraction (Abramowitz and Stegun, 26.7.1 and 26.5.8).
SciPy has the same in 140 MB, and is the judge in tests.
"""

from __future__ import annotations

import math
from functools import lru_cache


def two_sided(t: float, df: float) -> float:
    """The probability of a value at least as far from 0 as `t`.

    >>> round(two_sided(2.776, 4), 4), two_sided(0, 4)
    (0.05, 1.0)
    """
    x = df / (df + t * t)
    return _incomplete_beta(x, 1 - x if t * t > df else t * t / (df + t * t), df / 2, 0.5)


@lru_cache(maxsize=1024)
def quantile(confidence: float, df: float) -> float:
    """The value within which, on both sides of 0, a `confidence` of the distribution lies.

    >>> round(quantile(0.95, 4), 3)
    2.776
    """
    beyond = 1 - confidence
    low, high = 0.0, 1.0
    while two_sided(high, df) > beyond:
        low, high = high, 2 * high
    while low < (middle := (low + high) / 2) < high:
        if two_sided(middle, df) > beyond:
            low = middle
        else:
            high = middle
    return high


def _incomplete_beta(x: float, y: float, a: float, b: float) -> float:
    """I_x(a, b) for y = 1 - x, which is given because it may be tiny."""
    if x <= 0 or y <= 0:
        return 0.0 if x <= 0 else 1.0
    scale = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    front = math.exp(scale + a * math.log(x) + b * math.log(y))
    # The fraction converges fast on this side of the mean; on the other, the rest is computed.
    if x < (a + 1) / (a + b + 2):
        return front * _fraction(x, a, b) / a
    return 1 - front * _fraction(y, b, a) / b


def _fraction(x: float, a: float, b: float) -> float:
    """The continued fraction of I_x(a, b), by Lentz's method."""
    c, d = 1.0, 1 / (1 - (a + b) * x / (a + 1))
    value = d
    for m in range(1, 10_000):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        before = value
        for term in (even, odd):
            d = 1 / (1 + term * d)
            c = 1 + term / c
            value *= c * d
        if abs(value - before) <= 1e-16 * abs(value):
            break
    return value
