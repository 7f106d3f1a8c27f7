"""Did every thread get the CPU time that was due to it by weight?

While threads compete for a CPU, each is due a part of what their class gets there, in
proportion to its weight (generalised processor sharing). `lag` is the time due minus the
time received. A positive lag means that the thread is behind; the lags of all threads of
a class add up to zero. Jain's index shows in one number how evenly a class was treated:
it is 1 if all threads received the same part of what was due to them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import polars as pl

from schedscope.analysis.asking.arguments import THREAD_COLUMNS
from schedscope.analysis.asking.command import Command
from schedscope.analysis.asking.needs import needs
from schedscope.analysis.recording.unknown_time import (
    possible_waiting,
    unknown_time,
    unseen_births,
    with_unknown_time,
)
from schedscope.analysis.shares.competing_doubt import competing_doubt, unknown_cpu_time
from schedscope.analysis.shares.sharing_groups import Per, competitors, sharing
from schedscope.analysis.threads.levels import (
    BASIS,
    EQUAL_WEIGHT,
    FAIR_PRIOS,
    LINUX_WEIGHTS,
    Levels,
)
from schedscope.analysis.threads.of_threads import with_threads
from schedscope.errors import UsageError
from schedscope.units import nanoseconds

if TYPE_CHECKING:
    from schedscope._native import CpuHistory
    from schedscope.store.trace import Trace

By = Literal["thread", "process", "comm", "cgroup", "service"]

_BOUNDED = ("running", "waiting", "due", "lag", "served")
_SUMS = ("running", "waiting", "unplaced", "due", "lag", "served")
_HIGH = tuple(f"{name}_high" for name in _BOUNDED)
_KEYS = {
    "thread": ["utid", "comm", "tid", "pid"],
    "process": ["pid", "comm"],
    **{name: [name] for name in ("comm", "cgroup", "service")},
}


COMMAND = Command(
    heading="how well was the machine used?",
    help="CPU time received against CPU time due, by weight",
    example="""\
  schedscope fairness web.capture
  schedscope fairness web.capture --by process --top 30
  schedscope fairness web.capture --per machine
  schedscope fairness web.capture --comm nginx --every 10ms --format csv
""",
    page="docs/definitions/fairness.md",
)


@needs("switches", "competitors")
def fairness(
    trace: Trace,
    *,
    by: By = "thread",
    per: Per | None = None,
    where: pl.Expr | None = None,
) -> pl.DataFrame:
    """One row per thread (process, name, ...) and class: CPU service received against service due.

    While threads compete for a CPU, each is due a part of the service that its class gets there, in
    proportion to its weight (generalised processor sharing). Where control groups and sessions were
    recorded with their weights, the service is divided among the groups first. Nothing is due to a
    thread while the CPU quota of its group is used up, as far as the trace shows when that was. The
    row that is furthest behind comes first.

    * `utid`, `comm`, `tid`, `pid` of a thread; `pid` of a process and the name of its first thread;
      or `comm`, `cgroup` or `service` alone; `threads`: how many are summed;
    * `sharing`: the class; a thread that changed its class has a row for each;
    * `weight` (1024 is nice 0; null if it changed, or if the threads' weights differ) and its
      `basis`, see `weights`;
    * `running`, `waiting`: time on a CPU, and time runnable, without that in which a CPU quota held
      the thread back (ns); `unplaced`: time runnable on no known queue, which is included in upper
      bounds alone;
    * `due`: service due; `lag`: `due - running` (ns), positive if behind. Over all rows of a class,
      `lag` sums to zero where nothing is unknown;
    * `served`: service that it and its competitors got, together, while it competed (ns);
      `share_due`, `share_received`: `due` and `running` as shares of that;
    * `ratio`: `running / due`; null where nothing was due;
    * `unknown`: time for which the trace does not show what it did (ns);
    * where there is any, or `unplaced`, of this thread or another one, or of a CPU, each of these
      columns is a lower bound, and `running_high`, `waiting_high`, `due_high`, `lag_high`,
      `served_high`, `share_due_high`, `share_received_high` and `ratio_high` (null if nothing
      bounds it) are the upper ones. They are equal elsewhere;
    * `coverage`: `running + waiting`, as a part of that, `unplaced` and `unknown`.

    `per="cpu"`: threads on one CPU and its queue compete; `per="machine"`: all threads of a class
    compete, and none is due more than one CPU. The default follows the trace's queues. `where`
    selects rows by columns of `threads`; their competitors stay the same.

    Definition: docs/definitions/fairness.md. Raises `UsageError` for another `by` or `per`.

    >>> from schedscope import Trace
    >>> states = pl.DataFrame({
    ...     "ts": [0, 0, 60, 60], "dur": [60, 60, 40, 40], "utid": [1, 2, 2, 1], "cpu": [0] * 4,
    ...     "state": ["running", "runnable", "running", "runnable"], "prio": [120, 120, 120, 120],
    ... })
    >>> threads = pl.DataFrame({"utid": [0, 1, 2], "comm": ["", "a", "b"], "prio": [None, 120, 120],
    ...     "tid": [0, 7, 8], "pid": [0, 7, 8], "sched_class": ["idle", "fair", "fair"]})
    >>> trace = Trace.from_tables({"states": states, "threads": threads},
    ...     {"ncpu": 1, "window": [0, 100], "os": "Linux"})
    >>> fairness(trace).select("comm", "running", "due", "lag", "share_received", "ratio")
    shape: (2, 6)
    ┌──────┬─────────┬──────┬───────┬────────────────┬───────┐
    │ comm ┆ running ┆ due  ┆ lag   ┆ share_received ┆ ratio │
    │ ---  ┆ ---     ┆ ---  ┆ ---   ┆ ---            ┆ ---   │
    │ str  ┆ i64     ┆ f64  ┆ f64   ┆ f64            ┆ f64   │
    ╞══════╪═════════╪══════╪═══════╪════════════════╪═══════╡
    │ b    ┆ 40      ┆ 50.0 ┆ 10.0  ┆ 0.4            ┆ 0.8   │
    │ a    ┆ 60      ┆ 50.0 ┆ -10.0 ┆ 0.6            ┆ 1.2   │
    └──────┴─────────┴──────┴───────┴────────────────┴───────┘
    """
    if not isinstance(by, str) or by not in _KEYS:
        raise UsageError(f"by={by!r}", " or ".join(f'"{name}"' for name in _KEYS))
    by_cpu = where is not None and "cpu" in where.meta.root_names()
    rows = _by_thread(trace, per, by_cpu)
    return summed(trace, selected(trace, rows, where), by)


@needs("switches", "competitors")
def jain_index(
    trace: Trace,
    *,
    per: Per | None = None,
    min_due: str | int = "1ms",
    where: pl.Expr | None = None,
) -> pl.DataFrame:
    """One row per class: how evenly its threads were treated, and which came off worst and best.

    Jain's index of `x = running / due` over the class's threads, `(sum x)^2 / (n * sum x^2)`:
    1 if all got the same part of what was due to them, `1 / n` if one got everything.

    * `sharing`: the class; `jain`: null for fewer than two threads, and `jain_high`, between which
      values it is where something is unknown;
    * `n`: threads in it; `n_excluded`: those to which less than `min_due` was due, because their
      ratio means little;
    * `lag_most`: the largest total lag of a thread among the `n` (ns); `least`, `most`: the
      smallest and the largest `x`; `comm_least`, `comm_most`: the names of these two threads;
    * `basis`: where the weights come from.

    Definition and source (Jain, Chiu and Hawe, 1984): docs/definitions/fairness.md.
    Raises `UsageError` for a `min_due` that is not a duration, or another `per`.
    """
    return jain_of(fairness(trace, per=per, where=where), min_due=min_due)


def jain_of(frame: pl.DataFrame, *, min_due: str | int = "1ms") -> pl.DataFrame:
    """`jain_index` of what `fairness` returned, by thread, without reading the trace again."""
    least = nanoseconds(min_due)
    if least < 0:
        raise UsageError(f"min_due={min_due!r}", "a duration of 0 ns or more", "as in 1ms")
    bounded = pl.col("ratio").is_not_null() & pl.col("ratio_high").is_not_null()
    enough = (pl.col("due") >= least) & bounded
    x = pl.col("ratio").filter(enough)
    high = pl.col("ratio_high").filter(enough)
    comm = pl.col("comm").filter(enough)
    n = enough.sum()
    several = pl.when((n > 1) & (high.sum() > 0))
    most = pl.when(x.sum() > 0).then(high.sum() ** 2 / (n * (x**2).sum())).otherwise(1.0)
    return (
        frame.group_by("sharing")
        .agg(
            jain=several.then(pl.max_horizontal(x.sum() ** 2 / (n * (high**2).sum()), 1 / n)),
            jain_high=several.then(pl.min_horizontal(most, 1.0)),
            n=n.cast(pl.UInt32),
            n_excluded=(pl.len() - n).cast(pl.UInt32),
            lag_most=pl.col("lag").filter(enough).max(),
            least=x.min(),
            comm_least=comm.sort_by(x).first(),
            most=high.max(),
            comm_most=comm.sort_by(high).last(),
            basis=pl.col("basis").drop_nulls().first(),
        )
        .sort("n", "sharing", descending=[True, False])
    )


def selected(trace: Trace, frame: pl.DataFrame, where: pl.Expr | None) -> pl.DataFrame:
    """Rows of `frame`, which has a `utid`, whose threads (or own columns) fit `where`."""
    if where is None:
        return frame
    names = sorted(where.meta.root_names())
    known = {*frame.columns, *THREAD_COLUMNS}
    for name in names:
        if name not in known:
            raise UsageError(
                f"no column {name!r} to select by",
                "a column of threads, or of the result",
                "one of " + ", ".join(sorted(known)),
            )
    return with_threads(trace, frame, names).filter(where).select(frame.columns)


def _by_thread(trace: Trace, per: Per | None, by_cpu: bool) -> pl.DataFrame:
    """One row per thread, class (and CPU), in no order."""
    levels = Levels(trace)
    read, how = competitors(trace, levels, per)
    if by_cpu and how == "machine":
        raise UsageError(
            "a selection by CPU where all CPUs share one queue",
            "a selection of threads",
            "per='cpu' looks at each CPU separately",
        )
    sums = pl.DataFrame(read.due(sharing(trace, how, by_cpu=by_cpu)))
    sums = pl.concat([sums, _unseen(trace, levels, sums)], how="diagonal")
    names = trace.threads.select(pl.col("utid").cast(pl.UInt32), "comm", "tid", "pid").collect()
    one = pl.col("competed") & (pl.col("heaviest") == pl.col("lightest"))
    if how == "machine":
        # The shared queue is every thread's queue.
        sums = sums.with_columns(
            waiting=pl.col("waiting") + pl.col("unplaced"), unplaced=pl.lit(0, pl.Int64)
        )
    rows = with_unknown_time(trace, sums.join(names, on="utid", how="left"))
    return (
        _bounded(trace, rows, read, how)
        .with_columns(
            sharing=pl.col("class").replace_strict(
                dict(enumerate(levels.classes)), return_dtype=pl.String
            ),
            weight=pl.when(one).then(pl.col("heaviest")),
            basis=pl.when(pl.col("equal"))
            .then(pl.lit("equal"))
            .otherwise(pl.lit("kernel table"))
            .cast(BASIS),
            lag=pl.col("due") - pl.col("running_high"),
            lag_high=pl.col("due_high") - pl.col("running"),
        )
        .drop("class", "competed", "heaviest", "lightest", "equal")
    )


def _unseen(trace: Trace, levels: Levels, sums: pl.DataFrame) -> pl.DataFrame:
    """Rows for threads that were in no competing set, but may have been while they were unknown."""
    unseen = unknown_time(trace).filter(pl.col("utid") >= trace.ncpu)
    rows = unseen.join(sums, on="utid", how="anti").sort("utid").select("utid")
    known = levels.known[rows["utid"]]
    number = known["class"].cast(sums.schema["class"])
    by_table = (number == levels.fair) & levels.linux
    first, last = FAIR_PRIOS
    nice = pl.when(by_table, known["prio"].is_between(first, last)).then(known["prio"] - first)
    weight = nice.replace_strict(dict(enumerate(LINUX_WEIGHTS)), default=EQUAL_WEIGHT)
    none = {name: pl.lit(0, sums.schema[name]) for name in ("running", "waiting", "unplaced")}
    none |= {name: pl.lit(0, sums.schema[name]) for name in ("due", "served")}
    none |= {name: weight.cast(sums.schema[name]) for name in ("heaviest", "lightest")}
    return rows.with_columns(
        number.alias("class"), (~by_table).alias("equal"), competed=pl.lit(value=True), **none
    )


def _bounded(trace: Trace, rows: pl.DataFrame, read: CpuHistory, how: Per) -> pl.DataFrame:
    """Rows of threads with upper bounds, and `due` as a lower one."""
    same = {f"{name}_high": pl.col(name) for name in ("running", "waiting", "due", "served")}
    hidden = unknown_cpu_time(trace)
    known = not rows["unknown"].sum() and not rows["unplaced"].sum()
    if not hidden and known and unseen_births(trace).is_empty():
        return rows.with_columns(**same)
    waited = possible_waiting(trace).rename({"unknown": "waited"})
    options = sharing(trace, how)
    doubt = competing_doubt(trace, read, options, queues=how == "cpu")
    for of_threads in (doubt, waited):
        rows = rows.join(of_threads, on="utid", how="left", maintain_order="left")
    competed = pl.col("running") + pl.col("waiting")
    own = pl.col("unknown")
    # Where it waited on a queue that is not known, others may have been served there.
    unplaced = pl.col("unplaced")
    contested = pl.min_horizontal(pl.col("contested").fill_null(0), competed)
    if how == "machine":
        # What a CPU with unknown time served may have gone to any thread.
        served = pl.min_horizontal(competed, pl.lit(hidden))
        more = own * trace.ncpu + hidden
    else:
        served = pl.col("unserved").fill_null(0)
        more = own + served + unplaced
    # A group has less weight here if a thread of it may have been elsewhere.
    gained = contested if options["groups"] is not None else pl.lit(0)
    return rows.with_columns(
        running_high=pl.col("running") + own,
        waiting_high=pl.col("waiting") + pl.col("waited").fill_null(0) + unplaced,
        due_high=pl.min_horizontal(
            pl.col("due") + gained + served, pl.max_horizontal(competed, pl.col("due"))
        )
        + own
        + unplaced,
        due=pl.max_horizontal(pl.col("due") - pl.col("contested_due").fill_null(0), 0.0),
        served_high=pl.col("served") + more,
    ).drop("contested", "contested_due", "unserved", "waited")


def summed(trace: Trace, rows: pl.DataFrame, by: By) -> pl.DataFrame:
    """What `fairness` returned by thread, by thread, process, name, control group or service."""
    rows = with_threads(trace, rows, _KEYS[by])
    if by == "process":
        # A thread of an unknown process stands for itself.
        own = pl.when(pl.col("pid").is_null()).then(pl.col("utid"))
        first = pl.col("comm").sort_by(pl.col("tid") != pl.col("pid"), "utid").first()
        named = rows.with_columns(comm=first.over("pid", own))
        groups = named.group_by("pid", own.alias("#"), "comm", "sharing")
    else:
        groups = rows.group_by(*_KEYS[by], "sharing")
    one = pl.col("weight").n_unique() == 1
    frame = groups.agg(
        threads=pl.col("utid").n_unique().cast(pl.UInt32),
        weight=pl.when(one).then(pl.col("weight").first()),
        basis=pl.col("basis").first(),
        **{name: pl.col(name).sum() for name in (*_SUMS, *_HIGH)},
        # A thread may have a row for each CPU.
        unknown=pl.col("unknown").filter(pl.col("utid").is_first_distinct()).sum(),
    )
    unseen = pl.col("running_high") - pl.col("running")
    high, due_high = pl.col("served_high"), pl.col("due_high")
    competed = pl.col("running") + pl.col("waiting")
    may = competed + pl.col("unknown") + pl.col("unplaced")
    return (
        frame.with_columns(
            share_due=pl.col("due") / pl.when(high > 0).then(high),
            # Service due to any of them is part of what was served.
            share_due_high=pl.when(high > 0).then(
                due_high / pl.max_horizontal(pl.col("served"), due_high)
            ),
            share_received=pl.col("running") / pl.when(high > 0).then(high),
            # If it ran in its unknown time, that was service to it and to its competitors.
            share_received_high=pl.col("running_high")
            / pl.when(pl.col("served") + unseen > 0).then(pl.col("served") + unseen),
            ratio=pl.col("running") / pl.when(due_high > 0).then(due_high),
            ratio_high=pl.col("running_high") / pl.when(pl.col("due") > 0).then(pl.col("due")),
            coverage=pl.when(may > 0).then(competed / may),
        )
        .sort("lag", *_KEYS[by], "sharing", descending=[True, *[False] * (len(_KEYS[by]) + 1)])
        .select(
            *_KEYS[by],
            "threads",
            "sharing",
            "weight",
            "basis",
            *(
                column
                for name in (*_SUMS, "share_due", "share_received", "ratio")
                for column in (name, f"{name}_high")
                if name != "unplaced" or column == name
            ),
            "unknown",
            "coverage",
        )
    )
