"""How much of each CPU's time the hypervisor took for others, as the kernel counted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from schedscope.store.trace import Trace

_LEAST_SHARE = 0.01
"""Of CPU time: less is as good as none."""
_STEP = 50_000_000
"""ns. The kernel counts in steps of 10 ms: a few may be one moment's."""
_KINDS = ("user", "system", "idle", "irq", "softirq", "steal")
"""All that a CPU's time consists of in `/proc/stat`. The sum from one reading to the next is about
the time between them; too much by some 10 % where half is stolen, since a tick may be counted as
stolen and as used (Linux 6.12 below Xen 4.17)."""


def stolen_shares(trace: Trace) -> dict[int, float]:
    """The share of each CPU's time that was stolen, or nothing if that is too little to matter.

    The kernel's counts are read just before the recording and just after it. What they say of the
    time between the readings is taken to hold for the recording.
    """
    rows = trace.info.get("cpu_time") or []
    if sum(int(row.get("steal") or 0) for row in rows) < _STEP:
        return {}
    shares = {
        int(row["cpu"]): min(int(row.get("steal") or 0) / elapsed, 1.0)
        for row in rows
        if (elapsed := between_readings(row))
    }
    return shares if sum(shares.values()) >= _LEAST_SHARE * trace.ncpu else {}


def between_readings(row: dict[str, Any]) -> int:
    """ns between the two readings of a CPU's counts."""
    return int(row.get("elapsed") or sum(int(row.get(kind) or 0) for kind in _KINDS))
