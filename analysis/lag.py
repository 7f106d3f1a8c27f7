"""How far was each thread behind what was due to it, over time?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from schedscope.analysis.competition import Competition, Per, competition, due_between
from schedscope.analysis.fairness import selected
from schedscope.errors import UsageError
from schedscope.units import nanoseconds

if TYPE_CHECKING:
    import numpy.typing as npt

    from schedscope.trace import Trace

    Ints = npt.NDArray[np.int64]
    Numbers = npt.NDArray[np.float64]

_SCHEMA = {
    "utid": pl.UInt32,
    "ts": pl.Int64,
    "lag": pl.Float64,
    "due": pl.Float64,
    "received": pl.Int64,
}
_MOST_ROWS = 20_000_000


def lag(
    trace: Trace,
    *,
    every: str | int | None = None,
    per: Per | None = None,
    where: pl.Expr | None = None,
) -> pl.DataFrame:
    """One row per thread and instant: service due to it since the begin, less service received.

    Without `every` a thread has rows where it began or ended to run or wait: between two of them
    its lag only rises, only falls, or (while it sleeps) stays. With `every` all threads that ever
    competed have rows at the same instants, from the begin of the window to its end: the lags
    of an instant sum to zero.

    * `utid`, `comm`, `tid`, `ts`: the thread, the instant;
    * `lag`: `due - received` (ns); positive: behind;
    * `due`, `received`: service due, CPU time, both since the begin of the window (ns).

    In order of `utid` and `ts`. `per`, `where`: as for `fairness`, where the definition is, too.
    Raises `UsageError` for an `every` that is no duration above 0 ns, or gives too many rows.

    >>> from schedscope import Trace
    >>> states = pl.DataFrame({
    ...     "ts": [0, 0, 60, 60], "dur": [60, 60, 40, 40], "utid": [1, 2, 2, 1], "cpu": [0] * 4,
    ...     "state": ["running", "runnable", "running", "runnable"], "prio": [120] * 4,
    ... })
    >>> threads = pl.DataFrame({"utid": [0, 1, 2], "comm": ["", "a", "b"], "tid": [0, 7, 8],
    ...     "prio": [None, 120, 120], "sched_class": ["idle", "fair", "fair"]})
    >>> trace = Trace.from_tables({"states": states, "threads": threads},
    ...     {"ncpu": 1, "window": [0, 100], "os": "Linux"})
    >>> lag(trace).filter(utid=2).drop("comm", "tid")
    shape: (3, 5)
    ┌──────┬─────┬──────┬──────┬──────────┐
    │ utid ┆ ts  ┆ lag  ┆ due  ┆ received │
    │ ---  ┆ --- ┆ ---  ┆ ---  ┆ ---      │
    │ u32  ┆ i64 ┆ f64  ┆ f64  ┆ i64      │
    ╞══════╪═════╪══════╪══════╪══════════╡
    │ 2    ┆ 0   ┆ 0.0  ┆ 0.0  ┆ 0        │
    │ 2    ┆ 60  ┆ 30.0 ┆ 30.0 ┆ 0        │
    │ 2    ┆ 100 ┆ 10.0 ┆ 50.0 ┆ 40       │
    └──────┴─────┴──────┴──────┴──────────┘
    """
    step = None if every is None else nanoseconds(every)
    if step is not None and step <= 0:
        raise UsageError(f"every={every!r}", "a duration longer than 0 ns", "as in 10ms")
    chosen = None
    if where is not None:
        all_threads = trace.threads.select("utid").collect()
        chosen = selected(trace, all_threads, where)["utid"]
    path = Path(trace, competition(trace, per=per), chosen)
    if step is None:
        return _named(trace, path.turns())
    begin, end = trace.window
    rows = ((end - begin) // step + 1) * len(path.threads)
    if rows > _MOST_ROWS:
        raise UsageError(
            f"every={every!r} gives {rows:,} rows",
            f"at most {_MOST_ROWS:,}",
            "take a longer time, or select threads with where",
        )
    at = np.unique(np.append(np.arange(begin, end, step, dtype=np.int64), end))
    return _named(trace, path.sampled(at))


def _named(trace: Trace, frame: pl.DataFrame) -> pl.DataFrame:
    names = trace.threads.select(pl.col("utid").cast(pl.UInt32), "comm", "tid").collect()
    joined = frame.join(names, on="utid", how="left", maintain_order="left")
    return joined.select("utid", "comm", "tid", "ts", "lag", "due", "received")


class Path:
    """What some threads got and were due, interval by interval, in order of thread and time.

    Parallel arrays: `utid`, `ts`, `until`, `runs`, `due` (in the interval), and
    `due_before`, `ran_before`: what the thread had gathered when it began.
    """

    def __init__(self, trace: Trace, found: Competition, utids: pl.Series | None) -> None:
        """Follow the threads `utids` (None: all) through the competition that was found."""
        begin, end = trace.window
        runs = pl.col("state") == "running"
        rows = trace.states.filter(
            runs | (pl.col("state") == "runnable"), pl.col("utid") >= trace.ncpu
        )
        if utids is not None:
            rows = rows.filter(pl.col("utid").is_in(utids.implode()))
        if found.per == "cpu":
            rows = rows.filter(pl.col("cpu").is_not_null())
        frame = (
            rows.select(
                "utid",
                "cpu",
                pl.col("prio").cast(pl.Int16),
                ts=pl.col("ts").clip(lower_bound=begin),
                until=(pl.col("ts") + pl.col("dur")).clip(upper_bound=end),
                runs=runs,
            )
            .filter(pl.col("ts") < pl.col("until"))
            .sort("utid", "ts")
            .collect()
        )
        self._trace, self._found, self._rows = trace, found, frame
        self.utid = frame["utid"].to_numpy()
        self.ts, self.until = frame["ts"].to_numpy(), frame["until"].to_numpy()
        self.runs = frame["runs"].to_numpy()
        self.due = due_between(trace, found, frame, self.ts, self.until)
        # Where a thread's rows begin; the sums start anew there.
        self.threads, self._first = np.unique(self.utid, return_index=True)
        self.due_before = self._before(self.due)
        self.ran_before = self._before((self.until - self.ts) * self.runs)

    def _before(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        total = np.concatenate([[0], np.cumsum(values)])[:-1]
        counts = np.diff(np.append(self._first, len(values)))
        before: npt.NDArray[Any] = total - np.repeat(total[self._first], counts)
        return before

    def turns(self) -> pl.DataFrame:
        """The frame of `lag` without `every`."""
        ran = (self.until - self.ts) * self.runs
        ends = self._frame(self.utid, self.until, self.due_before + self.due, self.ran_before + ran)
        alone = np.ones(len(self.ts), dtype=bool)
        alone[1:] = (self.ts[1:] != self.until[:-1]) | (self.utid[1:] != self.utid[:-1])
        begins = self._frame(
            self.utid[alone], self.ts[alone], self.due_before[alone], self.ran_before[alone]
        )
        return pl.concat([begins, ends]).sort("utid", "ts")

    def sampled(self, at: Ints) -> pl.DataFrame:
        """The frame of `lag` at each of the instants."""
        edges = np.append(self._first, len(self.ts))
        n = len(at)
        row = np.zeros(len(self.threads) * n, dtype=np.int64)
        for i in range(len(self.threads)):
            first, last = int(edges[i]), int(edges[i + 1])
            row[i * n : (i + 1) * n] = (
                first - 1 + np.searchsorted(self.ts[first:last], at, side="right")
            )
        begun = row >= np.repeat(self._first, n)
        row = np.maximum(row, np.repeat(self._first, n))
        until = np.where(
            begun, np.minimum(np.tile(at, len(self.threads)), self.until[row]), self.ts[row]
        )
        part = due_between(self._trace, self._found, self._rows[row], self.ts[row], until)
        due = self.due_before[row] + part
        ran = self.ran_before[row] + (until - self.ts[row]) * self.runs[row]
        return self._frame(self.utid[row], np.tile(at, len(self.threads)), due, ran)

    @staticmethod
    def _frame(utid: Ints, ts: Ints, due: Numbers, ran: Ints) -> pl.DataFrame:
        columns = {"utid": utid, "ts": ts, "lag": due - ran, "due": due, "received": ran}
        return pl.DataFrame(columns, schema=_SCHEMA)
