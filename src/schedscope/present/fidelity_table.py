"""The rows of `fidelity_of_runs` as a table: ranges in brackets, and what they come to in words."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from schedscope import units
from schedscope.present.columns import Column, choose

_NAMES = ("against", "measure", "real", "replay", "ratio", "inside")


def fidelity_table(frame: pl.DataFrame) -> tuple[pl.DataFrame, Sequence[Column]]:
    """The rows as shown, and their columns; each policy is named once."""
    first = pl.col("measure").cum_count().over("against") == 1
    shown = frame.with_columns(
        against=pl.when(first).then("against").otherwise(pl.lit("")),
        measure=pl.col("measure").cast(pl.String),
        real=pl.Series(_ranges(frame, "real"), dtype=pl.String),
        replay=pl.Series(_ranges(frame, "replay"), dtype=pl.String),
        inside=pl.col("inside").replace_strict({True: "yes", False: "no"}, default="-"),
    )
    return shown, choose(shown, _NAMES, question="fidelity_of_runs", narrow="ratio")


def in_words(frame: pl.DataFrame) -> list[str]:
    """In how many measures each policy is within the range, and how far its waits are from it."""
    apart = {row["against"]: row for row in frame.filter(measure="wait_distance").to_dicts()}
    lines = []
    for (policy,), rows in frame.group_by("against", maintain_order=True):
        known = rows["inside"].drop_nulls()
        text = f"{policy}: {known.sum()} of {len(known)} measures within the range of the captures"
        ratio = apart[policy]["ratio"]
        if ratio is not None:
            text += f"; waits {ratio:.2f} times as far from a capture as captures from each other"
        lines.append(text)
    return lines


def _ranges(frame: pl.DataFrame, name: str) -> list[str]:
    return [
        _amount(row[name], row["unit"])
        + (
            ""
            if row[name] is None
            else f" [{_amount(row[f'{name}_low'], row['unit'])},"
            f" {_amount(row[f'{name}_high'], row['unit'])}]"
        )
        for row in frame.iter_rows(named=True)
    ]


def _amount(value: float | None, unit: str) -> str:
    if value is None:
        return "-"
    if unit == "ns":
        return units.duration(value)
    if unit == "share":
        return units.percent(value)
    return f"{value:,.0f}" if unit == "count" else f"{value:.3g}"
