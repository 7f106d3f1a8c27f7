"""What one CPU or one thread did, indexed so that any stretch of time is summed at once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import polars as pl

from schedscope.errors import UsageError
from schedscope.units import printable

if TYPE_CHECKING:
    from schedscope.trace import Trace

Times = npt.NDArray[np.int64]

STATES = ("running", "idle", "runnable", "blocked", "sleeping", "stopped", "unknown")
"""What a lane can show; a state's number is its place. `stopped` includes `parked`."""

_CODES = {name: code for code, name in enumerate(STATES)} | {"parked": STATES.index("stopped")}
NOBODY = 0xFFFF_FFFF


@dataclass(frozen=True)
class Lane:
    """Intervals of one lane in order of time, without overlap; ns after the trace's begin.

    `who` is the thread on a CPU's lane and the CPU on a thread's; `waker` and
    `waker_cpu` stand on the runnable intervals of a wait that a wakeup began.
    `sums[code][i]` is the time that the first `i` intervals spend in that state.
    """

    starts: Times
    ends: Times
    codes: npt.NDArray[np.uint8]
    who: npt.NDArray[np.uint32]
    waker: npt.NDArray[np.uint32]
    waker_cpu: npt.NDArray[np.uint32]
    sums: dict[int, Times]

    def between(self, begin: int, end: int) -> slice:
        """The intervals of which something lies in `[begin, end)`."""
        first = int(np.searchsorted(self.ends, begin, side="right"))
        return slice(first, max(first, int(np.searchsorted(self.starts, end, side="left"))))

    def binned(self, edges: Times) -> dict[int, Times]:
        """ns in each state between neighbouring edges, exactly; states that occur only."""
        at = np.searchsorted(self.starts, edges, side="right") - 1
        inside = at >= 0
        at = np.maximum(at, 0)
        found = {}
        for code, sums in self.sums.items():
            part = np.clip(edges, None, self.ends[at]) - self.starts[at]
            upto = sums[at] + np.where(self.codes[at] == code, part, 0)
            spent = np.diff(np.where(inside, upto, 0))
            if spent.any():
                found[code] = spent
        return found


class Lanes:
    """The lanes of a trace, built when first asked for.

    A lane is named `cpu:N` or `utid:N`.
    """

    def __init__(self, trace: Trace) -> None:
        """Take nothing from the trace yet but its window."""
        self.trace = trace
        self.begin, self.end = trace.window
        self._lanes: dict[str, Lane] = {}
        self._names: dict[int, str] | None = None

    @property
    def duration(self) -> int:
        """Length of the window, ns."""
        return self.end - self.begin

    def cpus(self) -> list[int]:
        """Numbers of the CPUs that were recorded."""
        recorded = {int(cpu["cpu"]) for cpu in self.trace.info.get("per_cpu") or []}
        return sorted(recorded or range(self.trace.ncpu))

    def get(self, keys: Iterable[str]) -> list[Lane]:
        """The lanes of these names; one pass over the states builds all that are new.

        Raises `UsageError` for a name that is not a lane.
        """
        keys = list(keys)
        new = [key for key in dict.fromkeys(keys) if key not in self._lanes]
        asked: dict[str, list[int]] = {"cpu": [], "utid": []}
        for key in new:
            kind, number = _split(key)
            asked[kind].append(number)
        if asked["cpu"]:
            # All at once: one CPU's rows cost as long to find as everybody's.
            self._build_cpus({*asked["cpu"], *self.cpus()})
        if asked["utid"]:
            self._build_threads(asked["utid"])
        return [self._lanes[key] for key in keys]

    def name(self, utid: int) -> str:
        """`comm tid`, as a person looks for it."""
        if self._names is None:
            rows = self.trace.threads.select("utid", "comm", "tid").collect().iter_rows()
            self._names = {
                utid: f"{printable(comm or '')} {'' if tid is None else tid}".strip()
                for utid, comm, tid in rows
            }
        return self._names.get(utid) or f"thread {utid}"

    def _build_cpus(self, cpus: set[int]) -> None:
        rows = self._rows(pl.col("state") == "running", "cpu").with_columns(
            code=pl.when(pl.col("utid") < self.trace.ncpu)
            .then(_CODES["idle"])
            .otherwise(_CODES["running"])
            .cast(pl.UInt8)
        )
        parts = rows.partition_by("cpu", as_dict=True)
        for cpu in cpus:
            self._lanes[f"cpu:{cpu}"] = _lane(parts.pop((cpu,), rows.clear()), "utid", None)

    def _build_threads(self, utids: list[int]) -> None:
        chosen = pl.col("utid").is_in(utids)
        rows = (
            self._rows(chosen, "cpu", "waker_utid", "state")
            .with_columns(code=pl.col("state").cast(pl.String).replace_strict(_CODES, default=None))
            .filter(pl.col("code").is_not_null())
            .with_columns(pl.col("code").cast(pl.UInt8))
        )
        waits = (
            self.trace.waits.filter(chosen & pl.col("ts_ready").is_not_null())
            .select("utid", "waker_cpu", ts=pl.col("ts_ready") - self.begin)
            .collect()
        )
        parts = rows.partition_by("utid", as_dict=True)
        woken = waits.partition_by("utid", as_dict=True)
        for utid in utids:
            self._lanes[f"utid:{utid}"] = _lane(
                parts.get((utid,), rows.clear()), "cpu", woken.get((utid,))
            )

    def _rows(self, which: pl.Expr, *columns: str) -> pl.DataFrame:
        ts = pl.col("ts").clip(lower_bound=self.begin) - self.begin
        until = (pl.col("ts") + pl.col("dur")).clip(upper_bound=self.end) - self.begin
        return (
            self.trace.states.filter(which)
            .select("utid", *columns, ts=ts, until=until)
            .filter(pl.col("ts") < pl.col("until"))
            .collect()
        )


def _split(key: Any) -> tuple[str, int]:
    kind, _, number = str(key).partition(":")
    if kind not in ("cpu", "utid") or not number.isdecimal() or int(number) >= NOBODY:
        raise UsageError(f"lane {key!r}", "cpu:N or utid:N", "as in cpu:0")
    return kind, int(number)


def _lane(rows: pl.DataFrame, who: str, waits: pl.DataFrame | None) -> Lane:
    rows = rows.sort("ts", maintain_order=True)
    starts, ends = rows["ts"].to_numpy(), rows["until"].to_numpy()
    if len(starts) and (starts[1:] < ends[:-1]).any():
        # Somebody else's tables may say two things at once: no ns is counted twice.
        before = np.maximum.accumulate(ends)[:-1]
        starts = np.concatenate([starts[:1], np.maximum(starts[1:], before)])
        rows, starts, ends = rows.filter(starts < ends), starts[starts < ends], ends[starts < ends]
    codes = rows["code"].to_numpy()
    spent = ends - starts
    sums = {
        int(code): np.concatenate([[0], np.cumsum(np.where(codes == code, spent, 0))])
        for code in np.unique(codes)
    }
    nobody = np.full(len(starts), NOBODY, dtype=np.uint32)
    waker, waker_cpu = nobody, nobody
    if waits is not None and waits.height:
        waker = rows["waker_utid"].cast(pl.UInt32).fill_null(NOBODY).to_numpy()
        known = rows.select("ts").join(
            waits.unique("ts"), on="ts", how="left", maintain_order="left"
        )
        waker_cpu = known["waker_cpu"].cast(pl.UInt32).fill_null(NOBODY).to_numpy()
        waker_cpu = np.where(codes == _CODES["runnable"], waker_cpu, NOBODY).astype(np.uint32)
    return Lane(
        starts=starts,
        ends=ends,
        codes=codes,
        who=rows[who].cast(pl.UInt32).fill_null(NOBODY).to_numpy(),
        waker=waker,
        waker_cpu=waker_cpu,
        sums=sums,
    )
