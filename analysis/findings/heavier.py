"""Would a larger weight help a thread?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from schedscope.analysis.asking.memo import once
from schedscope.analysis.findings.finding import option
from schedscope.analysis.shares.group_weights import Deciding, GroupWeights
from schedscope.analysis.weights import weights

if TYPE_CHECKING:
    from schedscope.store.trace import Trace


_STEP = 1.2
"""One nice level is a factor of 1.25."""


def heavier(trace: Trace, utid: int, behind: str | None = None) -> str | None:
    """The option of `whatif` that gives a thread a larger weight, where weights decide.

    `behind`: the name of the threads that it waited for. Where they are in another control group,
    the weight of the thread's group is what counts, and its nice level changes nothing.
    """
    row = once(weights, trace).filter(pl.col("utid") == utid).row(0, named=True)
    if row["basis"] != "kernel table" or row["sharing"] != "fair" or row["prio"] is None:
        return None
    found = _between(trace, utid, behind) if behind is not None else None
    if found is not None and found.group is not None:
        if not found.group.startswith("/"):
            return None  # a session, whose nice level `whatif` does not change
        more = found.other if found.other >= _STEP * found.one else 2 * found.one
        return option("set-weight", found.group, more)
    nice = row["prio"] - 120
    return option("set-nice", row["comm"], 0 if nice > 0 else max(nice - 5, -20))


def _between(trace: Trace, utid: int, behind: str) -> Deciding | None:
    """Which weights decide between a thread and the first one of a name for which it is known."""
    threads = trace.threads.select(pl.col("utid").cast(pl.UInt32), "comm", "cgroup").sort("utid")
    known = threads.filter((pl.col("utid") == utid) | (pl.col("comm") == behind)).collect()
    own = known.filter(utid=utid)["cgroup"][0]
    groups = GroupWeights(trace)
    for other, _, cgroup in known.filter(pl.col("utid") != utid).iter_rows():
        found = groups.compare(own, cgroup, (0, 0), (utid, other))
        if found is not None:
            return found
    return None
