"""The rows of `whatif` as a table: the ranges in brackets behind the figures of the change."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from schedscope import units
from schedscope.present.columns import Column, choose

_NAMES = (
    *("configuration", "threads", "cpu_time", "n_waits", "waiting", "wait_mean", "wait_p99"),
    *("completion?", "replay_error", "verdict"),
)
_NARROW = "threads n_waits completion wait_mean"


def whatif_table(rows: pl.DataFrame) -> tuple[pl.DataFrame, Sequence[Column]]:
    """What is shown of these rows, and its columns; each service is named once."""
    by = rows.columns[0]
    shown = rows.with_columns(
        pl.when(pl.col("configuration") == "recorded")
        .then(pl.col(by))
        .otherwise(pl.lit(""))
        .alias(by),
        configuration=pl.col("configuration").cast(pl.String),
        verdict=pl.col("verdict").cast(pl.String).fill_null(""),
        **{
            name: pl.Series(_ranges(rows, name), dtype=pl.String)
            for name in ("cpu_time", "waiting", "wait_p99")
        },
    )
    return shown, choose(shown, [by, *_NAMES], question="whatif", narrow=_NARROW)


def _ranges(rows: pl.DataFrame, name: str) -> list[str]:
    """A figure, and behind it the extremes of recordings, or the range of the change."""
    found = []
    for row in rows.iter_rows(named=True):
        low, high = row[f"{name}_low"], row[f"{name}_high"]
        text = units.duration(row[name])
        if low is not None and row["configuration"] != "replayed":
            text += f" [{units.duration(low)}, {units.duration(high)}]"
        found.append(text)
    return found
