"""Where was a thread's running time spent, was it allowed there, and did it come back?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import polars as pl

from schedscope.analysis.ledger import THREAD_COLUMNS, waits
from schedscope.analysis.since import since_last_run
from schedscope.analysis.topology import cpu_list, cpu_text, cpus_of, places
from schedscope.errors import FormatError, UsageError
from schedscope.units import nanoseconds

if TYPE_CHECKING:
    from schedscope.trace import Trace

GROUPS = ("utid", *THREAD_COLUMNS)
"""What threads may be grouped by."""

IDLE_TIMES = ("10us", "30us", "100us", "300us", "1ms", "3ms", "10ms", "30ms", "100ms", "1s")
"""Bounds between the rows of `cpu_returns`."""


def residency(
    trace: Trace,
    by: str | Sequence[str] = "comm",
    *,
    over: str = "cpu",
    where: pl.Expr | None = None,
) -> pl.DataFrame:
    """One row per group of threads and place in the machine: how long they ran there.

    `by` is one or more of `GROUPS`, or nothing for all threads together; `over` is "cpu", "core",
    "llc", "package" or "numa_node". Idle threads are left out.

    * the column named as `over`: the place; null where the trace does not know it;
    * `running`: time, ns; `running_frac`: its share of the group's running time;
    * `runs`: intervals of running, those that the window cuts included.

    `running` sums up to the running time of the threads. Largest groups first.

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
    keys = _keys(by)
    known = places(trace, over)  # refuses another `over`
    spent = _with_threads(trace, _spent(trace, where), keys)
    # A CPU that the trace lists nowhere is still a CPU.
    place = pl.col("cpu") if over == "cpu" else _place(known, "cpu")
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


def affinity(
    trace: Trace, by: str | Sequence[str] = "comm", *, where: pl.Expr | None = None
) -> pl.DataFrame:
    """One row per group of threads: how they kept to their CPUs; most running time first.

    Where the time was spent:

    * `threads`, `running` (ns), `cpus`: how many threads ran, how long, on how many CPUs;
    * `effective_cpus`: exp of the entropy of the shares of time: 1 if all of it was on one CPU,
      k if it was spread evenly over k; `effective_llcs`: the same over last-level caches, null
      without topology; `top_cpu`, `top_frac`: the CPU with most of the time, and its share;

    returns, each time that a thread got a CPU and is known to have run before:

    * `n`: returns; `same_cpu_frac`, `same_llc_frac`: the share of them to the CPU, and to a
      CPU of the last-level cache, where it ran last (null without topology);
    * `n_censored`: waits that had not ended when they went out of sight; `n_excluded`: runs
      whose predecessor is not known, or with a time out of sight in between;

    and what was allowed, by the masks that the capture recorded:

    * `allowed`, `used`: CPUs that at least one of the threads may use, and did, as lists;
      `allowed` is null if the mask of one of them is not known;
    * `outside`, `outside_runs`: running time (ns) and runs outside the thread's own mask; null
      if no mask is known. `runs_outside_affinity` tells which.

    For a group of several threads the spread is that of their time together;
    `by="utid"` tells of each by itself. Raises `UsageError` for another `by`.

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
    keys = _keys(by)
    spent = _masked(trace, _with_threads(trace, _spent(trace, where), keys))
    spent = spent.with_columns(mask="affinity")
    groups: list[str] = keys or ["all"]
    if not keys:
        spent = spent.with_columns(all=pl.lit(0))
    llc = places(trace, "llc")
    per_cpu = spent.group_by([*groups, "cpu"]).agg(pl.col("running").sum())
    per_llc = (
        per_cpu.with_columns(llc=_place(llc, "cpu"))
        .group_by([*groups, "llc"])
        .agg(pl.col("running").sum())
    )
    spread = per_cpu.sort("cpu").group_by(groups).agg(
        cpus=pl.col("cpu").n_unique().cast(pl.UInt32),
        effective_cpus=_effective(),
        top_cpu=pl.col("cpu").sort_by("running", descending=True, maintain_order=True).first(),
        top_frac=pl.col("running").max() / pl.col("running").sum(),
        used=pl.col("cpu").unique(),
    )  # fmt: skip
    caches = per_llc.group_by(groups).agg(
        effective_llcs=pl.when(~pl.col("llc").is_null().any()).then(_effective())
    )
    # A mask is the thread's: each counts once, however many CPUs it used.
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
    # Groups that ran for no time at all have returns, but no residency.
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
        None if known is None or None in known else cpu_text(c for m in known for c in cpu_list(m))
        for known in frame["masks"].to_list()
    ]
    used = [None if cpus is None else cpu_text(cpus) for cpus in frame["used"].to_list()]
    return (
        frame.with_columns(
            pl.Series("allowed", allowed, dtype=pl.String), pl.Series("used", used, dtype=pl.String)
        )
        .sort(["running", *groups], descending=[True, *[False] * len(groups)])
        .select(
            *keys,
            *("threads", "running", "cpus", "effective_cpus", "effective_llcs"),
            *("top_cpu", "top_frac", "n", "same_cpu_frac", "same_llc_frac"),
            *("n_censored", "n_excluded", "allowed", "used", "outside", "outside_runs"),
        )
    )


def runs_outside_affinity(trace: Trace, *, where: pl.Expr | None = None) -> pl.DataFrame:
    """One row per thread and CPU that its recorded mask does not allow, but where it ran.

    * `utid`, `tid`, `pid`, `comm`, `kernel`, `affinity`: the thread and its mask; `cpu`;
    * `running` (ns), `runs`; `ts_first`, `ts_last`: when the first and the last of them began.

    A mask is recorded once, and threads change theirs: a run before the change is here, too, and
    no error. Threads without a recorded mask are not here. Longest first.
    """
    spent = _masked(trace, _spent(trace, where, times=True)).filter("outside")
    threads = trace.threads.select("utid", "tid", "pid", "comm", "kernel").collect()
    return (
        spent.join(threads, on="utid", how="left")
        .sort(["running", "utid", "cpu"], descending=[True, False, False])
        .select(
            *("utid", "tid", "pid", "comm", "kernel", "affinity", "cpu"),
            *("running", "runs", "ts_first", "ts_last"),
        )
    )


def isolation_leaks(
    trace: Trace, isolated: str | Sequence[int] | None = None, *, where: pl.Expr | None = None
) -> pl.DataFrame:
    """One row per thread and isolated CPU on which it ran: who was where nobody should be?

    `isolated` are the CPUs, as numbers or as a list ("2-3"); without it what the capture says
    (`isolated_cpus`).

    * `cpu`, `utid`, `tid`, `pid`, `comm`, `kernel`, `affinity`: where, who, and its mask;
    * `leak`: false if the mask holds isolated CPUs only: somebody put it there, or it is the
      kernel's own thread of that CPU; true if the thread could have run elsewhere; null
      if its mask is not known;
    * `running` (ns), `runs`, `cpu_frac`: of the window; `ts_first`, `ts_last`: begin of
      the first and the last run.

    Leaks first, longest first. Empty if no CPU is isolated. Raises `UsageError` if
    neither the caller nor the capture says which are, or a CPU is not the trace's.
    """
    chosen = isolated_cpus(trace) if isolated is None else _chosen(isolated)
    if chosen is None:
        raise UsageError(
            "the capture does not say which CPUs were isolated",
            "the CPUs that are",
            'name them, as in isolated="2-3"',
        )
    strange = sorted(set(chosen) - set(cpus_of(trace)))
    if strange and isolated is not None:
        raise UsageError(
            f"isolated={isolated!r} has CPU {strange[0]}",
            "CPUs of this trace",
            f"one of {cpu_text(cpus_of(trace))}",
        )
    spent = _masked(trace, _spent(trace, where, times=True)).filter(pl.col("cpu").is_in(chosen))
    masks = spent["affinity"].unique().drop_nulls()
    bound = [mask for mask in masks if set(cpu_list(mask)) <= set(chosen)]
    threads = trace.threads.select("utid", "tid", "pid", "comm", "kernel").collect()
    length = trace.duration
    return (
        spent.join(threads, on="utid", how="left")
        .with_columns(
            leak=pl.when(pl.col("affinity").is_not_null()).then(~pl.col("affinity").is_in(bound)),
            cpu_frac=pl.col("running") / length,
        )
        .sort(
            ["leak", "running", "utid", "cpu"],
            descending=[True, True, False, False],
            nulls_last=[True, False, False, False],
        )
        .select(
            *("cpu", "utid", "tid", "pid", "comm", "kernel", "affinity", "leak"),
            *("running", "runs", "cpu_frac", "ts_first", "ts_last"),
        )
    )


def isolated_cpus(trace: Trace) -> list[int] | None:
    """The CPUs that the capture says were isolated; None if it does not say.

    From what Linux tells in /sys/devices/system/cpu/isolated (`isolcpus=`, and isolated cpusets of
    newer kernels) and nohz_full there, and from the command line where that was recorded.
    """
    known = trace.fact("scheduler", "tunables")
    if not isinstance(known, dict):
        return None
    lists = [
        str(known[f"/sys/devices/system/cpu/{name}"])
        for name in ("isolated", "nohz_full")
        if f"/sys/devices/system/cpu/{name}" in known
    ]
    for word in str(known.get("/proc/cmdline", "")).split():
        name, _, value = word.partition("=")
        if name in ("isolcpus", "nohz_full"):
            # isolcpus=managed_irq,domain,2-3: flags come first.
            lists.append(",".join(part for part in value.split(",") if part[:1].isdecimal()))
    if not lists and "/proc/cmdline" not in known:
        return None
    # nohz_full reads "(null)" where it is built in and not used.
    return sorted({cpu for text in lists if text != "(null)" for cpu in cpu_list(text)})


def cpu_returns(
    trace: Trace,
    *,
    bounds: Sequence[str | int] = IDLE_TIMES,
    where: pl.Expr | None = None,
) -> pl.DataFrame:
    """One row per range of time since the last run: did threads come back to the same CPU?

    What a thread left in a cache is worth something while it is fresh, and only where it was.

    * `since_from`, `since_to`: time from the end of the last run to the begin of this one,
      `[since_from, since_to)`, ns; null: no upper bound;
    * `n`: runs after such a time; `same_cpu`, `same_cpu_frac`: of them on the CPU
      of the last run; `same_llc`, `same_llc_frac`: on a CPU of the same last-level cache, null
      without topology;
    * `wait_p50`: the median wait of these runs, ns.

    The last row, with both bounds null, has in `n_excluded` the runs whose last run is not known
    or ended out of sight, and in `n_censored` the waits that had not ended in sight.

    Raises `UsageError` for bounds that are no rising durations.
    """
    edges = [nanoseconds(bound) for bound in bounds]
    if not edges or edges[0] <= 0 or sorted(set(edges)) != edges:
        raise UsageError(f"bounds={bounds!r}", "rising durations above 0 ns", 'as in ["1ms", "1s"]')
    columns = ["utid", "cause", "ts_ready", "ts_run", "prev_cpu", "cpu", "wait"]
    rows = waits(trace, columns, where)
    ended = pl.col("ts_run").is_not_null()
    begun = rows.filter(ended).rename({"ts_run": "ts", "cause": "waiting"}).collect()
    censored = int(rows.select((~ended).sum()).collect().item())
    # Without the columns that are not needed any more, or the filter would copy them.
    timed = begun.select("prev_cpu", "cpu", "wait", since=since_last_run(trace, begun))
    known = timed.filter(pl.col("since").is_not_null(), pl.col("prev_cpu").is_not_null())
    llc = places(trace, "llc")
    # The row of a time is how many bounds it has reached.
    row = pl.lit(0, dtype=pl.UInt32)
    for edge in edges:
        row = row + (pl.col("since") >= edge).cast(pl.UInt32)
    told = None not in llc.values()
    same_llc = (_place(llc, "cpu") == _place(llc, "prev_cpu")).sum() if told else pl.lit(None)
    sums = known.group_by(row.alias("row")).agg(
        n=pl.len().cast(pl.UInt32),
        same_cpu=(pl.col("cpu") == pl.col("prev_cpu")).sum().cast(pl.UInt32),
        same_llc=same_llc.cast(pl.UInt32),
        wait_p50=pl.col("wait").quantile(0.5, "lower").cast(pl.Int64),
    )
    table = pl.DataFrame(
        {
            "row": range(len(edges) + 1),
            "since_from": [0, *edges],
            "since_to": [*edges, None],
        },
        schema={"row": pl.UInt32, "since_from": pl.Int64, "since_to": pl.Int64},
    )
    none = pl.lit(0, dtype=pl.UInt32)
    counted = table.join(sums, on="row", how="left").with_columns(
        pl.col("n", "same_cpu").fill_null(0),
        pl.col("same_llc").fill_null(0) if told else pl.col("same_llc"),
        n_censored=none,
        n_excluded=none,
    )
    last = counted.clear(1).with_columns(
        n=none,
        n_censored=pl.lit(censored, dtype=pl.UInt32),
        n_excluded=pl.lit(begun.height - known.height, dtype=pl.UInt32),
    )
    share = pl.when(pl.col("n") > 0)
    return pl.concat([counted.sort("row"), last]).select(
        *("since_from", "since_to", "n", "same_cpu"),
        share.then(pl.col("same_cpu") / pl.col("n")).alias("same_cpu_frac"),
        "same_llc",
        share.then(pl.col("same_llc") / pl.col("n")).alias("same_llc_frac"),
        *("wait_p50", "n_censored", "n_excluded"),
    )


def _keys(by: str | Sequence[str]) -> list[str]:
    keys = [by] if isinstance(by, str) else list(by)
    for name in keys:
        if name not in GROUPS:
            raise UsageError(f"by={name!r}", "what a thread has", "one of " + ", ".join(GROUPS))
    if len(set(keys)) != len(keys):
        raise UsageError(f"by={keys} names a column twice", "each column once")
    return keys


def _spent(trace: Trace, where: pl.Expr | None, *, times: bool = False) -> pl.DataFrame:
    """Running time and runs of each thread on each CPU, within the window; when, with `times`."""
    begin, end = trace.window
    ts = pl.col("ts").clip(lower_bound=begin)
    when = {"ts_first": pl.col("ts").min(), "ts_last": pl.col("ts").max()} if times else {}
    ran = (pl.col("ts") + pl.col("dur")).clip(upper_bound=end) - ts
    spent = (
        trace.states.filter(pl.col("state") == "running", pl.col("utid") >= trace.ncpu)
        .group_by(pl.col("utid").cast(pl.UInt32), pl.col("cpu").cast(pl.UInt16))
        .agg(running=ran.clip(lower_bound=0).sum(), runs=(ran > 0).sum().cast(pl.UInt32), **when)
        .filter(pl.col("runs") > 0)
        .collect()
    )
    if where is None:
        return spent
    names = [name for name in where.meta.root_names() if name in THREAD_COLUMNS]
    for name in where.meta.root_names():
        if name not in (*GROUPS, "cpu"):
            raise UsageError(
                f"no column {name!r} in where", "a column of threads, or cpu",
                "one of " + ", ".join([*GROUPS, "cpu"]),
            )  # fmt: skip
    return _with_threads(trace, spent, names).filter(where).select(spent.columns)


def _with_threads(trace: Trace, frame: pl.DataFrame, names: Sequence[str]) -> pl.DataFrame:
    wanted = [name for name in names if name not in frame.columns]
    if not wanted:
        return frame
    return frame.join(trace.threads.select("utid", *wanted).collect(), on="utid", how="left")


def _masked(trace: Trace, spent: pl.DataFrame) -> pl.DataFrame:
    """`spent` with the thread's mask, and whether the CPU is `outside` of it."""
    spent = _with_threads(trace, spent, ["affinity"])
    masks = spent["affinity"].unique().drop_nulls().to_list()
    rows = [(mask, cpu, False) for mask in masks for cpu in cpu_list(mask)]
    schema = {"affinity": pl.String, "cpu": pl.UInt16, "outside": pl.Boolean}
    inside = pl.DataFrame(rows, schema=schema, orient="row")
    known = pl.col("affinity").is_not_null()
    return spent.join(inside, on=["affinity", "cpu"], how="left").with_columns(
        outside=pl.when(known).then(pl.col("outside").fill_null(True)).otherwise(False)
    )


def _returns(trace: Trace, keys: list[str], where: pl.Expr | None) -> pl.DataFrame:
    """Of each group the runs whose thread is known to have run before, and where."""
    columns = ["utid", "cause", "ts_run", "prev_cpu", "cpu"]
    ended = pl.col("ts_run").is_not_null()
    known = ended & pl.col("prev_cpu").is_not_null() & (pl.col("cause") != "unknown")
    # By pairs of CPUs first: caches are looked up a few times instead of for each run.
    pairs = (
        waits(trace, columns, where)
        .group_by("utid", "prev_cpu", "cpu")
        .agg(n=known.sum(), n_censored=(~ended).sum(), n_excluded=(ended & ~known).sum())
        .collect()
    )
    pairs = _with_threads(trace, pairs, keys)
    if not keys:
        pairs = pairs.with_columns(all=pl.lit(0))
    llc = places(trace, "llc")
    counts = pl.col("n", "n_censored", "n_excluded")
    there, before = _place(llc, "cpu"), _place(llc, "prev_cpu")
    share = pl.when(pl.col("n").sum() > 0)
    return pairs.group_by(keys or ["all"]).agg(
        counts.sum().cast(pl.UInt32),
        same_cpu_frac=share.then(
            pl.col("n").filter(pl.col("cpu") == pl.col("prev_cpu")).sum() / pl.col("n").sum()
        ),
        same_llc_frac=(
            share.then(pl.col("n").filter(there == before).sum() / pl.col("n").sum())
            if None not in llc.values()
            else pl.lit(None, dtype=pl.Float64)
        ),
    )


def _place(known: dict[int, int | None], column: str) -> pl.Expr:
    numbers = list(known.values())
    return pl.col(column).replace_strict(list(known), numbers, default=None, return_dtype=pl.UInt16)


def _effective() -> pl.Expr:
    """exp(entropy) of the shares of `running`."""
    share = pl.col("running") / pl.col("running").sum()
    return (-(share * share.log()).sum()).exp()


def _chosen(isolated: str | Sequence[int]) -> list[int]:
    if not isinstance(isolated, str):
        return sorted(set(isolated))
    try:
        return cpu_list(isolated)
    except FormatError:
        raise UsageError(f"isolated={isolated!r}", "a list of CPUs", "as in 2-3,8") from None
