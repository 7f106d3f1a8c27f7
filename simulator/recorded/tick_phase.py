"""When a traced host's clock ticked: how often, and at which instants.

Slices end at ticks, and so do the sleeps of many timers. A replay whose ticks fall between those of
the host cuts full slices short.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl

from schedscope.simulator.workloads.machine import Machine
from schedscope.simulator.workloads.workload import Workload
from schedscope.store.trace import Trace

RATES = (100, 250, 300, 1000)
"""Ticks per second that Linux can be built with."""

LATE = 50_000
"""A switch that a tick causes follows it within this time, ns."""

WAITED = 100_000
"""A thread that waited longer did not take the CPU by waking, ns."""

SURE = 6.0
"""Standard errors by which instants must crowd behind the ticks."""

Instants = np.ndarray[Any, Any]
"""In ns after the window's begin."""


@dataclass(frozen=True)
class Clock:
    """Ticks per second, and when in its period a tick falls after the window's begin, ns.

    `share` is the part of the instants looked at that came right after a tick.
    """

    hz: int
    phase: int
    share: float


def measured_clock(trace: Trace, switches: pl.DataFrame | None = None) -> Clock | None:
    """The host's clock as preemptions and kernel threads show it; None if they do not.

    Looked at are switches away from a thread that could have gone on, to one that had waited for
    some time: nothing but a tick can decide on them. And wakes of kernel threads, whose timers
    count ticks (kernel/time/timer.c); with a timer that ends requests between ticks (HRTICK, on in
    Linux 7.2) only those show it. Their instants, modulo the period of each of `RATES`, crowd
    within `LATE` if that is the rate; the one furthest beyond chance is taken. `switches` are those
    of the trace, if they have been read already.
    """
    chosen = _decided(trace, switches)
    instants = np.concatenate([chosen, _woken(trace)])
    best: tuple[float, Clock] | None = None
    for hz in RATES:
        period = 1_000_000_000 // hz
        n, at = _crowd(instants, period)
        chance = len(instants) * LATE / period
        excess = (n - chance) / max(1.0, chance) ** 0.5
        if best is None or excess > best[0]:
            phase = _phase(chosen, at, period)
            phase = _phase(instants, at, period) if phase is None else phase
            best = (excess, Clock(hz, phase or 0, n / max(1, len(instants))))
    return best[1] if best is not None and best[0] >= SURE else None


def _decided(trace: Trace, switches: pl.DataFrame | None) -> Instants:
    """When a thread that had waited took a CPU from one that could have gone on."""
    waited = trace.waits.filter(pl.col("wait") > WAITED).select(ts="ts_run", next_utid="utid")
    return (
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


def _woken(trace: Trace) -> Instants:
    """When a kernel thread was woken."""
    kernel = trace.threads.filter("kernel").select("utid")
    return (
        trace.wakeups.filter(~pl.col("kind").cast(pl.String).is_in(["new", "waking"]))
        .join(kernel, on="utid", how="semi")
        .select(pl.col("ts") - trace.window[0])
        .collect()["ts"]
        .to_numpy()
    )


def _crowd(instants: Instants, period: int) -> tuple[int, int]:
    """The most instants within `LATE` of each other modulo `period`, and where they begin."""
    if not len(instants):
        return 0, 0
    rest = np.sort(instants % period)
    twice = np.concatenate([rest, rest + period])
    within = np.searchsorted(twice, rest + LATE, side="right") - np.arange(len(rest))
    first = int(within.argmax())
    return int(within[first]), int(rest[first])


def _phase(instants: Instants, at: int, period: int) -> int | None:
    """When most instants of the crowd that begins at `at` have come; None without any there.

    What a tick wakes takes the CPU some microseconds after it. A replayed tick
    must not come before, or the thread that it chose would be preempted at once.
    """
    after = np.sort((instants - at) % period)
    here = after[after <= LATE]
    return int((at + here[(len(here) - 1) * 9 // 10]) % period) if len(here) else None


def rate(settings: Mapping[str, Any], workload: Workload) -> int:
    """Ticks per second of a replay: of its settings, else of the recording, else 250."""
    return int(settings.get("hz") or workload.info["extraction"]["clock_hz"] or RATES[1])


def shifted(machine: Machine, hz: int, times: int) -> Iterator[Machine]:
    """The machine so many times: its ticks at their own instants, then later by equal parts.

    Which thread a tick finds running decides about many waits, and no model predicts it reliably:
    replays with ticks at other instants show what depends on that.

    >>> from schedscope.simulator.workloads.machine import machine
    >>> [same.tick_phase for same in shifted(machine(1), 250, 4)]
    [0, 1000000, 2000000, 3000000]
    """
    period = 1_000_000_000 // max(1, hz)
    for i in range(times):
        yield replace(machine, tick_phase=(machine.tick_phase + i * period // times) % period)
