"""The rows of `whatif` as a table: ranges in brackets behind the figures of the change, and a
question mark behind what is doubtful."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from schedscope import units
from schedscope.present.columns import Column, choose

_NAMES = (
    *("configuration", "threads", "cpu_time", "n_waits", "waiting", "wait_p50", "wait_p99"),
    *("throughput?", "completion?", "replay_error", "verdict"),
)
_JUDGED = ("cpu_time", "n_waits", "waiting", "wait_p50", "wait_p99")
"""Figures with a verdict of their own; throughput, which few services have, is one more."""
_NARROW = "threads n_waits completion wait_p50"


def whatif_table(rows: pl.DataFrame) -> tuple[pl.DataFrame, Sequence[Column]]:
    """The rows as shown, and their columns; each service is named once."""
    by = rows.columns[0]
    shown = rows.with_columns(
        pl.when(pl.col("configuration") == "recorded")
        .then(pl.col(by))
        .otherwise(pl.lit(""))
        .alias(by),
        configuration=pl.col("configuration").cast(pl.String),
        verdict=pl.col("verdict").cast(pl.String).fill_null(""),
        **{name: pl.Series(_texts(rows, name), dtype=pl.String) for name in _JUDGED},
        throughput=_rates(rows),
    )
    return shown, choose(shown, [by, *_NAMES], question="whatif", narrow=_NARROW)


def _texts(rows: pl.DataFrame, name: str) -> list[str]:
    """A figure, behind it the extremes of recordings, or the range of the change, and a mark if it
    is doubtful; one that is refused in an answer that is not has that word in its place.
    """
    found = []
    for row in rows.iter_rows(named=True):
        low, high = _range(row, name)
        shown = units.count if name == "n_waits" else units.duration
        text = shown(row[name])
        if low is not None and row["configuration"] != "replayed":
            text += f" [{shown(low)}, {shown(high)}]"
        found.append(_marked(text, row[f"{name}_verdict"], row["verdict"]))
    return found


def _rates(rows: pl.DataFrame) -> pl.Series:
    """Rounds per second, and of the change their range; null where there are none."""
    found = []
    for row in rows.iter_rows(named=True):
        text = None if row["throughput"] is None else f"{row['throughput']:,.0f}"
        if text and row["configuration"] == "changed":
            low, high = _range(row, "throughput")
            text += f" [{low:,.0f}, {high:,.0f}]"
            text = _marked(text, row["throughput_verdict"], row["verdict"])
        found.append(text)
    return pl.Series("throughput", found, pl.String)


def _range(row: Mapping[str, Any], name: str) -> tuple[Any, Any]:
    """Of the change the range while others take as much as here; of a recording its extremes."""
    alike = "_alike" * (row["configuration"] == "changed")
    return row.get(f"{name}{alike}_low"), row.get(f"{name}{alike}_high")


def _marked(text: str, own: str | None, whole: str | None) -> str:
    if own == "refused" and whole != "refused":
        return own
    return f"{text} ?" if own == "doubtful" else text
