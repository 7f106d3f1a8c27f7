"""What value does each measure have in a setting: in each run, or each resample of the one run?"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from schedscope.analysis.comparison.run_digest import Digest
from schedscope.analysis.comparison.significance import (
    Test,
    between_blocks,
    between_runs,
    resampled_quantiles,
)
from schedscope.analysis.sums.quantiles import rank, shares_of

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

# A quantile with fewer waits beyond it is one of a handful of extremes, whose
# bootstrap distribution is known to be wrong.
_BEYOND = 5

_WAITS = ("wait_mean", "wait_p50", "wait_p95", "wait_p99", "wait_p95_min", "wait_max_min")
_QUANTILES = {"wait_p50": 0.5, "wait_p95": 0.95, "wait_p99": 0.99, "wait_p95_min": 0.95}


@dataclass(frozen=True)
class Measure:
    """One figure of a run: its unit, and whether less of it is better (None: neither)."""

    unit: str
    less_is_better: bool | None
    of_threads: bool = True


MEASURES = {
    "wait_mean": Measure("ns", True),
    "wait_p50": Measure("ns", True),
    "wait_p95": Measure("ns", True),
    "wait_p99": Measure("ns", True),
    "wait_p95_min": Measure("ns", True),
    "wait_max_min": Measure("ns", True),
    "waiting": Measure("threads", None),
    "running": Measure("CPUs", None),
    "switches_hz": Measure("1/s", None),
    "migrations_hz": Measure("1/s", None),
    "utilisation_frac": Measure("", None, of_threads=False),
}
"""What is compared, in this order; docs/definitions/compare.md defines each."""


class Side:
    """One setting's runs of one group: the value of any measure, in each run or resample."""

    def __init__(
        self, runs: list[Digest], threads: Floats, group: int, drawn: Floats | None
    ) -> None:
        """Hold the runs; `drawn`, of one run only, has how often each resample takes each block."""
        self.runs, self.group, self.drawn = runs, group, drawn
        self.threads = float(threads[:, group].mean())
        self.n = sum(len(run.waits[group][0]) for run in runs)
        self.n_censored = sum(int(run.n_censored[group]) for run in runs)
        self.n_excluded = sum(int(run.n_excluded[group]) for run in runs)
        self._resampled: dict[str, Floats] | None = None

    def values(self, measure: str) -> Floats:
        """The measure of each run that has it."""
        found = np.array([_value(run, self.group, measure) for run in self.runs])
        known: Floats = found[~np.isnan(found)]
        return known

    def bounds(self, measure: str) -> tuple[float, float] | None:
        """Between which values the mean of the runs is; None where no run has the measure."""
        each = [_bounds(run, self.group, measure) for run in self.runs]
        known = np.array([pair for pair in each if not np.isnan(pair).any()])
        if not len(known):
            return None
        low, high = known.mean(axis=0)
        return float(low), float(high)

    @property
    def coverage(self) -> float:
        """The measured part of the time that the group may have waited."""
        possible = sum(
            float(run.waiting[self.group].sum() + run.unknown[self.group]) for run in self.runs
        )
        measured = sum(float(run.measured[self.group]) for run in self.runs)
        return min(1.0, measured / possible) if possible else 1.0

    def resampled(self, measure: str) -> Floats:
        """The measure of each resample of the one run; NaN where it has none."""
        assert self.drawn is not None
        if measure in _RATES:
            above, below = (part @ self._weights for part in _rate(self._run, self.group, measure))
            return _ratio(above, below)
        if self._resampled is None:
            self._resampled = self._resample_waits()
        return self._resampled[measure]

    @property
    def _run(self) -> Digest:
        (run,) = self.runs
        return run

    @property
    def _weights(self) -> Floats:
        assert self.drawn is not None
        return self.drawn.T

    def _resample_waits(self) -> dict[str, Floats]:
        assert self.drawn is not None
        wait, block = self._run.waits[self.group]
        blocks = self.drawn.shape[1]
        total = np.bincount(block, weights=wait.astype(np.float64), minlength=blocks)
        count = np.bincount(block, minlength=blocks)
        mean = _ratio(total @ self._weights, count @ self._weights)
        names = ["wait_p50", "wait_p95", "wait_p99"]
        if len(wait):
            found, least = resampled_quantiles(
                wait, block, self.drawn, [_QUANTILES[name] for name in names]
            )
        else:
            found = np.full((len(self.drawn), len(names)), np.nan)
            least = found[:, 0]
        columns = dict(zip(names, found.T, strict=True))
        return {"wait_mean": mean, **columns, "wait_p95_min": columns["wait_p95"] - least}


_RATES: dict[str, Callable[[Digest], Any]] = {
    "waiting": lambda run: run.waiting,
    "running": lambda run: run.running,
    "switches_hz": lambda run: run.switches * 1e9,
    "migrations_hz": lambda run: run.migrations * 1e9,
    "utilisation_frac": lambda run: run.running,
}


def _rate(run: Digest, group: int, measure: str) -> tuple[Floats, Floats]:
    """Numerator and denominator of a rate in each block."""
    below = run.known if measure == "utilisation_frac" else run.lengths
    above: Floats = _RATES[measure](run)[group].astype(np.float64)
    return above, below.astype(np.float64)


def _ratio(above: Floats, below: Floats) -> Floats:
    result: Floats = np.divide(above, below, out=np.full(len(above), np.nan), where=below > 0)
    return result


def _value(run: Digest, group: int, measure: str) -> float:
    if measure in _RATES:
        above, below = _rate(run, group, measure)
        return float(above.sum() / below.sum()) if below.sum() else math.nan
    wait, _ = run.waits[group]
    if not len(wait):
        return math.nan
    if measure == "wait_mean":
        return float(wait.mean())
    if measure == "wait_max_min":
        return float(wait[-1] - wait[0])
    q = _QUANTILES[measure]
    (share,) = shares_of([q])
    low = wait[0] if measure == "wait_p95_min" else 0
    return float(wait[rank(len(wait), share)] - low)


def _bounds(run: Digest, group: int, measure: str) -> tuple[float, float]:
    """Lower and upper bounds of the measure of a run."""
    value = _value(run, group, measure)
    if measure in _RATES:
        # Anything unrecorded may have been of this kind.
        doubt = run.unknown[group] if measure in ("waiting", "running") else 0.0
        length = float(run.lengths.sum())
        return value, value + (float(doubt) / length if length else 0.0)
    read = run.bounds[group]
    low, high = read.low, read.high
    if not len(read.low_once):
        return math.nan, math.nan
    if measure == "wait_mean":
        # All possible waiting time, over the smallest possible number of waits.
        total = max(float(read.high_once.sum()), float(read.low_once.sum() + run.unknown[group]))
        return float(low.mean()), total / len(read.low_once)
    if measure == "wait_max_min":
        return float(max(low[-1] - high[0], 0)), float(high[-1] - low[0])
    (share,) = shares_of([_QUANTILES[measure]])
    at, once = rank(len(low), share), rank(len(read.low_once), share)
    least, most = min(low[at], read.low_once[once]), max(high[at], read.high_once[once])
    if measure == "wait_p95_min":
        return float(max(least - high[0], 0)), float(most - low[0])
    return float(least), float(most)


def tested(measure: str, a: Side, b: Side) -> Test | None:
    """The test of one measure; None where none is possible."""
    if a.drawn is None:
        return between_runs(a.values(measure), b.values(measure))
    if measure == "wait_max_min":
        return None  # one extreme: resampling can only shorten it
    if measure in _WAITS:
        beyond = 1 - _QUANTILES.get(measure, 0.5)
        if min(a.n, b.n) * beyond < _BEYOND:
            return None
    samples = [side.resampled(measure) for side in (a, b)]
    first, second = (sample[~np.isnan(sample)] for sample in samples)
    values = [side.values(measure) for side in (a, b)]
    if min(len(first), len(second)) < 2 or not all(len(value) for value in values):
        return None
    blocks = a.drawn.shape[1]
    return between_blocks(float(values[0][0]), float(values[1][0]), first, second, blocks)
