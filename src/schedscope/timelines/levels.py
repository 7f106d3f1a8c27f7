"""Lanes with a height: queue depth, interrupts, quotas and switches, summed over any stretch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import polars as pl

from schedscope.analysis._base.memo import once
from schedscope.analysis._base.softirqs import softirq
from schedscope.analysis._base.throttling import throttling
from schedscope.analysis.queue_depth import queue_depth
from schedscope.errors import UsageError
from schedscope.units import printable

if TYPE_CHECKING:
    from schedscope.trace import Trace

Ints = npt.NDArray[np.int64]

KINDS = {
    "depth": "queue depth",
    "irq": "interrupts",
    "quota": "held back by its CPU quota",
    "rate": "switches per second",
}
_UNKNOWN = -1


@dataclass(frozen=True)
class Steps:
    """A step function: `values[i]` from `starts[i]` to the next start, ns after the begin.

    A value of -1 is not known. `sums[i]` is the area, and `known[i]` the known time, before step i.
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
        largest = np.maximum(value[:-1], 0)
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


class Levels:
    """The lanes with a height that a trace has, built when first asked for.

    They are named `depth:N`, `depth:all`, `irq:N`, `quota:N`, `rate:N` and `rate:all`; N is a CPU,
    and of `quota` the place among the control groups that a quota held back.
    """

    def __init__(self, trace: Trace, cpus: list[int]) -> None:
        """Take nothing from the trace yet."""
        self.trace, self._cpus = trace, cpus
        self.begin, self.end = trace.window
        self._lanes: dict[str, Steps | Instants] = {}

    @staticmethod
    def names(key: Any) -> bool:
        """Is this the name of such a lane?"""
        kind, _, rest = str(key).partition(":")
        return kind in KINDS and (rest.isdecimal() or (rest == "all" and kind in ("depth", "rate")))

    def offered(self) -> list[dict[str, Any]]:
        """What the trace has: what it is called, and its lanes with their titles."""
        found = [
            ("queue depth of each CPU", [f"depth:{cpu}" for cpu in self._cpus]),
            ("queue depth of all CPUs together", ["depth:all"]),
            ("switches per second on each CPU", [f"rate:{cpu}" for cpu in self._cpus]),
            ("switches per second on all CPUs together", ["rate:all"]),
        ]
        if self.trace.irqs.head(1).collect().height:
            found.append(("interrupts on each CPU", [f"irq:{cpu}" for cpu in self._cpus]))
        if groups := self._groups():
            quotas = [f"quota:{number}" for number in range(len(groups))]
            found.append(("control groups held back by a CPU quota", quotas))
        return [
            {"name": name, "lanes": keys, "titles": [self.title(key) for key in keys]}
            for name, keys in found
        ]

    def title(self, key: str) -> str:
        """What stands beside the lane."""
        kind, _, rest = key.partition(":")
        if kind == "quota":
            return f"quota {printable(self._groups()[int(rest)]['cgroup'])}"
        what = {"depth": "queue", "irq": "interrupts", "rate": "switches"}[kind]
        return f"{what}, all CPUs" if rest == "all" else f"{what}, CPU {rest}"

    def get(self, key: str) -> Steps | Instants:
        """The lane of this name. Raises `UsageError` for one that the trace does not have."""
        kind, _, rest = key.partition(":")
        own = len(self._groups()) if kind == "quota" else 0
        if rest != "all" and int(rest) not in (range(own) if kind == "quota" else self._cpus):
            raise UsageError(f"lane {key!r:.40}", "a lane that this trace has")
        if key not in self._lanes:
            getattr(self, f"_build_{kind}")(rest)
        return self._lanes[key]

    def at(self, key: str, ts: int) -> dict[str, Any]:
        """The step of lane `key` at `ts`, in words."""
        lane = self.get(key)
        answer: dict[str, Any] = {"lane": key, "at": ts, "state": None, "tables": []}
        if isinstance(lane, Instants) or not 0 <= ts < self.end - self.begin:
            return answer
        begin, value, end = lane.at(ts)
        end = self.end - self.begin if end is None else end
        if value == _UNKNOWN:
            return answer
        kind, _, rest = key.partition(":")
        text = {
            "depth": f"{value} {'thread wants' if value == 1 else 'threads want'} to run here",
            "irq": "interrupts are handled" if value else "no interrupt",
            "quota": "held back by its quota" if value else "not held back",
        }[kind]
        if kind == "irq" and value:
            text = self._handlers(int(rest), begin, end)
        return {**answer, "state": "level", "begin": begin, "end": end, "text": text}

    # ---- building ----

    def _groups(self) -> list[dict[str, Any]]:
        groups = self.trace.info.get("groups") or []
        return [group for group in groups if group.get("n_throttled")]

    def _build_depth(self, rest: str) -> None:
        # All CPUs at once: the table is read as long for one of them.
        frame = queue_depth(self.trace, by="all" if rest == "all" else "cpu")
        if rest == "all":
            self._lanes["depth:all"] = self._steps(frame["ts"], frame["depth"])
            return
        parts = frame.filter(pl.col("cpu").is_not_null()).partition_by("cpu", as_dict=True)
        for cpu in self._cpus:
            part = parts.get((cpu,), frame.clear())
            self._lanes[f"depth:{cpu}"] = self._steps(part["ts"], part["depth"])

    def _steps(self, ts: pl.Series, value: pl.Series) -> Steps:
        starts = ts.to_numpy().astype(np.int64) - self.begin
        values = value.cast(pl.Int32).fill_null(_UNKNOWN).to_numpy()
        if not len(starts):
            starts, values = np.zeros(1, np.int64), np.full(1, _UNKNOWN, np.int32)
        spent = np.diff(starts, append=self.end - self.begin)
        return Steps(
            starts=starts,
            values=values,
            sums=np.concatenate([[0], np.cumsum(np.maximum(values, 0) * spent)[:-1]]),
            known=np.concatenate([[0], np.cumsum((values >= 0) * spent)[:-1]]),
            top=int(values.max(initial=0)),
        )

    def _spans(self, rows: pl.DataFrame) -> Steps:
        """1 within stretches of which no two overlap or touch, in order of time; 0 elsewhere."""
        rows = rows.select(
            pl.col("ts").clip(lower_bound=self.begin), pl.col("until").clip(upper_bound=self.end)
        ).filter(pl.col("ts") < pl.col("until"))
        edges = np.stack([rows["ts"].to_numpy(), rows["until"].to_numpy()], axis=1).ravel()
        values = np.tile(np.array([1, 0], np.int32), rows.height)
        if not len(edges) or edges[0] > self.begin:
            edges, values = np.append(self.begin, edges), np.append(np.int32(0), values)
        steps = self._steps(pl.Series(edges), pl.Series(values))
        return replace(steps, top=1)

    def _build_irq(self, _rest: str) -> None:
        rows = self.trace.irqs.select("cpu", "ts", "dur").sort("cpu", "ts").collect()
        parts = rows.partition_by("cpu", as_dict=True)
        for cpu in self._cpus:
            part = parts.get((cpu,), rows.clear())
            self._lanes[f"irq:{cpu}"] = self._spans(_united(part))

    def _build_quota(self, rest: str) -> None:
        held = once(throttling, self.trace)
        path = str(self._groups()[int(rest)]["cgroup"])
        own = [utid for utid, quota in held.quota_of.items() if quota == path]
        numbers = {held.group[utid] for utid in own} - {None}
        rows = held.stretches.filter(pl.col("group").is_in(list(numbers))).sort("ts")
        self._lanes[f"quota:{rest}"] = self._spans(_united(rows))

    def _build_rate(self, rest: str) -> None:
        frame = (
            self.trace.switches.filter(pl.col("ts").is_between(self.begin, self.end, "left"))
            .select("cpu", ts=pl.col("ts") - self.begin)
            .sort("ts")
            .collect()
        )
        if rest == "all":
            self._lanes["rate:all"] = Instants(frame["ts"].to_numpy())
            return
        parts = frame.partition_by("cpu", as_dict=True)
        for cpu in self._cpus:
            self._lanes[f"rate:{cpu}"] = Instants(parts.get((cpu,), frame.clear())["ts"].to_numpy())

    def _handlers(self, cpu: int, begin: int, end: int) -> str:
        """Which interrupts those were, the longest first."""
        ts = pl.col("ts") - self.begin
        rows = (
            self.trace.irqs.filter(
                pl.col("cpu") == cpu, ts < end, ts + pl.col("dur") > begin, pl.col("dur") > 0
            )
            .sort("dur", descending=True)
            .select(pl.col("kind").cast(pl.String), "id")
            .unique(maintain_order=True)
            .head(4)
            .collect()
        )
        named = [
            softirq(number) if kind == "soft" else f"interrupt {number}"
            for kind, number in rows.iter_rows()
        ]
        return "handles " + ", ".join(named)


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
