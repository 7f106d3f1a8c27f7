"""Who ran on the CPU that a thread waited for?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import polars as pl

from schedscope.errors import UsageError
from schedscope.parsers.schema import CAUSE

if TYPE_CHECKING:
    import numpy.typing as npt

    from schedscope.trace import Trace

    Ints = npt.NDArray[np.int64]

By = Literal["tid", "comm", "pid"]
KIND = pl.Enum(["thread", "idle", "unknown", "no_queue"])
"""What the CPU did meanwhile; see `antagonists`."""

_KEYS = {"tid": ("comm", "tid", "pid", "utid"), "comm": ("comm",), "pid": ("pid",)}
_CAUSES = {cause: f"cause_{cause}" for cause in CAUSE.categories}
# Pairs of a wait and a run in memory at a time: some 150 MB.
_PAIRS = 1 << 21
# Batches after which their sums are merged.
_MERGE = 64


def antagonists(
    trace: Trace,
    *,
    where: pl.Expr | None = None,
    by: By = "tid",
    victims: int | None = None,
    together: bool = False,
) -> pl.DataFrame:
    """One row per victim and antagonist: who ran on the CPU on whose queue the victim waited.

    A victim's time in state runnable is divided by what the CPU of its queue did at every
    instant. A thread that moved to another queue waits for that CPU from then on. So the `time`
    of a victim's rows sums up to its `wait`, exactly.

    * the victim: `victim_comm`, `victim_tid`, `victim_pid`, `victim_utid`, or those of them that
      `by` keeps; `wait`: its time in state runnable within the window (ns);
    * `kind`: `thread`: another thread ran; `idle`: the CPU idled, on its way to the victim or not;
      `unknown`: the trace does not tell what it did; `no_queue`: the victim was on no known queue;
    * `comm`, `tid`, `pid`, `utid`: who ran, as `by` keeps; null unless `kind` is `thread`;
    * `time`, `share`: how long (ns), and its part of `wait`;
    * `n`: waits of the victim in which that was so at some time; `n_waits`: all that it had;
    * `cause_wake`, `cause_new`, `cause_preempt`, `cause_yield`, `cause_unknown`: `time` divided
      by how the wait began; unknown where the ledger has no begin for it.

    Victims with the longest wait first, the longest time first in each.

    `by`: a row per thread ("tid"), name ("comm") or process ("pid"), of victims and antagonists
    alike; a thread can be its own name's antagonist. `where`: expression over the columns of
    `threads`, and `cpu` (of the queue): whose waits, and where; never who ran. `victims`: only the
    N with the longest wait. `together`: all selected threads as one victim, without
    victim columns.

    Definition: docs/definitions/antagonists.md. Raises `UsageError` for another `by`, or
    `victims` below 1.

    >>> from schedscope import Trace
    >>> states = pl.DataFrame({
    ...     "ts": [0, 10, 40, 20],
    ...     "dur": [40, 50, 20, 40],
    ...     "utid": [1, 2, 0, 3],
    ...     "state": ["running", "runnable", "running", "sleeping"],
    ...     "cpu": [0, 0, 0, None],
    ... })
    >>> threads = pl.DataFrame({
    ...     "utid": [0, 1, 2, 3], "comm": ["idle", "hog", "web", "db"], "tid": [0, 7, 8, 9],
    ...     "pid": [0, 7, 8, 9],
    ... })
    >>> trace = Trace.from_tables(
    ...     {"states": states, "threads": threads}, {"ncpu": 1, "window": [0, 60]}
    ... )
    >>> antagonists(trace, by="comm").select("victim_comm", "kind", "comm", "time", "share")
    shape: (2, 5)
    ┌─────────────┬────────┬──────┬──────┬───────┐
    │ victim_comm ┆ kind   ┆ comm ┆ time ┆ share │
    │ ---         ┆ ---    ┆ ---  ┆ ---  ┆ ---   │
    │ str         ┆ enum   ┆ str  ┆ i64  ┆ f64   │
    ╞═════════════╪════════╪══════╪══════╪═══════╡
    │ web         ┆ thread ┆ hog  ┆ 30   ┆ 0.6   │
    │ web         ┆ idle   ┆ null ┆ 20   ┆ 0.4   │
    └─────────────┴────────┴──────┴──────┴───────┘
    """
    if by not in _KEYS:
        raise UsageError(f"by={by!r}", '"tid", "comm" or "pid"')
    if victims is not None and victims < 1:
        raise UsageError(f"victims={victims}", "a number of victims, 1 or more")
    threads = _threads(trace, by)
    waits = _waits(trace, threads, where, together)
    if victims is not None:
        longest = (
            waits.group_by("victim")
            .agg(wait=(pl.col("until") - pl.col("ts")).sum())
            .sort(["wait", "victim"], descending=[True, False])
            .head(victims)
        )
        waits = waits.join(longest, on="victim", how="semi", maintain_order="left")
    waits = _begun(trace, waits)
    return _named(_charged(trace, waits, threads), waits, threads, by, together)


def _threads(trace: Trace, by: By) -> pl.DataFrame:
    """Every thread with the number of its group; those without a name or pid share one."""
    key = "utid" if by == "tid" else by
    threads = trace.threads.select(
        pl.exclude("prio", "utid"),
        pl.col("utid").cast(pl.UInt32),
        group=pl.struct(key).rank("dense").cast(pl.Int64) - 1,
    )
    return threads.collect()


def _waits(
    trace: Trace, threads: pl.DataFrame, where: pl.Expr | None, together: bool
) -> pl.DataFrame:
    """Stretches in which a selected thread was runnable on one queue."""
    begin, end = trace.window
    lazy = (
        trace.states.filter((pl.col("state") == "runnable") & (pl.col("utid") >= trace.ncpu))
        .select(
            pl.col("utid").cast(pl.UInt32),
            pl.col("cpu").cast(pl.UInt16),
            ts=pl.col("ts").clip(lower_bound=begin),
            until=(pl.col("ts") + pl.col("dur")).clip(upper_bound=end),
        )
        .filter(pl.col("ts") < pl.col("until"))
    )
    if where is not None:
        names = set(where.meta.root_names())
        if "cpu" not in names:
            # Before the long table is read, not after.
            chosen = threads.filter(where)["utid"].implode()
            lazy = lazy.filter(pl.col("utid").is_in(chosen))
        else:
            columns = [name for name in threads.columns if name in names | {"utid"}]
            lazy = lazy.join(threads.lazy().select(columns), on="utid", how="left").filter(where)
    groups = threads.lazy().select("utid", victim="group")
    lazy = lazy.select("utid", "cpu", "ts", "until").join(groups, on="utid", how="left")
    waits = lazy.collect()
    if together:
        waits = waits.with_columns(victim=pl.lit(0, pl.Int64))
    return waits


def _begun(trace: Trace, waits: pl.DataFrame) -> pl.DataFrame:
    """With the number and cause of the wait in the ledger that each stretch belongs to."""
    ledger = (
        trace.waits.with_row_index("number")
        .filter(pl.col("ts_ready").is_not_null())
        .select(
            pl.col("utid").cast(pl.UInt32),
            pl.col("number").cast(pl.Int64),
            code=pl.col("cause").cast(CAUSE).to_physical(),
            since="ts_ready",
        )
        .join(waits.lazy().select("utid").unique(), on="utid", how="semi")
        .sort("since")
        .collect()
    )
    found = waits.sort("ts").join_asof(
        ledger, left_on="ts", right_on="since", by="utid", check_sortedness=False
    )
    # A stretch without a wait is one of its own.
    alone = -1 - pl.int_range(pl.len(), dtype=pl.Int64)
    return found.with_columns(
        pl.col("number").fill_null(alone),
        pl.col("code").fill_null(CAUSE.categories.to_list().index("unknown")),
    )


def _charged(trace: Trace, waits: pl.DataFrame, threads: pl.DataFrame) -> pl.DataFrame:
    """One row per victim and group that ran: time by cause and number of waits."""
    ngroups = int(threads["group"].max() or 0) + 1  # type: ignore[arg-type]
    # Groups of threads, then what is no thread.
    group = np.full(int(threads["utid"].max() or 0) + 2, 0, dtype=np.int64)  # type: ignore[arg-type]
    group[threads["utid"].to_numpy()] = threads["group"].to_numpy()
    group[: trace.ncpu] = ngroups
    tally = _Tally(ngroups + 3)
    cpus = waits["cpu"].drop_nulls().unique()
    runs = (
        trace.states.filter(
            (pl.col("state") == "running") & pl.col("cpu").cast(pl.UInt16).is_in(cpus.implode())
        )
        .select(pl.col("cpu").cast(pl.UInt16), "utid", "ts", "dur")
        .collect()
    )
    ran = {key[0]: part for key, part in runs.partition_by("cpu", as_dict=True).items()}
    del runs
    waits = waits.with_columns(several=pl.col("number").is_duplicated())
    for (cpu,), part in waits.partition_by("cpu", as_dict=True).items():
        rest = (part["until"] - part["ts"]).to_numpy().copy()
        if cpu is not None and cpu in ran:
            here = ran[cpu].sort("ts")
            begin = here["ts"].to_numpy()
            end = begin + here["dur"].to_numpy()
            _overlaps(part, begin, end, group[here["utid"].to_numpy()], rest, tally)
        left = np.flatnonzero(rest)
        code = ngroups + (2 if cpu is None else 1)
        every = np.ones(len(left), dtype=bool)
        tally.add(part, left, np.full(len(left), code), rest[left], every)
    return tally.frame()


def _overlaps(
    waits: pl.DataFrame, begin: Ints, end: Ints, group: Ints, rest: Ints, tally: _Tally
) -> None:
    """Charge to each run what it has in common with each wait, and take that off `rest`."""
    a, b = waits["ts"].to_numpy(), waits["until"].to_numpy()
    lo = np.searchsorted(end, a, side="right")
    hi = np.maximum(np.searchsorted(begin, b, side="left"), lo)
    # The run before of the same group: a wait saw the group first where that was too early for it.
    order = np.argsort(group, kind="stable")
    before = np.full(len(group), -1)
    same = group[order[1:]] == group[order[:-1]]
    before[order[1:][same]] = order[:-1][same]
    edges = np.concatenate([[0], np.cumsum(hi - lo)])
    first = 0
    while first < len(a):
        last = int(np.searchsorted(edges, edges[first] + _PAIRS, side="right")) - 1
        last = min(max(last, first + 1), len(a))
        counts = (hi - lo)[first:last]
        wait = np.repeat(np.arange(first, last), counts)
        run = np.arange(len(wait)) - np.repeat(edges[first:last] - edges[first], counts) + lo[wait]
        common = np.minimum(end[run], b[wait]) - np.maximum(begin[run], a[wait])
        taken = np.bincount(wait - first, common, last - first).astype(np.int64)
        rest[first:last] -= taken
        tally.add(waits, wait, group[run], common, before[run] < lo[wait])
        first = last


class _Tally:
    """Sums up times by victim, group and cause, and counts distinct waits."""

    def __init__(self, ngroups: int) -> None:
        self._ngroups = ngroups
        self._sums: list[pl.DataFrame] = []
        self._several: list[pl.DataFrame] = []

    def add(
        self, waits: pl.DataFrame, row: Ints, group: Ints, time: Ints, first: npt.NDArray[np.bool_]
    ) -> None:
        """`time` of each `group` in a `row` of waits, which saw the group `first` or again."""
        if not len(row):
            return
        several = waits["several"].to_numpy()[row]
        cell = waits["victim"].to_numpy()[row] * self._ngroups + group
        code = cell * len(_CAUSES) + waits["code"].to_numpy()[row]
        # Summed up by a table over the cells that occur, which are few beside the pairs.
        low = int(code.min())
        if int(code.max()) - low < 1 << 23:
            times = np.bincount(code - low, time)
            ns = np.bincount(code - low, first & ~several, len(times))
            found = np.flatnonzero(np.bincount(code - low))
            codes, times, ns = found + low, times[found], ns[found]
        else:
            codes, inverse = np.unique(code, return_inverse=True)
            times = np.bincount(inverse, time)
            ns = np.bincount(inverse, first & ~several)
        self._sums.append(
            pl.DataFrame({"code": codes, "time": times.astype(np.int64), "n": ns.astype(np.int64)})
        )
        # A wait on several queues is one wait.
        again = np.flatnonzero(first & several)
        if len(again):
            numbers = waits["number"].to_numpy()[row[again]]
            self._several.append(pl.DataFrame({"cell": cell[again], "number": numbers}))
        if len(self._sums) >= _MERGE:
            self._merge()

    def _merge(self) -> None:
        schema = {"code": pl.Int64, "time": pl.Int64, "n": pl.Int64}
        sums = pl.concat(self._sums or [pl.DataFrame(schema=schema)])
        self._sums = [sums.group_by("code").agg(pl.col("time", "n").sum())]

    def frame(self) -> pl.DataFrame:
        """One row per victim and group."""
        self._merge()
        code = pl.col("code") % len(_CAUSES)
        cells = (
            self._sums[0]
            .group_by(cell=pl.col("code") // len(_CAUSES))
            .agg(
                pl.col("time", "n").sum(),
                **{
                    name: pl.col("time").filter(code == number).sum()
                    for number, name in enumerate(_CAUSES.values())
                },
            )
        )
        schema = {"cell": pl.Int64, "number": pl.Int64}
        several = pl.concat(self._several or [pl.DataFrame(schema=schema)]).unique()
        more = several.group_by("cell").agg(more=pl.len().cast(pl.Int64))
        return cells.join(more, on="cell", how="left").select(
            pl.exclude("cell", "more", "n"),
            victim=pl.col("cell") // self._ngroups,
            group=pl.col("cell") % self._ngroups,
            n=(pl.col("n") + pl.col("more").fill_null(0)).cast(pl.UInt32),
        )


def _named(
    found: pl.DataFrame, waits: pl.DataFrame, threads: pl.DataFrame, by: By, together: bool
) -> pl.DataFrame:
    keys = list(_KEYS[by])
    ngroups = int(threads["group"].max() or 0) + 1  # type: ignore[arg-type]
    names = threads.group_by("group").agg(pl.col(keys).first())
    of_victim: list[str] = []
    if not together:
        of_victim = [f"victim_{name}" for name in keys]
        victim = names.rename({name: f"victim_{name}" for name in keys} | {"group": "victim"})
        found = found.join(victim, on="victim", how="left")
    totals = waits.group_by("victim").agg(
        wait=(pl.col("until") - pl.col("ts")).sum(), n_waits=pl.col("number").n_unique()
    )
    kind = pl.Series("kind", ["thread", "idle", "unknown", "no_queue"], KIND)
    order: dict[str, Any] = {"wait": True, "victim": False, "time": True, "group": False}
    return (
        found.join(totals, on="victim", how="left")
        .join(names, on="group", how="left")
        .with_columns(
            kind=pl.lit(kind).gather((pl.col("group") - ngroups + 1).clip(lower_bound=0)),
            share=pl.col("time") / pl.col("wait"),
        )
        .sort(list(order), descending=list(order.values()))
        .select(
            *of_victim, "wait", "kind", *keys, "time", "share", "n", "n_waits", *_CAUSES.values()
        )
    )
