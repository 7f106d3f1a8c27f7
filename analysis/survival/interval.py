"""How uncertain is a survival curve, given that waits close in time are alike?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from schedscope.analysis.waits.grouping import Grouping

    Ints = npt.NDArray[np.int64]
    Floats = npt.NDArray[np.float64]
    Counts = npt.NDArray[np.uint32]

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
        """1 over the number still at risk after each length (0 where none), and Greenwood's sum up
        to it.
        """
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
    points = [_points(len(curve.wait), most) for curve in curves]
    steps = [curve.at(rows) for curve, rows in zip(curves, points, strict=True)]
    ends = np.cumsum([len(rows) for rows in points], dtype=np.int64)
    starts = np.concatenate([[0], ends])[:-1]
    shape = (BLOCKS, int(ends[-1]) if len(ends) else 0)
    begun, ended = np.zeros(shape, np.uint32), np.zeros(shape, np.uint32)
    begin, length = window[0], max(window[1] - window[0], 1)
    for batch in grouping.batches():
        # In floats: a time by a number of blocks may exceed 64 bits.
        share = (batch.ts.to_numpy() - begin) / length
        block = np.clip((share * BLOCKS).astype(np.int64), 0, BLOCKS - 1)
        step = _steps_of(batch.group.to_numpy(), batch.wait.to_numpy(), steps, starts)
        cell = block * shape[1] + step
        for table, cells in ((begun, cell), (ended, cell[~batch.censored.to_numpy()])):
            _count(table.reshape(-1), cells)
    return [
        _variance(curve, rows, some, begun[:, first:end], ended[:, first:end])
        for curve, rows, some, first, end in zip(curves, points, steps, starts, ends, strict=True)
    ]


def _count(table: Counts, cells: Ints) -> None:
    """Add one to each of these cells of the table."""
    if len(table) <= 2 * len(cells):
        table += np.bincount(cells, minlength=len(table)).astype(np.uint32)
    else:  # not all of a large table for a few
        np.add.at(table, cells, 1)


def _points(rows: int, most: int) -> Ints:
    """Rows of a curve: all, or evenly many and again towards the longest, where few are left."""
    if rows <= most:
        return np.arange(rows)
    even = np.linspace(0, rows - 1, most // 2).astype(np.int64)
    return np.union1d(even, rows - np.geomspace(1, rows, most // 2).astype(np.int64))


def _steps_of(group: Ints, wait: Ints, steps: Sequence[Steps], starts: Ints) -> Ints:
    """The number of each wait's step, counted over all curves."""
    found = np.empty(len(group), np.int64)
    if len(steps) == 1 and len(group):
        return np.minimum(np.searchsorted(steps[0].wait, wait), len(steps[0].wait) - 1)
    order = np.argsort(group.astype(np.uint16) if len(steps) <= 1 << 16 else group, kind="stable")
    parts = np.split(order, np.flatnonzero(np.diff(group[order])) + 1) if len(order) else ()
    for part in parts:
        number = group[part][0]
        known = steps[number].wait
        # A wait cut within the last step of lengths is longer than all that ended in it.
        at = np.minimum(np.searchsorted(known, wait[part]), len(known) - 1)
        found[part] = starts[number] + at
    return found


def _variance(curve: Steps, points: Ints, steps: Steps, begun: Counts, ended: Counts) -> Floats:
    """At each length: that of the points, and between them by its ratio to Greenwood's."""
    if not len(points):
        return np.zeros(0)
    one, greenwood = steps.hazards()
    passed = np.cumsum(begun, axis=1, dtype=np.int64)
    errors = np.cumsum(ended * one - begun * greenwood, axis=1)
    errors -= (passed[:, -1:] - passed) * greenwood
    found: Floats = BLOCKS / (BLOCKS - 1) * (errors**2).sum(axis=0)
    if len(points) == len(curve.wait):
        return found
    ratio = np.divide(found, greenwood, out=np.zeros(len(found)), where=greenwood > 0)
    _, whole = curve.hazards()
    variance: Floats = whole * np.interp(np.arange(len(whole)), points, ratio)
    return variance


def student(z: float, df: int) -> float:
    """Student's t quantile for a normal one, by the expansion of Fisher and Cornish.

    >>> round(student(1.959964, 31), 3), round(student(2.575829, 31), 3)
    (2.039, 2.744)
    """
    return z + (z**3 + z) / (4 * df) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * df**2)
