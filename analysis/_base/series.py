"""Columns made of NumPy's numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

if TYPE_CHECKING:
    import numpy.typing as npt

_FEW = 1 << 14


def series(numbers: npt.NDArray[Any], dtype: type[pl.DataType] | None = None) -> pl.Series:
    """A column of an array of whole numbers, of `dtype` or the array's own.

    Polars loads NumPy's masked arrays before it takes any array, which is a tenth of a short
    command's time. Few numbers are handed over as a list.

    >>> series(np.array([1, 2])).to_list()
    [1, 2]
    """
    if len(numbers) > _FEW:
        return pl.Series(numbers, dtype=dtype)
    own = {np.dtype(np.bool_): pl.Boolean, np.dtype(np.uint32): pl.UInt32}
    return pl.Series(numbers.tolist(), dtype=dtype or own.get(numbers.dtype, pl.Int64))
