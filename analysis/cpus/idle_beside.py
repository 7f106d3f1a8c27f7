"""For how long did a CPU that a thread may use idle during a stretch of time?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import polars as pl

from schedscope.analysis.cpus.allowed_cpus import allowed_cpus, changed_masks
from schedscope.analysis.cpus.topology import recorded_cpus

if TYPE_CHECKING:
    from schedscope.store.trace import Trace

Ints = npt.NDArray[np.int64]


def idle_beside(trace: Trace, spans: pl.DataFrame) -> pl.Series:
    """In each of `spans` (`utid`, `ts`, `until`, `own`): ns in which such a CPU was known to idle.

    `own`, a CPU or null, does not count: it is about to run the thread. Threads whose mask changed
    get 0.
    """
    cpus = frozenset(recorded_cpus(trace))
    masks, changed = allowed_cpus(trace, cpus), changed_masks(trace)
    begin, end = trace.window
    idle = (
        trace.states.filter(pl.col("state") == "running", pl.col("utid") < trace.ncpu)
        .select(
            pl.col("cpu").cast(pl.Int64),
            pl.col("ts").clip(lower_bound=begin),
            until=(pl.col("ts") + pl.col("dur")).clip(upper_bound=end),
        )
        .filter(pl.col("ts") < pl.col("until"))
        .collect()
    )
    rows = spans.select("utid", "ts", "until", "own").with_row_index("n")
    found = np.zeros(rows.height, np.int64)
    named = {mask: number for number, mask in enumerate(dict.fromkeys([cpus, *masks.values()]))}
    kind = {utid: named[mask] for utid, mask in masks.items()} | dict.fromkeys(changed, -1)
    rows = rows.with_columns(
        mask=pl.col("utid").replace_strict(kind, default=0, return_dtype=pl.Int64)
        if kind
        else pl.lit(0, pl.Int64)
    )
    for mask, number in named.items():
        mine = rows.filter(mask=number)
        if mine.is_empty():
            continue
        times = _Idle.of(idle.filter(pl.col("cpu").is_in(list(mask))))
        where = mine["n"].to_numpy()
        found[where] = times.any_cpu(mine)
        for (own,), part in (
            mine.filter(pl.col("own").is_not_null()).partition_by("own", as_dict=True).items()
        ):
            found[part["n"].to_numpy()] -= times.only(int(own), part)
    return pl.Series("idle", found)


@dataclass(frozen=True)
class _Idle:
    """At each of `at`, in order: how many CPUs idle from there on, and the sum of their numbers."""

    at: Ints
    many: Ints
    numbers: Ints

    @classmethod
    def of(cls, rows: pl.DataFrame) -> _Idle:
        cpu, ts, until = (rows[name].to_numpy() for name in ("cpu", "ts", "until"))
        at = np.concatenate([ts, until])
        order = np.argsort(at, kind="stable")
        one = np.repeat([1, -1], len(ts))
        return cls(at[order], one[order].cumsum(), (one * np.tile(cpu, 2))[order].cumsum())

    def any_cpu(self, spans: pl.DataFrame) -> Ints:
        """ns in which any of them idled."""
        return self._within(self.many > 0, spans)

    def only(self, cpu: int, spans: pl.DataFrame) -> Ints:
        """ns in which this one idled, and no other."""
        return self._within((self.many == 1) & (self.numbers == cpu), spans)

    def _within(self, holds: npt.NDArray[np.bool_], spans: pl.DataFrame) -> Ints:
        if not len(self.at):
            return np.zeros(spans.height, np.int64)
        spent = np.diff(self.at, append=self.at[-1:]) * holds
        before = np.concatenate([[0], spent.cumsum()])

        def upto(ts: Ints) -> Ints:
            i = np.searchsorted(self.at, ts, side="right") - 1
            part = np.where(holds[i], ts - self.at[i], 0)
            return np.where(i < 0, 0, before[np.maximum(i, 0)] + part)

        return upto(spans["until"].to_numpy()) - upto(spans["ts"].to_numpy())
