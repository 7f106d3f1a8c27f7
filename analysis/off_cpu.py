"""What did threads wait for when they gave up the CPU, and for how long?"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

import polars as pl

from schedscope.analysis._base.by import By, keys_of
from schedscope.analysis._base.lock_waits import lock_waits, worded
from schedscope.analysis._base.needs import has, needs, require_also
from schedscope.analysis._base.of_threads import threads_with
from schedscope.analysis._base.quantiles import column_name, rank, shares_of
from schedscope.analysis._base.sleep_causes import EVIDENCE, SLEEP_CAUSE, causes
from schedscope.analysis._base.waits import THREAD_COLUMNS
from schedscope.parsers.schema import END, SLEEP_KIND, STATE

if TYPE_CHECKING:
    from schedscope.trace import Trace

OFF = ("sleeping", "blocked", "stopped", "parked")
"""States in which a thread has left its CPU and does not want one."""

QUANTILES = (0.5, 0.99)


@needs("switches")
def off_cpu(
    trace: Trace,
    *,
    by: By = "all",
    where: pl.Expr | None = None,
    quantiles: Sequence[float] = QUANTILES,
) -> pl.DataFrame:
    """One row per reason for which threads slept or were blocked.

    * the columns of `threads` named in `by`, as `comm`: a row for each of them and each reason;
      with `cause` among them, a row for each of them and each cause, and no other column of the
      reason;
    * `state`: `sleeping` (a signal can end it), `blocked` (none can), `stopped`, `parked`;
    * `kind`: `sleep`, `lock`, `interrupt` (an interrupt thread with nothing to do), `suspended`;
      and `reason`: the wait message of a sleep, the name of a lock. Null where the source does not
      say; FreeBSD's DTrace and KTR traces do. On Linux `kind` is null, and `reason` is the system
      call in which the thread slept, if calls were recorded;
    * `cause`: what a sleep on Linux was for, by that call (`futex`, `read`, `write`, `socket`,
      `poll`, `timer`, `child`, `signal`, `sync`, `file`, `memory`, `process`, `other call`); or
      `disk` (a request to a disk that the thread had made was done, and that woke it), `io` (for
      I/O, as the kernel itself says), `fault` (blocked outside any call: a page fault or a disk),
      `stop`, `kernel` (of a kernel thread) or `unknown`; and `evidence`, how that is known or why
      it is not. Null without recorded calls, requests to disks or reasons told by the kernel;
    * `n`, `total`, `mean`, `p50` ..., `max`: the times from leaving the CPU until woken that
      were seen from start to end: their sum, mean, exact quantiles (nearest rank) and longest
      (ns; null without such a time);
    * `lock`, `lock_time`, `released_by`: of these sleeps, the lock that threads slept for longest
      (`futex ADDRESS (pid)`, or a lock of the kernel), how long (ns), and who released it at the
      end of most of that time, `unknown` if that is not proved; null without recorded locks or
      calls with their arguments;
    * `n_censored`: those still open when last observed; `n_excluded`: those of which
      the start was not recorded.

    Longest sum first. `where`: expression over the columns of `threads`. Idle threads are left
    out. Definition: docs/definitions/off-cpu.md. Raises `UsageError` for an unknown `by` or a
    quantile outside (0, 1].

    >>> from schedscope import Trace
    >>> states = pl.DataFrame({
    ...     "ts": [0, 10, 50, 60], "dur": [10, 40, 10, 5], "utid": [1] * 4, "cpu": [0, None] * 2,
    ...     "state": ["running", "sleeping", "running", "blocked"],
    ...     "end": ["switched", "woken", "switched", "woken"],
    ... })
    >>> sleeps = pl.DataFrame({"ts": [10, 60], "utid": [1, 1], "cpu": [0, 0],
    ...                        "kind": ["sleep", "lock"], "reason": ["piperd", "vm page free"]})
    >>> threads = pl.DataFrame({"utid": [0, 1], "comm": ["idle", "cat"]})
    >>> tables = {"states": states, "sleeps": sleeps, "threads": threads}
    >>> trace = Trace.from_tables(tables, {"ncpu": 1, "window": [0, 65]})
    >>> off_cpu(trace).select("state", "kind", "reason", "n", "total")
    shape: (2, 5)
    ┌──────────┬───────┬──────────────┬─────┬───────┐
    │ state    ┆ kind  ┆ reason       ┆ n   ┆ total │
    │ ---      ┆ ---   ┆ ---          ┆ --- ┆ ---   │
    │ enum     ┆ enum  ┆ str          ┆ u32 ┆ i64   │
    ╞══════════╪═══════╪══════════════╪═════╪═══════╡
    │ sleeping ┆ sleep ┆ piperd       ┆ 1   ┆ 40    │
    │ blocked  ┆ lock  ┆ vm page free ┆ 1   ┆ 5     │
    └──────────┴───────┴──────────────┴─────┴───────┘
    """
    names = keys_of(by, (*THREAD_COLUMNS, "utid", "cause"))
    told = any(has(trace, table) for table in ("system_calls", "disk_requests", "sleep_reasons"))
    if "cause" in names and not told:
        require_also(trace, "system_calls", "by='cause'")
    shares = shares_of(quantiles)
    begin, _ = trace.window
    cut = pl.col("ts") == begin if begin > trace.origin else pl.lit(value=False)
    # Cut at the start, a sleep has lost its reason together with its length.
    times = (
        trace.states.filter(pl.col("state").is_in(OFF) & (pl.col("utid") >= trace.ncpu))
        .with_columns(pl.col("state").cast(STATE), excluded=cut)
        .with_columns(censored=~cut & (pl.col("end").cast(END) != "woken"))
        .select("utid", "ts", "dur", "state", "censored", "excluded")
    )
    reasons = trace.sleeps.select(
        "utid", "ts", pl.col("kind").cast(SLEEP_KIND), pl.col("reason").replace("", None)
    )
    if reasons.select(pl.len()).collect().item():
        times = times.join(reasons.unique(["utid", "ts"]), on=["utid", "ts"], how="left")
    else:
        times = times.with_columns(kind=pl.lit(None, SLEEP_KIND), reason=pl.lit(None, pl.String))
    if told:
        times = causes(trace, times.drop("reason")).collect().lazy()
    else:
        times = times.with_columns(cause=pl.lit(None, SLEEP_CAUSE), evidence=pl.lit(None, EVIDENCE))
    locks = worded(trace, lock_waits(trace, times)) if _locks_recorded(trace) else None
    used = {name for name in names if name not in ("utid", "cause")}
    if where is not None:
        used |= set(where.meta.root_names()) - {"utid"}
    if used:
        times = times.join(
            threads_with(trace, used).select("utid", *sorted(used)), on="utid", how="left"
        )
    if where is not None:
        times = times.filter(where)
    whole = pl.col("dur").filter(~pl.col("censored") & ~pl.col("excluded"))
    keys = list(names)
    if "cause" not in names:
        keys += ["state", "kind", "reason", "cause", "evidence"]
    found = times.group_by(keys).agg(
        whole.len().alias("n"),
        whole.sum().alias("total"),
        whole.mean().alias("mean"),
        whole.sort().alias("times"),
        whole.max().alias("max"),
        n_censored=pl.col("censored").sum(),
        n_excluded=pl.col("excluded").sum(),
    )
    if locks is None or locks.is_empty():
        found = found.with_columns(
            lock=pl.lit(None, pl.String),
            lock_time=pl.lit(None, pl.Int64),
            released_by=pl.lit(None, pl.String),
        )
    else:
        slept_for = locks.select("utid", "ts", "lock", "released_by").lazy()
        most = _most(times.join(slept_for, on=["utid", "ts"]).filter(~pl.col("excluded")), keys)
        found = found.join(most, on=keys, how="left", nulls_equal=True)
    return (
        found.select(
            *keys,
            *("n", "total", "mean"),
            *(_of_sorted(pl.col("times"), share) for share in shares),
            *("max", "lock", "lock_time", "released_by", "n_censored", "n_excluded"),
        )
        .sort("total", *keys, descending=[True, *(False for _ in keys)], nulls_last=True)
        .collect()
    )


def _locks_recorded(trace: Trace) -> bool:
    return has(trace, "locks") or has(trace, "system_calls")


def _most(times: pl.LazyFrame, keys: list[str]) -> pl.LazyFrame:
    """The lock of most time of each of `keys`, and who released it at the end of most of that."""
    times = times.filter(~pl.col("censored")).with_columns(
        pl.col("released_by").fill_null("unknown")
    )
    of_releaser = times.group_by(*keys, "lock", "released_by").agg(part=pl.col("dur").sum())
    order = ["part", "lock", "released_by"]
    return (
        of_releaser.sort(order, descending=[True, False, False])
        .group_by(*keys, "lock", maintain_order=True)
        .agg(pl.col("released_by").first(), lock_time=pl.col("part").sum())
        .sort("lock_time", "lock", descending=[True, False])
        .unique(keys, keep="first", maintain_order=True)
    )


def _of_sorted(times: pl.Expr, share: Fraction) -> pl.Expr:
    """The quantile of `times`, lists in order."""
    at = rank(times.list.len().cast(pl.Int64), share)
    return times.list.get(at.clip(0), null_on_oob=True).alias(column_name(share))
