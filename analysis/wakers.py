"""Who woke whom, and how long did the woken threads then wait for a CPU?"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Literal

import numpy as np
import polars as pl

from schedscope.analysis._base.by import THREADS, check
from schedscope.analysis._base.needs import needs
from schedscope.analysis._base.of_threads import threads_with
from schedscope.analysis._base.quantiles import column_name, rank, shares_of
from schedscope.analysis._base.softirqs import softirq

if TYPE_CHECKING:
    from schedscope.trace import Trace

By = Literal["thread", "process", "comm", "cgroup", "service"]
KIND = pl.Enum(["thread", "interrupt", "idle", "unknown"])
"""What woke; see `wakers`."""

QUANTILES = (0.5, 0.99)
# Edges up to which a table, and no sorting, finds their numbers.
_TABLE = 1 << 22


@needs("switches", "wakeups")
def wakers(
    trace: Trace,
    *,
    by: By = "comm",
    where: pl.Expr | None = None,
    quantiles: Sequence[float] = QUANTILES,
) -> pl.DataFrame:
    """One row per waker and wakee: an edge of the graph of who wakes whom.

    Counts the wakeups and forks that began a wait in the ledger; those of threads that
    ran or waited already began none.

    * `waker_kind`: `thread`; `interrupt`: raised from interrupt context, where the source says
      so; `idle`: an idle thread ran, so it was an interrupt on an idle CPU; `unknown`:
      the source says nothing, as of most forks;
    * the waker: `waker_comm`, `waker_tid`, `waker_pid`, `waker_utid`, or those of them that `by`
      keeps; of an interrupt only `interrupt` is set: its handler, as "irq 24" or "softirq
      TIMER", where the trace has `irqs` and one ran there then;
    * the wakee: `comm`, `tid`, `pid`, `utid`, or those of them that `by` keeps;
    * `n`, `total`, `mean`, `p50` ..., `max`: waits seen from start to end, their sum, mean,
      exact quantiles (nearest rank) and longest (ns; null without such a wait);
    * `n_censored`: waits that were still open when last observed; `n_excluded`: those
      of which the start was not recorded; `n_new`: how many of all were forks.

    Most frequent first. `where`: expression over the columns of `threads`, and `cpu` (that it got,
    or waited for): which wakees. Definition: docs/definitions/wakers.md. Raises
    `UsageError` for another `by` or a quantile outside (0, 1].

    >>> from schedscope import Trace
    >>> waits = pl.DataFrame({
    ...     "utid": [2, 2, 2], "cause": ["wake", "wake", "preempt"], "ts_ready": [0, 10, 20],
    ...     "ts_waking": [0, 10, None], "waker_utid": [1, None, None], "waker_cpu": [0, 0, None],
    ...     "cpu": [0, 0, 0], "queue_cpu": [0, 0, 0], "wait": [5, 7, 9], "censored": ["none"] * 3,
    ... })
    >>> threads = pl.DataFrame({"utid": [0, 1, 2], "comm": ["idle", "make", "cc"]})
    >>> trace = Trace.from_tables({"waits": waits, "threads": threads}, {"ncpu": 1})
    >>> wakers(trace).select("waker_kind", "waker_comm", "comm", "n", "mean")
    shape: (2, 5)
    ┌────────────┬────────────┬──────┬─────┬──────┐
    │ waker_kind ┆ waker_comm ┆ comm ┆ n   ┆ mean │
    │ ---        ┆ ---        ┆ ---  ┆ --- ┆ ---  │
    │ enum       ┆ str        ┆ str  ┆ u32 ┆ f64  │
    ╞════════════╪════════════╪══════╪═════╪══════╡
    │ interrupt  ┆ null       ┆ cc   ┆ 1   ┆ 7.0  │
    │ thread     ┆ make       ┆ cc   ┆ 1   ┆ 5.0  │
    └────────────┴────────────┴──────┴─────┴──────┘
    """
    check(by, list(THREADS))
    shares = shares_of(quantiles)
    keys = list(THREADS[by])
    threads = threads_with(trace, keys).select(
        "utid", *(name for name in keys if name != "utid"),
        group=pl.struct(keys).rank("dense").cast(pl.Int64) - 1,
    ).collect()  # fmt: skip
    waits = _woken(trace, where)
    interrupts, named = _interrupts(trace, waits)
    ngroups = int(threads["group"].max() or 0) + 1  # type: ignore[arg-type]
    group = np.zeros(int(threads["utid"].max() or 0) + 1, dtype=np.int64)  # type: ignore[arg-type]
    group[threads["utid"].to_numpy()] = threads["group"].to_numpy()
    # Wakers are groups of threads, then idle, unknown and the interrupts.
    waker = waits["waker_utid"].fill_null(0).to_numpy()
    seen = waits["waker_cpu"].is_not_null() & (waits["cause"] != "new")
    source = np.select(
        [waits["waker_utid"].is_not_null().to_numpy() & (waker >= trace.ncpu),
         waits["waker_utid"].is_not_null().to_numpy(),
         seen.to_numpy()],
        [group[waker], ngroups, ngroups + 2 + interrupts],
        ngroups + 1,
    )  # fmt: skip
    edge = source * ngroups + group[waits["utid"].to_numpy()]
    found = _statistics(waits, edge, shares)
    kind = pl.Series(KIND.categories[[0, 2, 3, 1]], dtype=KIND)
    names = threads.group_by("group").agg(pl.col(keys).first())
    return (
        found.with_columns(waker=pl.col("edge") // ngroups, group=pl.col("edge") % ngroups)
        .join(names, on="group", how="left")
        .join(
            names.rename({name: f"waker_{name}" for name in keys} | {"group": "waker"}),
            on="waker",
            how="left",
        )
        .join(named.with_columns(waker=pl.col("number") + ngroups + 2), on="waker", how="left")
        .with_columns(
            waker_kind=pl.lit(kind).gather((pl.col("waker") - ngroups + 1).clip(0, 3))
        )
        .sort(
            pl.col("n") + pl.col("n_censored") + pl.col("n_excluded"), "total", "edge",
            descending=[True, True, False],
        )
        .select(
            "waker_kind", *(f"waker_{name}" for name in keys), "interrupt", *keys,
            "n", "total", "mean", *map(column_name, shares), "max",
            "n_censored", "n_excluded", "n_new",
        )
    )  # fmt: skip


def _woken(trace: Trace, where: pl.Expr | None) -> pl.DataFrame:
    waits = trace.waits.filter(pl.col("cause").cast(pl.String).is_in(["wake", "new"])).select(
        "utid", "cause", "waker_utid", "waker_cpu", "wait", "censored", "ts_waking",
        cpu=pl.coalesce("cpu", "queue_cpu"),
    )  # fmt: skip
    if where is not None:
        used = set(where.meta.root_names()) | {"utid"}
        threads = threads_with(trace, used)
        columns = [n for n in threads.collect_schema().names() if n != "prio"]
        chosen = threads.select(name for name in columns if name in used)
        waits = waits.join(chosen, on="utid", how="left").filter(where)
    return waits.drop("cpu").collect()


def _interrupts(trace: Trace, waits: pl.DataFrame) -> tuple[np.ndarray, pl.DataFrame]:
    """The number of the handler that ran at each wakeup, 0 for none known, and their names."""
    handlers = trace.irqs.select("ts", "cpu", "kind", "id", "dur").collect()
    none = pl.DataFrame({"number": [0], "interrupt": ["interrupt"]})
    if not handlers.height:
        return np.zeros(waits.height, dtype=np.int64), none
    kinds = handlers.select("kind", "id").unique().sort("kind", "id").with_row_index("number", 1)
    handlers = handlers.join(kinds, on=["kind", "id"]).sort("ts")
    wakes = waits.with_row_index("#").filter(
        pl.col("waker_utid").is_null() & pl.col("ts_waking").is_not_null()
    )
    # Of nested handlers the one that began last.
    inside = wakes.sort("ts_waking").join_asof(
        handlers.select("ts", "dur", "number", waker_cpu="cpu"),
        left_on="ts_waking", right_on="ts", by="waker_cpu", check_sortedness=False,
    ).filter(pl.col("ts_waking") <= pl.col("ts") + pl.col("dur"))  # fmt: skip
    numbers = np.zeros(waits.height, dtype=np.int64)
    numbers[inside["#"].to_numpy()] = inside["number"].to_numpy()
    texts = [
        f"irq {number}" if kind == "hard" else softirq(number)
        for kind, number in kinds.select("kind", "id").iter_rows()
    ]  # fmt: skip
    named = kinds.select(pl.col("number").cast(pl.Int64), interrupt=pl.Series(texts))
    return numbers, pl.concat([none, named])


def _statistics(waits: pl.DataFrame, edge: np.ndarray, shares: list[Fraction]) -> pl.DataFrame:
    """One row per edge."""
    wait = waits["wait"]
    whole = (wait.is_not_null() & (waits["censored"] == "none")).to_numpy()
    values = wait.fill_null(0).to_numpy()[whole]
    top = int(edge.max(initial=0)) + 1
    if top <= _TABLE:
        edges = np.flatnonzero(np.bincount(edge, minlength=top))
        numbers = np.zeros(top, dtype=np.int64)
        numbers[edges] = np.arange(len(edges))
        code = numbers[edge]
    else:
        edges, code = np.unique(edge, return_inverse=True)
    size = len(edges)
    bits = int(values.max(initial=0)).bit_length()
    if bits + size.bit_length() <= 63:
        # Edge and wait in one number: sorting it sorts the waits of each edge.
        packed = np.sort((code[whole] << bits) | values)
        values = packed & ((1 << bits) - 1)
    else:
        values = values[np.lexsort((values, code[whole]))]
    n = np.bincount(code[whole], minlength=size)
    last = np.cumsum(n)
    first = last - n
    sums = np.concatenate([[0], np.cumsum(values)])
    total = sums[last] - sums[first]

    def at(place: np.ndarray) -> pl.Series:
        """The waits of that rank, from 0, in each edge."""
        if not len(values):
            return pl.repeat(None, size, dtype=pl.Int64, eager=True)
        found = pl.Series(values[np.clip(first + place, 0, len(values) - 1)], dtype=pl.Int64)
        return found.set(pl.Series(n == 0), None)

    unseen = wait.is_null().to_numpy()
    new = (waits["cause"] == "new").to_numpy()
    ranks = {column_name(share): rank(n, share) for share in shares}
    frame = pl.DataFrame(
        {
            "edge": pl.Series(edges, dtype=pl.Int64),
            "n": pl.Series(n, dtype=pl.UInt32),
            "total": pl.Series(total, dtype=pl.Int64),
            **{name: at(place) for name, place in ranks.items()},
            "max": at(n - 1),
            "n_censored": pl.Series(
                np.bincount(code[~whole & ~unseen], minlength=size), dtype=pl.UInt32
            ),
            "n_excluded": pl.Series(np.bincount(code[unseen], minlength=size), dtype=pl.UInt32),
            "n_new": pl.Series(np.bincount(code[new], minlength=size), dtype=pl.UInt32),
        }
    )
    return frame.with_columns(mean=pl.when(pl.col("n") > 0).then(pl.col("total") / pl.col("n")))
