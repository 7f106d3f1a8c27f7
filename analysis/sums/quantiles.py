"""Exact quantiles by nearest rank, the one definition of all answers.

The quantile `q` of n values is the smallest of them that at least `q * n` of them do not exceed:
the value of rank `ceil(q * n)`, counted from 1 in ascending order. It is always a value that
occurred. Ranks are computed in integers: 0.07 * 100 is 7.000000000000001 in floating point.
(Hyndman and Fan, The American Statistician 50, 1996: their definition 1.)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from numbers import Real
from typing import TYPE_CHECKING, TypeVar

import polars as pl

from schedscope.errors import UsageError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    # A number, or an array or expression of them: all have //.
    Count = TypeVar("Count", int, npt.NDArray[np.int64], pl.Series, pl.Expr)


def shares_of(quantiles: Sequence[float]) -> list[Fraction]:
    """The quantiles as exact fractions, as they were written, each once.

    Raises `UsageError` for one outside (0, 1].

    >>> shares_of([0.5, 0.999])
    [Fraction(1, 2), Fraction(999, 1000)]
    """
    if isinstance(quantiles, str | int | float) or not isinstance(quantiles, Iterable):
        raise UsageError(f"quantiles={quantiles!r}", "a list of numbers", "as in [0.5, 0.99]")
    shares = []
    for q in quantiles:
        share = _share(q)
        if share is None:
            raise UsageError(f"quantile {q!r}", "a number above 0, at most 1", "as in 0.99")
        shares.append(share)
    return list(dict.fromkeys(shares))


def _share(q: object) -> Fraction | None:
    """The fraction that a number above 0 and at most 1 stands for; there are a billion of them."""
    if isinstance(q, bool) or not isinstance(q, Real) or not 0 < float(q) <= 1:
        return None
    return Fraction(str(q)).limit_denominator(10**9) or None


def column_name(share: Fraction) -> str:
    """The column of a quantile.

    >>> column_name(Fraction(1, 2)), column_name(Fraction(999, 1000))
    ('p50', 'p99.9')
    """
    return f"p{100 * share.numerator / share.denominator:.12g}"


def rank(n: Count, share: Fraction) -> Count:
    """The rank, from 0, of the quantile among `n` values; -1 of none.

    >>> rank(100, Fraction(99, 100)), rank(3, Fraction(1, 2)), rank(0, Fraction(1, 2))
    (98, 1, -1)
    """
    return (n * share.numerator - 1) // share.denominator


def at_share(ordered: npt.NDArray[np.float64], share: float) -> float:
    """The quantile of an array in ascending order, as of resamples; raises if it is empty.

    >>> import numpy as np
    >>> at_share(np.array([0.1, 0.2, 0.4]), 0.5)
    0.2
    """
    (exact,) = shares_of([share])
    return float(ordered[rank(len(ordered), exact)])


def nearest_rank(values: pl.Expr, q: float) -> pl.Expr:
    """The quantile of a column, in any context; null without values.

    >>> frame = pl.DataFrame({"wait": [30, 10, None, 20]})
    >>> frame.select(nearest_rank(pl.col("wait"), 0.5)).item()
    20
    """
    (share,) = shares_of([q])
    ordered = values.drop_nulls().sort()
    at = rank(ordered.len().cast(pl.Int64), share)
    return ordered.slice(at.clip(lower_bound=0), 1).first()


def quantile(values: Sequence[int] | pl.Series | npt.NDArray[np.int64], q: float) -> int | None:
    """The quantile of some whole numbers in any order; None of none.

    >>> quantile([30, 10, 20], 0.5), quantile([], 0.5)
    (20, None)
    """
    series = pl.Series("values", values, dtype=pl.Int64)
    found = series.to_frame().select(nearest_rank(pl.col("values"), q)).item()
    return None if found is None else int(found)
