"""Which CPUs are shown on a machine with too many to show all?

The numbers stand in the help of commands, which is there before Polars is loaded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from schedscope.store.trace import Trace

FEW_CPUS = 64
"""So many are all shown, in order of number."""
SHOWN_CPUS = 32
"""So many are shown of more: those for which threads waited longest."""


def most_waited_cpus(trace: Trace) -> list[int]:
    """Every recorded CPU, the one for which threads waited longest in all first.

    A wait counts for the CPU on whose queue it was, else for that on which the thread then ran.
    """
    import polars as pl

    from schedscope.analysis.cpus.topology import recorded_cpus

    waits = trace.waits.select(
        cpu=pl.coalesce("queue_cpu", "cpu").cast(pl.Int64), wait=pl.col("wait").cast(pl.Int64)
    )
    sums = waits.group_by("cpu").agg(pl.col("wait").sum()).collect(engine="streaming")
    waited = dict(sums.iter_rows())
    return sorted(recorded_cpus(trace), key=lambda cpu: (-waited.get(cpu, 0), cpu))


def grouping(trace: Trace) -> str | None:
    """The column of `cpus` by which they are grouped: that with the fewest places, but several.

    Memory nodes, packages or last-level caches; None where the trace does not say.
    """
    from schedscope.analysis.cpus.topology import places

    several = {}
    for over in ("numa_node", "package", "llc"):
        n = len({place for place in places(trace, over).values() if place is not None})
        if n > 1:
            several[over] = n
    return min(several, key=lambda over: several[over], default=None)
