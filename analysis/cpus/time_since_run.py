"""How long was it since a thread last ran when it got a CPU?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import polars as pl

from schedscope.analysis.cpus.occupancy import coded_states
from schedscope.parsers.schema import STATE

if TYPE_CHECKING:
    from schedscope.store.trace import Trace

_UNKNOWN = STATE.categories.to_list().index("unknown")


def since_last_run(trace: Trace, begun: pl.DataFrame) -> pl.Series:
    """For each row of `begun` the time from the end of the thread's last run to `ts`, ns.

    Needs the columns `utid`, `ts`, `ts_ready` and `waiting` (the cause of the wait).
    A wait after a preemption or a yield begins where the run ended; one after a wakeup where the
    sleep ended, which began there. Null for new threads, and if the sleep's start was not recorded.
    """
    from schedscope import _native

    # Only the rows that a sleep precedes: woken while it left its CPU, a thread has none.
    slept = _native.sleeps_before(coded_states(trace, end=True), _asked(begun))
    return _since(trace, begun, pl.DataFrame(slept))


class NotInOrder(Exception):
    """Rows of a table are not in order of time: this is allowed, but all of them must be held."""


def with_time_since_run(
    trace: Trace, ledger: Iterable[pl.DataFrame], *, whole: bool = False
) -> Iterator[pl.DataFrame]:
    """The ledger in batches of rows that follow each other, with a column `since` as above.

    Of `states` no more is held than the sleeps whose waits are still to come. Raises `NotInOrder`
    after the last batch if rows were not in order of time, so that answers may be missing; never
    if the `whole` of the ledger is one batch.
    """
    from schedscope import _native

    if whole:
        for batch in ledger:
            yield batch.with_columns(since=since_last_run(trace, batch))
        return
    sleeps = _native.SleepsBefore(coded_states(trace, end=True))
    for batch in ledger:
        slept = pl.DataFrame(sleeps.of(_asked(batch)))
        yield batch.with_columns(since=_since(trace, batch, slept))
    if not sleeps.ordered():
        raise NotInOrder


def _asked(begun: pl.DataFrame) -> pl.DataFrame:
    woken = pl.when(pl.col("waiting") == "wake").then(pl.col("ts_ready").cast(pl.Int64))
    return begun.select(pl.col("utid").cast(pl.UInt32), ts_ready=woken)


def _since(trace: Trace, begun: pl.DataFrame, slept: pl.DataFrame) -> pl.Series:
    cause = pl.col("waiting")
    told = pl.when(~cause.is_in(["new", "unknown"])).then(pl.col("ts_ready").cast(pl.Int64))
    begin = pl.col("slept")
    known = pl.col("state") != _UNKNOWN
    if trace.window[0] > trace.origin:
        # These sleeps are older: the cut moved their start here.
        known = known & (begin > trace.window[0])
    left = pl.when(begin.is_null()).then(told).when(known).then(begin)
    return (
        begun.select("ts", "ts_ready", "waiting")
        .with_columns(slept=slept["ts"], state=slept["state"])
        .select(since=pl.col("ts") - left)
        .to_series()
    )
