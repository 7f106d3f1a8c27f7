"""What the intervals of each thread and each CPU sum up to, and where they do not adjoin.

One pass over `states` in the order of the table, which is each thread's and
each CPU's order of time wherever the table is what reconstruction wrote. A
table that is not is sorted, which costs ten times as much.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

if TYPE_CHECKING:
    import numpy.typing as npt

    from schedscope.trace import Trace

    Ints = npt.NDArray[np.int64]
    Bools = npt.NDArray[np.bool_]

_UNTIL = pl.col("ts") + pl.col("dur")
_ROWS = 1 << 20
# Before any instant that a trace can have.
_NEVER = -(1 << 63)


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
        """Time of which is known who ran, idle threads included, ns."""
        return sum(run + idle for run, idle in self.per_cpu.values())


def tiling(trace: Trace) -> Tiling:
    """Look at every interval of `states` once."""
    frame = trace.states.select(
        "ts", "dur", "utid", pl.col("cpu").cast(pl.UInt16), runs=pl.col("state") == "running"
    ).collect()
    begin, end = trace.window
    top = max(int(frame["utid"].max() or 0) + 1, trace.ncpu)  # type: ignore[arg-type]
    own = np.zeros(top, dtype=np.bool_)
    recorders = trace.threads.filter(pl.col("recorder")).select("utid").collect()["utid"]
    own[recorders.filter(recorders < top).to_numpy()] = True
    threads, cpus = _Chains(top), _Chains(1 << 16)
    per_cpu: dict[int | None, tuple[int, int]] = {}
    recorder = intervals = 0
    placed = not (frame["cpu"].is_null() & frame["runs"]).any()
    for part in frame.iter_slices(_ROWS):
        utid, ts, dur = (part[name].to_numpy() for name in ("utid", "ts", "dur"))
        is_thread = utid >= trace.ncpu
        intervals += int(is_thread.sum())
        threads.add(utid[is_thread], ts[is_thread], (ts + dur)[is_thread])
        runs = part["runs"].to_numpy()
        recorder += int(dur[runs & own[utid]].sum())
        if placed:
            cpu, since = part["cpu"].fill_null(0).to_numpy()[runs], ts[runs]
            until = since + dur[runs]
            placed = not len(since) or bool(since.min() >= begin and until.max() <= end)
            cpus.add(cpu, since, until)
        sums = (
            part.lazy()
            .filter("runs")
            .group_by("cpu")
            .agg(
                pl.col("dur").filter(pl.col("utid") >= trace.ncpu).sum(),
                idle=pl.col("dur").filter(pl.col("utid") < trace.ncpu).sum(),
            )
        )
        for number, run, idle in sums.collect().iter_rows():
            before = per_cpu.get(number, (0, 0))
            per_cpu[number] = (before[0] + run, before[1] + idle)
    return Tiling(
        per_cpu=per_cpu,
        recorder=recorder,
        excess=0 if placed and cpus.disjoint else _excess(frame, begin, end),
        ends=threads.ends() if threads.ordered else _ends(frame, trace.ncpu),
        intervals=intervals,
    )


@dataclass
class _Chains:
    """Intervals that should follow one another, chain by chain, added in batches."""

    size: int
    ordered: bool = True
    """Each began after the one before it in its chain."""
    disjoint: bool = True
    """And not before that one ended."""
    gaps: list[pl.DataFrame] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._since = np.full(self.size, _NEVER, dtype=np.int64)
        self._until = np.full(self.size, _NEVER, dtype=np.int64)

    def add(self, chain: npt.NDArray[np.unsignedinteger], since: Ints, until: Ints) -> None:
        """The next intervals of any chains, those of one chain in order."""
        if not self.ordered or not len(chain):
            return
        order = _grouped(chain, self.size)
        chain, since, until = chain[order], since[order], until[order]
        first = np.flatnonzero(np.append(True, chain[1:] != chain[:-1]))
        last = np.append(first[1:], len(chain)) - 1
        earlier, ended = np.empty_like(since), np.empty_like(until)
        earlier[1:], ended[1:] = since[:-1], until[:-1]
        earlier[first], ended[first] = self._since[chain[first]], self._until[chain[first]]
        self._since[chain[last]], self._until[chain[last]] = since[last], until[last]
        self.ordered = bool((since > earlier).all())
        self.disjoint &= self.ordered and bool((since >= ended).all())
        apart = np.flatnonzero((since != ended) & (ended != _NEVER))
        if len(apart):
            self.gaps.append(_end_rows(chain[apart], ended[apart], since[apart]))

    def ends(self) -> pl.DataFrame:
        """The gaps found, and the last interval of each chain."""
        seen = np.flatnonzero(self._until != _NEVER)
        return pl.concat([*self.gaps, _end_rows(seen, self._until[seen], None)])


def _grouped(chain: npt.NDArray[np.unsignedinteger], size: int) -> npt.NDArray[np.intp]:
    """Positions by chain, those of one chain in order."""
    # Numpy sorts 16 bits by radix, ten times as fast as more of them.
    if size <= 1 << 16:
        return np.argsort(chain.astype(np.uint16), kind="stable")
    low = np.argsort(chain.astype(np.uint16), kind="stable")
    return low[np.argsort((chain[low] >> 16).astype(np.uint16), kind="stable")]


def _end_rows(utid: npt.NDArray[np.integer], until: Ints, following: Ints | None) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "utid": pl.Series(utid).cast(pl.UInt32),
            "until": until,
            "following": pl.Series(following, dtype=pl.Int64)
            if following is not None
            else pl.Series([None] * len(until), dtype=pl.Int64),
        }
    )


def _ends(frame: pl.DataFrame, ncpu: int) -> pl.DataFrame:
    """The ends that no interval follows, of a table in any order."""
    lives = frame.lazy().filter(pl.col("utid") >= ncpu).sort("utid", "ts")
    return (
        lives.select("utid", until=_UNTIL, following=pl.col("ts").shift(-1).over("utid"))
        .filter((pl.col("following") != pl.col("until")).fill_null(True))
        .collect()
    )


def _excess(frame: pl.DataFrame, begin: int, end: int) -> int:
    running = frame.lazy().filter("runs").sort("cpu", "ts")
    before = _UNTIL.cum_max().shift().over("cpu").fill_null(begin)
    excess = (
        pl.max_horizontal(before.clip(lower_bound=begin) - pl.col("ts"), 0)
        + pl.max_horizontal(_UNTIL - end, 0)
        + pl.when(pl.col("cpu").is_null()).then(pl.col("dur")).otherwise(0)
    )
    return int(running.select(excess.sum()).collect().item())
