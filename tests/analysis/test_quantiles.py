"""One quantile everywhere: the smallest value that at least that share of all do not exceed."""

from __future__ import annotations

import ast
import random
from fractions import Fraction

import polars as pl
import pytest
from sources import ROOT, sources

import schedscope as ss
from schedscope.analysis.sums.grouped import grouped
from schedscope.analysis.sums.quantiles import nearest_rank, quantile, rank, shares_of
from schedscope.simulator.runs.summary import summary
from schedscope.simulator.workloads.generators import web


def by_definition(values: list[int], q: str) -> int:
    """The definition, word by word."""
    share = Fraction(q)
    return min(value for value in values if sum(v <= value for v in values) >= share * len(values))


@pytest.mark.parametrize("q", ["0.01", "0.07", "0.5", "0.9", "0.95", "0.99", "0.999", "1"])
def test_each_form_follows_the_definition(q: str) -> None:
    draw = random.Random(q)
    for n in (1, 2, 3, 7, 99, 100, 101, 200):
        values = [draw.randrange(50) for _ in range(n)]
        expected = by_definition(values, q)
        assert quantile(values, float(q)) == expected
        frame = pl.DataFrame({"x": [*values, None]})
        assert frame.select(nearest_rank(pl.col("x"), float(q))).item() == expected
        (share,) = shares_of([float(q)])
        assert sorted(values)[rank(n, share)] == expected
        rows = frame.with_columns(group=0)
        assert grouped(lambda rows=rows: [rows], [share], ranked=["x"])[0, -1] == expected


def test_quantile_of_no_values_is_null() -> None:
    assert quantile([], 0.5) is None
    frame = pl.DataFrame({"x": [None]}, schema={"x": pl.Int64})
    assert frame.select(nearest_rank(pl.col("x"), 0.5)).item() is None


def test_simulate_and_latency_agree() -> None:
    trace = ss.simulate(web(3, requests=60), policy="rr", cpus=2)
    found = summary(trace)
    (row,) = ss.latency(trace, quantiles=[0.5, 0.99]).to_dicts()
    assert (found["n_waits"], found["wait_p50"], found["wait_p99"]) == (
        row["n"],
        row["p50"],
        row["p99"],
    )
    assert found["wasted"] == ss.work_conservation(trace)["wasted"].item()
    assert found["n_migrations"] == ss.migrations(trace).height


def test_quantiles_are_computed_in_one_place() -> None:
    """No call of a library's `quantile` or `percentile`: their definitions differ by a rank."""
    found = []
    for path in sources():
        for node in ast.walk(ast.parse(path.read_text())):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
                continue
            if node.func.attr in ("quantile", "percentile", "nanquantile", "nanpercentile"):
                found.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    # The scale of an axis is not an answer.
    assert [place for place in found if not place.startswith("plot/compare.py")] == []
