"""How long had a thread not run when it got a CPU?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

if TYPE_CHECKING:
    import numpy.typing as npt

    from schedscope.trace import Trace

    Ints = npt.NDArray[np.int64]


def since_last_run(trace: Trace, begun: pl.DataFrame) -> pl.Series:
    """For each row of `begun` the time from the end of the thread's last run to `ts`, ns.

    Needs the columns `utid`, `ts`, `ts_ready` and `waiting` (the cause of the wait).
    A wait after a preemption or a yield begins where the run ended; one after a wakeup where the
    sleep ended, which began there. Null for new threads, and where the sleep's begin was not seen.
    """
    slept = (
        trace.states.filter(pl.col("end") == "woken")
        .select("utid", "ts", "dur", known=pl.col("state") != "unknown")
        .collect()
    )
    left = begun["ts_ready"].fill_null(0).to_numpy().copy()
    known = (
        begun.select(
            pl.col("ts_ready").is_not_null() & ~pl.col("waiting").is_in(["new", "unknown"])
        )
        .to_series()
        .to_numpy()
        .copy()
    )
    ends = (slept["ts"] + slept["dur"]).to_numpy()
    threads = slept["utid"].to_numpy()
    # Only the rows that a sleep precedes: woken while it left its CPU, a thread has none.
    woken = np.flatnonzero(known & (begun["waiting"] == "wake").to_numpy())
    ready, wakee = left[woken], begun["utid"].to_numpy()[woken]
    if len(ends) and len(woken):
        sleep = _find(threads, ends, wakee, ready)
        hit = sleep >= 0
        rows, sleep = woken[hit], sleep[hit]
        left[rows] = slept["ts"].to_numpy()[sleep]
        known[rows] = slept["known"].to_numpy()[sleep]
        if trace.window[0] > trace.origin:
            # The cut made this the begin of sleeps that are older.
            known[rows] &= left[rows] > trace.window[0]
    since = pl.Series("since", begun["ts"].to_numpy() - left)
    return since if known.all() else since.set(pl.Series(~known), None)


def _find(
    threads: npt.NDArray[np.uint32], times: Ints, wanted: npt.NDArray[np.uint32], at: Ints
) -> Ints:
    """Where a thread has exactly that time, for each of `wanted` and `at`; -1 if nowhere."""
    order = np.argsort(_small(threads), kind="stable")
    sorted_, ends = threads[order], times[order]
    if ((sorted_[1:] == sorted_[:-1]) & (ends[1:] < ends[:-1])).any():
        # Not our own rows, which are in order of time for each thread.
        order = np.lexsort((times, threads))
        sorted_, ends = threads[order], times[order]
    threads, times = sorted_, ends
    asked = np.argsort(_small(wanted), kind="stable")
    found = np.full(len(wanted), -1, dtype=np.int64)
    named, sought = wanted[asked], at[asked]
    begins = np.flatnonzero(np.append(True, named[1:] != named[:-1]))
    lows = np.searchsorted(threads, named[begins])
    highs = np.searchsorted(threads, named[begins], side="right")
    bounds = zip(begins, np.append(begins[1:], len(named)), lows, highs, strict=True)
    for begin, end, low, high in bounds:
        if low == high:
            continue
        index = np.minimum(np.searchsorted(times[low:high], sought[begin:end]), high - low - 1)
        hit = times[low:high][index] == sought[begin:end]
        found[asked[begin:end]] = np.where(hit, order[low:high][index], -1)
    return found


def _small(utids: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32] | npt.NDArray[np.uint16]:
    """16-bit numbers where they fit: they are sorted in a tenth of the time."""
    return utids.astype(np.uint16) if len(utids) and utids.max() < 1 << 16 else utids
