"""Services that run for a time and not for an amount of work: how often they go through their loop.

Clients that ask again as soon as they have an answer, until a time is over, or servers of such
clients, do as much as they can in that time. A recording shows as many rounds as there were; with a
change there would be more or fewer, and their CPU time with them. A replay can show how fast the
recorded rounds follow one another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from schedscope.store.trace import Trace

MANY = 50
"""So many rounds make a loop. A round ends where a thread of the recording sleeps."""

OUTSIDE = 0.5
"""A loop of which more sleeps than this are ended by no thread follows a clock or a device."""

JUST_OVER = 50_000_000
"""A program that ends at most this much after a whole number of seconds was told to, ns."""

SAME_LENGTH = 1.01
"""Recordings whose lengths differ by less than this factor ended at the same time."""

VARIES = 1.03
"""CPU time that differs by more than this factor between recordings is no fixed amount of work."""

SECOND = 1_000_000_000


def throughput(
    pace: Mapping[str, Any], recorded: Mapping[str, Any], run: Mapping[str, Any]
) -> float | None:
    """Rounds per second of a `run`: as many of the recorded ones as its CPU time is enough for,
    from when it first ran to when it last did (`busy`).

    Sleeps of the run are not counted: a thread that finds the next request waiting does not sleep.
    """
    if not run["busy"] or not recorded["cpu_time"]:
        return None
    return float(SECOND * pace["rounds"] * run["cpu_time"] / recorded["cpu_time"] / run["busy"])


def paces(trace: Trace, named: pl.DataFrame) -> dict[str, dict[str, Any]]:
    """For each service of a recording: the `rounds`, the share of sleeps that no thread ended
    (`outside`), and the `length` of its life, None if it was not over at the end.
    """
    begin = trace.window[0]
    lazy = named.drop_nulls().lazy()
    asleep = trace.switches.filter(pl.col("prev_state") != "runnable").select(utid="prev_utid")
    by_thread = pl.col("waker_utid").fill_null(0) >= trace.ncpu
    wakes = (
        trace.waits.filter(pl.col("cause") == "wake")
        .join(lazy, on="utid")
        .group_by("service")
        .agg(outside=1 - by_thread.mean())
    )
    rounds = asleep.join(lazy, on="utid").group_by("service").agg(rounds=pl.len().cast(pl.Int64))
    over = pl.col("exit_ts").is_not_null().all()
    since = pl.col("start_ts").fill_null(begin).min()
    lives = (
        trace.threads.join(lazy, on="utid")
        .group_by("service")
        .agg(length=pl.when(over).then(pl.col("exit_ts").max() - since))
    )
    found = lives.join(rounds, on="service", how="left").join(wakes, on="service", how="left")
    rows = found.with_columns(pl.col("rounds").fill_null(0), pl.col("outside").fill_null(1.0))
    return {str(row.pop("service")): row for row in rows.collect().to_dicts()}


def is_time_limited(of_captures: Sequence[Mapping[str, Any]], cpu_times: Sequence[float]) -> bool:
    """Whether a service runs for a time, by what `paces` says of it in each capture.

    It goes round a loop that other threads keep going, and never ends, or ends when a time is over:
    after the same time in every capture, or after whole seconds in the only one. Where its CPU time
    is the same in several captures, it does a fixed amount of work.
    """
    if not of_captures or any(
        one["rounds"] < MANY or one["outside"] > OUTSIDE for one in of_captures
    ):
        return False
    if len(cpu_times) > 1 and max(cpu_times) <= VARIES * min(cpu_times):
        return False
    lengths: list[int | None] = [one["length"] for one in of_captures]
    ended = [length for length in lengths if length]
    if len(ended) < len(lengths):
        return not ended
    if len(ended) > 1:
        return max(ended) < SAME_LENGTH * min(ended)
    return ended[0] >= SECOND and ended[0] % SECOND <= JUST_OVER
