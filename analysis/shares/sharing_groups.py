"""Which threads compete for a CPU, and how much is there to share?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import polars as pl

from schedscope.analysis.asking.memo import once
from schedscope.analysis.causes.throttling import throttling
from schedscope.analysis.cpus.occupancy import occupancy
from schedscope.analysis.shares.group_weights import group_weights
from schedscope.errors import UsageError

if TYPE_CHECKING:
    from schedscope._native import CpuHistory
    from schedscope.analysis.threads.levels import Levels
    from schedscope.store.trace import Trace

Per = Literal["cpu", "machine"]


def competitors(trace: Trace, levels: Levels, per: Per | None) -> tuple[CpuHistory, Per]:
    """What native sweeps read, and which threads compete: as asked for, or by the trace's
    queues.
    """
    if per not in (None, "cpu", "machine"):
        raise UsageError(f"per={per!r}", '"cpu" or "machine"')
    read = occupancy(trace, weights=levels)
    placed, nowhere = read.waiting
    shared = nowhere > placed or once(_one_queue, trace)
    return read, per or ("machine" if shared else "cpu")


def _one_queue(trace: Trace) -> bool:
    """The kernel reports one load for all CPUs (4BSD), even if most threads wait for their last
    CPU.
    """
    loads = trace.queue_load.select(pl.len(), named=pl.col("cpu").count()).collect()
    return bool(loads.item(0, "len") > 0 and loads.item(0, "named") == 0)


def sharing(
    trace: Trace, per: Per, *, capacity: int | None = None, by_cpu: bool = False
) -> dict[str, Any]:
    """Options of native sweeps over competing threads.

    `capacity`: what there is to share, all that so many CPUs could give while any thread competed
    for it; without it, the service that the class got. `by_cpu`: sums by CPU, too. Where the
    threads of each CPU compete, groups of threads do so first, as far as they are known.
    """
    return {
        "machine": per == "machine",
        "capacity": capacity,
        "by_cpu": by_cpu,
        "groups": once(group_weights, trace) if per == "cpu" else None,
        "quotas": once(throttling, trace).to_native(),
    }
