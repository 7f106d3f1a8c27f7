"""Which threads woke which, how often, and how long did the woken ones then wait for a CPU?

Counts the wakeups and forks that started a wait. Wakeups from interrupt context
are shown as such, with the name of the handler where interrupts were recorded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np
import polars as pl

from schedscope.analysis.asking.batches import in_batches
from schedscope.analysis.asking.by import THREADS, check
from schedscope.analysis.asking.command import THREAD_ROWS, Command
from schedscope.analysis.asking.needs import needs
from schedscope.analysis.causes.softirqs import softirq
from schedscope.analysis.sums.grouped import sums_by_code
from schedscope.analysis.sums.quantiles import column_name, shares_of
from schedscope.analysis.threads.of_threads import threads_with
from schedscope.analysis.waits.observed import EXCLUDED, MEASURED, UNFINISHED

if TYPE_CHECKING:
    import numpy.typing as npt

    from schedscope.store.trace import Trace

By = Literal["thread", "process", "comm", "cgroup", "service"]
KIND = pl.Enum(["thread", "interrupt", "idle", "unknown"])
"""What woke; see `wakers`."""

QUANTILES = (0.5, 0.99)


COMMAND = Command(
    heading="who waited, and why?",
    help="who woke whom, and the wait that followed",
    example="""\
  schedscope wakers web.capture --top 10
  schedscope wakers web.capture --by thread --comm nginx
""",
    page="docs/definitions/wakers.md",
    by=THREAD_ROWS,
    by_default="comm",
    by_help="wakers and woken by thread, name, process, control group or service (default: comm)",
    top="the first N rows",
    top_default=20,
    selects="wakeups of these threads",
    columns="waker woken n mean p50 p99 max total n_new? n_censored? n_excluded?",
    narrow="n_censored n_excluded n_new total p50 p99",
    rest=("rarer pair", ""),
    nothing="no wakeups for this selection",
)


@needs("switches", "wakeups")
def wakers(
    trace: Trace,
    *,
    by: By = "comm",
    where: pl.Expr | None = None,
    quantiles: Sequence[float] = QUANTILES,
) -> pl.DataFrame:
    """One row per waker and wakee: an edge of the graph of wakeups.

    Counts the wakeups and forks that began a wait in the ledger. A wakeup of a thread that already
    ran or waited began none.

    * `waker_kind`: `thread`; `interrupt`: raised from interrupt context, where the source says so;
      `idle`: an idle thread ran, which means an interrupt on an idle CPU; `unknown`: the source
      does not say, as for most forks;
    * the waker: `waker_comm`, `waker_tid`, `waker_pid`, `waker_utid`, or those of them that `by`
      keeps; for an interrupt only `interrupt` is set, to its handler, as in "irq 24" or "softirq
      TIMER", where the trace has `irqs` and one ran there at that instant;
    * the wakee: `comm`, `tid`, `pid`, `utid`, or those of them that `by` keeps;
    * `n`, `total`, `mean`, `p50` ..., `max`: waits seen from start to end, their sum, mean,
      exact quantiles (nearest rank) and longest (ns; null without such a wait);
    * `n_censored`: waits that were still open when last observed; `n_excluded`: those whose start
      was not recorded; `n_new`: how many of all of these were forks.

    Most frequent first. `where`: which wakees, an expression over the columns of `threads` and
    `cpu` (the CPU that the wakee got, or waited for). Definition: docs/definitions/wakers.md.
    Raises `UsageError` for another `by` or a quantile outside (0, 1].

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
    ngroups = int(threads["group"].max() or 0) + 1  # type: ignore[arg-type]
    group = np.zeros(int(threads["utid"].max() or 0) + 1, dtype=np.int64)  # type: ignore[arg-type]
    group[threads["utid"].to_numpy()] = threads["group"].to_numpy()
    handlers, named = _handlers(trace)

    def batches() -> Iterator[pl.DataFrame]:
        for ledger in in_batches(trace.waits):
            waits = _woken(trace, where, ledger)
            interrupts = _interrupts(waits, handlers)
            # Wakers are groups of threads, then idle, unknown and the interrupts.
            waker = waits["waker_utid"].fill_null(0).to_numpy()
            told = waits["waker_utid"].is_not_null().to_numpy()
            new = (waits["cause"] == "new").to_numpy()
            seen = waits["waker_cpu"].is_not_null().to_numpy() & ~new
            source = np.select(
                [told & (waker >= trace.ncpu), told, seen],
                [group[waker], ngroups, ngroups + 2 + interrupts],
                ngroups + 1,
            )
            yield waits.select(
                group=pl.Series(source * ngroups + group[waits["utid"].to_numpy()]),
                time=pl.when(MEASURED).then("wait"),
                n_censored=UNFINISHED,
                n_excluded=EXCLUDED,
                n_new=pl.Series(new),
            )

    found = sums_by_code(batches, shares, ["n_censored", "n_excluded", "n_new"])
    found = found.rename({"group": "edge"})
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


def _woken(trace: Trace, where: pl.Expr | None, ledger: pl.LazyFrame) -> pl.DataFrame:
    """Waits of the ledger that a wakeup or a fork began."""
    waits = ledger.filter(pl.col("cause").cast(pl.String).is_in(["wake", "new"])).select(
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


def _handlers(trace: Trace) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Runs of interrupt handlers, numbered by kind, and the names of the numbers; 0: not known."""
    handlers = trace.irqs.select("ts", "cpu", "kind", "id", "dur").collect()
    kinds = handlers.select("kind", "id").unique().sort("kind", "id").with_row_index("number", 1)
    handlers = handlers.join(kinds, on=["kind", "id"]).sort("ts")
    texts = [
        f"irq {number}" if kind == "hard" else softirq(number)
        for kind, number in kinds.select("kind", "id").iter_rows()
    ]
    none = pl.DataFrame({"number": [0], "interrupt": ["interrupt"]})
    names = pl.Series("interrupt", texts, dtype=pl.String)
    named = kinds.select(pl.col("number").cast(pl.Int64), names)
    return handlers.select("ts", "dur", "number", waker_cpu="cpu"), pl.concat([none, named])


def _interrupts(waits: pl.DataFrame, handlers: pl.DataFrame) -> npt.NDArray[np.int64]:
    """The number of the handler that ran at each wakeup, 0 for none known."""
    numbers = np.zeros(waits.height, dtype=np.int64)
    if not handlers.height:
        return numbers
    wakes = waits.with_row_index("#").filter(
        pl.col("waker_utid").is_null() & pl.col("ts_waking").is_not_null()
    )
    # With nested handlers, the one that began last.
    inside = wakes.sort("ts_waking").join_asof(
        handlers, left_on="ts_waking", right_on="ts", by="waker_cpu", check_sortedness=False
    ).filter(pl.col("ts_waking") <= pl.col("ts") + pl.col("dur"))  # fmt: skip
    numbers[inside["#"].to_numpy()] = inside["number"].to_numpy()
    return numbers
