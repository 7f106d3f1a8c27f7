"""How long did a CPU idle while a thread that may run there waited for another one?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import polars as pl

from schedscope.analysis.idle_steps import (
    NOWHERE,
    PINNED,
    IdleSteps,
    Lane,
    Steps,
    integral,
)
from schedscope.analysis.topology import cpu_text
from schedscope.errors import UsageError
from schedscope.units import nanoseconds

if TYPE_CHECKING:
    from schedscope.analysis.idle_steps import Flags, Ints
    from schedscope.trace import Trace

By = Literal["machine", "cpu", "tid", "comm", "pid"]
_THREADS = {"tid": ("comm", "tid", "pid", "utid"), "comm": ("comm",), "pid": ("pid",)}
_ROWS = {
    "episode": pl.UInt32,
    "utid": pl.UInt32,
    "cpu": pl.UInt16,
    "begin": pl.Int64,
    "waited": pl.Int64,
    "idle_cpus": pl.String,
    "idle": pl.Int64,
}
CAUSE = pl.Enum(["placed", "preempted", "not_pulled", "unknown"])
"""Why a thread waited although a CPU idled: see `idle_episodes`."""


def wasted_time(trace: Trace, *, by: By = "machine", where: pl.Expr | None = None) -> pl.DataFrame:
    """One row for the machine, or per CPU or thread: CPU time that idled while threads waited.

    At every instant, idle CPUs could run some of the threads that wait for other CPUs. `wasted`
    is the integral of the largest number that could run at once: where every thread may run
    everywhere, `min(spare CPUs, waiting threads)`; where masks differ, the largest matching. A
    CPU is spare while it is known to idle and nobody is on its queue; one that idles with a
    thread on its queue is on its way to run it, which is `dispatch` and not wasted. What a CPU
    did in unknown time is never taken for idleness, so `wasted` is a lower bound there.

    `by="machine"`, one row, all times in ns:

    * `capacity`: the window times the CPUs; `idle`, `unknown`: known to idle, and not known;
    * `dispatch`: CPUs' time idle with a thread on their own queue;
    * `wasted`; `wasted_frac`, its share of the time that is known; `wasted_idle_frac`, of `idle`;
    * `wasted_any`: wall time in which anything was wasted;
    * `unplaced`: the part of `wasted` that is there only because of threads on no known queue;
    * `waiting`: all threads' time in state runnable;
    * `pinned`, `n_pinned`: such time of threads with one allowed CPU while another was spare,
      which is in no other number; how many threads with one allowed CPU waited at all;
    * `n`, `n_censored`, `n_excluded`: waits seen whole; seen to begin only, counted as long as
      they were certainly waiting; not seen to begin, which cannot be in it.

    `by="cpu"`, a row per CPU; a last one with a null `cpu` for no known queue:

    * `idle`, `unknown`, `dispatch`: as above; `spare`: idle with nobody on its queue;
    * `available`: the part of `spare` in which a thread waited elsewhere that may run here;
    * `waited`: time that threads waited here, the CPU busy, while one was spare that they may use.

    `by="tid"`, `"comm"` or `"pid"`, a row per thread, name or process, most `avoidable` first:

    * `waiting`: time in state runnable; `avoidable`: the part in which its CPU was
      busy and one was spare that it may use; `avoidable_frac`, its share;
    * `n`: stretches of waiting on one queue of which a part was avoidable.

    Several spare CPUs and one waiting thread make several times `available` but one time
    `wasted`; several threads and one spare CPU likewise: only `wasted` adds up.

    `where`: expression over the columns of `threads`, for rows about threads only.
    Definition: docs/definitions/work-conservation.md. Raises `UsageError` for another `by`, or
    `where` without rows about threads.

    >>> from schedscope import Trace
    >>> states = pl.DataFrame({
    ...     "ts": [0, 0, 10, 40],
    ...     "dur": [100, 40, 50, 60],
    ...     "utid": [2, 1, 3, 4],
    ...     "state": ["running", "running", "runnable", "running"],
    ...     "cpu": [0, 1, 0, 1],
    ... }, schema_overrides={"state": pl.Enum(["running", "runnable"])})
    >>> trace = Trace.from_tables({"states": states}, {"ncpu": 2, "window": [0, 100]})
    >>> wasted_time(trace).select("idle", "waiting", "wasted", "wasted_idle_frac")
    shape: (1, 4)
    ┌──────┬─────────┬────────┬──────────────────┐
    │ idle ┆ waiting ┆ wasted ┆ wasted_idle_frac │
    │ ---  ┆ ---     ┆ ---    ┆ ---              │
    │ i64  ┆ i64     ┆ i64    ┆ f64              │
    ╞══════╪═════════╪════════╪══════════════════╡
    │ 40   ┆ 50      ┆ 30     ┆ 0.75             │
    └──────┴─────────┴────────┴──────────────────┘
    """
    if by not in ("machine", "cpu", *_THREADS):
        raise UsageError(f"by={by!r}", '"machine", "cpu", "tid", "comm" or "pid"')
    if where is not None and by not in _THREADS:
        raise UsageError(
            f"where with by={by!r}", "rows about threads", 'choose by="tid", "comm" or "pid"'
        )
    view = IdleSteps(trace)
    lanes = view.lanes()
    steps = view.steps(lanes)
    if by == "machine":
        return _machine(trace, view, lanes, steps)
    if by == "cpu":
        return _by_cpu(view, lanes, steps)
    return _by_thread(trace, view, lanes, steps, list(_THREADS[by]), where)


def idle_episodes(
    trace: Trace,
    *,
    longer_than: str | int = "1ms",
    top: int | None = 20,
    where: pl.Expr | None = None,
) -> pl.DataFrame:
    """One row per thread that waited in an episode in which CPU time was wasted all along.

    An episode is a longest stretch of time in which, at every instant, a CPU was spare that a
    waiting thread may use (`wasted_time` says exactly what that means). Those of `longer_than` and
    more are listed, the `top` ones with the most wasted (None: all), and in each its
    threads, the one that waited longest first.

    * `episode`: its rank, from 1; `ts`, `dur`: the stretch; `wasted`: CPU time in it (ns);
    * `idle_cpus`: CPUs that were spare at some time in it and that this thread may use, as
      "0-2,5"; `idle`: how long they were so, together (ns);
    * `comm`, `tid`, `utid`; `cpu`: on whose queue it waited, null for no known queue;
      `waited`: how long it did so within the episode, its CPU busy and another one spare (ns);
    * `cause`: `placed`: a wakeup or fork put it on a busy CPU while one was spare that it may
      use; `preempted`: it left its CPU still wanting it, and one was spare; `not_pulled`: no CPU
      was spare when its wait began, one became so and did not take it; `unknown`: begin not seen.

    `where`: expression over the columns of `threads`, and `cpu`: whose rows are shown; it
    changes no episode. Raises `UsageError` for a `longer_than` below 0 or no duration, or a `top`
    below 1.
    """
    threshold = nanoseconds(longer_than)
    if threshold < 0:
        raise UsageError(f"longer_than={longer_than!r}", "a duration of 0 ns or more", "as in 1ms")
    if top is not None and top < 1:
        raise UsageError(f"top={top}", "a number of episodes, 1 or more")
    view = IdleSteps(trace)
    lanes = view.lanes()
    steps = view.steps(lanes)
    episodes = _stretches(steps, threshold, top)
    frame = pl.concat([_participants(view, lanes, lane, steps, episodes) for lane in lanes])
    frame = frame.with_columns(_causes(trace, steps, view, frame))
    # A thread that moved between queues within an episode has a row for each of them.
    frame = (
        frame.sort("begin")
        .group_by("episode", "utid", "cpu", "cause", maintain_order=True)
        .agg(pl.col("waited").sum(), pl.col("idle_cpus", "idle").first())
        .join(episodes.frame(view.begin), on="episode")
        .join(trace.threads.drop("prio").collect(), on="utid", how="left")
    )
    if where is not None:
        frame = frame.filter(where)
    return frame.sort(
        ["episode", "waited", "utid"], descending=[False, True, False], maintain_order=True
    ).select(
        "episode", "ts", "dur", "wasted", "idle_cpus", "idle", "comm", "tid", "utid",
        "cpu", "waited", "cause",
    )  # fmt: skip


def _machine(trace: Trace, view: IdleSteps, lanes: list[Lane], steps: Steps) -> pl.DataFrame:
    held = np.diff(steps.ts)
    waiting = sum(lane.cpu.waits.total() for lane in lanes)
    idle = sum(lane.cpu.idle.total() for lane in lanes)
    unknown = sum(lane.cpu.blind.total() for lane in lanes)
    spare = sum(int((levels[:-1] * held).sum()) for levels in steps.spare)
    wasted = int((steps.wasted[:-1] * held).sum())
    capacity = view.length * len(view.masks.cpus)
    pinned = np.where(steps.usable(view.masks, PINNED), steps.pinned, 0)[:-1]
    who = [lane.cpu.waits.utid[lane.cpu.waits.kind == PINNED] for lane in lanes]
    unseen, ended = pl.col("wait").is_null(), pl.col("censored") == "none"
    counts = trace.waits.select(
        n=(~unseen & ended).sum(), n_censored=(~unseen & ~ended).sum(), n_excluded=unseen.sum()
    ).collect()
    row = {
        "capacity": capacity,
        "idle": idle,
        "unknown": unknown,
        "dispatch": idle - spare,
        "wasted": wasted,
        "wasted_frac": wasted / (capacity - unknown) if capacity > unknown else None,
        "wasted_idle_frac": wasted / idle if idle else None,
        "wasted_any": int(held[steps.wasted[:-1] > 0].sum()),
        "unplaced": int((steps.unplaced[:-1] * held).sum()),
        "waiting": waiting,
        "pinned": int((pinned * held).sum()),
    }
    types = {name: pl.Float64 if name.endswith("_frac") else pl.Int64 for name in row}
    return pl.DataFrame([row], schema=types).with_columns(
        n_pinned=pl.lit(len(np.unique(np.concatenate(who))), pl.UInt32),
        **{name: pl.lit(counts[name].item(), pl.UInt32) for name in counts.columns},
    )


def _by_cpu(view: IdleSteps, lanes: list[Lane], steps: Steps) -> pl.DataFrame:
    rows = []
    for lane in lanes:
        number = lane.cpu.number
        held = np.diff(lane.ts)
        spare = int(held[lane.spare[:-1]].sum())
        available = 0
        if number != NOWHERE and spare:
            wanted = steps.wanted(view.masks, view.masks.atom[number])
            times = np.diff(integral(steps.ts, wanted, lane.ts))
            available = int(times[lane.spare[:-1]].sum())
        waited = 0
        for kind, levels in enumerate(lane.surplus):
            if levels.any():
                times = np.diff(integral(steps.ts, steps.usable(view.masks, kind), lane.ts))
                waited += int((times * levels[:-1]).sum())
        nowhere = number == NOWHERE
        rows.append(
            {
                "cpu": None if nowhere else number,
                "idle": None if nowhere else lane.cpu.idle.total(),
                "unknown": None if nowhere else lane.cpu.blind.total(),
                "dispatch": None if nowhere else lane.cpu.idle.total() - spare,
                "spare": None if nowhere else spare,
                "available": None if nowhere else available,
                "waiting": lane.cpu.waits.total(),
                "waited": waited,
            }
        )
    names = ("idle", "unknown", "dispatch", "spare", "available", "waiting", "waited")
    return pl.DataFrame(rows, schema={"cpu": pl.UInt16, **dict.fromkeys(names, pl.Int64)})


def _by_thread(
    trace: Trace,
    view: IdleSteps,
    lanes: list[Lane],
    steps: Steps,
    keys: list[str],
    where: pl.Expr | None,
) -> pl.DataFrame:
    size = len(view.masks.kind)
    waiting, avoidable = np.zeros(size), np.zeros(size)
    n = np.zeros(size, dtype=np.int64)
    for lane in lanes:
        waits = lane.cpu.waits
        waiting += np.bincount(waits.utid, waits.end - waits.begin, size)
        for kind in range(len(view.masks.classes)):
            of_kind = waits.kind == kind
            if not of_kind.any():
                continue
            clock = _Clock(lane, steps, steps.usable(view.masks, kind))
            times = clock.at(waits.end[of_kind]) - clock.at(waits.begin[of_kind])
            avoidable += np.bincount(waits.utid[of_kind], times, size)
            n += np.bincount(waits.utid[of_kind], times > 0, size).astype(np.int64)
    frame = pl.DataFrame(
        {
            "utid": pl.Series(np.arange(size), dtype=pl.UInt32),
            "waiting": waiting.astype(np.int64),
            "avoidable": avoidable.astype(np.int64),
            "n": n.astype(np.uint32),
        }
    )
    threads = frame.filter(pl.col("waiting") > 0).join(
        trace.threads.collect(), on="utid", how="left"
    )
    if where is not None:
        threads = threads.filter(where)
    return (
        threads.group_by(keys, maintain_order=True)
        .agg(pl.col("waiting", "avoidable").sum(), pl.col("n").sum())
        .with_columns(avoidable_frac=pl.col("avoidable") / pl.col("waiting"))
        .select(*keys, "waiting", "avoidable", "avoidable_frac", "n")
        .sort(["avoidable", "waiting"], descending=True, maintain_order=True)
    )


class _Clock:
    """Runs while a CPU is busy and another one is spare; on one lane, for one class."""

    def __init__(self, lane: Lane, steps: Steps, usable: Flags) -> None:
        self._steps, self._usable = steps, usable
        self._lane = lane
        away = _busy(lane)
        times = np.diff(integral(steps.ts, usable, lane.ts))
        self._sums: Ints = np.concatenate([[0], np.cumsum(times * away[:-1])])
        self._away = away

    def at(self, ts: Ints) -> Ints:
        """Its reading; `ts` are edges of the lane, or times between them."""
        last = np.searchsorted(self._lane.ts, ts, side="right") - 1
        reading: Ints = self._sums[last]
        between = np.flatnonzero((self._lane.ts[last] != ts) & self._away[last])
        if len(between):
            at, edge = ts[between], self._lane.ts[last[between]]
            usable = self._usable
            reading = reading.copy()
            reading[between] += integral(self._steps.ts, usable, at) - integral(
                self._steps.ts, usable, edge
            )
        return reading


def _busy(lane: Lane) -> Flags:
    """Where the CPU of a lane does not pick up anybody of its own queue."""
    result: Flags = ~np.any([lane.spare, *lane.picked], axis=0)
    return result


@dataclass(frozen=True)
class _Episodes:
    begin: Ints
    end: Ints
    wasted: Ints

    def frame(self, origin: int) -> pl.DataFrame:
        return pl.DataFrame(
            {
                "episode": pl.Series(np.arange(1, len(self.begin) + 1), dtype=pl.UInt32),
                "ts": self.begin + origin,
                "dur": self.end - self.begin,
                "wasted": self.wasted,
            }
        )


def _stretches(steps: Steps, threshold: int, top: int | None) -> _Episodes:
    """The longest stretches in which anything is wasted, by rank."""
    any_wasted = np.concatenate([[False], steps.wasted[:-1] > 0, [False]])
    flips = np.flatnonzero(any_wasted[1:] != any_wasted[:-1])
    begin, end = steps.ts[flips[::2]], steps.ts[flips[1::2]]
    long = end - begin >= max(threshold, 1)
    begin, end = begin[long], end[long]
    wasted = integral(steps.ts, steps.wasted, end) - integral(steps.ts, steps.wasted, begin)
    rank = np.lexsort((begin, -wasted))[:top]
    return _Episodes(begin[rank], end[rank], wasted[rank])


def _participants(
    view: IdleSteps, lanes: list[Lane], lane: Lane, steps: Steps, episodes: _Episodes
) -> pl.DataFrame:
    """Who waited on one queue in which episode, for how long, and which CPUs were spare."""
    waits = lane.cpu.waits
    order = np.argsort(episodes.begin)
    lo = np.searchsorted(episodes.end[order], waits.begin, side="right")
    hi = np.searchsorted(episodes.begin[order], waits.end, side="left")
    hi = np.where(waits.kind == PINNED, lo, hi)  # they could not have gone elsewhere
    wait = np.repeat(np.arange(len(lo)), np.maximum(hi - lo, 0))
    nth = np.arange(len(wait)) - np.repeat(
        np.cumsum(np.maximum(hi - lo, 0)) - np.maximum(hi - lo, 0), np.maximum(hi - lo, 0)
    )
    rank = order[lo[wait] + nth]
    begin = np.maximum(waits.begin[wait], episodes.begin[rank])
    end = np.minimum(waits.end[wait], episodes.end[rank])
    frames = []
    for kind in np.unique(waits.kind[wait]).tolist():
        clock = _Clock(lane, steps, steps.usable(view.masks, kind))
        chosen = waits.kind[wait] == kind
        spare = [
            (other.cpu.number, integral(other.ts, other.spare, episodes.end)
             - integral(other.ts, other.spare, episodes.begin))
            for other in lanes if other.cpu.number in view.masks.classes[kind]
        ]  # fmt: skip
        texts = [
            cpu_text(number for number, times in spare if times[i])
            for i in range(len(episodes.begin))
        ]
        idle = np.sum([times for _, times in spare], axis=0)
        of = rank[chosen]
        frames.append(
            pl.DataFrame(
                {
                    "episode": of + 1,
                    "utid": waits.utid[wait[chosen]],
                    "begin": waits.begin[wait[chosen]],
                    "waited": clock.at(end[chosen]) - clock.at(begin[chosen]),
                    "idle_cpus": pl.Series(texts, dtype=pl.String).gather(of),
                    "idle": idle[of],
                }
            ).with_columns(
                pl.col("episode").cast(pl.UInt32),
                cpu=pl.lit(None if lane.cpu.number == NOWHERE else lane.cpu.number, pl.UInt16),
            )
        )
    found = pl.concat(frames) if frames else pl.DataFrame(schema=_ROWS)
    return found.select(*_ROWS).filter(pl.col("waited") > 0)


def _causes(trace: Trace, steps: Steps, view: IdleSteps, rows: pl.DataFrame) -> pl.Series:
    """How each wait began, and whether a CPU was spare at that instant."""
    began = (
        trace.waits.filter(pl.col("ts_ready").is_not_null())
        .select("utid", pl.col("cause").cast(pl.String), since=pl.col("ts_ready") - view.begin)
        .join(rows.lazy().select("utid").unique(), on="utid", how="semi")
        .sort("since")
        .collect()
    )
    joined = (
        rows.with_row_index("#")
        .sort("begin")
        .join_asof(began, left_on="begin", right_on="since", by="utid", check_sortedness=False)
        .sort("#")
    )
    since = joined["since"].fill_null(-1).to_numpy()
    at = np.searchsorted(steps.ts, since, side="right") - 1
    kinds = view.masks.kind[joined["utid"].to_numpy()]
    spare = np.zeros(len(at), dtype=bool)
    for kind in np.unique(kinds).tolist():
        usable = steps.usable(view.masks, kind)
        chosen = kinds == kind
        spare[chosen] = usable[np.maximum(at[chosen], 0)]
    woken = pl.col("cause").is_in(["wake", "new"])
    left = pl.col("cause").is_in(["preempt", "yield"])
    return joined.select(
        cause=pl.when(pl.lit(since < 0) | ~(woken | left))
        .then(pl.lit("unknown"))
        .when(~pl.lit(pl.Series(spare)))
        .then(pl.lit("not_pulled"))
        .when(woken)
        .then(pl.lit("placed"))
        .otherwise(pl.lit("preempted"))
        .cast(CAUSE)
    )["cause"]
