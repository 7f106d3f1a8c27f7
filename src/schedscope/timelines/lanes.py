"""What one CPU or one thread did, indexed so that any stretch of time is summed at once.

For a short trace, whole lanes are held. For a long one, which has an `Overview`, only the rows that
a stretch of time needs are read, if they are not too many. A thread's whole lane is read while the
picture shows the overview's sums, as long as there is room for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import polars as pl

from schedscope.analysis.cpus.many_cpus import FEW_CPUS
from schedscope.errors import UsageError
from schedscope.timelines.background import Background
from schedscope.units import printable

if TYPE_CHECKING:
    from schedscope.store.overview import Overview
    from schedscope.store.trace import Trace

Times = npt.NDArray[np.int64]

STATES = ("running", "idle", "runnable", "blocked", "sleeping", "stopped", "unknown", "parked")
"""What a lane can show; a state's number is its place."""

CODES = {name: code for code, name in enumerate(STATES)}
NOBODY = 0xFFFF_FFFF
MOST_ROWS = 2_000_000
"""Rows of a long trace that are read for one answer, and at a time."""
QUICK_ROWS = 150_000
"""Rows that are read while a person waits for a picture: a few hundredths of a second."""
ROOM = 6_000_000
"""Intervals of a long trace that are held: some 60 bytes each."""
Rows = Sequence[tuple[int, int]]
"""First and number of rows of the table, stretch after stretch."""


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

    def __init__(self, trace: Trace, overview: Overview | None = None) -> None:
        """Reads nothing from the trace yet but its window; with its `overview` holds only parts."""
        self.trace, self.overview = trace, overview
        self.begin, self.end = trace.window
        self._lanes: dict[str, Lane] = {}
        self._near: dict[str, tuple[int, int, Lane]] = {}
        self._names: dict[int, str] = {}
        self._said: dict[int, tuple[str | None, int | None]] | None = None
        self._lock, self._whole, self._nearby = Lock(), Background(), Background()

    @property
    def duration(self) -> int:
        """Length of the window, ns."""
        return self.end - self.begin

    def cpus(self) -> list[int]:
        """Numbers of the CPUs that were recorded."""
        recorded = {int(cpu["cpu"]) for cpu in self.trace.info.get("per_cpu") or []}
        return sorted(recorded or range(self.trace.ncpu))

    def get(self, keys: Iterable[str]) -> list[Lane]:
        """The whole lanes of these names; one pass over the states builds all that are new.

        Raises `UsageError` for a name that is not a lane.
        """
        keys = list(keys)
        cpus, utids = _asked(key for key in keys if key not in self._lanes)
        if cpus:
            # All at once, if they are few: finding one CPU's rows takes as long as finding all.
            every = self.cpus()
            self._lanes.update(self._cpu_lanes({*cpus, *(every if len(every) <= FEW_CPUS else ())}))
        if utids:
            self._lanes.update(self._thread_lanes(utids))
        return [self._lanes[key] for key in keys]

    def within(
        self, keys: Iterable[str], begin: int, end: int, *, now: bool = True
    ) -> tuple[list[Lane | None], set[str]]:
        """Lanes that have what is in `[begin, end)`, and those whose rows are being read.

        None for those of a long trace for which too many rows would have to be read; if not `now`,
        for those, too, that would make a person wait. Raises `UsageError` for a name that is not a
        lane, and what went wrong while lanes were read.
        """
        keys = list(keys)
        _asked(keys)
        if self.overview is None:
            return list(self.get(keys)), set()
        self._whole.check()
        self._nearby.check()
        coming = set[str]()
        cpus, utids = _asked(key for key in keys if self._known(key, begin, end) is None)
        if cpus and self._read({*cpus, *self.cpus()}, [], begin, end, keys, now):
            coming |= {f"cpu:{cpu}" for cpu in cpus}
        if utids and self._read(set(), utids, begin, end, keys, now):
            coming |= {f"utid:{utid}" for utid in utids}
        return [self._known(key, begin, end) for key in keys], coming

    def around(self, key: str, at: int) -> Lane:
        """A lane that has the interval at `at` and, for a thread, its neighbours."""
        if self.overview is None:
            return self.get([key])[0]
        span = 1 if key.startswith("cpu:") else max(1, self.duration >> 12)
        while True:
            begin, end = max(0, at - span), min(self.duration, at + span)
            lane = self.within([key], begin, end)[0][0]
            if lane is None:
                return self.get([key])[0]
            i = int(np.searchsorted(lane.starts, at, side="right")) - 1
            if key.startswith("cpu:") or 0 < i < len(lane.starts) - 1:
                return lane
            if begin == 0 and end == self.duration:
                return lane
            span *= 8

    def count(self, keys: Iterable[str]) -> int:
        """How many intervals these lanes have, none of which is held for that."""
        cpus, utids = _asked(keys)
        there = (pl.col("state") == "running") & pl.col("cpu").is_in(cpus)
        rows = self.trace.states.filter(there).select(pl.len()).collect(engine="streaming").item()
        assert self.overview is not None
        return int(rows) + sum(self.overview.rows_of(utid) for utid in utids)

    def hold(self, keys: Iterable[str]) -> None:
        """Read these threads' whole lanes now, as many as there is room for."""
        assert self.overview is not None
        wanted, rows = [], 0
        for utid in _asked(keys)[1]:
            rows += self.overview.rows_of(utid)
            if rows > ROOM:
                break
            wanted.append(f"utid:{utid}")
        if wanted:
            self._load(wanted)

    def load(self, keys: Iterable[str]) -> set[str]:
        """Begins to read these threads' whole lanes, as many as there is room for; returns
        which.
        """
        assert self.overview is not None
        with self._lock:
            wanted, rows = set[str](), 0
            for key in keys:
                rows += self.overview.rows_of(_split(key)[1])
                if rows > ROOM:
                    break
                wanted.add(key)
            if not self._whole.busy and (new := sorted(wanted - self._lanes.keys())):
                for key in self._lanes.keys() - wanted:
                    rows += len(self._lanes[key].starts)
                    if rows > ROOM:
                        del self._lanes[key]
                self._whole.begin(lambda: self._load(new))
        return wanted

    def name(self, utid: int) -> str:
        """`comm tid`, as a person looks for it."""
        if utid not in self._names:
            if self._said is None:
                rows = self.trace.threads.select("utid", "comm", "tid").collect()
                pairs = zip(rows["comm"].to_list(), rows["tid"].to_list(), strict=True)
                self._said = dict(zip(rows["utid"].to_list(), pairs, strict=True))
            comm, tid = self._said.get(utid) or (None, None)
            name = f"{printable(comm or '')} {'' if tid is None else tid}".strip()
            self._names[utid] = name or f"thread {utid}"
        return self._names[utid]

    # ---- long traces ----

    def _known(self, key: str, begin: int, end: int) -> Lane | None:
        if lane := self._lanes.get(key):
            return lane
        since, until, lane = self._near.get(key) or (0, -1, None)
        return lane if since <= max(0, begin) and min(self.duration, end) <= until else None

    def _read(
        self,
        cpus: set[int],
        utids: list[int],
        begin: int,
        end: int,
        keys: list[str],
        now: bool,
    ) -> bool:
        """Hold what is in `[begin, end)`, and as much on each side if that is not too much.

        True if that is being read in the background, as it takes longer than a person waits.
        """
        assert self.overview is not None
        found = []
        for span in around(begin, end, self.duration):
            rows = (
                self.overview.running_rows(*span)
                if cpus
                else self.overview.thread_rows(utids, *span)
            )
            found.append((sum(many for _, many in rows), rows, span))
        quick = min(QUICK_ROWS, MOST_ROWS)
        limits = (MOST_ROWS,) if now else (quick, MOST_ROWS)
        for limit in limits:
            for many, rows, span in found:
                if many > limit:
                    continue
                if now or many <= quick:
                    self._hold(cpus, utids, rows, span, keys)
                    return False
                self._nearby.begin(
                    lambda rows=rows, span=span: self._hold(cpus, utids, rows, span, keys)  # type: ignore[misc]
                )
                return True
        return False

    def _hold(
        self, cpus: set[int], utids: list[int], rows: Rows, span: tuple[int, int], keys: list[str]
    ) -> None:
        """Read these rows of a stretch; what was held of others may have to go."""
        found = self._cpu_lanes(cpus, rows, span) if cpus else self._thread_lanes(utids, rows, span)
        held = sum(len(lane.starts) for lane in found.values())
        for key in [key for key in self._near if key not in keys]:
            held += len(self._near[key][2].starts)
            if held > ROOM:
                del self._near[key]
        self._near.update({key: (*span, lane) for key, lane in found.items()})

    def _load(self, keys: list[str]) -> None:
        total = (self.trace.info.get("rows") or {}).get("states", 0)
        rows = [(at, min(MOST_ROWS, total - at)) for at in range(0, total, MOST_ROWS)]
        self._lanes.update(self._thread_lanes([_split(key)[1] for key in keys], rows))

    # ---- building ----

    def _cpu_lanes(
        self, cpus: set[int], rows: Rows | None = None, span: tuple[int, int] | None = None
    ) -> dict[str, Lane]:
        chosen = pl.col("state") == "running"
        if len(cpus) < self.trace.ncpu:
            chosen &= pl.col("cpu").is_in(cpus)
        frame = self._rows(chosen, ["cpu"], rows, span).with_columns(
            code=pl.when(pl.col("utid") < self.trace.ncpu)
            .then(CODES["idle"])
            .otherwise(CODES["running"])
            .cast(pl.UInt8)
        )
        parts = frame.partition_by("cpu", as_dict=True)
        return {f"cpu:{cpu}": _lane(parts.pop((cpu,), frame.clear()), "utid", None) for cpu in cpus}

    def _thread_lanes(
        self, utids: list[int], rows: Rows | None = None, span: tuple[int, int] | None = None
    ) -> dict[str, Lane]:
        chosen, ready = pl.col("utid").is_in(utids), pl.col("ts_ready")
        frame = (
            self._rows(chosen, ["cpu", "waker_utid", "state"], rows, span)
            .with_columns(code=pl.col("state").cast(pl.String).replace_strict(CODES, default=None))
            .filter(pl.col("code").is_not_null())
            .with_columns(pl.col("code").cast(pl.UInt8))
        )
        known = self.trace.waits
        if span is not None and frame.height:
            first, last = (self.begin + int(ts) for ts in frame["ts"].sort()[[0, -1]])
            chosen &= ready.is_between(first, last)
            known = self.trace.part("waits", first, last)
        waits = (
            known.filter(chosen & ready.is_not_null())
            .select("utid", "waker_cpu", ts=ready - self.begin)
            .collect(engine="streaming")
        )
        parts = frame.partition_by("utid", as_dict=True)
        woken = waits.partition_by("utid", as_dict=True)
        return {
            f"utid:{utid}": _lane(parts.get((utid,), frame.clear()), "cpu", woken.get((utid,)))
            for utid in utids
        }

    def _rows(
        self, which: pl.Expr, columns: list[str], rows: Rows | None, span: tuple[int, int] | None
    ) -> pl.DataFrame:
        """The rows `which`, cut at the window; of those `rows` only, and what is in the `span`."""
        ts = pl.col("ts").clip(lower_bound=self.begin) - self.begin
        until = (pl.col("ts") + pl.col("dur")).clip(upper_bound=self.end) - self.begin
        inside = pl.col("ts") < pl.col("until")
        if span is not None:
            inside &= (pl.col("ts") < span[1]) & (pl.col("until") > span[0])

        def chosen(table: pl.LazyFrame) -> pl.DataFrame:
            wanted = table.filter(which).select("utid", *columns, ts=ts, until=until)
            return wanted.filter(inside).collect()

        states = self.trace.states
        if rows is None:
            return chosen(states)
        if not rows:
            return chosen(states.head(0))
        # Part by part: whatever is read at once has to fit into memory.
        return pl.concat([chosen(states.slice(first, many)) for first, many in rows])


def around(begin: int, end: int, duration: int) -> Iterator[tuple[int, int]]:
    """What may be read for `[begin, end)`: as much on each side, too, or no more than that."""
    for margin in (end - begin, 0):
        yield max(0, begin - margin), min(duration, end + margin)


def _asked(keys: Iterable[str]) -> tuple[list[int], list[int]]:
    """Numbers of the CPUs and of the threads among them. Raises `UsageError` for other names."""
    asked: dict[str, list[int]] = {"cpu": [], "utid": []}
    for key in dict.fromkeys(keys):
        kind, number = _split(key)
        asked[kind].append(number)
    return asked["cpu"], asked["utid"]


def _split(key: Any) -> tuple[str, int]:
    kind, _, number = str(key).partition(":")
    if kind not in ("cpu", "utid") or not number.isdecimal() or int(number) >= NOBODY:
        raise UsageError(f"lane {key!r}", "cpu:N or utid:N", "as in cpu:0")
    return kind, int(number)


def _lane(rows: pl.DataFrame, who: str, waits: pl.DataFrame | None) -> Lane:
    rows = rows.sort("ts", maintain_order=True)
    starts, ends = rows["ts"].to_numpy(), rows["until"].to_numpy()
    if len(starts) and (starts[1:] < ends[:-1]).any():
        # Tables of other programs may contradict themselves: count no ns twice.
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
        waker_cpu = np.where(codes == CODES["runnable"], waker_cpu, NOBODY).astype(np.uint32)
    return Lane(
        starts=starts,
        ends=ends,
        codes=codes,
        who=rows[who].cast(pl.UInt32).fill_null(NOBODY).to_numpy(),
        waker=waker,
        waker_cpu=waker_cpu,
        sums=sums,
    )
