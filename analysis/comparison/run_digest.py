"""The figures of one run of a workload, for each group of threads and block of time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from schedscope.analysis.asking.arguments import THREAD_COLUMNS
from schedscope.analysis.recording.unknown_time import possible_waiting
from schedscope.analysis.threads.of_threads import threads_with
from schedscope.analysis.waits.wait_bounds import COLUMNS, hidden_waits, rests, with_bounds
from schedscope.analysis.waits.waits import waits

if TYPE_CHECKING:
    import numpy.typing as npt

    from schedscope.store.trace import Trace

    Ints = npt.NDArray[np.int64]
    Floats = npt.NDArray[np.float64]

ALL = 0
"""The group of all threads."""


@dataclass(frozen=True)
class Readings:
    """Lower and upper bounds of waits, each ascending.

    First with those that may be the rest of another wait, or none, as waits of their own; then
    without them.
    """

    low: Ints
    high: Ints
    low_once: Ints
    high_once: Ints


@dataclass(frozen=True)
class Digest:
    """Sums per group (rows; the first is all threads) and block of time (columns).

    `lengths` has the blocks' own lengths; all times in ns. `known` is the CPU
    time of which the trace tells what was done in it.
    """

    lengths: Ints
    running: Floats
    known: Floats
    waiting: Floats
    switches: Ints
    migrations: Ints
    waits: list[tuple[Ints, Ints]]
    """Of each group its complete waits, ascending, and the block in which each began."""
    n_censored: Ints
    n_excluded: Ints
    bounds: list[Readings]
    """Of each group, what the complete waits and those that holes cut lasted."""
    measured: Floats
    """Waiting time of each group in waits that were measured."""
    unknown: Floats
    """For how long it is unknown what the threads of each group did."""


def digest(
    trace: Trace,
    group_of: Ints,
    groups: int,
    *,
    blocks: int = 1,
    where: pl.Expr | None = None,
    cause: str | None = None,
) -> Digest:
    """Add up one trace; `group_of` has each utid's group: 1 to `groups` - 1, or 0 for none.

    `where` selects threads and CPUs, as in `latency`; `cause` waits, and the
    switches that ended them.
    """
    begin, end = trace.window
    edges = np.array([begin + (end - begin) * k // blocks for k in range(blocks + 1)])
    space = _Space(edges, group_of, groups)

    runs = _running(trace, where)
    utid, since = runs["utid"].to_numpy(), runs["ts"].to_numpy()
    idle = utid < trace.ncpu
    until = since + runs["dur"].to_numpy()
    running = space.covered(utid[~idle], since[~idle], until[~idle])
    known = space.covered(utid, since, until)[ALL]

    columns = [*COLUMNS, "prev_cpu", "cpu", "cause"]
    mine = waits(trace, columns, where)
    ledger = (mine if cause is None else mine.filter(pl.col("cause") == cause)).collect()
    ledger = with_bounds(ledger, rests(trace), end)
    utid = ledger["utid"].to_numpy()
    ran = ledger["ts_run"].is_not_null().to_numpy()
    moved = ran & (ledger["prev_cpu"] != ledger["cpu"]).fill_null(False).to_numpy()
    at = ledger["ts_run"].fill_null(begin).to_numpy()
    seen = ledger["wait"].is_not_null().to_numpy()
    ended = (ledger["censored"] == "none").to_numpy()
    ready = ledger["ts_ready"].fill_null(begin).to_numpy()
    wait = ledger["wait"].fill_null(0).to_numpy()
    complete = seen & ended
    # Waits that the window's end cut are not a sign of lost events.
    bounded = ledger.filter(pl.col("high").is_not_null(), ~pl.col("open") | ~pl.col("measured"))
    columns = ["utid", "low", "high", "again"]
    if cause is None and (where is None or _of_threads(where) is not None):
        hidden = hidden_waits(trace, where).select(
            pl.col("utid").cast(bounded.schema["utid"]),
            low=pl.lit(0, pl.Int64),
            high=pl.col("until") - pl.col("since"),
            again=True,
        )
        bounded = pl.concat([bounded.select(columns), hidden.collect()])
    measured = ledger.filter("measured")
    doubt = _selected(trace, possible_waiting(trace).lazy(), _of_threads(where)).collect()
    return Digest(
        lengths=np.diff(edges),
        running=running,
        known=known,
        waiting=space.covered(utid[seen], ready[seen], (ready + wait)[seen]),
        switches=space.count(utid[ran], at[ran]),
        migrations=space.count(utid[moved], at[moved]),
        waits=space.sorted(utid[complete], ready[complete], wait[complete]),
        n_censored=space.total(utid[seen & ~ended]),
        n_excluded=space.total(utid[~seen]),
        bounds=space.bounds(bounded),
        measured=space.total(measured["utid"].to_numpy(), measured["low"].to_numpy()),
        unknown=space.total(doubt["utid"].to_numpy(), doubt["unknown"].to_numpy()),
    )


def _of_threads(where: pl.Expr | None) -> pl.Expr | None:
    """`where`, if it selects by threads only: unknown time is on no CPU."""
    names = set(where.meta.root_names()) if where is not None else set()
    return where if names <= {"utid", *THREAD_COLUMNS} else None


def busy(trace: Trace, where: pl.Expr | None) -> pl.DataFrame:
    """How long each thread ran or waited, as far as `where` selects it."""
    state = (pl.col("state") == "running") | (pl.col("state") == "runnable")
    frame = _selected(trace, trace.states.filter(state, pl.col("utid") >= trace.ncpu), where)
    return frame.group_by("utid").agg(busy=pl.col("dur").sum()).collect()


def _running(trace: Trace, where: pl.Expr | None) -> pl.DataFrame:
    """Running intervals within the window; the idle threads' too, for what is known of a CPU."""
    begin, end = trace.window
    # A CPU's idle time belongs to it whichever threads are selected.
    mine = None if where is None else where | (pl.col("utid") < trace.ncpu)
    frame = _selected(trace, trace.states.filter(pl.col("state") == "running"), mine)
    since = pl.col("ts").clip(lower_bound=begin)
    until = (pl.col("ts") + pl.col("dur")).clip(upper_bound=end)
    return frame.select("utid", ts=since, dur=until - since).filter(pl.col("dur") > 0).collect()


def _selected(trace: Trace, frame: pl.LazyFrame, where: pl.Expr | None) -> pl.LazyFrame:
    if where is None:
        return frame
    names = where.meta.root_names()
    of_thread = [name for name in THREAD_COLUMNS if name in names]
    known = threads_with(trace, of_thread).select("utid", *of_thread)
    return frame.join(known, on="utid", how="left").filter(where)


class _Space:
    """Groups and blocks, and the cell of each thing that happened."""

    def __init__(self, edges: Ints, group_of: Ints, groups: int) -> None:
        self._edges, self._group_of, self._groups = edges, group_of, groups
        self._blocks = len(edges) - 1

    def _block(self, ts: Ints) -> Ints:
        if self._blocks == 1:
            return np.zeros(len(ts), dtype=np.int64)
        found = np.searchsorted(self._edges, ts, side="right") - 1
        return np.clip(found, 0, self._blocks - 1)

    def _cells(self, utid: Ints, block: Ints, weights: Floats | None = None) -> Any:
        """Sums per group and block; all threads in the first row."""
        cell = self._group_of[utid] * self._blocks + block
        size = self._groups * self._blocks
        sums = np.bincount(cell, weights=weights, minlength=size).reshape(self._groups, -1)
        sums[ALL] = sums.sum(axis=0)
        return sums

    def count(self, utid: Ints, ts: Ints) -> Ints:
        """How many fell into each cell."""
        counts: Ints = self._cells(utid, self._block(ts))
        return counts

    def total(self, utid: Ints, weights: Ints | None = None) -> Any:
        """The count of each group over all blocks, or the sum of the weights."""
        found = np.bincount(self._group_of[utid], weights=weights, minlength=self._groups)
        found[ALL] = found.sum()
        return found

    def bounds(self, rows: pl.DataFrame) -> list[Readings]:
        """The bounds of the waits of each group."""
        group = self._group_of[rows["utid"].to_numpy()]
        low, high, again = (rows[name].to_numpy() for name in ("low", "high", "again"))
        of_each = [group >= 0, *(group == number for number in range(1, self._groups))]
        return [
            Readings(
                *(np.sort(of[mine]) for mine in (all_of, all_of & ~again) for of in (low, high))
            )
            for all_of in of_each
        ]

    def covered(self, utid: Ints, since: Ints, until: Ints) -> Floats:
        """How much time of each block the intervals `[since, until)` of each group cover.

        An interval open at a block's start is counted as lasting through it, one that starts in it
        as lasting to its end, and the part after an end is subtracted: no interval is split.
        """
        first, last = self._block(since), self._block(until)
        ends = self._edges[1:]
        begun = self._cells(utid, first)
        gone = self._cells(utid, last)
        open_at_begin = np.cumsum(begun - gone, axis=1) - (begun - gone)
        after = self._cells(utid, first, (ends[first] - since).astype(np.float64))
        after -= self._cells(utid, last, (ends[last] - until).astype(np.float64))
        covered: Floats = open_at_begin * np.diff(self._edges) + after
        return covered

    def sorted(self, utid: Ints, ts: Ints, wait: Ints) -> list[tuple[Ints, Ints]]:
        """The waits of each group, ascending, with their blocks."""
        group, block = self._group_of[utid], self._block(ts)
        order = np.argsort(wait, kind="stable")
        everyone = (wait[order], block[order])
        # Stable again: within each group the waits stay ascending.
        # Small numbers are sorted in two passes, without comparisons.
        by_group = order[np.argsort(group[order].astype(np.uint16), kind="stable")]
        ends = np.searchsorted(group[by_group], np.arange(self._groups + 1))
        parts = [by_group[ends[g] : ends[g + 1]] for g in range(self._groups)]
        return [everyone, *((wait[part], block[part]) for part in parts[1:])]
