"""How uncertain is a survival curve, whose waits are alike when they are close in time?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from schedscope.analysis._base.grouping import Grouping

    Ints = npt.NDArray[np.int64]
    Floats = npt.NDArray[np.float64]

BLOCKS = 32
"""Blocks of time that the window is cut into, as many as `compare` takes."""

_POINTS = 1024
"""Lengths of a curve at which the variance is computed; of more it is interpolated."""
_LEAST_POINTS = 64
_ALL_POINTS = 1 << 20
"""Of all curves together, so that thousands of them fit into memory."""


@dataclass(frozen=True)
class Steps:
    """A curve: each length of a wait, ascending, and how many were at risk and ended there."""

    wait: Ints
    at_risk: Ints
    ended: Ints

    def hazards(self) -> tuple[Floats, Floats]:
        """1 over those left after each length (0 where none is), and Greenwood's sum up to it."""
        left = (self.at_risk - self.ended).astype(np.float64)
        one = np.divide(1.0, left, out=np.zeros(len(left)), where=left > 0)
        greenwood: Floats = np.cumsum(self.ended / np.maximum(self.at_risk, 1) * one)
        return one, greenwood


def block_variances(
    grouping: Grouping, curves: Sequence[Steps], window: tuple[int, int]
) -> list[Floats]:
    """The variance of each curve's log(survival) at each of its lengths, by blocks of time.

    What a wait adds to the error of the curve is, up to t, `ended / left(x) - G(min(x, t))`, with
    its length x and Greenwood's sum G. Sums over the waits that began in a block are taken as
    independent between blocks, while the waits of one block may be as alike as they like.
    """
    most = min(_POINTS, max(_LEAST_POINTS, _ALL_POINTS // max(len(curves), 1)))
    sums = [_Sums(curve, most) for curve in curves]
    begin, length = window[0], max(window[1] - window[0], 1)
    for batch in grouping.batches():
        group, wait = batch.group.to_numpy(), batch.wait.to_numpy()
        ended = ~batch.censored.to_numpy()
        # In floats: a time by a number of blocks may exceed 64 bits.
        share = (batch.ts.to_numpy() - begin) / length
        block = np.clip((share * BLOCKS).astype(np.int64), 0, BLOCKS - 1)
        order = np.argsort(group, kind="stable")
        ends = np.flatnonzero(np.diff(group[order])) + 1
        for part in np.split(order, ends) if len(order) else ():
            sums[group[part[0]]].add(wait[part], ended[part], block[part])
    return [one.variance() for one in sums]


class _Sums:
    """What the waits of each block add to one curve's error, at some of its lengths."""

    def __init__(self, curve: Steps, most: int) -> None:
        self._curve = curve
        self._one, self._greenwood = curve.hazards()
        rows = len(curve.wait)
        # Evenly over the lengths, and again towards the longest, where few waits are left.
        even = np.linspace(0, rows - 1, min(rows, most // 2)).astype(np.int64)
        tail = rows - np.geomspace(1, max(rows, 1), most // 2).astype(np.int64)
        all_rows = np.arange(rows)
        self._points = all_rows if rows <= most else np.union1d(even, tail)
        shape = (BLOCKS, len(self._points))
        self._errors, self._waits = np.zeros(shape), np.zeros(shape)

    def add(self, wait: Ints, ended: npt.NDArray[np.bool_], block: Ints) -> None:
        """Count these waits."""
        # A wait cut within the last step of lengths is longer than all that ended in it.
        at = np.minimum(np.searchsorted(self._curve.wait, wait), len(self._curve.wait) - 1)
        cell = block * len(self._points) + np.searchsorted(self._points, at)
        error = ended * self._one[at] - self._greenwood[at]
        for table, weights in ((self._errors, error), (self._waits, None)):
            table += np.bincount(cell, weights, table.size).reshape(table.shape)

    def variance(self) -> Floats:
        """At each length: exact at the points, and between them by its ratio to Greenwood's."""
        if not len(self._points):
            return np.zeros(0)
        passed = np.cumsum(self._waits, axis=1)
        greenwood = self._greenwood[self._points]
        errors = np.cumsum(self._errors, axis=1) - (passed[:, -1:] - passed) * greenwood
        found = BLOCKS / (BLOCKS - 1) * (errors**2).sum(axis=0)
        ratio = np.divide(found, greenwood, out=np.zeros(len(found)), where=greenwood > 0)
        variance: Floats = self._greenwood * np.interp(
            np.arange(len(self._curve.wait)), self._points, ratio
        )
        return variance


def student(z: float, df: int) -> float:
    """Student's t quantile for a normal one, by the expansion of Fisher and Cornish.

    >>> round(student(1.959964, 31), 3), round(student(2.575829, 31), 3)
    (2.04, 2.744)
    """
    return z + (z**3 + z) / (4 * df) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * df**2)
