"""How long did threads run on each CPU, cache or node?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from schedscope.analysis.asking.arguments import THREAD_COLUMNS
from schedscope.analysis.asking.by import By, keys_of
from schedscope.analysis.asking.needs import needs
from schedscope.analysis.cpus.run_sums import run_sums
from schedscope.analysis.cpus.topology import cpu_list, places
from schedscope.analysis.threads.of_threads import with_threads
from schedscope.errors import UsageError

if TYPE_CHECKING:
    from schedscope.store.trace import Trace

GROUPS = ("utid", *THREAD_COLUMNS)
"""What threads may be grouped by."""


@needs("switches")
def residency(
    trace: Trace,
    by: By = "comm",
    *,
    over: str = "cpu",
    where: pl.Expr | None = None,
) -> pl.DataFrame:
    """One row per group of threads and CPU, core, cache, ...: how long they ran there.

    `by` is one or more of `GROUPS`, or nothing for all threads together; `over` is "cpu", "core",
    "llc", "package" or "numa_node". Idle threads are left out.

    * the column that `over` names: the place; null where it is not known;
    * `running`: time, ns; `running_frac`: its share of the group's running time;
    * `runs`: intervals of running, including those cut by the window.

    `running` adds up to the running time of the threads. Largest groups first.

    Definition: docs/definitions/affinity.md. Raises `UsageError` for another `by` or `over`.

    >>> from schedscope import Trace
    >>> states = pl.DataFrame({
    ...     "ts": [0, 30, 0], "dur": [30, 10, 20], "utid": [2, 2, 3],
    ...     "state": ["running"] * 3, "cpu": [0, 1, 1],
    ... })
    >>> trace = Trace.from_tables({"states": states}, {"ncpu": 2, "window": [0, 40]})
    >>> residency(trace, by="utid")
    shape: (3, 5)
    ┌──────┬─────┬─────────┬──────────────┬──────┐
    │ utid ┆ cpu ┆ running ┆ running_frac ┆ runs │
    │ ---  ┆ --- ┆ ---     ┆ ---          ┆ ---  │
    │ u32  ┆ u16 ┆ i64     ┆ f64          ┆ u32  │
    ╞══════╪═════╪═════════╪══════════════╪══════╡
    │ 2    ┆ 0   ┆ 30      ┆ 0.75         ┆ 1    │
    │ 2    ┆ 1   ┆ 10      ┆ 0.25         ┆ 1    │
    │ 3    ┆ 1   ┆ 20      ┆ 1.0          ┆ 1    │
    └──────┴─────┴─────────┴──────────────┴──────┘
    """
    keys = keys_of(by, GROUPS)
    known = places(trace, over)  # refuses another `over`
    spent = with_threads(trace, time_spent(trace, where), keys)
    # Keep a CPU that the trace's `cpus` table does not list.
    place = pl.col("cpu") if over == "cpu" else place_of(known, "cpu")
    total = pl.col("running").sum()
    whole = total.over(keys) if keys else total
    return (
        spent.group_by([*keys, place.alias(over)])
        .agg(pl.col("running", "runs").sum())
        .with_columns(group=whole)
        .sort(["group", *keys, over], descending=[True, *[False] * (len(keys) + 1)])
        .select(
            *keys, over, "running",
            running_frac=pl.col("running") / pl.col("group"), runs=pl.col("runs").cast(pl.UInt32),
        )
    )  # fmt: skip


def time_spent(trace: Trace, where: pl.Expr | None) -> pl.DataFrame:
    """Each thread's runs on each CPU: the rows of `run_sums` without idle threads."""
    spent = run_sums(trace).filter(pl.col("utid") >= trace.ncpu)
    if where is None:
        return spent
    names = [name for name in where.meta.root_names() if name in THREAD_COLUMNS]
    for name in where.meta.root_names():
        if name not in (*GROUPS, "cpu"):
            raise UsageError(
                f"no column {name!r} in where", "a column of threads, or cpu",
                "one of " + ", ".join([*GROUPS, "cpu"]),
            )  # fmt: skip
    return with_threads(trace, spent, names).filter(where).select(spent.columns)


def masked(trace: Trace, spent: pl.DataFrame) -> pl.DataFrame:
    """`spent` with the thread's mask, and whether the CPU is `outside` of it."""
    spent = with_threads(trace, spent, ["affinity"])
    masks = spent["affinity"].unique().drop_nulls().to_list()
    rows = [(mask, cpu, False) for mask in masks for cpu in cpu_list(mask)]
    schema = {"affinity": pl.String, "cpu": pl.UInt16, "outside": pl.Boolean}
    inside = pl.DataFrame(rows, schema=schema, orient="row")
    known = pl.col("affinity").is_not_null()
    return spent.join(inside, on=["affinity", "cpu"], how="left").with_columns(
        outside=pl.when(known).then(pl.col("outside").fill_null(True)).otherwise(False)
    )


def place_of(known: dict[int, int | None], column: str) -> pl.Expr:
    """The core, cache, package or node that `places` gives for the CPU in a column."""
    numbers = list(known.values())
    return pl.col(column).replace_strict(list(known), numbers, default=None, return_dtype=pl.UInt16)
