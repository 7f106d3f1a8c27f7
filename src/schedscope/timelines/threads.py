"""Every thread as the timeline lists it, to be searched, grouped and shown."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

import polars as pl

from schedscope.errors import UsageError
from schedscope.store.thread_totals import totals_of
from schedscope.units import printable

if TYPE_CHECKING:
    from schedscope.store.trace import Trace

MOST = 5_000
"""Threads in one answer, those that waited most."""
_ORDER, _DESCENDING = ("wait", "run", "utid"), (True, True, False)


def thread_list(
    trace: Trace,
    totals: pl.DataFrame | None = None,
    chosen: Collection[int] | None = None,
    *,
    most: int | None = None,
    also: Sequence[int] = (),
) -> pl.DataFrame:
    """One row per thread but the idle ones, the longest waiting first; before them the `chosen`.

    With `most` so many of those that waited most, and besides the `chosen` and `also`.

    With the columns of `thread_totals`, which are computed if not given; `text` is what a search
    looks at.
    """
    if totals is None:
        totals = totals_of(trace)
    names = trace.threads.select(
        "utid", "comm", "tid", "pid", process="process_name", cgroup="cgroup", cmdline="cmdline"
    ).filter(pl.col("utid") >= trace.ncpu)
    if most is not None:
        first = totals.with_columns(pl.col("run", "wait").fill_null(0))
        first = first.filter((pl.col("wait") > 0) | (pl.col("run") > 0))
        first = first.sort(_ORDER, descending=_DESCENDING).head(most)
        # All others neither ran nor waited, or come after these.
        if first.height == most:
            names = names.filter(pl.col("utid").is_in([*first["utid"], *also, *(chosen or ())]))
    texts = ("comm", "tid", "pid", "process", "cgroup", "cmdline")
    return (
        names.join(totals.lazy(), on="utid", how="left")
        .with_columns(
            pl.col("run", "wait").fill_null(0),
            text=pl.concat_str(
                [pl.col(name).cast(pl.String).fill_null("") for name in texts], separator="\n"
            ).str.to_lowercase(),
        )
        .sort(
            pl.col("utid").cast(pl.UInt32).is_in(list(chosen or ())),
            *_ORDER,
            descending=[True, *_DESCENDING],
        )
        .collect(engine="streaming")
    )


def as_rows(threads: pl.DataFrame, text: str = "", utids: Any = None) -> dict[str, Any]:
    """The threads whose names, numbers, process or control group contain all words of `text`.

    With `utids` those of these numbers instead. At most `MOST`; `more` says how many are left out.
    Raises `UsageError` for what is no text or no list of numbers.
    """
    if not isinstance(text, str) or len(text) > 200:
        raise UsageError(f"text {text!r:.40}", "at most 200 characters")
    found = threads
    if utids is not None:
        if not isinstance(utids, list) or not all(type(utid) is int for utid in utids):
            raise UsageError(f"utids {utids!r:.40}", "a list of whole numbers")
        found = threads.filter(pl.col("utid").cast(pl.Int64).is_in(utids))
    elif text:
        # Every word of it, wherever: a person copies `comm tid` as it is shown.
        words = [pl.col("text").str.contains(word, literal=True) for word in text.lower().split()]
        found = threads.filter(pl.all_horizontal(words)) if words else threads
    rows = [
        {
            "utid": row["utid"],
            "name": f"{printable(row['comm'] or '')} {_plain(row['tid'])}".strip(),
            "comm": printable(row["comm"] or ""),
            "tid": row["tid"],
            "pid": row["pid"],
            "process": printable(row["process"] or ""),
            "cgroup": printable(row["cgroup"] or ""),
            "cpu": row["cpu"],
            "run": row["run"],
            "wait": row["wait"],
            "longest": None if row["ready"] is None else [row["ready"], row["longest"]],
        }
        for row in found.head(MOST).drop("text", "cmdline").iter_rows(named=True)
    ]
    return {"rows": rows, "more": max(0, found.height - MOST)}


def _plain(number: int | None) -> str:
    return "" if number is None else str(number)
