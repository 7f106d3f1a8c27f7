"""Figures by which published comparisons of schedulers judge whole runs.

Plain functions of elapsed times and of lists of latencies, in whatever unit
these come. Where each comes from is in docs/definitions/compare.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from schedscope.analysis._base.quantiles import rank
from schedscope.errors import UsageError


def scalability(elapsed_a: float, elapsed_b: float, *, a: float, b: float) -> float:
    """How much of the growth of load from `a` to `b` the elapsed time follows.

    `(elapsed_b / elapsed_a) / (b / a)`: 1 if the time grows as the load (threads,
    clients) does, less if the greater load is served better than in proportion.

    >>> scalability(2.0, 15.2, a=16, b=128)
    0.95
    """
    for name, value in (("elapsed_a", elapsed_a), ("elapsed_b", elapsed_b), ("a", a), ("b", b)):
        _positive(name, value)
    return (elapsed_b / elapsed_a) / (b / a)


def cost(elapsed: float, n: int) -> float:
    """Elapsed time for each of `n` equal tasks that ran together: `elapsed / n`.

    On c CPUs without overhead it is the time of one task divided by c once there are
    as many tasks as CPUs.

    >>> cost(0.220114, 2)
    0.110057
    """
    _positive("n", n)
    return elapsed / n


def improvement_frac(base: float, new: float) -> float:
    """What part of `base` is saved: `(base - new) / base`, positive if `new` is less.

    Of times, less is better; of rates turn the arguments round.

    >>> f"{improvement_frac(0.220114, 0.152029):.2%}"
    '30.93%'
    """
    _positive("base", base)
    return (base - new) / base


def max_min(latencies: Sequence[float]) -> float:
    """The longest less the shortest: how far the unluckiest request is off the luckiest.

    One extreme request decides it, and it grows with the number of requests:
    compare only runs with equally many.

    >>> max_min([3, 1, 9, 2])
    8
    """
    _some(latencies)
    return max(latencies) - min(latencies)


def p95_min(latencies: Sequence[float]) -> float:
    """The 95 % quantile (nearest rank) less the shortest: the spread of the great majority.

    >>> p95_min(range(1, 101))
    94
    """
    _some(latencies)
    ordered = sorted(latencies)
    return ordered[rank(len(ordered), Fraction(95, 100))] - ordered[0]


def _positive(name: str, value: float) -> None:
    if not (value > 0 and math.isfinite(value)):
        raise UsageError(f"{name}={value}", "a number above 0")


def _some(latencies: Sequence[float]) -> None:
    if not len(latencies):
        raise UsageError("no latencies", "one or more")
