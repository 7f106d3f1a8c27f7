"""How long did threads wait for a CPU, who, and why?

A wait runs from the moment a thread could run (it was woken, created or preempted, or
it yielded) to the moment it ran. Quantiles are exact order statistics. Where events
are missing, a figure is shown as the two values between which it lies, or as a
lower bound (>=).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Literal

import polars as pl

from schedscope.analysis.asking.arguments import THREAD_COLUMNS
from schedscope.analysis.asking.by import By
from schedscope.analysis.asking.command import Command
from schedscope.analysis.asking.needs import needs
from schedscope.analysis.recording.unknown_time import possible_waiting
from schedscope.analysis.sums.grouped import grouped
from schedscope.analysis.sums.quantiles import column_name, shares_of
from schedscope.analysis.threads.of_threads import threads_with
from schedscope.analysis.waits.grouping import Grouping
from schedscope.analysis.waits.observed import EXCLUDED
from schedscope.analysis.waits.wait_bounds import any_number_hidden, counted_losses, hidden_waits
from schedscope.errors import UsageError
from schedscope.units import nanoseconds

if TYPE_CHECKING:
    from schedscope.store.trace import Trace

QUANTILES = (0.5, 0.9, 0.99, 0.999)

_NEVER = (1 << 63) - 1
# Waits that are held where some may be missing: 67 MB.
_HELD = 1 << 22


COMMAND = Command(
    heading="who waited, and why?",
    help="how long threads waited for a CPU",
    example="""\
  schedscope latency web.capture --by comm --top 20
  schedscope latency web.capture --by tid --comm nginx --sort p99
  schedscope latency web.capture --every 100ms --cause preempt --format csv
  schedscope latency web.capture --histogram --comm nginx
""",
    page="docs/definitions/latency.md",
)


@needs("switches", "wakeups")
def latency(
    trace: Trace,
    *,
    by: By = "all",
    where: pl.Expr | None = None,
    every: str | int | None = None,
    quantiles: Sequence[float] = QUANTILES,
    censored: Literal["exclude", "kaplan-meier"] = "exclude",
) -> pl.DataFrame:
    """One row per group of waits for a CPU: how many, how long, and when the longest began.

    The wait of a thread is the time from the moment it could run (woken,
    created, preempted or having yielded) to the moment it ran. Idle threads
    never wait.

    `by`: any of comm, pid, tid, utid, cpu, cause, prio, sched_class, kernel, recorder, queue_cpu,
    prev_cpu, waker_cpu, waker_utid; dsq, the dispatch queue of sched_ext in which most of the wait
    passed, where recorded; none: all waits in one row. `where`: which waits, an expression
    over the columns of `waits` and `threads`. `every`: group by time buckets of this length, too,
    as in "1s"; a wait belongs to the bucket in which it began.

    Where events are missing, a wait has two bounds: how long it lasted at least, and at most. So
    has every figure, and `total_high`, `mean_high`, `p50_high` ..., `max_high` are the upper ones.
    Both are equal where all waits were measured. Waits that were not over when the window ended
    count with their time in it; a figure that is the length of such a wait, and the mean of a group
    with one, has no upper bound (null). Bounds of quantiles and the mean allow for as many more
    waits of a group of threads as events were lost, or, where these were not counted, for one in
    each stretch of time in which it is unknown what a thread did.

    Returns the columns of `by` (after `ts`, the bucket's start), and

    * `n`: waits seen from start to end, and `n_high`, how many there may have been (null where
      losses were not counted); `n_censored`: waits of which the end was not seen; `n_excluded`:
      those of which the start was not;
    * `total`, `mean`, `p50` ..., `max`, in ns, each with its upper bound;
    * `max_censored`: the longest wait of those without an end, as far as it was certainly waiting;
    * `ts_max`: when the wait of length `max` began;
    * `coverage`: the measured part of the time that the group may have waited, `total_high`.

    Quantiles are exact order statistics: `p99` is the smallest wait such that at least 99 % of
    them are not longer (nearest rank). With `censored="kaplan-meier"` they are estimates instead:
    the product-limit estimate (Kaplan and Meier, JASA 53, 1958), which assumes that waits were cut
    independently of their length, null where the curve never gets that far. With more
    than 4,194,304 waits these estimates may be too long, by less than 0.1 %.

    Rows are in order of `total`, largest first; in order of time with `every`.

    Raises `UsageError` for an unknown column or a quantile outside (0, 1].
    """
    if censored not in ("exclude", "kaplan-meier"):
        raise UsageError(f"censored={censored!r}", '"exclude" or "kaplan-meier"')
    length = None if every is None else nanoseconds(every)
    grouping = Grouping(trace, by, where, length)
    names = grouping.by
    shares = shares_of(quantiles)
    lost, all_counted = (0, False)
    if grouping.of_threads and trace.waits.select(pl.len()).collect().item() <= _HELD:
        lost, all_counted = counted_losses(trace)
    found = _found(grouping, shares, hidden=not lost)
    if lost:
        found = _with_unseen(grouping, found, shares, lost, all_counted=all_counted)
    if not names and length is None and found.is_empty():
        zeros = (pl.col("^.*(_n|_total)$"), pl.col(_COUNTED))
        found = found.clear(1).with_columns(*(columns.fill_null(0) for columns in zeros))
    result = found.select(**_statistics(shares))
    if censored == "kaplan-meier":
        result = result.drop(f"{column_name(share)}_high" for share in shares)
        if (found["n_censored"] > 0).any():
            estimates = found.select("group").join(
                _estimates(grouping, shares), "group", "left", maintain_order="left"
            )
            result = result.with_columns(estimates.drop("group"))
    result = pl.concat([grouping.keys(found["group"]), result], how="horizontal")
    result = _with_possible_total(trace, result, names, where, by_time=length is not None)
    if any_number_hidden(trace):
        exact = pl.col("n_high") == pl.col("n")
        result = result.with_columns(n_high=pl.when(exact).then("n_high"))
    if length is not None:
        return result.sort("ts", *names, nulls_last=True)
    if not names:
        return result
    return result.sort("total", "n", *names, descending=[True, True, *([False] * len(names))])


_RANKED = ("low", "high", "low_once", "high_once")
_COUNTED = ("n", "n_censored", "n_excluded", "open", "again")


def _found(grouping: Grouping, shares: list[Fraction], *, hidden: bool) -> pl.DataFrame:
    """What is summed up, counted and ranked of each group."""

    def batches() -> Iterator[pl.DataFrame]:
        return (rows.select(**_columns()) for rows in grouping.bounded(hidden=hidden))

    return grouped(
        batches,
        shares,
        ranked=_RANKED,
        summed=["certain", "cut"],
        counted=_COUNTED,
        first="ts_ready",
    )


def _with_unseen(
    grouping: Grouping,
    found: pl.DataFrame,
    shares: list[Fraction],
    lost: int,
    *,
    all_counted: bool,
) -> pl.DataFrame:
    """What was found, with waits that may be missing altogether.

    These are as many as events were `lost`; and one in each stretch of unknown time without a wait
    in the ledger, unless all events that are missing were counted.
    """
    # It loads NumPy, which nothing else of a short trace's answer needs.
    from schedscope.analysis.sums.hidden_quantiles import hidden

    stretches = grouping.stretches()
    if stretches.is_empty():
        return found
    ranked = [
        rows.select(**_columns()).select("group", *_RANKED)
        for rows in grouping.bounded(hidden=False)
    ]
    shown = pl.concat(ranked).partition_by("group", as_dict=True) if ranked else {}
    nothing = pl.DataFrame(schema=dict.fromkeys(_RANKED, pl.Int64))
    more = []
    for (group,), spans in stretches.group_by("group"):
        once = spans.filter("once")["length"]
        unseen = hidden(once.clear() if all_counted else once, spans["length"], lost)
        row = {"group": group, "unseen": unseen.n, "unseen_max": 2 * max(once, default=0)}
        for name in _RANKED:
            values = shown.get((group,), nothing)[name].drop_nulls().sort().to_numpy()
            of = unseen.greatest if name.startswith("high") else unseen.least
            row |= {f"{name}_{column_name(share)}": of(values, share) for share in shares}
        more.append(row)
    quantiles = [f"{name}_{column_name(share)}" for name in _RANKED for share in shares]
    known = dict.fromkeys(["group", "unseen", "unseen_max", *quantiles], pl.Int64)
    found = found.join(
        pl.DataFrame(more, schema=known),
        on="group", how="full", coalesce=True, maintain_order="left_right",
    )  # fmt: skip
    sums = (pl.col("^.*(_n|_total)$"), pl.col(_COUNTED))
    number, possible = pl.col("unseen").fill_null(0), pl.col("unseen").is_not_null()
    return (
        found.with_columns(columns.fill_null(0) for columns in sums)
        .with_columns(
            low_n=pl.col("low_n") + number,
            again=pl.col("again") + number,
            # The shortest that these may be is 0 ns.
            low_max=pl.when(possible).then(pl.col("low_max").fill_null(0)).otherwise("low_max"),
            high_max=pl.max_horizontal("high_max", "unseen_max"),
            **{name: pl.when(possible).then(f"{name}_right").otherwise(name) for name in quantiles},
        )
        .select(found.columns[: found.columns.index("unseen")])
    )


def _columns() -> dict[str, pl.Expr]:
    """Of the rows of `Grouping.bounded`: lower and upper bounds, those of rows that cannot be the
    rest of another wait, and what is summed up or counted.

    An upper bound has a last bit that says that the wait was not over: then it was longer.
    """
    known = pl.col("high").is_not_null()
    low = pl.when(known).then("low")
    high = pl.col("high").clip(upper_bound=_NEVER >> 1) * 2 + pl.col("open").cast(pl.Int64)
    begun = pl.col("ts_ready").is_not_null()
    once = ~pl.col("again")
    complete = pl.col("measured") & ~pl.col("open")
    unfinished = known & ~complete & begun
    return {
        "group": pl.col("group"),
        "low": low,
        "high": high,
        "low_once": pl.when(once).then(low),
        "high_once": pl.when(once).then(high),
        "certain": pl.when("measured").then(low),
        "cut": pl.when(unfinished).then("low"),
        "ts_ready": pl.col("ts_ready"),
        "n": known & complete,
        "n_censored": unfinished,
        "n_excluded": EXCLUDED,
        "open": known & pl.col("open"),
        "again": known & pl.col("again"),
    }


def _statistics(shares: list[Fraction]) -> dict[str, pl.Expr]:
    """The columns of the answer, of those that were found."""
    total, rows, n_open = pl.col("low_total"), pl.col("low_n"), pl.col("open").cast(pl.Int64)
    # No wait that was not over is the rest of another one.
    slack = (pl.col("high_once_total") - n_open) // 2 - pl.col("low_once_total")
    columns = {
        "n": pl.col("n"),
        # Those that were not over when the window ended do not end in it.
        "n_high": (rows - n_open).cast(pl.UInt32),
        "n_censored": pl.col("n_censored"),
        "n_excluded": pl.col("n_excluded"),
        "total": total,
        "total_high": total + slack,
        "mean": total / pl.when(rows > 0).then(rows),
        # How many waits there were at least; a wait that was not over makes the sum unbounded.
        "mean_high": pl.when(n_open == 0).then(rows - pl.col("again")).cast(pl.Float64),
    }
    for name in map(column_name, shares):
        # As waits of their own, and as rests of other waits: whichever is the wider.
        columns[name] = pl.min_horizontal(f"low_{name}", f"low_once_{name}")
        columns[f"{name}_high"] = _bound(pl.max_horizontal(f"high_{name}", f"high_once_{name}"))
    return {
        **columns,
        "max": pl.col("low_max"),
        "max_high": _bound(pl.col("high_max")),
        "max_censored": pl.col("cut_max"),
        "ts_max": pl.col("ts_ready"),
        "coverage": pl.col("certain_total").cast(pl.Float64),
    }


def _bound(high: pl.Expr) -> pl.Expr:
    """Without its last bit; null if the wait was not over."""
    return pl.when(high % 2 == 0).then(high // 2)


def _with_possible_total(
    trace: Trace, result: pl.DataFrame, names: list[str], where: pl.Expr | None, *, by_time: bool
) -> pl.DataFrame:
    """The columns that depend on how long the threads may have waited: `total_high`, `mean_high`,
    `coverage`.

    That is for as long as it is unknown what they did. Where groups are not of threads, unknown
    time without a wait in the ledger may belong to any group.
    """
    if "definition" not in trace.info:
        of_threads = {"utid", *THREAD_COLUMNS}
        used = {*names, *(where.meta.root_names() if where is not None else ())}
        selected = where if used <= of_threads else None
        columns = [name for name in THREAD_COLUMNS if name in used]
        threads = threads_with(trace, columns).join(
            possible_waiting(trace).lazy(), on="utid", how="inner"
        )
        unknown = threads.filter(selected) if selected is not None else threads
        if used <= of_threads and not by_time:
            if names:
                known = unknown.group_by(names).agg(pl.col("unknown").sum()).collect()
                result = result.join(
                    known, on=names, how="left", nulls_equal=True, maintain_order="left"
                )
            else:
                known = unknown.select(pl.col("unknown").sum()).collect()
                result = result.with_columns(unknown=pl.lit(known.item(), pl.Int64))
            possible = pl.col("total") + pl.col("unknown").fill_null(0)
            result = result.with_columns(total_high=possible).drop("unknown")
        else:
            whole = unknown.select(pl.col("unknown").sum()).collect().item() or 0
            in_ledger = result.select((pl.col("total_high") - pl.col("total")).sum()).item()
            rest = max(0, int(whole) - int(in_ledger))
            length = pl.col("until") - pl.col("since")
            hidden = hidden_waits(trace, where).select(length.max(), n=pl.len()).collect()
            longest = pl.lit(hidden["until"].item() or 0, pl.Int64)
            lost, all_counted = counted_losses(trace) if whole else (0, False)
            unseen = lost if lost and all_counted else lost + hidden["n"].item()
            of_any = pl.when(pl.col("max_high").is_not_null()).then(
                pl.max_horizontal("max_high", longest)
            )
            result = result.with_columns(
                total_high=pl.col("total_high") + rest,
                max_high=of_any,
                n_high=pl.col("n_high") + unseen,
            )
    high = pl.col("total_high")
    return result.with_columns(
        mean_high=high / pl.when(pl.col("mean_high") > 0).then("mean_high"),
        coverage=pl.when(high > 0).then(pl.col("coverage") / high).otherwise(1.0),
    )


def _estimates(grouping: Grouping, shares: list[Fraction]) -> pl.DataFrame:
    """The quantiles by the product-limit estimate, of each `group`."""
    # It loads NumPy, which nothing else of a short trace's answer needs.
    from schedscope.analysis.survival.survival import kaplan_meier_quantiles, wait_lengths

    rows = [
        kaplan_meier_quantiles(lengths, [float(q) for q in shares])
        for lengths in wait_lengths(grouping)
    ]
    columns = {
        column_name(share): pl.Series([row[i] for row in rows], dtype=pl.Int64)
        for i, share in enumerate(shares)
    }
    return pl.DataFrame({"group": grouping.codes, **columns})
