"""How long do threads run before they leave the CPU?"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from schedscope.analysis.ledger import THREAD_COLUMNS
from schedscope.errors import UsageError

if TYPE_CHECKING:
    import numpy.typing as npt

    from schedscope.trace import Trace

    Ints = npt.NDArray[np.int64]

QUANTILES = (0.5, 0.9, 0.99)
OWN_COLUMNS = ("utid", "cpu", "end")


def run_lengths(
    trace: Trace,
    *,
    by: str | Sequence[str] = (),
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
    * `n`: runs seen from begin to end;
    * `n_censored`: runs of which an end was not seen: cut by the window or a loss,
      or found going on; statistics leave them out, `total_censored` does not;
    * `mean`; `p50` ...: exact order statistics, the shortest run that is not exceeded by
      at least that share of the `n`; `max` (ns); null if `n` is 0;
    * `total`: time of the `n`; `total_censored`: time of the others (ns).

    Most running time first. `total + total_censored` of all rows is the running
    time of the threads selected. Definition: docs/definitions/cpu-efficiency.md.
    Raises `UsageError` for a column or quantile that cannot be.

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
    keys = [by] if isinstance(by, str) else list(by)
    _check(keys, where)
    for q in quantiles:
        if not 0 < q <= 1:
            raise UsageError(f"quantile {q}", "a number above 0, at most 1", "as in 0.99")
    shares = [Fraction(str(q)).limit_denominator(10**9) for q in quantiles]
    frame = _runs(trace, keys, where)
    names = frame.select(keys).unique(maintain_order=True) if keys else pl.DataFrame(height=1)
    groups = names.height
    if keys:
        numbered = names.with_row_index("#group")
        number = (
            frame.select(keys)
            .join(numbered, on=keys, how="left", nulls_equal=True, maintain_order="left")["#group"]
            .to_numpy()
        )
    else:
        number = np.zeros(frame.height, dtype=np.uint32)
    whole, dur = frame["whole"].to_numpy(), frame["dur"].to_numpy()
    cut = pl.DataFrame({"g": number[~whole], "dur": dur[~whole]})
    rest = {g: (n, ns) for g, n, ns in
            cut.group_by("g").agg(pl.len(), pl.col("dur").sum()).iter_rows()}  # fmt: skip
    rows = []
    for group, lengths in enumerate(_by_group(number[whole], dur[whole], groups)):
        n_censored, total_censored = rest.get(group, (0, 0))
        rows.append(_row(lengths, shares) | {
            "n_censored": n_censored, "total_censored": total_censored})  # fmt: skip
    schema: dict[str, type[pl.DataType]] = {
        "n": pl.Int64,
        "n_censored": pl.Int64,
        "mean": pl.Float64,
        **{_name(share): pl.Int64 for share in shares},
        "max": pl.Int64,
        "total": pl.Int64,
        "total_censored": pl.Int64,
    }
    table = pl.concat([names, pl.DataFrame(rows, schema=schema)], how="horizontal")
    order = (pl.col("total") + pl.col("total_censored")).alias("#time")
    return table.sort(order, *keys, descending=[True, *[False] * len(keys)])


def _check(keys: list[str], where: pl.Expr | None) -> None:
    used = {*keys, *(where.meta.root_names() if where is not None else ())}
    for name in sorted(used):
        if name not in THREAD_COLUMNS and name not in OWN_COLUMNS:
            raise UsageError(
                f"no column {name!r} of a run",
                "a column of the running interval or of its thread",
                "one of " + ", ".join([*OWN_COLUMNS, *THREAD_COLUMNS]),
            )
    if len(set(keys)) != len(keys):
        raise UsageError(f"by={keys} names a column twice", "each column once")


def _runs(trace: Trace, keys: list[str], where: pl.Expr | None) -> pl.DataFrame:
    """Every run, within the window: its `dur`, the keys, and whether it is `whole`."""
    begin, end = trace.window
    since = pl.col("ts").clip(lower_bound=begin)
    until = (pl.col("ts") + pl.col("dur")).clip(upper_bound=end)
    used = {*keys, *(where.meta.root_names() if where is not None else ())}
    inside = (pl.col("ts") >= begin) & (pl.col("ts") + pl.col("dur") <= end)
    seen = ~pl.col("end").cast(pl.String).is_in(["lost", "window"])
    runs = trace.states.filter(
        pl.col("state") == "running", pl.col("utid") >= trace.ncpu
    ).with_columns(pl.col("cpu").cast(pl.UInt16))
    runs = _with_begins(trace, runs)
    of_thread = [name for name in THREAD_COLUMNS if name in used]
    if of_thread:
        runs = runs.join(
            trace.threads.select(pl.col("utid").cast(pl.UInt32), *of_thread), on="utid", how="left"
        )
    if where is not None:
        runs = runs.filter(where)
    return (
        runs.select(*keys, "ts", dur=until - since, whole=inside & seen & pl.col("begun"))
        .filter(pl.col("dur") > 0)
        .collect()
    )


def _with_begins(trace: Trace, runs: pl.LazyFrame) -> pl.LazyFrame:
    """With `begun`: did a switch-in begin the run, or was it found going on?"""
    runs = runs.with_columns(pl.col("utid").cast(pl.UInt32))
    ins = trace.switches.filter(pl.col("next_utid") >= trace.ncpu).select(
        pl.col("cpu").cast(pl.UInt16), "ts", utid=pl.col("next_utid").cast(pl.UInt32), begun=True
    )
    contradictions = (trace.info.get("reconstruction") or {}).get("contradictions")
    if contradictions == 0 and trace.losses.select(pl.len()).collect().item() == 0:
        # With an unbroken chain only the first run of each CPU can have been found:
        # the others need not be looked up.
        first = trace.switches.group_by("cpu").agg(first=pl.col("ts").min()).collect()
        starts = dict(first.iter_rows())
        last = max(starts.values(), default=trace.window[1])
        found = runs.filter(pl.col("ts") <= last).join(
            ins.filter(pl.col("ts") <= last), on=["cpu", "ts", "utid"], how="left"
        )
        runs = pl.concat([found, runs.filter(pl.col("ts") > last).with_columns(begun=True)])
    else:
        runs = runs.join(ins, on=["cpu", "ts", "utid"], how="left")
    return runs.with_columns(pl.col("begun").fill_null(False))


def _by_group(group: npt.NDArray[np.uint32], dur: Ints, groups: int) -> list[Ints]:
    """The lengths of each group, ascending."""
    if groups <= 1 << 16:
        order = np.argsort(group.astype(np.uint16), kind="stable")  # by radix
    else:
        order = np.argsort(group, kind="stable")
    dur = dur[order]
    edges = np.searchsorted(group[order], np.arange(groups + 1))
    return [np.sort(dur[a:b]) for a, b in pairwise(edges)]


def _row(lengths: Ints, shares: list[Fraction]) -> dict[str, Any]:
    n, total = len(lengths), int(lengths.sum())
    row: dict[str, Any] = {"n": n, "total": total}
    if n:
        row |= {"mean": total / n, "max": int(lengths[-1])}
        for share in shares:
            rank = -(-n * share.numerator // share.denominator)
            row[_name(share)] = int(lengths[rank - 1])
    return row


def _name(share: Fraction) -> str:
    return f"p{100 * share.numerator / share.denominator:g}"
