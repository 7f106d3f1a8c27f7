"""Sums, counts and exact quantiles of the times of groups, in the memory of some 16 million times.

Native code reads tables one after the other; it needs them a second time only for quantiles of
more times than that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction

import polars as pl

from schedscope.analysis.sums.quantiles import column_name


def grouped(
    batches: Callable[[], Iterable[pl.DataFrame]],
    shares: Sequence[Fraction],
    *,
    ranked: Sequence[str],
    summed: Sequence[str] = (),
    counted: Sequence[str] = (),
    first: str | None = None,
) -> pl.DataFrame:
    """One row per `group` (whole numbers) of some tables, in the order in which they appear.

    * of each column `ranked` its `_n`, `_total`, `_max` (null without values), and its quantiles,
      as in `wait_p50`; of each column `summed` its `_total` and `_max`. Null is no value;
    * of each column `counted` how many are true;
    * `first`: the least of that column in rows with the greatest value of the first `ranked` one.

    `batches` gives the same tables whenever it is called.

    >>> rows = pl.DataFrame({"group": [7, 7, 3], "wait": [5, 9, None], "cut": [False, False, True]})
    >>> grouped(lambda: [rows], [Fraction(1, 2)], ranked=["wait"], counted=["cut"]).rows()
    [(7, 2, 14, 9, 5, 0), (3, 0, 0, None, None, 1)]
    """
    from schedscope import _native

    times = ["group", *ranked, *summed, *([first] if first else [])]

    def typed() -> Iterator[pl.DataFrame]:
        return (rows.cast(dict.fromkeys(times, pl.Int64)) for rows in batches())

    found = _native.group_times(
        typed,
        [(share.numerator, share.denominator) for share in shares],
        ranked=list(ranked),
        summed=list(summed),
        counted=list(counted),
        first=first,
    )
    quantiles = {
        f"{name}_q{number}": f"{name}_{column_name(share)}"
        for name in ranked
        for number, share in enumerate(shares)
    }
    return pl.DataFrame(found).rename(quantiles)


def sums_by_code(
    batches: Callable[[], Iterable[pl.DataFrame]],
    shares: Sequence[Fraction],
    counted: Sequence[str],
) -> pl.DataFrame:
    """One row per `group`: `n`, `total`, `mean`, a column per share and `max` of its `time`.

    And how many rows have each of the marks `counted`.
    """
    found = grouped(batches, shares, ranked=["time"], counted=counted)
    found = found.rename({name: name.removeprefix("time_") for name in found.columns})
    n = pl.col("n")
    return found.with_columns(n.cast(pl.UInt32), mean=pl.col("total") / pl.when(n > 0).then(n))
