"""`schedscope off-cpu`: the options and words that its question does not declare."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from schedscope import units
from schedscope.cli import _options
from schedscope.cli._asking import Words

if TYPE_CHECKING:
    import polars as pl

    from schedscope.store.trace import Trace


def ask(args: argparse.Namespace, trace: Trace, *, by: str, where: pl.Expr | None) -> pl.DataFrame:
    """With the columns of `--by` that people read, without numbers of the trace."""
    from schedscope.analysis.off_cpu import off_cpu

    return off_cpu(trace, by=_columns(args), where=where)


def _columns(args: argparse.Namespace) -> list[str]:
    from schedscope.analysis.asking.by import keys_of

    return keys_of(args.by, ("comm", "tid", "pid", "process_name", "cgroup", "service", "cause"))


def words(
    args: argparse.Namespace, trace: Trace, frame: pl.DataFrame, shown: pl.DataFrame
) -> Words:
    """The sum of all rows; and why there are no reasons, if there are none."""
    from schedscope.analysis.off_cpu import COMMAND, longest_open

    by = _columns(args)
    longest = None
    if frame["n_censored"].sum():
        longest = longest_open(trace, where=_options.where_threads(args, trace))
    totals = [_totals(frame, longest)]
    if "cause" in by:
        _, _, figures = COMMAND.columns.partition(" state ")
        return Words(head=totals, columns=f"cause {figures}")
    notes = []
    if len(frame) and not (frame["kind"].count() or frame["cause"].count()):
        notes.append(
            "this trace has no reasons: on Linux `capture --with syscalls` records them;"
            " FreeBSD's DTrace and KTR traces do"
        )
    keys = ["process_name?" if name == "process_name" else name for name in by]
    columns = COMMAND.columns.replace("*by", " ".join(keys))
    return Words(head=totals, notes=notes, table=_worded(shown), columns=columns)


def _totals(frame: pl.DataFrame, longest: int | None) -> str:
    """`longest`: an unfinished one, which is in no row's `max`."""
    n, open_, unseen = (int(frame[name].sum()) for name in ("n", "n_censored", "n_excluded"))
    least = "at least " if (frame["total_high"] > frame["total"]).any() else ""
    total = units.duration(int(frame["total"].sum()))
    text = f"{units.count(n)} times off the CPU, {least}{total} in total"
    if open_:
        text += f"; {units.count(open_)} unfinished when last observed"
        if longest is not None and longest > max(frame["max"].drop_nulls(), default=0):
            text += f", one after {units.duration(longest)}, longer than any below"
    if unseen:
        text += f"; {units.count(unseen)} excluded: start not recorded"
    return text


def _worded(frame: pl.DataFrame) -> pl.DataFrame:
    import polars as pl

    reason = pl.when(pl.col("kind") == "lock").then(pl.lit("lock ")).otherwise(pl.lit(""))
    nameless = pl.when(pl.col("kind") == "interrupt").then(pl.lit("(no interrupt)"))
    return frame.with_columns(
        reason=pl.when(pl.col("reason").is_not_null())
        .then(reason + pl.col("reason"))
        .otherwise(nameless.when(pl.col("kind") == "suspended").then(pl.lit("(suspended)")))
    )
