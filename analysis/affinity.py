"""Where did threads run, were they allowed there, and did they return to the same CPU?

"effective CPUs" is the exponential of the entropy of a group's running time over the
CPUs: 1 if all of it was on one CPU, k if it was spread evenly over k CPUs. "same CPU
share" is the share of runs on the CPU on which the thread had run before. --isolated
shows which threads ran on CPUs that were meant to be isolated.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import polars as pl

from schedscope.analysis.asking.by import By, keys_of
from schedscope.analysis.asking.command import Command
from schedscope.analysis.asking.memo import once
from schedscope.analysis.asking.needs import needs
from schedscope.analysis.cpus.topology import cpu_list, cpu_text, places
from schedscope.analysis.residency import (
    GROUPS,
    masked,
    place_of,
    time_spent,
)
from schedscope.analysis.sums.folded import folded
from schedscope.analysis.threads.of_threads import with_threads
from schedscope.analysis.waits.waits import waits_in_batches

if TYPE_CHECKING:
    from schedscope.store.trace import Trace


COMMAND = Command(
    heading="where did threads run?",
    help="where threads ran, were allowed to run, and returned",
    example="""\
  schedscope affinity web.capture --by tid,comm --top 20
  schedscope affinity web.capture --residency cpu --comm nginx
  schedscope affinity web.capture --returns
  schedscope affinity web.capture --isolated 2-3
""",
    page="docs/definitions/affinity.md",
)


@needs("switches")
def affinity(trace: Trace, by: By = "comm", *, where: pl.Expr | None = None) -> pl.DataFrame:
    """One row per group of threads: where they ran, and whether they stayed.

    Most running time first. Where the time was spent:

    * `threads`, `running` (ns), `cpus`: how many threads ran, how long, on how many CPUs;
    * `effective_cpus`: exponential of the entropy of the shares of time: 1 if all of it was on one
      CPU, k if it was spread evenly over k CPUs; `effective_llcs`: the same over last-level caches,
      null without topology; `top_cpu`, `top_frac`: the CPU with most of the time, and its share.

    How often they returned to a CPU, of all times that a thread got a CPU and is known to have run
    before:

    * `n`: how many these are; `same_cpu_frac`, `same_llc_frac`: the share of them to the CPU where
      the thread ran last, and to a CPU with the same last-level cache (null without topology);
    * `n_censored`: waits that had not ended when last observed; `n_excluded`: runs whose previous
      run is not known, or with unknown time in between.

    What was allowed, by the masks that the capture recorded:

    * `allowed`, `used`: lists of the CPUs that at least one of the threads may use, and that at
      least one did use; `allowed` is null if the mask of one of them is not known;
    * `outside`, `outside_runs`: running time (ns) and runs outside the thread's own mask; null
      if no mask is known. `runs_outside_affinity` lists them.

    The spread of several threads is that of their combined time; `by="utid"` gives each thread its
    own row. Raises `UsageError` for another `by`.

    >>> from schedscope import Trace
    >>> states = pl.DataFrame({
    ...     "ts": [0, 30], "dur": [30, 30], "utid": [2, 2], "state": ["running"] * 2, "cpu": [0, 1],
    ... })
    >>> trace = Trace.from_tables({"states": states}, {"ncpu": 2, "window": [0, 60]})
    >>> affinity(trace, by="utid").select("utid", "running", "effective_cpus", "used")
    shape: (1, 4)
    ┌──────┬─────────┬────────────────┬──────┐
    │ utid ┆ running ┆ effective_cpus ┆ used │
    │ ---  ┆ ---     ┆ ---            ┆ ---  │
    │ u32  ┆ i64     ┆ f64            ┆ str  │
    ╞══════╪═════════╪════════════════╪══════╡
    │ 2    ┆ 60      ┆ 2.0            ┆ 0-1  │
    └──────┴─────────┴────────────────┴──────┘
    """
    keys = keys_of(by, GROUPS)
    spent = masked(trace, with_threads(trace, time_spent(trace, where), keys))
    spent = spent.with_columns(mask="affinity")
    groups: list[str] = keys or ["all"]
    if not keys:
        spent = spent.with_columns(all=pl.lit(0))
    llc = places(trace, "llc")
    per_cpu = spent.group_by([*groups, "cpu"]).agg(pl.col("running").sum())
    per_llc = (
        per_cpu.with_columns(llc=place_of(llc, "cpu"))
        .group_by([*groups, "llc"])
        .agg(pl.col("running").sum())
    )
    spread = per_cpu.sort("cpu").group_by(groups).agg(
        cpus=pl.col("cpu").n_unique().cast(pl.UInt32),
        effective_cpus=_effective(),
        top_cpu=pl.col("cpu").sort_by("running", descending=True, maintain_order=True).first(),
        top_frac=pl.col("running").max() / pl.col("running").sum(),
    ).join(_cpu_texts(per_cpu, groups), on=groups, nulls_equal=True)  # fmt: skip
    caches = per_llc.group_by(groups).agg(
        effective_llcs=pl.when(~pl.col("llc").is_null().any()).then(_effective())
    )
    # Masks belong to threads: count each thread once, however many CPUs it used.
    of_thread = spent.group_by(list(dict.fromkeys([*groups, "utid"]))).agg(
        pl.col("mask").first(),
        pl.col("running").sum(),
        outside=pl.col("running").filter("outside").sum(),
        outside_runs=pl.col("runs").filter("outside").sum(),
    )
    masks = of_thread.group_by(groups).agg(
        threads=pl.len().cast(pl.UInt32),
        running=pl.col("running").sum(),
        masks=pl.col("mask").unique(),
        unknown=pl.col("mask").is_null().sum(),
        outside=pl.col("outside").sum(),
        outside_runs=pl.col("outside_runs").sum().cast(pl.UInt32),
    )
    blind = pl.col("unknown") == pl.col("threads")
    # Groups whose runs have no length have returns, but no residency.
    returns = _returns(trace, keys, where)
    frame = (
        masks.join(spread, on=groups, nulls_equal=True)
        .join(caches, on=groups, nulls_equal=True)
        .join(returns, on=groups, how="full", coalesce=True, nulls_equal=True)
        .with_columns(
            pl.when(~blind).then(pl.col("outside", "outside_runs")),
            pl.col("threads", "running", "cpus", "n", "n_censored", "n_excluded").fill_null(0),
        )
    )
    allowed = [
        None if known is None or None in known else _together(tuple(known))
        for known in frame["masks"].to_list()
    ]
    return (
        frame.with_columns(pl.Series("allowed", allowed, dtype=pl.String))
        .sort(["running", *groups], descending=[True, *[False] * len(groups)])
        .select(
            *keys,
            *("threads", "running", "cpus", "effective_cpus", "effective_llcs"),
            *("top_cpu", "top_frac", "n", "same_cpu_frac", "same_llc_frac"),
            *("n_censored", "n_excluded", "allowed", "used", "outside", "outside_runs"),
        )
    )


@lru_cache
def _together(masks: tuple[str, ...]) -> str:
    """The CPUs of any of them. Most threads of a machine have one of a few masks."""
    return cpu_text(cpu for mask in masks for cpu in cpu_list(mask))


def _cpu_texts(per_cpu: pl.DataFrame, groups: list[str]) -> pl.DataFrame:
    """`used`: the CPUs of each group as `cpu_text` writes them, of all groups at once."""
    ranges = (
        per_cpu.select(*groups, pl.col("cpu").cast(pl.Int32))
        .sort("cpu")
        # Neighbours have the same distance from their number within the group.
        .with_columns(range=pl.col("cpu") - pl.int_range(pl.len(), dtype=pl.Int32).over(groups))
        .group_by([*groups, "range"])
        .agg(first=pl.col("cpu").min(), last=pl.col("cpu").max())
        .sort("first")
    )
    text = pl.col("first").cast(pl.String) + pl.when(pl.col("last") > pl.col("first")).then(
        pl.lit("-") + pl.col("last").cast(pl.String)
    ).otherwise(pl.lit(""))
    return ranges.group_by(groups).agg(used=text.str.join(","))


def _returns(trace: Trace, keys: list[str], where: pl.Expr | None) -> pl.DataFrame:
    """The runs of each group whose thread is known to have run before, and where."""
    runs = once(_runs, trace) if where is None else _runs(trace, where)
    runs = with_threads(trace, runs, keys)
    if not keys:
        runs = runs.with_columns(all=pl.lit(0))
    told = None not in places(trace, "llc").values()
    n, same = pl.col("n").sum(), pl.col("same_cpu", "same_llc").sum()
    return (
        runs.group_by(keys or ["all"])
        .agg(
            pl.col("n", "n_censored", "n_excluded").sum().cast(pl.UInt32),
            pl.when(n > 0).then(same / n).name.suffix("_frac"),
        )
        .with_columns(same_llc_frac=pl.when(told).then(pl.col("same_llc_frac")))
    )


def _runs(trace: Trace, where: pl.Expr | None = None) -> pl.DataFrame:
    """Each thread's runs, and how many were on the CPU of the last one, or shared its cache."""
    ended = pl.col("ts_run").is_not_null()
    known = ended & pl.col("prev_cpu").is_not_null() & (pl.col("cause") != "unknown")
    llc = places(trace, "llc")
    n, counts = pl.col("n"), pl.col("n", "n_censored", "n_excluded")
    parts = (
        rows.group_by("utid", "prev_cpu", "cpu")
        .agg(n=known.sum(), n_censored=(~ended).sum(), n_excluded=(ended & ~known).sum())
        # Caches are looked up once for each pair of CPUs of a thread.
        .group_by("utid")
        .agg(
            counts.sum(),
            same_cpu=n.filter(pl.col("cpu") == pl.col("prev_cpu")).sum(),
            same_llc=n.filter(place_of(llc, "cpu") == place_of(llc, "prev_cpu")).sum(),
        )
        .collect()
        for rows in waits_in_batches(trace, ["utid", "cause", "ts_run", "prev_cpu", "cpu"], where)
    )
    return folded(parts, lambda rows: rows.group_by("utid").agg(pl.exclude("utid").sum()))


def _effective() -> pl.Expr:
    """exp(entropy) of the shares of `running`."""
    share = pl.col("running") / pl.col("running").sum()
    return (-(share * share.log()).sum()).exp()
