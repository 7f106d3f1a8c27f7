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
from schedscope.analysis.sums.group_counts import GroupCounts, longer
from schedscope.analysis.sums.quantiles import column_name, shares_of
from schedscope.analysis.threads.of_threads import threads_with
from schedscope.analysis.waits.grouping import Bounded, Grouping
from schedscope.analysis.waits.wait_bounds import counted_losses, hidden_waits
from schedscope.errors import UsageError
from schedscope.units import nanoseconds

if TYPE_CHECKING:
    from schedscope.analysis.sums.hidden_quantiles import Hidden
    from schedscope.analysis.sums.sorted_groups import Pairs
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
    prev_cpu, waker_cpu, waker_utid; none: all waits in one row. `where`: which waits, an expression
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

    * `n`: waits seen from start to end; `n_censored`: waits of which the end was not seen;
      `n_excluded`: waits of which the start was not;
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
    counted, every = (0, False)
    if grouping.of_threads and trace.waits.select(pl.len()).collect().item() <= _HELD:
        counted, every = counted_losses(trace)
    tally = _tally(grouping, hidden=not counted)
    unseen = _unseen(grouping, tally, counted, every=every) if counted else {}
    shares = shares_of(quantiles)
    statistics = _statistics(grouping, tally, shares, unseen)
    result = pl.concat([grouping.keys(), statistics], how="horizontal")
    result = _with_possible_total(trace, result, names, where, by_time=length is not None)
    if censored == "kaplan-meier":
        result = result.drop(f"{column_name(share)}_high" for share in shares)
        if (tally.sums["n_censored"] > 0).any():
            result = result.with_columns(_estimates(grouping, shares))
    if length is not None:
        return result.sort("ts", *names, nulls_last=True)
    if not names:
        return result
    return result.sort("total", "n", *names, descending=[True, True, *([False] * len(names))])


class _Tally:
    """Per-group results of one pass over the ledger."""

    _SUMS = ("n", "n_censored", "n_excluded", "rows", "again", "total", "slack", "measured")

    def __init__(self) -> None:
        self.sums = {name: pl.Series(dtype=pl.Int64) for name in self._SUMS}
        self.longest = {
            name: pl.Series(dtype=pl.Int64) for name in ("max", "high", "open", "max_censored")
        }
        self.ts_max = pl.Series(dtype=pl.Int64)
        # Lower and upper bounds of all rows; and of those that cannot be the rest of another wait.
        self.low, self.high = GroupCounts(), GroupCounts()
        self.low_once, self.high_once = GroupCounts(), GroupCounts()
        self.any_bounds = self.any_again = self.hidden = False

    def make_room(self, groups: int) -> None:
        self.sums = {name: longer(values, groups, 0) for name, values in self.sums.items()}
        self.longest = {name: longer(values, groups, -1) for name, values in self.longest.items()}
        self.ts_max = longer(self.ts_max, groups, _NEVER)


def _tally(grouping: Grouping, *, hidden: bool) -> _Tally:
    tally = _Tally()
    tally.hidden = hidden
    for batch in grouping.bounded(hidden=hidden):
        groups = len(grouping)
        tally.make_room(groups)
        gone = pl.DataFrame({"group": batch.gone}).group_by("group").len()
        _add(tally.sums["n_excluded"], gone["group"], gone["len"])
        rows = pl.DataFrame(
            {name: getattr(batch, name) for name in ("group", "low", "high", "ts", "measured")}
            | {"open": batch.open, "again": batch.again}
        )
        low, high = pl.col("low"), pl.col("high")
        complete = pl.col("measured") & ~pl.col("open")
        unfinished = ~complete & pl.col("ts").is_not_null()
        found = rows.group_by("group").agg(
            n=complete.sum(),
            n_censored=unfinished.sum(),
            rows=pl.len(),
            again=pl.col("again").sum(),
            total=low.sum(),
            slack=(high - low).filter(~pl.col("again")).sum(),
            measured=low.filter("measured").sum(),
            max=low.max(),
            high=high.max(),
            open=high.filter("open").max(),
            max_censored=low.filter(unfinished).max(),
        )
        for name in ("n", "n_censored", "rows", "again", "total", "slack", "measured"):
            _add(tally.sums[name], found["group"], found[name])
        _keep_longest(tally, rows, found)
        counted = found.select("group", len="rows")
        tally.any_bounds = tally.any_bounds or bool((~rows["measured"] | rows["open"]).any())
        tally.any_again = tally.any_again or bool(rows["again"].any())
        for counts, some in _counted(tally, batch):
            if some is None:
                counts.add(batch.group, batch.low, groups, counted)
            else:
                counts.add(*some, groups)
    return tally


def _unseen(grouping: Grouping, tally: _Tally, counted: int, *, every: bool) -> dict[int, Hidden]:
    """Of each group, the waits that may be missing; `tally` gets their number and greatest length.

    As many as events were lost; and one in each stretch of unknown time without a wait in the
    ledger, unless `every` event that is missing was counted.
    """
    from schedscope.analysis.sums.hidden_quantiles import hidden

    found = {}
    stretches = grouping.stretches()
    tally.make_room(len(grouping))
    for (number,), rows in stretches.group_by("group"):
        group = int(str(number))
        once = rows.filter("once")["length"]
        found[group] = hidden(once.clear() if every else once, rows["length"], counted)
        for name in ("rows", "again"):
            tally.sums[name][group] += found[group].n
        for name, length in (("max", 0), ("high", once.max() or 0)):
            longest = tally.longest[name]
            longest[group] = max(longest[group], length)
    return found


def _counted(
    tally: _Tally, batch: Bounded
) -> Iterator[tuple[GroupCounts, tuple[pl.Series, pl.Series] | None]]:
    """Which values of a batch each of the counts takes; None: all lower bounds."""
    once = ~batch.again
    high = _marked(batch)
    yield tally.low, None
    yield tally.high, (batch.group, high)
    yield tally.low_once, (batch.group.filter(once), batch.low.filter(once))
    yield tally.high_once, (batch.group.filter(once), high.filter(once))


def _marked(batch: Bounded) -> pl.Series:
    """Upper bounds in order of length, with a last bit that says that the wait was not over."""
    return batch.high.clip(upper_bound=_NEVER >> 1) * 2 + batch.open.cast(pl.Int64)


def _add(to: pl.Series, group: pl.Series, numbers: pl.Series) -> None:
    """Adds to the entries of these groups, each of which is there once."""
    to.scatter(group, to.gather(group) + numbers.cast(pl.Int64))


def _keep_longest(tally: _Tally, rows: pl.DataFrame, found: pl.DataFrame) -> None:
    """The longest wait of each group, and the earliest start of one of that length."""
    group = found["group"]
    longest = tally.longest["max"]
    beaten = found.filter(found["max"] > longest.gather(group))
    tally.ts_max.scatter(beaten["group"], _NEVER)
    for name, so_far in tally.longest.items():
        of_these = found[name].fill_null(-1), so_far.gather(group)
        so_far.scatter(group, pl.select(pl.max_horizontal(*of_these)).to_series())
    first = (
        rows.filter(rows["low"] == longest.gather(rows["group"]), rows["ts"].is_not_null())
        .group_by("group")
        .agg(pl.col("ts").min())
    )
    earliest = first["ts"], tally.ts_max.gather(first["group"])
    tally.ts_max.scatter(first["group"], pl.select(pl.min_horizontal(*earliest)).to_series())


def _statistics(
    grouping: Grouping, tally: _Tally, shares: list[Fraction], unseen: dict[int, Hidden]
) -> pl.DataFrame:
    sums, longest = tally.sums, tally.longest
    none = sums["rows"] == 0
    # The longest possible wait is one that was not over when the window ended.
    unbounded = none | (longest["open"] >= longest["high"])
    return pl.DataFrame(
        {
            **{name: sums[name].cast(pl.UInt32) for name in ("n", "n_censored", "n_excluded")},
            "total": sums["total"],
            "total_high": sums["total"] + sums["slack"],
            "mean": sums["total"] / sums["rows"].set(none, None),
            # How many waits there were at least; a wait that was not over makes the sum unbounded.
            "mean_high": (sums["rows"] - sums["again"])
            .set(longest["open"] >= 0, None)
            .cast(pl.Float64),
            **_quantiles(grouping, tally, shares, unseen),
            "max": longest["max"].set(none, None),
            "max_high": longest["high"].set(unbounded, None),
            "max_censored": longest["max_censored"].set(longest["max_censored"] < 0, None),
            "ts_max": tally.ts_max.set(none | (tally.ts_max == _NEVER), None),
            "coverage": sums["measured"].cast(pl.Float64),
        }
    )


def _quantiles(
    grouping: Grouping, tally: _Tally, shares: list[Fraction], unseen: dict[int, Hidden]
) -> dict[str, pl.Series]:
    names = [column_name(share) for share in shares]

    def pairs(number: int) -> Iterator[tuple[pl.Series, pl.Series]]:
        for batch in grouping.bounded(hidden=tally.hidden):
            some = [some for _, some in _counted(tally, batch)][number]
            yield (batch.group, batch.low) if some is None else some

    def at(number: int, counts: GroupCounts) -> list[pl.Series]:
        found = counts.at(shares, lambda: pairs(number))
        return _with_unseen(found, lambda: pairs(number), shares, unseen, high=number % 2 == 1)

    low = at(0, tally.low)
    if not tally.any_bounds and not unseen:
        both = {name: (least, least) for name, least in zip(names, low, strict=True)}
    else:
        high = at(1, tally.high)
        if tally.any_again:
            # As waits of their own, and as rests of other waits: whichever is the wider.
            low = _extreme(pl.min_horizontal, low, at(2, tally.low_once))
            high = _extreme(pl.max_horizontal, high, at(3, tally.high_once))
        most = [(values // 2).set(values % 2 == 1, None) for values in high]
        both = dict(zip(names, zip(low, most, strict=True), strict=True))
    return {
        column: values
        for name, (least, most) in both.items()
        for column, values in ((name, least), (f"{name}_high", most))
    }


def _with_unseen(
    found: list[pl.Series],
    pairs: Pairs,
    shares: list[Fraction],
    unseen: dict[int, Hidden],
    *,
    high: bool,
) -> list[pl.Series]:
    """Quantiles of the groups with waits that may be missing, with these."""
    if not unseen:
        return found
    numbers = pl.Series(list(unseen), dtype=pl.Int64).implode()
    rows = [
        pl.DataFrame({"group": group.cast(pl.Int64), "value": value}).filter(
            pl.col("group").is_in(numbers)
        )
        for group, value in pairs()
    ]
    none = pl.DataFrame(schema={"group": pl.Int64, "value": pl.Int64})
    shown = {
        int(str(group)): part["value"].to_numpy()
        for (group,), part in pl.concat([none, *rows]).sort("group", "value").group_by("group")
    }
    found = [longer(values.clone(), max(unseen) + 1, 0) for values in found]
    for group, waits in unseen.items():
        mine = shown.get(group, none["value"].to_numpy())
        for values, share in zip(found, shares, strict=True):
            values[group] = waits.greatest(mine, share) if high else waits.least(mine, share)
    return found


def _extreme(choose: object, one: list[pl.Series], other: list[pl.Series]) -> list[pl.Series]:
    return [
        pl.select(choose(a, b)).to_series()  # type: ignore[operator]
        for a, b in zip(one, other, strict=True)
    ]


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
            hidden = hidden_waits(trace, where).select((pl.col("until") - pl.col("since")).max())
            longest = pl.lit(hidden.collect().item() or 0, pl.Int64)
            of_any = pl.when(pl.col("max_high").is_not_null()).then(
                pl.max_horizontal("max_high", longest)
            )
            result = result.with_columns(total_high=pl.col("total_high") + rest, max_high=of_any)
    high = pl.col("total_high")
    return result.with_columns(
        mean_high=high / pl.when(pl.col("mean_high") > 0).then("mean_high"),
        coverage=pl.when(high > 0).then(pl.col("coverage") / high).otherwise(1.0),
    )


def _estimates(grouping: Grouping, shares: list[Fraction]) -> list[pl.Series]:
    """The quantiles by the product-limit estimate."""
    # It loads NumPy, which nothing else of a short trace's answer needs.
    from schedscope.analysis.survival.survival import kaplan_meier_quantiles, wait_lengths

    rows = [
        kaplan_meier_quantiles(lengths, [float(q) for q in shares])
        for lengths in wait_lengths(grouping)
    ]
    return [
        pl.Series(column_name(share), [row[i] for row in rows], dtype=pl.Int64)
        for i, share in enumerate(shares)
    ]
