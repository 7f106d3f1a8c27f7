"""The system calls of a trace that show messages and locks, where they were recorded.

Reads and writes are only calls on a file descriptor that may be a pipe or a socket, and that say
how much they moved. The engine finds which of them go through one pipe
(`native/sim/src/extract/pipes.rs`). From futex calls on the words of mutexes it finds which thread
held which (`native/sim/src/extract/mutexes.rs`), and from those on other words which thread waited
for what (`native/sim/src/extract/queues.rs`).
"""

from __future__ import annotations

import polars as pl

from schedscope.analysis.causes.lock_waits import futex_calls, futex_numbers
from schedscope.analysis.causes.system_calls import READS, WRITES, names
from schedscope.store.trace import Trace

_CALLS = pl.Schema(
    {
        "ts": pl.Int64(),
        "utid": pl.UInt32(),
        "process": pl.UInt32(),
        "parent": pl.UInt32(),
        "enters": pl.Boolean(),
        "writes": pl.Boolean(),
        "value": pl.Int64(),
    }
)

_FUTEXES = pl.Schema(
    {
        "ts": pl.Int64(),
        "utid": pl.UInt32(),
        "process": pl.UInt32(),
        "enters": pl.Boolean(),
        "waits": pl.Boolean(),
        "address": pl.Int64(),
        "mutex": pl.Boolean(),
        "service": pl.UInt32(),
    }
)


def futexes(trace: Trace, threads: pl.DataFrame) -> pl.DataFrame:
    """Both ends of futex calls on words that a thread waited for, in time order.

    `mutex`: all waiters of the word expected the value of a held mutex. `service` distinguishes
    thread names that differ in more than digits.
    """
    if not _recorded(trace):
        return pl.DataFrame(schema=_FUTEXES)
    numbers = list(futex_numbers(trace))
    entries = futex_calls(trace).filter(pl.col("waits") | pl.col("wakes")).collect()
    words = entries.filter("waits").group_by("pid", "address").agg(pl.col("mutex").all())
    if words.is_empty():
        return pl.DataFrame(schema=_FUTEXES)
    service = pl.col("comm").fill_null("").str.replace_all(r"\d+", "*").rank("dense")
    entries = (
        entries.drop("mutex")
        .join(words, on=["pid", "address"])
        .join(threads.select("utid", service=service), on="utid", maintain_order="left")
        .select(
            "ts",
            "utid",
            "waits",
            "mutex",
            "service",
            process="pid",
            enters=pl.lit(True),
            address=pl.col("address").reinterpret(signed=True),
        )
    )
    returns = (
        trace.system_calls.filter(
            pl.col("number").is_in(numbers),
            pl.col("step").cast(pl.String) == "exit",
            pl.col("utid").is_in(entries["utid"].unique().implode()),
        )
        .select(
            "ts",
            "utid",
            waits=pl.lit(False),
            mutex=pl.lit(False),
            service=pl.lit(0),
            process=pl.lit(0),
            enters=pl.lit(False),
            address=pl.lit(0),
        )
        .collect()
    )
    ends = [frame.select(_FUTEXES.names()).cast(_FUTEXES) for frame in (returns, entries)]
    return pl.concat(ends).sort("ts", maintain_order=True)


def reads_and_writes(trace: Trace, threads: pl.DataFrame) -> pl.DataFrame:
    """The ends of such calls in time order; `process` identifies the table of descriptors, `parent`
    is the process that forked it, itself if that was not seen.

    Empty if none were recorded, or not with their descriptors.
    """
    known = names(trace.info.get("machine"))
    numbers = {number: name in WRITES for number, name in known.items() if name in READS + WRITES}
    if not numbers or not _recorded(trace):
        return pl.DataFrame(schema=_CALLS)
    of_process = threads.select(
        "utid",
        process=pl.coalesce(pl.col("pid").cast(pl.Int64), -1 - pl.col("utid").cast(pl.Int64))
        .rank("dense")
        .cast(pl.UInt32),
        forked_by="parent_utid",
    )
    families = (
        of_process.join(
            of_process.select("utid", parent="process"),
            left_on="forked_by",
            right_on="utid",
        )
        .filter(pl.col("parent") != pl.col("process"))
        .unique("process", keep="first", maintain_order=True)
        .select("process", "parent")
    )
    of_process = of_process.join(families, on="process", how="left", maintain_order="left").select(
        "utid", "process", parent=pl.coalesce("parent", "process")
    )
    calls = (
        trace.system_calls.filter(pl.col("number").is_in(list(numbers)))
        .join(of_process.lazy(), on="utid", how="left", maintain_order="left")
        .select(
            "ts",
            "utid",
            pl.col("process", "parent").fill_null(0),
            enters=pl.col("step") == "enter",
            writes=pl.col("number").replace_strict(numbers, return_dtype=pl.Boolean),
            value=pl.when(pl.col("step") == "enter")
            # An argument that is no descriptor may be any 64 bits.
            .then(pl.col("arg0").cast(pl.Int64, strict=False))
            .otherwise("value"),
        )
        .collect()
    )
    if calls.filter("enters")["value"].is_null().all():
        return pl.DataFrame(schema=_CALLS)
    return calls.with_columns(pl.col("value").fill_null(-1)).select(_CALLS.names()).cast(_CALLS)


def _recorded(trace: Trace) -> bool:
    """Whether there is any call: the queries above take long, and most recordings have none."""
    return not trace.system_calls.head(1).collect().is_empty()
