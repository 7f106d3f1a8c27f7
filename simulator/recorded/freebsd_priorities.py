"""What FreeBSD's schedulers make their priorities of, by their sources (sched_ule.c, sched_4bsd.c,
sys/priority.h of 12 to 14).
"""

from __future__ import annotations

from dataclasses import dataclass

from schedscope.simulator.recorded.tunables import freebsd_bands
from schedscope.store.trace import Trace

MAX_TIMESHARE = 223
NICE_LEVELS = 20
"""Priorities at each end that only nice reaches."""
KERNEL_LEVELS = 40
WINDOW = 10.0
"""Seconds for which ULE counts CPU usage."""
STATHZ = 127
"""Where the recording does not say."""


@dataclass(frozen=True)
class Bands:
    """The kernel's priorities: the best of timeshare, and how many ULE calls interactive."""

    realtime: int
    first: int
    interactive: int
    stathz: int
    ncpu: int
    ule: bool = True
    """Of ULE, not of 4BSD."""

    @property
    def kernel(self) -> int:
        """The best priority of kernel threads, whose are those above timeshare."""
        return self.first - KERNEL_LEVELS

    @property
    def batch(self) -> int:
        """The best batch priority."""
        return self.first + self.interactive

    @property
    def levels(self) -> int:
        """Batch priorities by usage."""
        return MAX_TIMESHARE - 2 * NICE_LEVELS - self.batch + 1

    @property
    def weight(self) -> int:
        """Ticks that make a priority of 4BSD worse by 1."""
        return 8 * self.ncpu

    @property
    def most_charged(self) -> int:
        """ESTCPULIM: charging stops there."""
        return self.weight * (40 - 4) + self.weight - 1

    @property
    def worst_by_use(self) -> int:
        """The worst priority of a thread of nice 0."""
        use = self.levels - 1 if self.ule else self.most_charged // self.weight
        return (self.batch if self.ule else self.first) + NICE_LEVELS + use

    def rise(self, seconds: float) -> int:
        """By how much a priority becomes worse in so much CPU time, on a machine that has run for
        longer than ULE's window.
        """
        rate = self.levels / WINDOW if self.ule else self.stathz / self.weight
        return int(seconds * rate)


def charge_of(share: float, load: float, bands: Bands) -> float:
    """The ticks that 4BSD has charged in the middle of a second to a thread with this share of a
    CPU, under this load average: of each second a part of 2 load / (2 load + 1) stays.

    >>> charge_of(0.5, 1.0, Bands(48, 120, 32, 128, 1))
    160.0
    """
    return min(share * bands.stathz * (2 * load + 0.5), bands.most_charged)


def share_of(charged: float, load: float, bands: Bands) -> float:
    """The share of a CPU that has so many ticks charged: `charge_of` turned round."""
    return min(charged / (bands.stathz * (2 * load + 0.5)), 1.0)


def bands_of(trace: Trace) -> Bands | None:
    """The priorities of the recorded kernel; None where they are not those of ULE or 4BSD of a
    FreeBSD whose priorities are modelled.
    """
    told = (trace.info.get("scheduler") or {}).get("tunables") or {}
    found = dict(freebsd_bands({str(name): str(text) for name, text in told.items()}))
    name = (trace.info.get("scheduler") or {}).get("name")
    if trace.info.get("os") != "FreeBSD" or name not in ("ULE", "4BSD") or not found:
        return None
    stathz = int(trace.info.get("stathz") or STATHZ)
    first, interactive = found["min_timeshare"], found["interact_levels"]
    return Bands(found["min_realtime"], first, interactive, stathz, trace.ncpu, name == "ULE")
