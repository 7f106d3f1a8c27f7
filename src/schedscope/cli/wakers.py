"""`schedscope wakers`: the options and words that its question does not declare."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from schedscope import units
from schedscope.cli._asking import Words
from schedscope.present.who import who

if TYPE_CHECKING:
    import polars as pl

    from schedscope.store.trace import Trace


def words(
    args: argparse.Namespace, trace: Trace, frame: pl.DataFrame, shown: pl.DataFrame
) -> Words:
    """The sums of all pairs, and threads as one word each."""
    return Words(head=[_totals(frame)], table=_worded(shown))


def _totals(frame: pl.DataFrame) -> str:
    n, open_, unseen, new = (
        int(frame[name].sum()) for name in ("n", "n_censored", "n_excluded", "n_new")
    )
    parts = [f"{units.several(n + open_ + unseen, 'wait')} started with a wakeup"]
    parts[0] += f", {units.count(new)} of them of new threads"
    if open_:
        parts.append(f"{units.count(open_)} unfinished when last observed")
    if unseen:
        parts.append(f"{units.count(unseen)} excluded: start not recorded")
    return "; ".join(parts)


def _worded(frame: pl.DataFrame) -> pl.DataFrame:
    import polars as pl

    wakers, woken = [], []
    for row in frame.iter_rows(named=True):
        match row["waker_kind"]:
            case "interrupt":
                wakers.append(f"({row['interrupt']})")
            case "idle":
                wakers.append("(interrupt, CPU idle)")
            case "unknown":
                wakers.append("(unknown)")
            case _:
                wakers.append(who(row, "waker_"))
        woken.append(who(row, ""))
    return frame.with_columns(
        pl.Series("waker", wakers, dtype=pl.String), pl.Series("woken", woken, dtype=pl.String)
    )
