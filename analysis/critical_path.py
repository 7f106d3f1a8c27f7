"""What took the time between two instants of a thread? Back through those that woke it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import polars as pl

from schedscope.errors import UsageError
from schedscope.parsers.schema import CAUSE, STATE
from schedscope.parsers.schema import END as STATE_END

if TYPE_CHECKING:
    import numpy.typing as npt

    from schedscope.trace import Trace

    Ints = npt.NDArray[np.int64]

KIND = pl.Enum(["run", "wait", "wake", "sleep", "unknown"])
"""What a step of the path is; see `critical_path`."""

ENDED = pl.Enum(
    ["woke", "slept", "preempted", "yielded", "ran", "moved", "enqueued", "woken", "end", "unknown"]
)
"""What ended a step; see `critical_path`."""

_RUNNING, _RUNNABLE = (STATE.categories.to_list().index(s) for s in ("running", "runnable"))
_ASLEEP = {
    STATE.categories.to_list().index(s) for s in ("sleeping", "blocked", "stopped", "parked")
}
_LOST = STATE_END.categories.to_list().index("lost")
_CAUSES = CAUSE.categories.to_list()


def critical_path(
    trace: Trace, begin: int | None = None, end: int | None = None, *, utid: int
) -> pl.DataFrame:
    """One row per step of the path that led thread `utid` to the instant `end`, in order of time.

    From `end` backwards: while the thread runs or waits for a CPU, that is the path. Where it
    was woken, its sleep was somebody else's work: the path goes on with the waker, at the
    instant of the wakeup. Where an interrupt woke it, nobody's work is known, and the sleep itself
    is the step. Steps adjoin, and their `dur` sums up to `end - begin`, exactly.

    * `ts`, `dur`: the step (ns);
    * `kind`: `run`; `wait`: runnable, on a queue; `wake`: between the wakeup's decision and
      the queue; `sleep`: for something outside of the recorded threads: a timer, a
      device; `unknown`: the trace does not tell further, from there back to `begin`;
    * `comm`, `tid`, `utid`: the thread; `cpu`: where it ran, or on whose queue it waited; null if
      not known;
    * `ended`: what ended the step: `woke`: it woke the next step's thread; `slept`;
      `preempted`; `yielded`; `ran`: it got the CPU; `moved` to another queue; `enqueued`; `woken`,
      by an interrupt; `end`: the path's end; `unknown`;
    * `other_comm`, `other_tid`, `other_utid`: whom it woke.

    `begin` and `end` are instants as in any column `ts`; without them the begin of the window, and
    the last instant of the thread's life that was seen.

    Definition and its limits: docs/definitions/critical-path.md. Raises `UsageError` for a thread
    or an interval that the trace does not have.

    >>> from schedscope import Trace
    >>> states = pl.DataFrame({
    ...     "ts": [0, 30, 0, 30, 40],
    ...     "dur": [30, 50, 30, 10, 40],
    ...     "utid": [1, 1, 2, 2, 2],
    ...     "state": ["running", "sleeping", "sleeping", "runnable", "running"],
    ...     "cpu": [0, None, None, 0, 0],
    ...     "end": ["switched", "window", "woken", "switched", "window"],
    ... })
    >>> waits = pl.DataFrame({
    ...     "utid": [2], "cause": ["wake"], "waker_utid": [1],
    ...     "ts_ready": [30], "ts_enqueued": [32], "ts_run": [40],
    ... })
    >>> threads = pl.DataFrame({"utid": [0, 1, 2], "comm": ["idle", "client", "server"],
    ...                         "tid": [0, 7, 8], "parent_utid": [None] * 3})
    >>> trace = Trace.from_tables({"states": states, "waits": waits, "threads": threads},
    ...                           {"ncpu": 1, "window": [0, 80]})
    >>> critical_path(trace, 10, 80, utid=2).select("ts", "dur", "kind", "comm", "ended")
    shape: (4, 5)
    ┌─────┬─────┬──────┬────────┬──────────┐
    │ ts  ┆ dur ┆ kind ┆ comm   ┆ ended    │
    │ --- ┆ --- ┆ ---  ┆ ---    ┆ ---      │
    │ i64 ┆ i64 ┆ enum ┆ str    ┆ enum     │
    ╞═════╪═════╪══════╪════════╪══════════╡
    │ 10  ┆ 20  ┆ run  ┆ client ┆ woke     │
    │ 30  ┆ 2   ┆ wake ┆ server ┆ enqueued │
    │ 32  ┆ 8   ┆ wait ┆ server ┆ ran      │
    │ 40  ┆ 40  ┆ run  ┆ server ┆ end      │
    └─────┴─────┴──────┴────────┴──────────┘
    """
    first, last = trace.window
    threads = trace.threads.select("utid", "comm", "tid", "parent_utid").collect()
    if utid < trace.ncpu or utid not in threads["utid"]:
        raise UsageError(
            f"utid={utid}", "a thread of this trace, no idle one", "trace.threads lists them"
        )
    if end is None:
        of_thread = trace.states.filter(pl.col("utid") == utid)
        end = of_thread.select((pl.col("ts") + pl.col("dur")).max()).collect().item()
        end = last if end is None else min(int(end), last)
    begin = first if begin is None else begin
    if not first <= begin < end <= last:
        raise UsageError(
            f"from {begin} to {end}",
            f"instants within the window, {first} to {last}, the first one earlier",
            "columns ts of this trace have such numbers",
        )
    parents = dict(threads.select("utid", "parent_utid").iter_rows())
    steps = [*_walk(_Lives(trace, begin, end), begin, end, utid, trace.ncpu, parents)][::-1]
    columns = list(zip(*steps, strict=True))
    ts, until, kind, who, cpu, ended, other = columns
    frame = pl.DataFrame(
        {
            "ts": pl.Series(ts, dtype=pl.Int64),
            "until": pl.Series(until, dtype=pl.Int64),
            "kind": pl.Series(kind, dtype=KIND),
            "utid": pl.Series(who, dtype=pl.UInt32),
            "cpu": pl.Series(cpu, dtype=pl.UInt16),
            "ended": pl.Series(ended, dtype=ENDED),
            "other_utid": pl.Series(other, dtype=pl.UInt32),
        }
    ).with_columns(dur=pl.col("until") - pl.col("ts"))
    names = threads.select(pl.col("utid").cast(pl.UInt32), "comm", "tid")
    others = names.rename({name: f"other_{name}" for name in names.columns})
    return (
        frame.join(names, on="utid", how="left", maintain_order="left")
        .join(others, on="other_utid", how="left", maintain_order="left")
        .select(
            "ts", "dur", "kind", "comm", "tid", "utid", "cpu", "ended",
            "other_comm", "other_tid", "other_utid",
        )
    )  # fmt: skip


class _Step(NamedTuple):
    ts: int
    until: int
    kind: str
    utid: int
    cpu: int | None
    ended: str
    other: int | None


class _Life(NamedTuple):
    """One interval of a thread."""

    ts: int
    until: int
    state: int
    cpu: int | None
    lost: bool


class _Wait(NamedTuple):
    """One wait of the ledger."""

    ready: int
    cause: str
    enqueued: int | None
    waker: int | None


class _Lives:
    """Intervals and waits of every thread between two instants, found by thread and time."""

    def __init__(self, trace: Trace, begin: int, end: int) -> None:
        states = (
            trace.states.filter((pl.col("ts") < end) & (pl.col("ts") + pl.col("dur") > begin))
            .select(
                "ts",
                "utid",
                until=pl.col("ts") + pl.col("dur"),
                state=pl.col("state").cast(STATE).to_physical(),
                cpu=pl.col("cpu").cast(pl.Int32).fill_null(-1),
                lost=pl.col("end").cast(STATE_END).to_physical() == _LOST,
            )
            .collect()
        )
        waits = (
            trace.waits.filter(
                (pl.col("ts_ready") <= end) & (pl.col("ts_run").fill_null(end) >= begin)
            )
            .select(
                "utid",
                ts="ts_ready",
                cause=pl.col("cause").cast(CAUSE).to_physical(),
                enqueued=pl.col("ts_enqueued").fill_null(-1),
                waker=pl.col("waker_utid").cast(pl.Int64).fill_null(-1),
            )
            .collect()
        )
        self._states, self._of_state = _by_thread(states)
        self._waits, self._of_wait = _by_thread(waits)

    def at(self, utid: int, t: int) -> _Life | None:
        """What the thread did just before `t`."""
        span = self._of_state.get(utid)
        if span is None:
            return None
        a, b = span
        i = a + int(np.searchsorted(self._states["ts"][a:b], t, side="left")) - 1
        if i < a or self._states["until"][i] < t:
            return None
        cpu = int(self._states["cpu"][i])
        return _Life(
            int(self._states["ts"][i]),
            int(self._states["until"][i]),
            int(self._states["state"][i]),
            None if cpu < 0 else cpu,
            bool(self._states["lost"][i]),
        )

    def wait(self, utid: int, t: int) -> _Wait | None:
        """The last wait of the thread to begin at `t` or before."""
        span = self._of_wait.get(utid)
        if span is None:
            return None
        a, b = span
        i = a + int(np.searchsorted(self._waits["ts"][a:b], t, side="right")) - 1
        if i < a:
            return None
        enqueued, waker = int(self._waits["enqueued"][i]), int(self._waits["waker"][i])
        return _Wait(
            int(self._waits["ts"][i]),
            _CAUSES[int(self._waits["cause"][i])],
            None if enqueued < 0 else enqueued,
            None if waker < 0 else waker,
        )


def _by_thread(frame: pl.DataFrame) -> tuple[dict[str, Ints], dict[int, tuple[int, int]]]:
    """Columns in order of thread and time, and where each thread's rows are."""
    utid, ts = frame["utid"].to_numpy(), frame["ts"].to_numpy()
    order = np.argsort(utid, kind="stable")
    who, at = utid[order], ts[order]
    if np.any((who[1:] == who[:-1]) & (at[1:] < at[:-1])):
        order = np.lexsort((ts, utid))
    # One column after the other, so that few are there twice.
    columns = {name: frame.drop_in_place(name).to_numpy()[order] for name in frame.columns}
    who = columns["utid"]
    edges = np.concatenate([[0], np.flatnonzero(np.diff(who)) + 1, [len(who)]]).tolist()
    return columns, {int(who[a]): (a, b) for a, b in pairwise(edges) if a < b}


def _walk(
    lives: _Lives, begin: int, end: int, utid: int, ncpu: int, parents: dict[int, int | None]
) -> Iterator[_Step]:
    """The steps, last one first."""
    t = end
    ended, other = "end", None
    # Threads that were met at this instant already: wakeups of no duration may form a ring.
    met = {utid}
    external = True  # the path may begin in a sleep; later only an interrupt's wakeup makes it
    while t > begin:
        life = lives.at(utid, t)
        if life is None or (life.state not in (_RUNNING, _RUNNABLE) and life.state not in _ASLEEP):
            break
        ts = max(life.ts, begin)
        if life.state == _RUNNING:
            yield _Step(ts, t, "run", utid, life.cpu, ended, other)
            ended, other, external = "ran", None, False
        elif life.state in _ASLEEP:
            if not external or (life.lost and life.until == t):
                # Somebody woke it, and it woke the next one at once: in a simulation that may
                # take no time. Else its wakeup was not recorded.
                wait = None if life.lost or life.until > t else lives.wait(utid, t)
                waker = wait.waker if wait and wait.ready == t else None
                if waker is None or waker < ncpu or waker in met:
                    break
                ended, other, utid = "woke", utid, waker
                met.add(utid)
                continue
            yield _Step(ts, t, "sleep", utid, None, ended, None)
            ended, other, external = "slept", None, False
        else:
            wait = lives.wait(utid, life.ts)
            cut = t
            first = wait is not None and wait.ready == life.ts
            if wait and first and wait.cause in ("wake", "new") and wait.enqueued is not None:
                cut = min(max(wait.enqueued, ts), t)
            if cut < t:
                yield _Step(cut, t, "wait", utid, life.cpu, ended, None)
                ended = "enqueued"
            if ts < cut:
                # Without the instant of the queue, all of it is waiting.
                kind = "wake" if cut < t or _placing(wait, t) else "wait"
                yield _Step(ts, cut, kind, utid, life.cpu, ended, None)
            other, external = None, False
            if not first or wait is None:
                ended = "moved"
            elif wait.cause in ("preempt", "yield"):
                ended = "preempted" if wait.cause == "preempt" else "yielded"
            elif ts == life.ts:
                before = lives.at(utid, ts)
                waker = wait.waker
                if waker is None and wait.cause == "new":
                    waker = parents.get(utid)
                if before is not None and before.state == _RUNNING:
                    ended = "slept"  # woken again before it was off its CPU
                elif waker is not None and waker >= ncpu:
                    ended, other, utid = "woke", utid, waker
                    met = {utid, other}
                    t = ts
                    continue
                elif wait.cause == "wake":
                    ended, external = "woken", True
                else:
                    t = ts
                    break
        if ts < t:
            met = {utid}
        t = ts
    if t > begin:
        yield _Step(begin, t, "unknown", utid, None, "unknown", None)


def _placing(wait: _Wait | None, t: int) -> bool:
    """Whether the thread had not come onto a queue by `t`, and did later."""
    return wait is not None and wait.enqueued is not None and wait.enqueued >= t
