"""What waits most for a CPU: a row per thread, process, group or service, interval by interval."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import polars as pl

from schedscope.analysis.sums.quantiles import nearest_rank
from schedscope.analysis.threads.of_threads import threads_with

if TYPE_CHECKING:
    from schedscope.live.recorder import Interval

By = Literal["thread", "process", "cgroup", "service"]

KEYS: dict[By, list[str]] = {
    "thread": ["comm", "tid"],
    "process": ["process_name", "pid"],
    "cgroup": ["cgroup"],
    "service": ["service"],
}

MOST_UNKNOWN = 0.5
"""Share of the CPUs' time: where more is unknown, what is known says little about the rest."""

_WAITS = {"utid": pl.UInt32, "tid": pl.UInt32, "ts_ready": pl.Int64, "ts_end": pl.Int64,
          "ended": pl.Boolean}  # fmt: skip


class Waiting:
    """Tables of intervals that follow each other; it knows which threads still waited at the last
    end.

    A thread that waits for longer than an interval has no event in it. It is counted as waiting as
    long as nothing is lost: what ends a wait is always an event.
    """

    def __init__(self) -> None:
        """No thread is known to wait."""
        self._still = pl.DataFrame(schema={"tid": pl.UInt32, "ts_ready": pl.Int64})
        self.waits = pl.DataFrame(schema={**_WAITS, "carried": pl.Boolean})
        """Those of the last table, each at its full length."""

    def table(
        self, interval: Interval, by: By = "thread", where: pl.Expr | None = None
    ) -> pl.DataFrame:
        """A row per group of threads that waited or ran, the longest waiting first.

        `where` selects threads by the columns of `threads`.

        * `waiting`, `running`: time within the interval, of all threads of the row together;
          `waiting_frac`, `running_frac`: the same as shares of its length;
        * `n_waits`: waits that ended in the interval; `p99`: their quantile, at full length, that
          before the interval included; `longest`: of those and of waits that are not over;
        * `n_wakeups`: times that its threads were woken.
        """
        begin, end = interval.begin, interval.end
        trace = interval.trace
        # Everything below is one query: tables are small, and each query costs 2 ms by itself.
        self.waits = self._waits(interval)
        waits = self.waits.lazy()
        spent = (
            trace.states.filter(
                pl.col("utid") >= trace.ncpu, pl.col("state").is_in(["runnable", "running"])
            )
            .with_columns(inside=_inside(interval))
            .group_by("utid")
            .agg(
                waiting=pl.col("inside").filter(pl.col("state") == "runnable").sum(),
                running=pl.col("inside").filter(pl.col("state") == "running").sum(),
            )
        )
        woken = (
            trace.wakeups.filter(
                pl.col("ts").is_between(begin, end, closed="left"),
                pl.col("kind") != "waking",
            )
            .group_by("utid")
            .agg(n_wakeups=pl.len())
        )
        keys = KEYS[by]
        names = ["utid", *dict.fromkeys(["tid", *keys])]
        threads = threads_with(trace, keys, where)
        if where is not None:
            threads = threads.filter(where)
        threads = threads.select(names)
        own: Literal["left", "inner"] = "left" if where is None else "inner"
        carried = waits.filter(pl.col("carried"))
        # A thread of which the trace shows no state: all that is known is that it waits.
        extra = carried.select(
            "utid", waiting=pl.col("ts_end") - begin, running=pl.lit(0, pl.Int64)
        )
        rows = (
            pl.concat([spent, extra])
            .group_by("utid")
            .sum()
            .join(woken, on="utid", how="full", coalesce=True)
            .join(threads, on="utid", how=own)
        )
        length = max(1, end - begin)
        lengths = (
            waits.with_columns(wait=pl.col("ts_end") - pl.col("ts_ready"))
            .join(threads.drop("tid"), on="utid", how=own)
            .group_by(keys)
            .agg(
                n_waits=pl.col("ended").sum(),
                p99=nearest_rank(pl.col("wait").filter(pl.col("ended")), 0.99),
                longest=pl.col("wait").max(),
            )
        )
        return (
            rows.group_by(keys)
            .agg(
                pl.col("waiting", "running", "n_wakeups").sum(),
                threads=pl.col("utid").n_unique(),
            )
            .join(lengths, on=keys, how="left", nulls_equal=True)
            .with_columns(
                pl.col("n_waits").fill_null(0),
                waiting_frac=pl.col("waiting") / length,
                running_frac=pl.col("running") / length,
            )
            .filter((pl.col("waiting") > 0) | (pl.col("running") > 0))
            .select(
                *keys, *([] if by == "thread" else ["threads"]), "waiting", "waiting_frac",
                "n_waits", "p99", "longest", "running", "running_frac", "n_wakeups",
            )
            .sort(
                "waiting", "running", *keys, descending=[True, True, *[False] * len(keys)],
                nulls_last=True,
            )
            .collect()
        )  # fmt: skip

    def _waits(self, interval: Interval) -> pl.DataFrame:
        """Waits of the interval with a known start, at full length; `carried` from before."""
        trace, begin, end = interval.trace, interval.begin, interval.end
        ids = trace.threads.filter(pl.col("utid") >= trace.ncpu).select("utid", "tid")
        known = (
            trace.waits.filter(pl.col("ts_ready").is_not_null())
            .select(
                "utid",
                "ts_ready",
                ts_end=pl.coalesce("ts_run", pl.col("ts_ready") + pl.col("wait")),
                ended=pl.col("ts_run").is_not_null() & (pl.col("censored") == "none"),
            )
            .filter(pl.col("ts_end") > begin, pl.col("ts_ready") < end)
            .join(ids, on="utid", how="inner")
            .select(*_WAITS)
        )
        carried = self._carried(interval, ids)
        both = pl.concat(
            [known.with_columns(carried=pl.lit(False)), carried.with_columns(carried=pl.lit(True))]
        ).collect()
        goes_on = pl.col("carried") | (pl.col("ts_end") >= end)
        self._still = both.filter(~pl.col("ended") & goes_on).select("tid", "ts_ready")
        return both

    def _carried(self, interval: Interval, ids: pl.LazyFrame) -> pl.LazyFrame:
        """Waits that were open at the end of the previous interval and have a known start.

        Only for threads without an event before the interval: the trace itself has the others.
        """
        trace, begin, end = interval.trace, interval.begin, interval.end
        nothing = pl.LazyFrame(schema=_WAITS)
        if not interval.follows or self._still.is_empty():
            return nothing
        first = (
            trace.states.filter(pl.col("state") != "unknown", pl.col("utid") >= trace.ncpu)
            .sort("ts")
            .group_by("utid", maintain_order=True)
            .agg(pl.col("ts").first(), pl.col("state").first().cast(pl.String))
            .join(ids, on="utid", how="inner")
            .sort("ts")
            .unique("tid", keep="first", maintain_order=True)
        )
        rows = (
            self._still.lazy()
            .join(first, on="tid", how="left")
            .join(
                # A reused tid belongs to its first thread.
                ids.sort("utid").unique("tid", keep="first").rename({"utid": "utid_listed"}),
                on="tid",
                how="left",
            )
        )
        # If events are missing, a thread without events may have run.
        silent = pl.col("ts").is_null() & pl.col("utid_listed").is_not_null()
        if lost(interval):
            silent = pl.lit(False)
        ran = (pl.col("ts") >= begin) & (pl.col("state") == "running")
        return rows.filter(silent | ran).select(
            utid=pl.coalesce("utid", "utid_listed"),
            tid="tid",
            ts_ready="ts_ready",
            ts_end=pl.coalesce("ts", pl.lit(end, pl.Int64)),
            ended=pl.col("ts").is_not_null(),
        )


def _inside(interval: Interval) -> pl.Expr:
    """How much of each row is in the interval."""
    end = pl.min_horizontal(pl.col("ts") + pl.col("dur"), interval.end)
    return (end - pl.max_horizontal("ts", interval.begin)).clip(lower_bound=0)


def busy_and_unknown(interval: Interval) -> tuple[float, float]:
    """Shares of the CPUs' time: a thread ran; the trace does not show whether one did."""
    trace = interval.trace
    found = (
        trace.states.filter(pl.col("state") == "running")
        .group_by(idle=pl.col("utid") < trace.ncpu)
        .agg(_inside(interval).sum().alias("time"))
        .collect()
    )
    times = dict(found.iter_rows())
    whole = max(1, interval.end - interval.begin) * trace.ncpu
    busy, idle = times.get(False, 0), times.get(True, 0)
    return busy / whole, max(0, whole - busy - idle) / whole


def lost(interval: Interval) -> list[str]:
    """What is missing from the interval, in a few words each; prev/next mismatches are small."""
    places, count = _losses(interval)
    words = []
    if places:
        events = f"{int(count):,} events" if count else "events"
        words.append(f"{events} LOST in {places} place{'s' * (places != 1)}")
    if interval.trace.info.get("unplaced_losses"):
        words.append("events LOST, no record of when")
    return words


def lost_events(interval: Interval) -> int:
    """How many events are missing from it; one per place where the kernel does not count them."""
    places, count = _losses(interval)
    unplaced = interval.trace.info.get("unplaced_losses") or []
    return int(count or places) + sum(int(one.get("count") or 1) for one in unplaced)


def _losses(interval: Interval) -> tuple[int, float]:
    """In how many places events were lost, and how many."""
    trace = interval.trace
    return (
        trace.losses.filter(
            ~pl.col("reason").cast(pl.String).is_in(["chain_break", "exit_hole"]),
            pl.col("ts_end") >= interval.begin,
        )
        .select(pl.len().alias("places"), count=pl.col("count").cast(pl.Float64).sum())
        .collect()
        .row(0)
    )
