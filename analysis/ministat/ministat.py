"""Do columns of numbers differ? The test of FreeBSD's ministat.

Each FILE has one measurement per line. The first file is the reference with which every
other one is compared, by Student's t test with pooled variance. Output and options are
those of ministat. Without a FILE, or for the name -, the numbers come from standard
input. Lines whose column begins with # are comments; lines without that column are
skipped.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Literal

import polars as pl

from schedscope.analysis.asking.command import Command
from schedscope.analysis.comparison.student_t import STUDENT_T, student_t
from schedscope.errors import UsageError

LEAST = 3
"""Numbers that a set must have."""

MOST_SETS = 7
"""Sets that ministat has symbols for."""

Relative = Literal["new", "old"]

_SCHEMA = {
    "set": pl.String,
    "n": pl.UInt32,
    "min": pl.Float64,
    "max": pl.Float64,
    "median": pl.Float64,
    "mean": pl.Float64,
    "mean_high": pl.Float64,
    "stddev": pl.Float64,
    "different": pl.Boolean,
    "difference": pl.Float64,
    "margin": pl.Float64,
    "difference_frac": pl.Float64,
    "margin_frac": pl.Float64,
    "margin_frac_old": pl.Float64,
    "pooled_stddev": pl.Float64,
    "t": pl.Float64,
    "df": pl.UInt32,
}


@dataclass(frozen=True)
class Summary:
    """What ministat needs to know of a set: how many numbers, their mean and their spread."""

    n: int
    mean: float
    stddev: float


@dataclass(frozen=True)
class Difference:
    """ministat's comparison of a set (`b`) with its reference (`a`)."""

    a: Summary
    b: Summary
    t: float

    @property
    def df(self) -> int:
        """Degrees of freedom."""
        return self.a.n + self.b.n - 2

    @property
    def pooled(self) -> float:
        """The standard deviation of both sets together."""
        squares = (self.a.n - 1) * self.a.stddev**2 + (self.b.n - 1) * self.b.stddev**2
        return math.sqrt(squares / self.df)

    @property
    def difference(self) -> float:
        """The mean of `b` less that of `a`."""
        return self.b.mean - self.a.mean

    @property
    def margin(self) -> float:
        """Half the width of the confidence interval of the difference."""
        return self.t * self.pooled * math.sqrt(1 / self.a.n + 1 / self.b.n)

    @property
    def proven(self) -> bool:
        """Is the difference larger than its margin?"""
        return abs(self.difference) > self.margin

    @property
    def difference_frac(self) -> float:
        """The difference as a part of the reference's mean."""
        return _divided(self.difference, self.a.mean)

    def margin_frac(self, relative: Relative = "new") -> float:
        """Half the width of the interval of `difference_frac`.

        `"old"` divides `margin` by the reference's mean, as if that were known
        exactly; `"new"` also counts the uncertainty of the reference, which the
        ratio of the means multiplies.
        """
        a, b = self.a, self.b
        if relative == "old":
            return _divided(self.margin, a.mean)
        ratio = _divided(b.mean, a.mean)
        squares = (b.n - 1) * b.stddev**2 + (a.n - 1) * a.stddev**2 * ratio**2
        error = self.t * math.sqrt(squares * (a.n + b.n) / (a.n * b.n * self.df))
        return _divided(error, a.mean)


def difference(reference: Summary, other: Summary, *, confidence: float = 95) -> Difference:
    """ministat's test of two sets of which only size, mean and deviation are known.

    Raises `UsageError` for a confidence that ministat has no table for, or a set of
    fewer than two numbers.

    >>> d = difference(Summary(3, 2346.2867, 1.8889503), Summary(3, 2371.9067, 1.2120369))
    >>> d.proven, f"{100 * d.difference_frac:g} % +/- {100 * d.margin_frac('old'):g} %"
    (True, '1.09194 % +/- 0.15331 %')
    """
    level = level_name(confidence)
    for summary in (reference, other):
        if summary.n < 2:
            raise UsageError(f"a set of {summary.n}", "two numbers or more", "measure again")
    return Difference(reference, other, student_t(reference.n + other.n - 2, level))


def level_name(confidence: float) -> str:
    """The name of a confidence in per cent; raises `UsageError` unless ministat knows it."""
    name = f"{confidence:g}"
    if name not in STUDENT_T:
        raise UsageError(
            f"confidence {name} %", "a level that ministat has", f"one of {', '.join(STUDENT_T)}"
        )
    return name


def summary(numbers: Sequence[float]) -> Summary:
    """Size, mean and standard deviation (n - 1) of numbers, without cancellation."""
    n = len(numbers)
    # One after the other, as ministat adds: a more exact sum differs from its printed
    # mean in one of some hundred sets, where the last digit is a tie.
    mean = 0.0
    for number in numbers:
        mean += number
    mean /= n
    squares = math.fsum((number - mean) ** 2 for number in numbers)
    return Summary(n, mean, math.sqrt(squares / (n - 1)) if n > 1 else 0.0)


def median(numbers: Sequence[float]) -> float:
    """The middle number, or the mean of the two in the middle."""
    ordered = sorted(numbers)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


Measured = float | tuple[float, float]
"""A number, or the two between which it is: a figure of an answer and its `NAME_high`."""


COMMAND = Command(
    heading="compare",
    help="do columns of numbers differ? FreeBSD's ministat",
    example="""\
  schedscope ministat before.txt after.txt
  schedscope ministat -c 99 -s -w 60 before.txt after.txt
  grep real times.log | schedscope ministat -C 2 -n
""",
    page="docs/definitions/ministat.md",
)


def ministat(data: Mapping[str, Sequence[Measured]], *, confidence: float = 95) -> pl.DataFrame:
    """One row per set of numbers: its statistics, and whether it differs from the first.

    * `set`, `n`, `min`, `max`, `median`, `mean`, `stddev` (of n - 1), in the unit of the numbers;
      a number may be given as `(low, high)`, the two between which it is: these are of the lower
      ones, and `mean_high` is of the upper ones;
    * `different`: whether the difference of the means is proven at this confidence by Student's t
      test with pooled variance; null for the first row, like all that follows, and where it depends
      on what the numbers are within their bounds;
    * `difference`, `margin`: this mean minus that of the first set, and half the width of the
      interval of the difference;
    * `difference_frac`, `margin_frac`: the same as fractions of the mean of the first set, the
      margin as ministat prints it today; `margin_frac_old`: the margin as ministat printed it
      before;
    * `pooled_stddev`, `t`, `df`: the test's figures.

    `confidence` is one of ministat's, in per cent: 80, 90, 95, 98, 99, 99.5.

    Definition: docs/definitions/ministat.md. Raises `UsageError` for no set or more than seven, a
    set of fewer than three numbers or with one that is not finite, and any other confidence.

    >>> frame = ministat({"iguana": [50, 200, 150, 400, 750, 400, 150],
    ...                   "chameleon": [150, 400, 720, 500, 930]}, confidence=80)
    >>> frame.select("set", "n", "mean", "different", "difference_frac", pl.col("margin").round(3))
    shape: (2, 6)
    ┌───────────┬─────┬───────┬───────────┬─────────────────┬─────────┐
    │ set       ┆ n   ┆ mean  ┆ different ┆ difference_frac ┆ margin  │
    │ ---       ┆ --- ┆ ---   ┆ ---       ┆ ---             ┆ ---     │
    │ str       ┆ u32 ┆ f64   ┆ bool      ┆ f64             ┆ f64     │
    ╞═══════════╪═════╪═══════╪═══════════╪═════════════════╪═════════╡
    │ iguana    ┆ 7   ┆ 300.0 ┆ null      ┆ null            ┆ null    │
    │ chameleon ┆ 5   ┆ 540.0 ┆ true      ┆ 0.8             ┆ 212.215 │
    └───────────┴─────┴───────┴───────────┴─────────────────┴─────────┘
    """
    level_name(confidence)
    check_sets(data)
    rows: list[dict[str, object]] = []
    first: tuple[Summary, Summary] | None = None
    for name, given in data.items():
        numbers, most = ([_bounds(one)[end] for one in given] for end in (0, 1))
        about, above = summary(numbers), summary(most)
        row: dict[str, object] = {
            "set": name,
            "n": about.n,
            "min": float(min(numbers)),
            "max": float(max(numbers)),
            "median": float(median(numbers)),
            "mean": about.mean,
            "mean_high": above.mean,
            "stddev": about.stddev,
        }
        if first is None:
            first = about, above
        else:
            found = difference(first[0], about, confidence=confidence)
            apart = [
                difference(*pair, confidence=confidence)
                for pair in ((first[0], about), (first[1], about), (first[0], above))
            ]
            # Proven for all values within the bounds, for none, or depending on them.
            signs = {math.copysign(1, each.difference) if each.proven else 0 for each in apart}
            row |= {
                "different": bool(signs.pop()) if len(signs) == 1 else None,
                "difference": found.difference,
                "margin": found.margin,
                "difference_frac": found.difference_frac,
                "margin_frac": found.margin_frac(),
                "margin_frac_old": found.margin_frac("old"),
                "pooled_stddev": found.pooled,
                "t": found.t,
                "df": found.df,
            }
        rows.append(row)
    return pl.DataFrame(rows, schema=_SCHEMA)


def _ends(measured: object) -> tuple[object, ...]:
    return measured if isinstance(measured, tuple) and len(measured) == 2 else (measured,)


def _bounds(measured: Measured) -> tuple[float, float]:
    return measured if isinstance(measured, tuple) else (measured, measured)


_LARGEST = 1e100
"""Its square is a number, too."""


def check_sets(data: Mapping[str, Sequence[Measured]]) -> None:
    """Raise `UsageError` for sets that ministat refuses."""
    if not isinstance(data, Mapping):
        raise UsageError(f"ministat of a {type(data).__name__}", "sets of numbers by their names")
    if not 0 < len(data) <= MOST_SETS:
        raise UsageError(f"{len(data)} sets of numbers", f"1 to {MOST_SETS}")
    for name, numbers in data.items():
        if len(numbers) < LEAST:
            raise UsageError(
                f"{name} has {len(numbers)} number{'' if len(numbers) == 1 else 's'}",
                f"{LEAST} or more",
                "fewer numbers tell nothing about the spread: measure again",
            )
        for number in (end for one in numbers for end in _ends(one)):
            if not isinstance(number, Real) or not math.isfinite(number):
                raise UsageError(f"{name} has {number!r}", "finite numbers", "leave it out")
            if abs(float(number)) > _LARGEST:
                raise UsageError(
                    f"{name} has {number}", f"numbers up to {_LARGEST:g}", "scale them"
                )


def _divided(value: float, by: float) -> float:
    """As C divides: by 0 it is infinite, or not a number."""
    if by:
        return value / by
    return math.nan if value == 0 or math.isnan(value) else math.copysign(math.inf, value)
