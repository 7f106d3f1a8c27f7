"""The measures by which hosts and groups are compared, and which traces are comparable."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

Floats = npt.NDArray[np.float64]

MEASURES = {"p99": 1_000.0, "mean": 1_000.0, "waiting_frac": 0.0001}
"""Columns of the table, and the value below which all are alike: 1 us, and 0.01 % of the CPUs'
time. They are compared as ratios, so by their logarithms."""

LEAST_WAITS = 100
"""With fewer, p99 is the longest wait alone."""


LEAST_COVERAGE = 0.95
"""With less of its waiting time measured, a trace shows less than there was: a host that loses
events would look like one that waits little."""


@dataclass(frozen=True)
class Host:
    """The traces of one host, a row each, a column for each of `MEASURES`: natural logarithms."""

    name: str
    values: Floats
    highs: Floats | None = None
    """Their upper bounds, where events are missing."""

    @property
    def slack(self) -> Floats:
        """How much larger its mean may be; infinite where nothing bounds it."""
        found: Floats = np.zeros(self.values.shape[1])
        return found if self.highs is None else self.highs.mean(axis=0) - self.mean

    @property
    def mean(self) -> Floats:
        """Means over its traces of logarithms, so the logarithm of their geometric mean."""
        found: Floats = self.values.mean(axis=0)
        return found


def comparable(table: pl.DataFrame) -> pl.DataFrame:
    """The traces that are compared: read, of a known host, with waits enough, and sums that add up.

    What is left out, and why, `left_out` says.
    """
    return table.filter(
        pl.col("error").is_null(),
        pl.col("host").is_not_null(),
        pl.col("level") != "violated",
        pl.col("n") >= LEAST_WAITS,
        _is_covered(table),
    )


def _is_covered(table: pl.DataFrame) -> pl.Expr:
    if "coverage" not in table.columns:
        return pl.lit(True)
    return pl.col("coverage").fill_null(1.0) >= LEAST_COVERAGE


def left_out(table: pl.DataFrame) -> dict[str, int]:
    """How many of the traces that could be read are not compared, by reason; each counts once."""
    read = table.filter(pl.col("error").is_null())
    reason = (
        pl.when(pl.col("host").is_null())
        .then(pl.lit("do not name their host"))
        .when(pl.col("level") == "violated")
        .then(pl.lit("contradict themselves"))
        .when(pl.col("n") < LEAST_WAITS)
        .then(pl.lit(f"have fewer than {LEAST_WAITS} waits"))
        .when(~_is_covered(table))
        .then(pl.lit(f"have less than {LEAST_COVERAGE:.0%} of their waiting time measured"))
    )
    counts = read.select(reason=reason).drop_nulls().group_by("reason").len().sort("reason")
    return dict(counts.iter_rows())


def hosts_of(traces: pl.DataFrame) -> list[Host]:
    """The hosts of comparable traces, by name."""
    return [
        Host(str(name), _logarithms(mine), _logarithms(_upper(mine)))
        for (name,), mine in sorted(traces.group_by("host"), key=lambda pair: str(pair[0][0]))
    ]


def _logarithms(traces: pl.DataFrame) -> Floats:
    return np.column_stack(
        [
            np.log(np.maximum(traces[measure].cast(pl.Float64).to_numpy(), floor))
            for measure, floor in MEASURES.items()
        ]
    )


def _upper(traces: pl.DataFrame) -> pl.DataFrame:
    """The measures at their upper bounds: of the mean, of the time within the window."""
    if "total_high" not in traces.columns:
        return traces
    more = pl.when(pl.col("total") > 0).then(pl.col("total_high") / pl.col("total")).otherwise(1.0)
    return traces.with_columns(
        pl.col("mean", "waiting_frac") * more,
        p99=pl.col("p99_high").cast(pl.Float64).fill_null(float("inf")),
    )
