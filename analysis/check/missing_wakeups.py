"""Which wakeups are missing from the trace?

This is in a file of its own because the headline of every answer needs it, and nothing else of
`check`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from schedscope.analysis.check.counts import counter, number_of, recorders
from schedscope.analysis.cpus.offline import offline
from schedscope.analysis.recording.recorded_threads import recorded_threads

if TYPE_CHECKING:
    from schedscope.store.trace import Trace


def missing_wakeups(trace: Trace) -> tuple[int, int, int] | None:
    """Switch-ins without a recorded wakeup: of other threads, of the recorder's, of stoppers.

    The recorders' scripts may leave out their own wakeups (bpftrace's does), and a CPU that comes
    online stops the others before it raises events: that is not a loss. None where the trace does
    not count them.
    """
    found = counter(trace, "missing_wakeups")
    if found is None:
        return None
    if recorded_threads(trace) is None:
        found += _unseen_births(trace)
    if not found:
        return 0, 0, 0
    unseen = trace.waits.filter(pl.col("censored").is_in(["left", "both"]))
    own = min(number_of(unseen.join(recorders(trace), on="utid", how="semi")), found)
    stops = min(woken_by_comers(trace, pl.col("cause") == "unknown"), found - own)
    return found - own - stops, own, stops


def _unseen_births(trace: Trace) -> int:
    """Threads that were made, and then ran without a first wakeup, where no event is missing."""
    born = trace.threads.filter(pl.col("start_ts").is_not_null()).select("utid", "start_ts")
    seen = (
        trace.waits.filter(pl.col("censored") == "left")
        .join(born, on="utid")
        .group_by("utid", "start_ts")
        .agg(ran=pl.col("ts_run").min())
        .collect()
    )
    if seen.is_empty():
        return 0
    begun = pl.coalesce("ts_ready", "ts_run") < pl.col("ran")
    woken = trace.waits.join(seen.lazy(), on="utid").filter(begun).select("utid")
    holes = trace.losses.select("ts_begin", "ts_end")
    between = (pl.col("ts_begin") < pl.col("ran")) & (pl.col("ts_end") > pl.col("start_ts"))
    hidden = seen.lazy().join_where(holes, between).select("utid")
    return number_of(seen.lazy().join(pl.concat([woken, hidden]), on="utid", how="anti"))


def woken_by_comers(trace: Trace, unseen: pl.Expr) -> int:
    """How many of those waits are of stoppers that a CPU coming online woke.

    It stops all others, and Linux reports no event of a CPU before it is online.
    """
    coming = offline(trace).filter("back").select("ts", "dur")
    if coming.is_empty():
        return 0
    stoppers = trace.threads.filter(pl.col("sched_class") == "stop").select("utid")
    waits = trace.waits.filter(unseen).join(stoppers, on="utid", how="semi")
    within = pl.col("ts_run").is_between(pl.col("ts"), pl.col("ts") + pl.col("dur"))
    found = waits.select("utid", "ts_run").join(coming.lazy(), how="cross").filter(within)
    return number_of(found.select("utid", "ts_run").unique())
