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
_LEAST_POINTS = 32
_ALL_POINTS = 1 << 18
"""Of all curves together, 256 bytes each, so that thousands of curves fit into memory."""


@dataclass(frozen=True)
class Steps:
    """A curve: each length of a wait, ascending, and how many were at risk and ended there."""

    wait: Ints
    at_risk: Ints
    ended: Ints

    def at(self, rows: Ints) -> Steps:
        """With one step up to each of these rows, the last of which is the curve's last.

        Its share and Greenwood's sum are this curve's there, if no wait was cut within a step.
        """
        first = np.concatenate([[0], rows[:-1] + 1])
        ended = np.add.reduceat(self.ended, first) if len(rows) else self.ended
        return Steps(self.wait[rows], self.at_risk[first[: len(rows)]], ended)

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
        if len(curves) == 1:
            sums[0].add(wait, ended, block)
            continue
        # Small numbers are sorted in two passes, without comparisons.
        small = group.astype(np.uint16) if len(curves) <= 1 << 16 else group
        order = np.argsort(small, kind="stable")
        ends = np.flatnonzero(np.diff(group[order])) + 1
        for part in np.split(order, ends) if len(order) else ():
            sums[group[part[0]]].add(wait[part], ended[part], block[part])
    return [one.variance() for one in sums]


class _Sums:
    """What the waits of each block add to one curve's error, at some of its lengths."""

    def __init__(self, curve: Steps, most: int) -> None:
        rows = len(curve.wait)
        # Evenly over the lengths, and again towards the longest, where few waits are left.
        even = np.linspace(0, rows - 1, min(rows, most // 2)).astype(np.int64)
        tail = rows - np.geomspace(1, max(rows, 1), most // 2).astype(np.int64)
        self._points = np.arange(rows) if rows <= most else np.union1d(even, tail)
        self._curve = curve
        steps = curve.at(self._points)
        self._wait = steps.wait
        self._one, self._greenwood = steps.hazards()
        shape = (BLOCKS, len(self._points))
        self._ended, self._waits = np.zeros(shape, np.uint32), np.zeros(shape, np.uint32)

    def add(self, wait: Ints, ended: npt.NDArray[np.bool_], block: Ints) -> None:
        """Count these waits."""
        # A wait cut within the last step of lengths is longer than all that ended in it.
        at = np.minimum(np.searchsorted(self._wait, wait), len(self._wait) - 1)
        cell = block * len(self._wait) + at
        for table, cells in ((self._waits, cell), (self._ended, cell[ended])):
            table += np.bincount(cells, minlength=table.size).astype(np.uint32).reshape(table.shape)

    def variance(self) -> Floats:
        """At each length: that of the points, and between them by its ratio to Greenwood's."""
        if not len(self._points):
            return np.zeros(0)
        errors = np.cumsum(self._ended * self._one - self._waits * self._greenwood, axis=1)
        passed = np.cumsum(self._waits, axis=1, dtype=np.int64)
        left = passed[:, -1:] - passed
        errors -= left * self._greenwood
        found = BLOCKS / (BLOCKS - 1) * (errors**2).sum(axis=0)
        known = self._greenwood > 0
        ratio = np.divide(found, self._greenwood, out=np.zeros(len(found)), where=known)
        _, greenwood = self._curve.hazards()
        variance: Floats = greenwood * np.interp(np.arange(len(greenwood)), self._points, ratio)
        return variance


def student(z: float, df: int) -> float:
    """Student's t quantile for a normal one, by the expansion of Fisher and Cornish.

    >>> round(student(1.959964, 31), 3), round(student(2.575829, 31), 3)
    (2.04, 2.744)
    """
    return z + (z**3 + z) / (4 * df) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * df**2)
