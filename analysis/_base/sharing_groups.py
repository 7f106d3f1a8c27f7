"""Which threads compete for a CPU, and what there is to share among them?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from schedscope.analysis._base.occupancy import occupancy
from schedscope.errors import UsageError

if TYPE_CHECKING:
    from schedscope._native import CpuHistory
    from schedscope.analysis._base.levels import Levels
    from schedscope.trace import Trace

Per = Literal["cpu", "machine"]


def competitors(trace: Trace, levels: Levels, per: Per | None) -> tuple[CpuHistory, Per]:
    """What native sweeps read, and which threads compete: as asked for, or as the queues are."""
    if per not in (None, "cpu", "machine"):
        raise UsageError(f"per={per!r}", '"cpu" or "machine"')
    read = occupancy(trace, weights=levels)
    placed, nowhere = read.waiting
    return read, per or ("machine" if nowhere > placed else "cpu")


def sharing(
    per: Per,
    *,
    capacity: int | None = None,
    by_cpu: bool = False,
    groups: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Options of native sweeps over competing threads.

    `capacity`: what there is to share, all that so many CPUs could give while any thread competed
    for it; without it, the service that the class got. `by_cpu`: sums by CPU, too. `groups`: what
    `GroupWeights.to_native` says; only where the threads of each CPU compete.
    """
    return {
        "machine": per == "machine",
        "capacity": capacity,
        "by_cpu": by_cpu,
        "groups": groups if per == "cpu" else None,
    }
