"""The rows of `compare` as a table: differences and their noise, each in its measure's own unit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import polars as pl

from schedscope import units
from schedscope.present.columns import Column, choose


def worded_differences(frame: pl.DataFrame, *, several: bool) -> pl.DataFrame:
    """The rows as people read them: each value in its measure's own unit."""
    rows: list[dict[str, Any]] = []
    for row in frame.iter_rows(named=True):
        unit = row["unit"]
        who = row["thread"] or "all threads"
        if row["role"] in ("thread", "hog", "sleeper"):
            who += f" ({row['role']})"
        verdict = row["verdict"]
        if verdict in ("more", "less"):
            verdict += f" in {row['setting']}"
        rows.append(
            {
                **({"setting": row["setting"]} if several else {}),
                "thread": who,
                "measure": row["measure"],
                "a": _amounts(row["a"], row["a_high"], unit),
                "b": _amounts(row["b"], row["b_high"], unit),
                "difference": _amount(row["difference"], unit, sign=True),
                "noise": _amount(row["noise"], unit),
                "change": _change(row["difference_frac"]),
                "verdict": verdict,
                "better": row["better"],
                "g": "-" if row["hedges_g"] is None else f"{row['hedges_g']:+.1f}",
                "p_adjusted": "-" if row["p_adjusted"] is None else f"{row['p_adjusted']:.2g}",
            }
        )
    names = ["thread", "measure", "a", "b", "difference", "noise", "change"]
    names += ["verdict", "better", "g", "p_adjusted"]
    schema = dict.fromkeys([*(["setting"] if several else []), *names], pl.String)
    return pl.DataFrame(rows, schema=schema)


def _amount(value: float | None, unit: str, *, sign: bool = False) -> str:
    if value is None:
        return "-"
    if unit == "ns":
        text = units.duration(abs(value))
    elif unit == "":
        text = units.percent(abs(value))
    else:
        text = f"{abs(value):.4g}"
    if value < 0:
        return "-" + text
    return "+" + text if sign and value > 0 else text


def _amounts(low: float | None, high: float | None, unit: str) -> str:
    least, most = _amount(low, unit), _amount(high, unit)
    if low is None or high is None or least == most:
        return least
    return units.interval(low, high) if unit == "ns" else f"{least} to {most}"


def _change(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{100 * value:+.1f} %" if abs(value) < 10 else f"{1 + value:.3g} x"


def difference_columns(text: pl.DataFrame, labels: Sequence[str]) -> list[Column]:
    """Under the names of the settings, the first of which all others are compared with."""
    names = ["setting", "thread", "measure", "a", "b", "difference", "noise", "change"]
    columns = choose(
        text,
        [*names, "verdict", "better", "g", "p_adjusted"],
        question="compare",
        narrow="g change p_adjusted",
    )
    # The headings of the two values are the names of their settings.
    headings = {"a": labels[0], "b": labels[1] if len(labels) == 2 else "other"}
    return [replace(c, heading=headings.get(c.name, c.heading)) for c in columns]
