"""Who ran on the CPU that a thread waited for?

A victim's waiting is divided by what the CPU of its queue did at every instant:
which threads ran, when it idled, and what the trace does not show. The times
add up to the wait exactly. A table shows the threads that waited longest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import polars as pl

from schedscope.analysis.asking.arguments import count
from schedscope.analysis.asking.by import THREADS, check
from schedscope.analysis.asking.command import Command
from schedscope.analysis.asking.needs import needs
from schedscope.analysis.cpus.accounting import inside_window
from schedscope.analysis.cpus.occupancy import coded_waits, occupancy
from schedscope.analysis.cpus.topology import recorded_cpus
from schedscope.analysis.recording.unknown_time import unknown_of
from schedscope.analysis.threads.of_threads import threads_with
from schedscope.analysis.waits.victims import victims as victims_of
from schedscope.parsers.schema import CAUSE

if TYPE_CHECKING:
    from schedscope.store.trace import Trace

By = Literal["thread", "process", "comm", "cgroup", "service"]
KIND = pl.Enum(["thread", "idle", "unknown", "no_queue", "others"])
"""What the CPU did meanwhile; see `interference`."""

MOST_ROWS = 2_000_000
"""Of an answer about all threads' parts in all threads' waits; see `interference`."""

_CAUSES = [f"cause_{cause}" for cause in CAUSE.categories]


COMMAND = Command(
    heading="who waited, and why?",
    help="who ran while a thread waited for a CPU",
    example="""\
  schedscope interference web.capture --comm nginx
  schedscope interference web.capture --comm 'worker*' --together --by comm
  schedscope interference web.capture --tid 4711 --since 2s --until 2.5s --format csv
""",
    page="docs/definitions/interference.md",
)


@needs("switches", "wakeups")
def interference(
    trace: Trace,
    *,
    where: pl.Expr | None = None,
    by: By = "thread",
    victims: int | None = None,
    parts: int | None = None,
    together: bool = False,
) -> pl.DataFrame:
    """One row per victim and thread that ran on the CPU on whose queue the victim waited.

    A victim's time in state runnable is divided by what the CPU of its queue did at every
    instant. A thread that moved to another queue waits for that CPU from then on. So the `time`
    of a victim's rows sums up to its `wait`, exactly.

    * the victim: `victim_comm`, `victim_tid`, `victim_pid`, `victim_utid`, or those of them that
      `by` keeps; `wait`: its time in state runnable within the window (ns);
    * `kind`: `thread`: another thread ran; `idle`: the CPU idled, waking up to run the victim or
      not; `unknown`: the trace does not show what it did; `no_queue`: the victim was on no known
      queue; `others`: the threads of less time than the `parts`, together;
    * `comm`, `tid`, `pid`, `utid`: the thread that ran, as `by` keeps; null unless `kind` is
      `thread`;
    * `time`, `share`: how long (ns), and its part of `wait`;
    * `n`: waits of the victim in which that was so at some time, null for `others`; `n_waits`:
      all that it had;
    * `wait_high`, `time_high`, `share_high`: upper bounds, where it is unknown what the victim, its
      queue's CPU or the thread that ran did; equal to `wait`, `time`, `share` elsewhere.
      A thread without a row ran for at most `time_high` of the row `unknown`, which a victim with
      unknown time always has, and of `no_queue`; `coverage`: `wait` over `wait_high`;
    * `cause_wake`, `cause_new`, `cause_preempt`, `cause_yield`, `cause_unknown`: `time` divided
      by how the wait began; unknown where its start was not recorded.

    Victims with the longest wait first, the longest time first in each, `others` last.

    `by`: a row per "thread", name ("comm"), "process", "cgroup" or "service", of those that waited
    and of those that ran; a thread can delay another one of its name. `where`: expression over the
    columns of `threads`, and `cpu` (of the queue): the victims and their queues, never the threads
    that ran.
    `victims`: only the N with the longest wait. `parts`: of those that ran, the N with the longest
    time in each victim's waits, and the others in one row; without it all of them, or as many as
    make two million rows of all victims (20,000 threads can have 400 million pairs). `together`:
    all selected threads as one victim, without victim columns.

    Definition: docs/definitions/interference.md. Raises `UsageError` for another `by`, and
    `victims` or `parts` below 1.

    >>> from schedscope import Trace
    >>> states = pl.DataFrame({
    ...     "ts": [0, 10, 40, 20],
    ...     "dur": [40, 50, 20, 40],
    ...     "utid": [1, 2, 0, 3],
    ...     "state": ["running", "runnable", "running", "sleeping"],
    ...     "cpu": [0, 0, 0, None],
    ... })
    >>> threads = pl.DataFrame({
    ...     "utid": [0, 1, 2, 3], "comm": ["idle", "hog", "web", "db"], "tid": [0, 7, 8, 9],
    ...     "pid": [0, 7, 8, 9],
    ... })
    >>> trace = Trace.from_tables(
    ...     {"states": states, "threads": threads}, {"ncpu": 1, "window": [0, 60]}
    ... )
    >>> interference(trace, by="comm").select("victim_comm", "kind", "comm", "time", "share")
    shape: (2, 5)
    ┌─────────────┬────────┬──────┬──────┬───────┐
    │ victim_comm ┆ kind   ┆ comm ┆ time ┆ share │
    │ ---         ┆ ---    ┆ ---  ┆ ---  ┆ ---   │
    │ str         ┆ enum   ┆ str  ┆ i64  ┆ f64   │
    ╞═════════════╪════════╪══════╪══════╪═══════╡
    │ web         ┆ thread ┆ hog  ┆ 30   ┆ 0.6   │
    │ web         ┆ idle   ┆ null ┆ 20   ┆ 0.4   │
    └─────────────┴────────┴──────┴──────┴───────┘
    """
    check(by, list(THREADS))
    if victims is not None:
        count("victims", victims, "victims")
    if parts is not None:
        count("parts", parts, "threads that ran")
    threads = _threads(trace, by, where)
    victim = pl.lit(0) if together else pl.col("group")
    asked = victims_of(trace, threads.with_columns(victim.cast(pl.UInt32).alias("victim")), where)
    if victims is not None:
        asked = _longest(trace, asked, victims)
    if parts is None:
        parts = max(MOST_ROWS // max(asked["victim"].n_unique(), 1), 1)
    totals, found = _charged(trace, asked, threads, parts)
    found = _bounded(trace, found, totals, asked, threads)
    return _named(found, threads, by, together)


def _threads(trace: Trace, by: By, where: pl.Expr | None) -> pl.DataFrame:
    """Every thread with the number of its group; those without a name or pid share one."""
    key = {"thread": "utid", "process": "pid"}.get(by, by)
    threads = threads_with(trace, THREADS[by], where).select(
        pl.exclude("prio", "utid"),
        pl.col("utid").cast(pl.UInt32),
        group=(pl.struct(key).rank("dense") - 1).cast(pl.UInt32),
    )
    return threads.collect()


def _longest(trace: Trace, asked: pl.DataFrame, victims: int) -> pl.DataFrame:
    """The `victims` of `asked` that waited longest.

    Charging all of them to show a few would take a row for each pair of threads: with half a
    million threads, more than fits into memory.
    """
    on = [name for name in ("utid", "cpu") if name in asked.columns]
    times = (
        trace.states.filter(pl.col("state") == "runnable")
        .group_by(on)
        .agg(wait=inside_window(trace).sum())
        .collect()
    )
    # Threads that may have waited have a row, too.
    doubt = unknown_of(trace, asked, "victim").filter(pl.col("unknown") > 0)["victim"]
    chosen = (
        asked.join(times, on=on, how="left", nulls_equal=True)
        .group_by("victim")
        .agg(pl.col("wait").sum())
        .filter((pl.col("wait") > 0) | pl.col("victim").is_in(doubt.implode()))
        .sort("wait", "victim", descending=[True, False])
        .head(victims)
    )
    return asked.join(chosen, on="victim", how="semi", maintain_order="left")


def _charged(
    trace: Trace, asked: pl.DataFrame, threads: pl.DataFrame, parts: int
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """One row per victim, the longest wait first; one row per victim and group that ran.

    The latter with the time by cause and the number of waits, in the order of victims, and the
    longest time first in each.
    """
    utids = pl.select(utid=pl.int_range(pl.lit(threads["utid"].max() or 0) + 1, dtype=pl.UInt32))
    group = utids.join(threads, on="utid", how="left", maintain_order="left")["group"].fill_null(0)
    totals, found = occupancy(trace).interference(
        asked, group.to_list(), _ngroups(threads), recorded_cpus(trace),
        coded_waits(trace), parts,
    )  # fmt: skip
    times = {name: pl.col(cause) for cause, name in zip(CAUSE.categories, _CAUSES, strict=True)}
    cells = pl.DataFrame(found).select(
        "victim", "group", "n", time=pl.sum_horizontal(times.values()), **times
    )
    return pl.DataFrame(totals), cells


def _bounded(
    trace: Trace,
    found: pl.DataFrame,
    totals: pl.DataFrame,
    asked: pl.DataFrame,
    threads: pl.DataFrame,
) -> pl.DataFrame:
    """`found` with how long each may have been, and a row of unknown time where there is any."""
    first = _ngroups(threads)
    of_kind = {kind: first + number - 1 for number, kind in enumerate(KIND.categories)}
    doubt = unknown_of(trace, asked, "victim").rename({"unknown": "doubt", "threads": "victims"})
    without = doubt.filter(pl.col("doubt") > 0).join(
        found.filter(pl.col("group") == of_kind["unknown"]), on="victim", how="anti"
    )
    if without.height:
        zero = dict.fromkeys(("n", "time", *_CAUSES), 0)
        rows = without.select("victim", group=of_kind["unknown"], **zero)
        rows = rows.cast({name: found.schema[name] for name in rows.columns})
        # `totals` has the victims in order; those that were never seen to wait come last.
        order = [*totals["victim"], *without["victim"].sort()]
        place = {victim: at for at, victim in reversed(list(enumerate(order)))}
        is_others = pl.col("group") == of_kind["others"]
        found = (
            pl.concat([found, rows.select(found.columns)])
            .with_columns(place=pl.col("victim").replace_strict(place, return_dtype=pl.Int64))
            .sort("place", is_others, maintain_order=True)
            .drop("place")
        )
    found = found.join(totals, on="victim", how="left", maintain_order="left").with_columns(
        pl.col("wait", "n_waits").fill_null(0)
    )
    of_doubt = pl.col("group").is_in([of_kind["unknown"], of_kind["no_queue"]])
    unsure = found.filter(of_doubt).group_by("victim").agg(inside=pl.col("time").sum())
    found = found.join(doubt, on="victim", how="left", maintain_order="left")
    found = found.join(unsure, on="victim", how="left", maintain_order="left")
    doubted, inside = pl.col("doubt").fill_null(0), pl.col("inside").fill_null(0)
    slack = pl.when(of_doubt).then(doubted).otherwise(doubted + inside)
    if found.select(slack.sum()).item():
        # A thread cannot have delayed a victim for longer than it may have run.
        found = found.join(_may_have_run(trace, threads), on="group", how="left")
        possible = (pl.col("most") * pl.col("victims")).fill_null(_LONG) - pl.col("time")
        slack = pl.min_horizontal(slack, pl.max_horizontal(possible, 0))
    return found.with_columns(slack=slack).with_columns(
        time_high=pl.col("time") + pl.col("slack"),
        wait_high=pl.col("wait") + doubted,
        # Doubt that lies within the known waiting adds nothing to it.
        share_high=(pl.col("time") + pl.col("slack"))
        / (pl.col("wait") + pl.max_horizontal(pl.col("slack") - inside, 0)),
    )


def summed(pairs: pl.DataFrame, chosen: pl.DataFrame) -> pl.DataFrame:
    """A row for each victim (`victim_utid`): `time` and `time_high` of `chosen`, some of its rows.

    `pairs` are all of its rows: together they cannot have more than the victim's unknown time.
    """
    unsure = pl.col("kind").cast(pl.String).is_in(["unknown", "no_queue"])
    doubt = pairs.group_by("victim_utid").agg(
        doubt=(pl.col("wait_high") - pl.col("wait")).max() + pl.col("time").filter(unsure).sum()
    )
    times = chosen.group_by("victim_utid").agg(
        pl.col("time").sum(), slack=(pl.col("time_high") - pl.col("time")).sum()
    )
    return times.join(doubt, on="victim_utid").select(
        "victim_utid", "time", time_high=pl.col("time") + pl.min_horizontal("slack", "doubt")
    )


_LONG = 1 << 62


def _may_have_run(trace: Trace, threads: pl.DataFrame) -> pl.DataFrame:
    """For each group, how long its threads ran at most, `most` (ns)."""
    times = (
        trace.states.filter(pl.col("state").is_in(["running", "unknown"]))
        .group_by(pl.col("utid").cast(pl.UInt32))
        .agg(most=inside_window(trace).sum())
        .collect()
    )
    return threads.join(times, on="utid").group_by("group").agg(pl.col("most").sum())


def _ngroups(threads: pl.DataFrame) -> int:
    return int(threads["group"].max() or 0) + 1  # type: ignore[arg-type]


def _named(found: pl.DataFrame, threads: pl.DataFrame, by: By, together: bool) -> pl.DataFrame:
    keys = list(THREADS[by])
    ngroups = _ngroups(threads)
    names = threads.group_by("group").agg(pl.col(keys).first())
    of_victim: list[str] = []
    if not together:
        of_victim = [f"victim_{name}" for name in keys]
        victim = names.rename({name: f"victim_{name}" for name in keys} | {"group": "victim"})
        found = found.join(victim, on="victim", how="left", maintain_order="left")
    kind = pl.Series("kind", KIND.categories, KIND)
    return (
        found.join(names, on="group", how="left", maintain_order="left")
        .with_columns(
            kind=pl.lit(kind).gather((pl.col("group").cast(pl.Int64) - ngroups + 1).clip(0)),
            share=pl.col("time") / pl.when(pl.col("wait_high") > 0).then("wait_high"),
            coverage=pl.col("wait") / pl.when(pl.col("wait_high") > 0).then("wait_high"),
        )
        .select(
            *(*of_victim, "wait", "wait_high", "kind", *keys, "time", "time_high", "share"),
            *("share_high", "n", "n_waits", "coverage", *_CAUSES),
        )
    )
