"""Lanes with a height over a stretch of time, from the rows of the tables that it needs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from schedscope.analysis.asking.memo import once
from schedscope.analysis.asking.needs import has
from schedscope.analysis.causes.throttling import throttling
from schedscope.analysis.dispatch_depth import depth_of
from schedscope.analysis.queue_depth import queue_depth
from schedscope.analysis.virtual_lag import virtual_lag_series
from schedscope.analysis.waits.queue_stays import name_of_queue
from schedscope.store.trace import Trace

Ints = npt.NDArray[np.int64]

UNKNOWN = -1
MOST_QUEUES = 64
"""Dispatch queues that have a lane: those that threads entered most often."""


@dataclass(frozen=True)
class Steps:
    """A step function: `values[i]` from `starts[i]` to the next start, ns after the window's start.

    A value of -1 is unknown. `sums[i]` is the area, and `known[i]` the known time, before step i.
    """

    starts: Ints
    values: npt.NDArray[np.int32]
    sums: Ints
    known: Ints
    top: int

    def binned(self, edges: Ints) -> dict[str, Ints]:
        """Between neighbouring edges: the area, the known time, and the largest value."""
        at = np.searchsorted(self.starts, edges, side="right") - 1
        inside = at >= 0
        at = np.maximum(at, 0)
        part = np.where(inside, edges - self.starts[at], 0)
        value = self.values[at]
        sums = self.sums[at] + part * np.maximum(value, 0)
        known = self.known[at] + part * (value >= 0)
        # The value that a stretch begins with, and those of the steps that begin within it.
        largest = np.maximum(value[:-1], 0) * (np.diff(edges) > 0)
        first = np.searchsorted(self.starts, edges, side="left")
        begun = np.flatnonzero(np.diff(first))
        if len(begun):
            padded = np.append(self.values, 0)
            inner = np.maximum.reduceat(padded, np.append(first[begun], first[-1]))[:-1]
            largest[begun] = np.maximum(largest[begun], inner)
        return {"sum": np.diff(sums), "known": np.diff(known), "max": largest.astype(np.int64)}

    def at(self, ts: int) -> tuple[int, int, int | None]:
        """The step at `ts`: its start, its value, and where it ends (None: at the end)."""
        i = max(0, int(np.searchsorted(self.starts, ts, side="right")) - 1)
        end = int(self.starts[i + 1]) if i + 1 < len(self.starts) else None
        return int(self.starts[i]), int(self.values[i]), end


@dataclass(frozen=True)
class Instants:
    """Events, counted."""

    times: Ints

    def binned(self, edges: Ints) -> dict[str, Ints]:
        """How many lie between neighbouring edges."""
        return {"sum": np.diff(np.searchsorted(self.times, edges, side="left"))}


Heights = Steps | Instants


class Reader:
    """Reads the lanes of one kind in a stretch of the window, ns after its start."""

    def __init__(self, trace: Trace, cpus: list[int]) -> None:
        """Lanes of these CPUs; reads nothing from the trace yet."""
        self.trace, self._cpus = trace, cpus
        self.origin, self._until = trace.window

    def read(self, kind: str, rest: str, begin: int, end: int) -> dict[str, Heights]:
        """The lane `kind:rest`, and those of its kind that come with it, in `[begin, end)`."""
        span = self.origin + begin, min(self.origin + end, self._until)
        found: dict[str, Heights] = getattr(self, f"_{kind}")(rest, *span)
        return found

    def unknown(self, begin: int, end: int) -> Steps:
        """A lane of which nothing is known in `[begin, end)`."""
        nothing = pl.Series([], dtype=pl.Int64)
        return self._steps(nothing, nothing, self.origin + begin, self.origin + end)

    def _part(self, begin: int, end: int) -> Trace | None:
        """The trace as far as its threads' states lie in a stretch; None if there are none."""
        if (begin, end) == self.trace.window:
            return self.trace
        inside = (pl.col("ts") < end) & (pl.col("ts") + pl.col("dur") > begin)
        states = self.trace.part("states", begin, end)
        held = states.select("ts", "dur", "utid", "state", "cpu").filter(inside).collect()
        info = {**self.trace.info, "window": [begin, end]}
        return Trace.from_tables({"states": held}, info) if held.height else None

    def _depth(self, rest: str, begin: int, end: int) -> dict[str, Heights]:
        trace = self._part(begin, end)
        if trace is None or not has(trace, "competitors"):
            return {}
        # All CPUs at once: the table is read as long for one of them.
        frame = queue_depth(trace, by="all" if rest == "all" else "cpu")
        if rest == "all":
            return {"depth:all": self._steps(frame["ts"], frame["depth"], begin, end)}
        parts = frame.filter(pl.col("cpu").is_not_null()).partition_by("cpu", as_dict=True)
        return {
            f"depth:{cpu}": self._steps(part["ts"], part["depth"], begin, end)
            for cpu in self._cpus
            for part in [parts.get((cpu,), frame.clear())]
        }

    def _irq(self, _rest: str, begin: int, end: int) -> dict[str, Heights]:
        rows = self.trace.part("irqs", begin, end).select("cpu", "ts", "dur")
        parts = rows.sort("cpu", "ts").collect().partition_by("cpu", as_dict=True)
        nothing = pl.DataFrame(schema=rows.collect_schema())
        return {
            f"irq:{cpu}": self._spans(_united(parts.get((cpu,), nothing)), begin, end)
            for cpu in self._cpus
        }

    def _quota(self, rest: str, begin: int, end: int) -> dict[str, Heights]:
        held = once(throttling, self.trace)
        path = str(throttled(self.trace)[int(rest)]["cgroup"])
        rows = held.by_quota[path].sort("ts")
        certain, possible = (_united(part) for part in (rows.filter("certain"), rows))
        return {f"quota:{rest}": self._spans(certain, begin, end, possible)}

    def _dsq(self, rest: str, begin: int, end: int) -> dict[str, Heights]:
        frame = depth_of(self.trace, once(queues, self.trace)[int(rest)])
        return {f"dsq:{rest}": self._steps(frame["ts"], frame["depth"], begin, end)}

    def _lag(self, rest: str, begin: int, end: int) -> dict[str, Heights]:
        """Whole us that a thread is behind at its last turn; 0 when ahead, and off the queue."""
        frame = virtual_lag_series(self.trace, where=pl.col("utid") == int(rest))
        turns = frame.filter(pl.col("ts").is_between(begin, end, "left")).group_by(
            "ts", maintain_order=True
        )
        last = turns.agg(pl.col("lag", "turn").last())
        gone = pl.col("turn").cast(pl.String) == "left"
        behind = pl.when(gone).then(0).otherwise(pl.col("lag").clip(lower_bound=0) // 1000)
        last = last.select("ts", behind=behind)
        if not last.height or last["ts"][0] > begin:
            first = pl.DataFrame({"ts": [begin], "behind": [None]}, schema=last.schema)
            last = pl.concat([first, last])
        return {f"lag:{rest}": self._steps(last["ts"], last["behind"], begin, end)}

    def _rate(self, rest: str, begin: int, end: int) -> dict[str, Heights]:
        frame = (
            self.trace.part("switches", begin, end)
            .filter(pl.col("ts").is_between(begin, end, "left"))
            .select("cpu", ts=pl.col("ts") - self.origin)
            .sort("ts")
            .collect()
        )
        if rest == "all":
            return {"rate:all": Instants(frame["ts"].to_numpy())}
        parts = frame.partition_by("cpu", as_dict=True)
        return {
            f"rate:{cpu}": Instants(parts.get((cpu,), frame.clear())["ts"].to_numpy())
            for cpu in self._cpus
        }

    def _steps(self, ts: pl.Series, value: pl.Series, begin: int, end: int) -> Steps:
        starts = ts.to_numpy().astype(np.int64) - self.origin
        values = value.cast(pl.Int32).fill_null(UNKNOWN).to_numpy()
        if not len(starts):
            starts = np.full(1, begin - self.origin, np.int64)
            values = np.full(1, UNKNOWN, np.int32)
        spent = np.diff(starts, append=end - self.origin)
        return Steps(
            starts=starts,
            values=values,
            sums=np.concatenate([[0], np.cumsum(np.maximum(values, 0) * spent)[:-1]]),
            known=np.concatenate([[0], np.cumsum((values >= 0) * spent)[:-1]]),
            top=int(values.max(initial=0)),
        )

    def _spans(
        self, rows: pl.DataFrame, begin: int, end: int, possible: pl.DataFrame | None = None
    ) -> Steps:
        """1 within stretches of which no two overlap or touch, in order of time; 0 elsewhere, and
        unknown in the rest of the `possible` ones.
        """
        spans = [
            one.filter(pl.col("ts") < end, pl.col("until") > begin).select("ts", "until").to_numpy()
            for one in ((rows,) if possible is None else (rows, possible))
        ]
        edges = np.unique(
            np.clip(np.concatenate([[begin], *(one.ravel() for one in spans)]), begin, end)
        )
        within, may = (
            np.searchsorted(one[:, 0], edges, "right") > np.searchsorted(one[:, 1], edges, "right")
            for one in (spans[0], spans[-1])
        )
        values = np.where(within, 1, np.where(may, UNKNOWN, 0)).astype(np.int32)
        return replace(self._steps(pl.Series(edges), pl.Series(values), begin, end), top=1)


def throttled(trace: Trace) -> list[dict[str, Any]]:
    """The control groups that a CPU quota held back."""
    return [group for group in trace.info.get("groups") or [] if group.get("n_throttled")]


def queues(trace: Trace) -> list[str]:
    """The dispatch queues of sched_ext that threads entered most often, those in order of name."""
    entered = trace.dispatch_queues.filter(pl.col("step") == "insert").select(queue=name_of_queue())
    number = pl.col("queue").str.extract(r"(\d+)$").cast(pl.UInt64)
    most = (
        entered.group_by("queue")
        .agg(pl.len())
        .sort("len", "queue", descending=[True, False])
        .head(MOST_QUEUES)
        .sort(pl.col("queue").str.extract(r"^(\w+)"), number)
    )
    return most.collect()["queue"].to_list()


def _united(rows: pl.DataFrame) -> pl.DataFrame:
    """`ts`, `until`: stretches of which no two overlap or touch, of rows in order of `ts`."""
    until = (pl.col("ts") + pl.col("dur")).cum_max()
    return (
        rows.select("ts", until=until)
        .with_columns(run=(pl.col("ts") > pl.col("until").shift()).fill_null(True).cum_sum())
        .group_by("run", maintain_order=True)
        .agg(pl.col("ts").first(), pl.col("until").last())
        .select("ts", "until")
    )
