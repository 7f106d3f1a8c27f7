"""Sums by code: the same as of all rows at once, whatever codes there are and in which order."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import polars as pl
import pytest
from hypothesis import given, strategies as st

from schedscope.analysis.sums import group_sums as module
from schedscope.analysis.sums.quantiles import nearest_rank

ROW = st.tuples(
    st.one_of(st.integers(0, 5), st.integers(0, 2**60)),
    st.one_of(st.integers(0, 50), st.integers(0, 2**58)),
    st.sampled_from(["whole", "n_censored", "n_excluded"]),
)


@given(st.lists(ROW, max_size=50), st.sampled_from([1 << 20, 3]))
def test_sums_equal_those_of_polars(rows: list[tuple[int, int, str]], table: int) -> None:
    code, time, mark = (list(column) for column in zip(*rows, strict=True)) if rows else ([],) * 3

    def batches() -> Iterator[module.Times]:
        for i in range(0, max(len(rows), 1), 7):
            marks = np.array(mark[i : i + 7], dtype=object)
            yield module.Times(
                np.array(code[i : i + 7], dtype=np.int64),
                np.array(time[i : i + 7], dtype=np.int64),
                marks == "whole",
                {name: marks == name for name in ("n_censored", "n_excluded")},
            )

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_TABLE", table)
        codes, sums = module.sums_by_code(batches, [Fraction(1, 2)])
    frame = pl.DataFrame(
        {"code": code, "time": time, "mark": mark},
        {"code": pl.Int64, "time": pl.Int64, "mark": pl.String},
    )
    whole = pl.col("time").filter(pl.col("mark") == "whole")
    expected = frame.group_by("code").agg(
        whole.len().alias("n"),
        whole.sum().alias("total"),
        p50=nearest_rank(whole, 0.5),
        max=whole.max(),
        n_censored=(pl.col("mark") == "n_censored").sum(),
        n_excluded=(pl.col("mark") == "n_excluded").sum(),
    )
    found = sums.with_columns(code=pl.Series(codes, dtype=pl.Int64)).select(expected.columns)
    assert found.sort("code").equals(expected.sort("code"))
    assert sums.filter(n=0)["mean"].null_count() == sums.filter(n=0).height
    some = sums.filter(pl.col("n") > 0)
    assert some["mean"].to_list() == (some["total"] / some["n"]).to_list()
