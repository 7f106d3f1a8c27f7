"""Sums and quantiles of groups: those of Polars and of sorting, however the rows are divided."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import polars as pl
import pytest
from hypothesis import given, strategies as st
from ledgers import ledger

import schedscope as ss
from schedscope.analysis.asking import batches
from schedscope.analysis.sums.grouped import grouped, sums_by_code
from schedscope.analysis.sums.quantiles import nearest_rank

CODE = st.one_of(st.integers(0, 5), st.integers(-3, 2**60))
TIME = st.one_of(st.none(), st.integers(0, 50), st.integers(0, 2**56))
SCHEMA = {
    "group": pl.Int64,
    "time": pl.Int64,
    "other": pl.Int64,
    "n_censored": pl.Boolean,
    "n_excluded": pl.Boolean,
}


class Batches:
    """Some rows, seven at a time; `asked` says how often they were read."""

    def __init__(self, rows: pl.DataFrame) -> None:
        self.rows, self.asked = rows, 0

    def __call__(self) -> Iterator[pl.DataFrame]:
        self.asked += 1
        for i in range(0, max(self.rows.height, 1), 7):
            yield self.rows[i : i + 7]


@given(st.lists(st.tuples(CODE, TIME, TIME, st.booleans(), st.booleans()), max_size=50))
def test_sums_and_quantiles_equal_those_of_polars(rows: list[tuple[object, ...]]) -> None:
    frame = pl.DataFrame(rows, SCHEMA, orient="row")
    read = Batches(frame)
    found = sums_by_code(read, [Fraction(1, 2), Fraction(1, 3)], ["n_censored", "n_excluded"])
    assert read.asked == 1
    time = pl.col("time").drop_nulls()
    expected = frame.group_by("group", maintain_order=True).agg(
        time.len().alias("n"),
        time.sum().alias("total"),
        mean=time.sum() / time.len(),
        p50=nearest_rank(time, 0.5),
        max=time.max(),
        n_censored=pl.col("n_censored").sum(),
        n_excluded=pl.col("n_excluded").sum(),
    )
    expected = expected.with_columns(mean=pl.when(pl.col("n") > 0).then("mean"))
    assert found.select(expected.columns).equals(expected)
    for group, third in found.select("group", pl.col("^p33.*$")).iter_rows():
        mine = sorted(frame.filter(pl.col("group") == group)["time"].drop_nulls())
        assert third == (mine[-(-len(mine) // 3) - 1] if mine else None)


@given(st.lists(st.tuples(CODE, TIME, TIME, st.booleans(), st.booleans()), max_size=50))
def test_columns_of_a_group_do_not_mix(rows: list[tuple[object, ...]]) -> None:
    """Each has its own values; `first` is about the greatest of the first that is ranked."""
    frame = pl.DataFrame(rows, SCHEMA, orient="row").with_columns(ts=pl.col("other"))
    found = grouped(
        Batches(frame), [Fraction(1)], ranked=["time", "other"], summed=["ts"], first="other"
    )
    greatest = frame.filter(pl.col("time") == pl.col("time").max().over("group"))
    least = greatest.group_by("group").agg(pl.col("other").min())
    expected = (
        frame.group_by("group", maintain_order=True)
        .agg(
            time_n=pl.col("time").count().cast(pl.Int64),
            other_n=pl.col("other").count().cast(pl.Int64),
            time_max=pl.col("time").max(),
            other_total=pl.col("other").sum(),
            ts_total=pl.col("ts").sum(),
            ts_max=pl.col("ts").max(),
        )
        .join(least, on="group", how="left", maintain_order="left")
    )
    assert found.select(expected.columns).equals(expected)
    assert found["time_p100"].equals(found["time_max"], null_equal=True)
    assert found["other_p100"].equals(found["other_max"], null_equal=True)


def test_no_quantiles_give_no_columns_of_them() -> None:
    rows = pl.DataFrame({"group": [0, 1], "wait": [5, 6]})
    found = grouped(lambda: [rows], [], ranked=["wait"])
    assert found.columns == ["group", "wait_n", "wait_total", "wait_max"]


def test_batches_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    """A ledger read in batches of 3 rows gives what it gives in one."""
    rng = np.random.default_rng(3)
    lines = [
        f"{'abc'[rng.integers(3)]} {('wake', 'preempt')[rng.integers(2)]} "
        f"{'?' if rng.random() < 0.1 else i} -> "
        f"{'open' if rng.random() < 0.1 else i + rng.integers(1, 300)} cpu{rng.integers(2)}"
        for i in range(100)
    ]
    trace = ledger("\n".join(lines))
    questions: list[dict[str, object]] = [
        {},
        {"by": "comm"},
        {"by": ["cpu", "cause"]},
        {"every": 10},
        {"by": "tid", "every": 25},
        {"by": "comm", "censored": "kaplan-meier"},
    ]
    for question in questions:
        whole = ss.latency(trace, **question)  # type: ignore[arg-type]
        monkeypatch.setattr(batches, "BATCH", 3)
        assert ss.latency(trace, **question).equals(whole)  # type: ignore[arg-type]
        monkeypatch.undo()
