"""When a traced host's clock ticked: how often, and at which instants.

Slices end at ticks, and so do the sleeps of many a timer. A replay whose ticks
fall between those of the host cuts slices short that were whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from schedscope.trace import Trace

RATES = (100, 250, 300, 1000)
"""Ticks per second that Linux can be built with."""

LATE = 50_000
"""A switch that a tick causes follows it within this time, ns."""

WAITED = 100_000
"""A thread that waited longer did not take the CPU by waking, ns."""

SURE = 6.0
"""Standard errors by which switches must crowd behind the ticks."""


@dataclass(frozen=True)
class Clock:
    """Ticks per second, and when in its period a tick falls after the window's begin, ns.

    `share` is the part of the switches looked at that came right after a tick.
    """

    hz: int
    phase: int
    share: float


def measured_clock(trace: Trace, switches: pl.DataFrame | None = None) -> Clock | None:
    """The host's clock as its preemptions show it; None if they do not.

    Looked at are switches away from a thread that could have gone on, to one
    that had waited for some time: what else than a tick decides on them? Their
    instants, modulo the period of each of `RATES`, crowd within `LATE` if that
    is the rate; the one that crowds beyond chance by most is taken. `switches` are
    those of the trace, if they have been read already.
    """
    waited = trace.waits.filter(pl.col("wait") > WAITED).select(ts="ts_run", next_utid="utid")
    instants = (
        (trace.switches if switches is None else switches.lazy())
        .filter(
            (pl.col("prev_state") == "runnable")
            & (pl.col("prev_utid") >= trace.ncpu)
            & pl.col("preempted").fill_null(True)
        )
        .select("ts", "next_utid")
        .join(waited, on=["ts", "next_utid"], how="semi")
        .select(pl.col("ts") - trace.window[0])
        .collect()["ts"]
        .to_numpy()
    )
    best: tuple[float, Clock] | None = None
    for hz in RATES:
        period = 1_000_000_000 // hz
        n, phase = _crowd(instants, period)
        chance = len(instants) * LATE / period
        excess = (n - chance) / max(1.0, chance) ** 0.5
        if best is None or excess > best[0]:
            best = (excess, Clock(hz, phase, n / max(1, len(instants))))
    return best[1] if best is not None and best[0] >= SURE else None


def _crowd(instants: np.ndarray[Any, Any], period: int) -> tuple[int, int]:
    """The most instants within `LATE` of each other modulo `period`, and when most have come.

    What a tick wakes takes the CPU some microseconds after it. A replayed tick
    must not come before, or the thread that it chose would be preempted at once.
    """
    if not len(instants):
        return 0, 0
    rest = np.sort(instants % period)
    twice = np.concatenate([rest, rest + period])
    within = np.searchsorted(twice, rest + LATE, side="right") - np.arange(len(rest))
    at = int(within.argmax())
    most = int(within[at])
    return most, int(twice[at + most * 9 // 10] % period)
