"""How long do threads run without leaving the CPU?

A run lasts from switch-in to switch-out; it is what a scheduler's slice or quantum
limits. Runs whose start or end was not recorded are counted as unfinished, and are
excluded from all statistics.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

import polars as pl

from schedscope.analysis.asking.arguments import THREAD_COLUMNS
from schedscope.analysis.asking.by import By, keys_of
from schedscope.analysis.asking.command import THREAD_GROUPS, Command
from schedscope.analysis.asking.needs import needs
from schedscope.analysis.cpus.occupancy import coded_states
from schedscope.analysis.sums.quantiles import column_name, shares_of
from schedscope.analysis.threads.of_threads import threads_with
from schedscope.errors import UsageError
from schedscope.parsers.schema import END
from schedscope.store.native_tables import coded

if TYPE_CHECKING:
    from schedscope.store.trace import Trace

QUANTILES = (0.5, 0.9, 0.99)
OWN_COLUMNS = ("utid", "cpu", "end")


COMMAND = Command(
    heading="how well was the machine used?",
    help="how long threads run before they leave the CPU",
    example="""\
  schedscope run-lengths web.capture --by comm --top 10
  schedscope run-lengths web.capture --by comm,end --comm nginx
""",
    page="docs/definitions/efficiency.md",
    by=("all", *THREAD_GROUPS, "cpu", "end"),
    by_default="comm",
    top="the first N rows",
    columns="*by n mean p* max total n_censored?",
    narrow="n_censored mean total",
)


@needs("switches")
def run_lengths(
    trace: Trace,
    *,
    by: By = "all",
    where: pl.Expr | None = None,
    quantiles: Sequence[float] = QUANTILES,
) -> pl.DataFrame:
    """One row per group: how long threads ran from switch-in to switch-out.

    `by` names columns of `threads` (`comm`, `pid`, `tid`, `kernel`, `sched_class`,
    `affinity`, `recorder`), or `utid`, `cpu`, or `end` (how the run ended: `switched`
    when the thread slept, `preempted` when it still wanted the CPU, `exited`); none: all
    runs in one row. `where` is an expression over the same columns. Idle threads
    are left out.

    * the columns of `by`;
    * `n`: runs seen from start to end;
    * `n_censored`: runs of which the start or end was not seen: cut by the window or a loss,
      or without a recorded switch-in; only `total_censored` includes them;
    * `mean`; `p50` ...: exact order statistics, each the shortest run that at least that share of
      the `n` do not exceed; `max` (ns); null if `n` is 0;
    * `total`: time of the `n`; `total_censored`: time of the others (ns).

    Most running time first. `total + total_censored` of all rows is the running
    time of the threads selected. Definition: docs/definitions/efficiency.md.
    Raises `UsageError` for an unknown column or an impossible quantile.

    >>> from schedscope import Trace
    >>> states = pl.DataFrame({
    ...     "ts": [0, 10, 40, 60],
    ...     "dur": [10, 20, 20, 40],
    ...     "utid": [1, 1, 1, 1],
    ...     "state": ["running"] * 4,
    ...     "cpu": [0] * 4,
    ...     "end": ["switched", "preempted", "switched", "window"],
    ... })
    >>> switches = pl.DataFrame({"ts": [0, 10, 40, 60], "cpu": [0] * 4, "next_utid": [1] * 4})
    >>> tables = {"states": states, "switches": switches}
    >>> trace = Trace.from_tables(tables, {"ncpu": 1, "window": [0, 100]})
    >>> run_lengths(trace, quantiles=[0.5]).drop("total_censored")
    shape: (1, 6)
    ┌─────┬────────────┬───────────┬─────┬─────┬───────┐
    │ n   ┆ n_censored ┆ mean      ┆ p50 ┆ max ┆ total │
    │ --- ┆ ---        ┆ ---       ┆ --- ┆ --- ┆ ---   │
    │ i64 ┆ i64        ┆ f64       ┆ i64 ┆ i64 ┆ i64   │
    ╞═════╪════════════╪═══════════╪═════╪═════╪═══════╡
    │ 3   ┆ 1          ┆ 16.666667 ┆ 20  ┆ 20  ┆ 50    │
    └─────┴────────────┴───────────┴─────┴─────┴───────┘
    """
    keys = keys_of(by, (*OWN_COLUMNS, *THREAD_COLUMNS))
    _check(where)
    shares = shares_of(quantiles)
    found, groups = _grouped(trace, keys, where, shares)
    quantile = {f"q{number}": column_name(share) for number, share in enumerate(shares)}
    total, cut = pl.col("total"), pl.col("total_censored")
    table = (
        found.join(groups, on="group", how="left")
        .with_columns(mean=total / pl.when(pl.col("n") > 0).then(pl.col("n")))
        .select(
            *keys, "n", "n_censored", "mean",
            *(pl.col(name).alias(quantile[name]) for name in quantile),
            "max", "total", "total_censored",
        )
    )  # fmt: skip
    if not keys and not table.height:
        zero = ("n", "n_censored", "total", "total_censored")
        table = table.clear(1).with_columns(pl.col(zero).fill_null(0))
    return table.sort((total + cut).alias("#time"), *keys, descending=[True, *[False] * len(keys)])


def _check(where: pl.Expr | None) -> None:
    used = set(where.meta.root_names() if where is not None else ())
    for name in sorted(used):
        if name not in THREAD_COLUMNS and name not in OWN_COLUMNS:
            raise UsageError(
                f"no column {name!r} of a run",
                "a column of the running interval or of its thread",
                "one of " + ", ".join([*OWN_COLUMNS, *THREAD_COLUMNS]),
            )


def _grouped(
    trace: Trace, keys: list[str], where: pl.Expr | None, shares: list[Fraction]
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Sums and quantiles of each `group` of threads, with the `keys` of threads that a group has.

    With `cpu` and `end` where `keys` names them.
    """
    from schedscope import _native

    names = set(where.meta.root_names()) if where is not None else set()
    known = [name for name in THREAD_COLUMNS if name in {*keys, *names}]
    states = None
    known_threads = threads_with(trace, known).select("utid", *known)
    if where is not None and names & {"cpu", "end"}:
        # First find the threads that ran, then read their runs.
        runs = trace.states.join(known_threads, on="utid", how="left")
        states = runs.filter(where)
    # One more stands for threads that the table of threads does not have.
    top = int(trace.threads.select(pl.col("utid").max()).collect().item() or 0) + 2
    if "utid" in {*keys, *names}:
        seen = trace.states if states is None else states
        top = max(top, int(seen.select(pl.col("utid").max()).collect().item() or 0) + 2)
    threads = (
        pl.LazyFrame({"utid": pl.arange(top, eager=True, dtype=pl.UInt32)})
        .join(known_threads.cast({"utid": pl.UInt32}), on="utid", how="left")
        .collect()
    )
    of_thread = [name for name in keys if name not in ("cpu", "end")]
    groups = threads.select(of_thread).unique() if of_thread else pl.DataFrame({"#": [0]})
    groups = groups.with_row_index("group")
    mine = threads if where is None or names & {"cpu", "end"} else threads.filter(where)
    if of_thread:
        mine = mine.join(groups, on=of_thread, how="left", nulls_equal=True)
    else:
        mine = mine.with_columns(group=pl.lit(0, pl.UInt32))
    grouped = threads.select("utid").join(mine.select("utid", "group"), on="utid", how="left")
    numbers = grouped.sort("utid")["group"].to_list()
    found = _native.run_lengths(
        coded_states(trace, end=True, states=states),
        coded(trace, "switches", "ts", "cpu", "next_utid"),
        trace.window,
        trace.ncpu,
        {
            "group": numbers,
            "beyond": numbers[-1],
            "by_cpu": "cpu" in keys,
            "by_end": "end" in keys,
            "sure": _sure(trace),
            "shares": [(share.numerator, share.denominator) for share in shares],
        },
    )
    ends = dict(enumerate(END.categories))
    end = pl.col("end").replace_strict(ends, return_dtype=END)
    return pl.DataFrame(found).with_columns(end), groups


def _sure(trace: Trace) -> int:
    """The instant from which every run is known to have started with a switch-in.

    A run without one was already going on.
    """
    contradictions = (trace.info.get("reconstruction") or {}).get("contradictions")
    if contradictions == 0 and trace.losses.select(pl.len()).collect().item() == 0:
        # With an unbroken chain only the first run of each CPU can have been going on already: the
        # others need no lookup.
        first = trace.switches.group_by("cpu").agg(first=pl.col("ts").min()).collect()["first"]
        return int(first.max() if len(first) else trace.window[1])  # type: ignore[arg-type]
    return (1 << 63) - 1
