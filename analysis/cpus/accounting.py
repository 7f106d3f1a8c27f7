"""What the intervals of each thread and each CPU sum up to, and where they do not adjoin.

One pass over `states` in the order of the table, which is each thread's and
each CPU's order of time wherever the table is what reconstruction wrote. A
table that is not is sorted, which costs ten times as much.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from schedscope.analysis.cpus.occupancy import coded_states

if TYPE_CHECKING:
    from schedscope.store.trace import Trace

_UNTIL = pl.col("ts") + pl.col("dur")


def inside_window(trace: Trace) -> pl.Expr:
    """For how long each interval of `states` is within the window, ns."""
    begin, end = trace.window
    return (pl.min_horizontal(_UNTIL, end) - pl.max_horizontal("ts", begin)).clip(0)


@dataclass(frozen=True)
class Tiling:
    """Sums of `states`, ns, and the ends that no interval follows.

    * `per_cpu`: running time of threads and of the idle thread, by CPU (None: no CPU named);
    * `recorder`: running time of the recorder's own threads;
    * `excess`: running time that overlaps another interval of its CPU, lies
      outside the window or on no CPU;
    * `ends`: `utid`, `until`, `following` of each interval of a thread that its next
      one does not adjoin; `following` is null for the thread's last;
    * `intervals`: how many there are of threads, idle ones left out.
    """

    per_cpu: dict[int | None, tuple[int, int]]
    recorder: int
    excess: int
    ends: pl.DataFrame
    intervals: int

    @property
    def of_threads(self) -> int:
        """Running time of all threads but the idle ones, ns."""
        return sum(run for run, _ in self.per_cpu.values())

    @property
    def known(self) -> int:
        """Time for which the running thread is known, idle threads included, ns."""
        return sum(run + idle for run, idle in self.per_cpu.values())


def tiling(trace: Trace) -> Tiling:
    """Look at every interval of `states` once."""
    from schedscope import _native

    recorders = trace.threads.filter(pl.col("recorder")).select("utid").collect()["utid"]
    per_cpu, recorder, intervals, ends, ordered, disjoint = _native.accounting(
        coded_states(trace), trace.window, trace.ncpu, recorders.to_list()
    )
    return Tiling(
        per_cpu={cpu: (run, idle) for cpu, run, idle in per_cpu},
        recorder=recorder,
        excess=0 if disjoint else _excess(trace),
        ends=pl.DataFrame(ends) if ordered else _ends(trace),
        intervals=intervals,
    )


def _ends(trace: Trace) -> pl.DataFrame:
    """The ends that no interval follows, of a table in any order."""
    lives = trace.states.filter(pl.col("utid") >= trace.ncpu).sort("utid", "ts")
    return (
        lives.select(
            pl.col("utid").cast(pl.UInt32),
            until=_UNTIL,
            following=pl.col("ts").shift(-1).over("utid"),
        )
        .filter((pl.col("following") != pl.col("until")).fill_null(True))
        .collect()
    )


def _excess(trace: Trace) -> int:
    """How much running time overlaps other running time, or lies where nothing can run."""
    begin, end = trace.window
    running = trace.states.filter(pl.col("state") == "running").sort("cpu", "ts")
    before = _UNTIL.cum_max().shift().over("cpu").fill_null(begin)
    excess = (
        pl.max_horizontal(before.clip(lower_bound=begin) - pl.col("ts"), 0)
        + pl.max_horizontal(_UNTIL - end, 0)
        + pl.when(pl.col("cpu").is_null()).then(pl.col("dur")).otherwise(0)
    )
    return int(running.select(excess.sum()).collect().item())
