"""Which threads ran while a thread waited, and for how much of the wait?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from schedscope.analysis.asking.needs import needs
from schedscope.analysis.cpus.allowed_cpus import changed_masks
from schedscope.analysis.cpus.occupancy import occupancy
from schedscope.analysis.cpus.topology import cpu_list, recorded_cpus
from schedscope.analysis.threads.levels import FAIR_PRIOS, Levels, linux_priorities
from schedscope.errors import UsageError

if TYPE_CHECKING:
    from schedscope.store.trace import Trace

KIND = pl.Enum(["thread", "idle", "unknown"])
"""What had the CPU: a thread, nobody, or the trace does not show."""

EPISODE_COLUMNS = ("episode", "utid", "ts", "dur", "wait")
"""Columns that an episode must have: its number, the thread, begin, length, time waited in it."""

_SCHEMA: dict[str, type[pl.DataType] | pl.DataType] = {
    "episode": pl.UInt32,
    "kind": KIND,
    "utid": pl.UInt32,
    "time": pl.Int64,
    "worse": pl.Int64,
    "strict": pl.Int64,
    "prio": pl.Int16,
}


@needs("switches")
def episode_interference(trace: Trace, episodes: pl.DataFrame) -> pl.DataFrame:
    """One row per episode and thread that had the CPU that was waited for, most time first.

    `episodes` is what `starvation` returned, or some of its rows. While the thread waited on a
    CPU's queue, everything that CPU did is counted; while it waited on no CPU's own queue (4BSD's
    is shared), what every CPU that it may run on did, each weighted by one over their number.

    * `episode`: its number; `kind`: "thread", "idle" (the CPU had nothing to run, or was still
      waking up) or "unknown" (the trace does not show);
    * `utid`, `comm`, `tid`, `prio` (last seen in the episode), `sched_class` of the thread;
    * `time`: how long it had the CPU meanwhile (ns); `time_frac`: of the wait. Over an episode
      `time` sums up to the `wait` exactly;
    * `worse`: how much of that at a worse priority than the waiting thread's (ns).

    Definition: docs/definitions/starvation.md. Raises `UsageError` if a column of episodes
    is missing.

    >>> from schedscope import Trace
    >>> states = pl.DataFrame({
    ...     "ts": [0, 0, 70, 90], "dur": [70, 100, 20, 10], "utid": [1, 2, 0, 1], "cpu": [0] * 4,
    ...     "state": ["running", "runnable", "running", "running"], "prio": [130, 120, None, 130],
    ... })
    >>> threads = pl.DataFrame({"utid": [0, 1, 2], "comm": ["", "hog", "x"], "tid": [0, 7, 8],
    ...     "sched_class": ["idle", "fair", "fair"], "prio": [None, 130, 120],
    ...     "affinity": [None, None, "0"]})
    >>> trace = Trace.from_tables({"states": states, "threads": threads},
    ...     {"ncpu": 1, "window": [0, 100], "os": "Linux"})
    >>> episodes = pl.DataFrame(
    ...     {"episode": [0], "utid": [2], "ts": [0], "dur": [100], "wait": [100]})
    >>> episode_interference(trace, episodes).select("kind", "comm", "time", "time_frac", "worse")
    shape: (2, 5)
    ┌────────┬──────┬──────┬───────────┬───────┐
    │ kind   ┆ comm ┆ time ┆ time_frac ┆ worse │
    │ ---    ┆ ---  ┆ ---  ┆ ---       ┆ ---   │
    │ enum   ┆ str  ┆ i64  ┆ f64       ┆ i64   │
    ╞════════╪══════╪══════╪═══════════╪═══════╡
    │ thread ┆ hog  ┆ 80   ┆ 0.8       ┆ 80    │
    │ idle   ┆ null ┆ 20   ┆ 0.2       ┆ 0     │
    └────────┴──────┴──────┴───────────┴───────┘
    """
    return account(trace, episodes).culprits.drop("strict")


@dataclass(frozen=True)
class Account:
    """Where the time of some episodes went.

    `culprits` as `episode_interference` returns them, with `strict`: the part of `worse` in
    which the priority should have decided. `waited`: `episode, cpu, time`: how long the thread
    waited on each queue (null: no known one). `idle`: the same columns: how long each other CPU
    idled that it may run on. `prios`: `episode, prio`: the last known one while it waited.
    """

    culprits: pl.DataFrame
    waited: pl.DataFrame
    idle: pl.DataFrame
    prios: pl.DataFrame


def account(trace: Trace, episodes: pl.DataFrame) -> Account:
    """Account for every ns of waiting in `episodes`."""
    missing = [name for name in EPISODE_COLUMNS if name not in episodes.columns]
    if missing:
        raise UsageError(
            f"the episodes have no column {', '.join(missing)}",
            "what schedscope.starvation returns",
        )
    cpus = recorded_cpus(trace)
    masks = dict(trace.threads.select("utid", "affinity").collect().iter_rows())
    masks |= dict.fromkeys(changed_masks(trace))
    asked = [
        (utid, ts, ts + dur, allowed(masks.get(utid), cpus))
        for utid, ts, dur in episodes.select("utid", "ts", "dur").iter_rows()
    ]
    strict_to = FAIR_PRIOS[0] if linux_priorities(trace) else 1 << 14
    read = occupancy(trace, weights=Levels(trace))
    *tables, prios = read.episode_interference(strict_to, asked)
    waited, shares, idle = (_numbered(pl.DataFrame(table), episodes) for table in tables)
    is_idle = pl.col("utid") < trace.ncpu
    found = shares.with_columns(
        kind=pl.when(is_idle).then(pl.lit("idle")).otherwise(pl.lit("thread")).cast(KIND),
        utid=pl.when(~is_idle).then(pl.col("utid")),
    )
    rows = _rest(_divided(_known(found)), episodes)
    idle = idle.sort("episode", "time", "cpu", descending=[False, True, False])
    known = episodes.select(
        pl.col("episode").cast(pl.UInt32), prio=pl.Series(prios, dtype=pl.Int16)
    )
    return Account(_named(trace, rows, episodes), waited, idle, known)


def _numbered(rows: pl.DataFrame, episodes: pl.DataFrame) -> pl.DataFrame:
    """With the episode's own number, for its place in the frame."""
    number = episodes["episode"].cast(pl.UInt32).gather(rows["episode"])
    return rows.with_columns(episode=number)


def allowed(affinity: str | None, cpus: list[int]) -> list[int]:
    """CPUs of a list such as "0-3,8" that were recorded; all of them if it is not known.

    >>> allowed("0-1,3", [0, 1, 2, 3]), allowed(None, [0, 1])
    ([0, 1, 3], [0, 1])
    """
    if not affinity:
        return cpus
    chosen = set(cpu_list(affinity))
    return [cpu for cpu in cpus if cpu in chosen]


def _known(shares: pl.DataFrame) -> pl.DataFrame:
    """Sums by the thread that ran; the idle threads of several CPUs count as one culprit."""
    return shares.group_by("episode", "kind", "utid", "n").agg(
        pl.col("time", "worse", "strict").sum(), pl.col("prio").last()
    )


def _divided(rows: pl.DataFrame) -> pl.DataFrame:
    """One row per episode and culprit; time on a queue of n CPUs counts as its nth part.

    In whole ns: rounded down, with the rest of the known time given to the largest remainders.
    """
    over = pl.col("time") % pl.col("n")
    left = over.sum().over("episode", "n") // pl.col("n")
    rank = over.rank("ordinal", descending=True).over("episode", "n")
    n = pl.col("n")
    return (
        rows.sort("episode", "n", "kind", "utid")
        .with_columns(
            time=pl.col("time") // n + (rank <= left).cast(pl.Int64),
            worse=pl.col("worse") // n,
            strict=pl.col("strict") // n,
        )
        .group_by("episode", "kind", "utid")
        .agg(pl.col("time", "worse", "strict").sum(), pl.col("prio").last())
    )


def _rest(found: pl.DataFrame, episodes: pl.DataFrame) -> pl.DataFrame:
    """With a row for what the trace does not show of each wait."""
    known = found.group_by("episode").agg(known=pl.col("time").sum())
    rest = (
        episodes.select(pl.col("episode").cast(pl.UInt32), "wait")
        .join(known, on="episode", how="left")
        .select(
            "episode",
            kind=pl.lit("unknown").cast(KIND),
            utid=pl.lit(None, pl.UInt32),
            time=pl.col("wait") - pl.col("known").fill_null(0),
            worse=pl.lit(0, pl.Int64),
            strict=pl.lit(0, pl.Int64),
            prio=pl.lit(None, pl.Int16),
        )
    )
    return pl.concat([found.select(rest.columns), rest]).filter(pl.col("time") > 0)


def _named(trace: Trace, rows: pl.DataFrame, episodes: pl.DataFrame) -> pl.DataFrame:
    names = trace.threads.select(
        pl.col("utid").cast(pl.UInt32), "comm", "tid", "sched_class"
    ).collect()
    waits = episodes.select(pl.col("episode").cast(pl.UInt32), "wait")
    return (
        rows.join(waits, on="episode")
        .join(names, on="utid", how="left")
        .with_columns(time_frac=pl.col("time") / pl.col("wait"))
        .sort("episode", "time", "kind", "utid", descending=[False, True, False, False])
        .select(
            "episode",
            "kind",
            "utid",
            "comm",
            "tid",
            "prio",
            "sched_class",
            "time",
            "time_frac",
            "worse",
            "strict",
        )
    )
