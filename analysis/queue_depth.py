"""How many threads wanted each CPU, weighted by time?

The depth of a CPU's queue counts the threads that are runnable there and the one that
runs. All statistics are over the time in which the trace shows what the CPU did; p99 is
the depth that is not exceeded for 99 % of that time. Overload is the time in which more
than one thread wanted the CPU. Where the kernel reported its own queue lengths, the
agreement is printed.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal

import polars as pl

from schedscope.analysis.asking.batches import in_batches
from schedscope.analysis.asking.by import check
from schedscope.analysis.asking.command import Command
from schedscope.analysis.asking.needs import needs
from schedscope.analysis.cpus.occupancy import occupancy
from schedscope.analysis.cpus.offline import online_cpus
from schedscope.analysis.cpus.topology import given_cpus, recorded_cpus
from schedscope.analysis.recording.unknown_time import Anywhere, anywhere
from schedscope.analysis.sums.quantiles import column_name, rank, shares_of
from schedscope.analysis.waits.observed import COUNTS
from schedscope.errors import UsageError
from schedscope.units import nanoseconds

if TYPE_CHECKING:
    from schedscope.store.trace import Trace

QUANTILES = (0.5, 0.9, 0.99)

MOST_ROWS = 10_000_000
"""Of `queue_depth` by buckets."""

MOST_INTERVALS = 30_000_000
"""From which `queue_depth` makes steps: some 900 MB."""


COMMAND = Command(
    heading="who waited, and why?",
    help="how many threads wanted each CPU, over time",
    example="""\
  schedscope queue-depth web.capture
  schedscope queue-depth web.capture --by all --waiting-only
  schedscope queue-depth web.capture --comm nginx --waiting-only
  schedscope queue-depth web.capture --cpu 3 --steps --format csv
""",
    page="docs/definitions/queue-depth.md",
)


@needs("switches", "competitors")
def queue_depth(
    trace: Trace,
    *,
    by: Literal["cpu", "all"] = "cpu",
    cpus: str | Collection[int] | None = None,
    every: str | int | None = None,
) -> pl.DataFrame:
    """One row per CPU and stretch of time in which the same number of threads wanted the CPU.

    A step function of time: each CPU's rows adjoin from the start to the end of
    the window, in order of `cpu` and `ts`, and neighbouring rows differ.

    * `ts`, `dur`: the stretch, `[ts, ts + dur)`, ns;
    * `waiting`: threads known to be runnable and on this CPU's queue;
    * `running`: 1 if a thread ran, 0 if the CPU idled, null if the trace does not show;
    * `depth`: `waiting + running`; null where `running` is: what else waited
      there was not recorded either, and `waiting` is a lower bound.

    Rows with a null `cpu` have the threads that were runnable on no known queue
    (between a wakeup's decision and the queue, or where the source names none);
    there are none if that never happened. So `waiting * dur` sums up to the
    time that all threads were runnable.

    `by="all"`: one step function of the sum over all CPUs and those
    threads, with a null `cpu`; `running` is null while any CPU is not known.
    That is the one to look at where all CPUs share a queue (FreeBSD's 4BSD).

    `cpus`: rows of these CPUs only, those of them that the trace has; numbers, or a list ("0-3").

    `every`, as in "10ms": instead of steps a row per bucket of that length, which takes a fraction
    of the time. `unknown` is how much of the bucket is not known (ns); `waiting` and `depth` are
    means over its known time, null if there is none; `waiting_max` and `depth_max` are the most at
    any time of it; `held` is the threads' time on this queue, unknown time included (ns).

    Definition: docs/definitions/queue-depth.md. Raises `UsageError` for another `by`, for `cpus`
    with `by="all"`, for an `every` that is not a duration above 0 ns or gives more than 10 million
    rows, and for steps of more than 30 million intervals of running and waiting.
    """
    check(by, ["cpu", "all"])
    if cpus is not None and by == "all":
        raise UsageError("cpus with by='all'", "one of them", "leave one out")
    chosen = None if cpus is None else given_cpus("cpus", cpus)
    if every is not None:
        found = _over_time(trace, by, every)
        return found if chosen is None else found.filter(pl.col("cpu").is_in(chosen))
    from schedscope.analysis.cpus.depth_steps import STEPS, functions

    _check_length(trace, chosen)
    frames = list(functions(trace, by, chosen))
    return pl.concat(frames) if frames else pl.DataFrame(schema=STEPS)


@needs("switches", "competitors")
def queue_depth_summary(
    trace: Trace,
    *,
    by: Literal["cpu", "all"] = "cpu",
    running: bool = True,
    quantiles: Sequence[float] = QUANTILES,
) -> pl.DataFrame:
    """One row per CPU: how many threads wanted it, weighted by time.

    The depth counts the threads on the CPU's queue and, with `running`, the one
    it runs. Statistics are over `observed` time only. `by="all"`: one row
    for the sum over all CPUs, see `queue_depth`.

    * `observed`, `unknown`: time in which the trace shows what the CPU did, and the rest (ns);
    * `mean`; `p50` ...: the smallest depth that is not exceeded for at least
      that share of the time; `max` and `ts_max`, when it was first reached;
    * `overload`, `overload_frac`: time in which more threads wanted the CPU than the one it can
      run (the machine: than it has CPUs), the running one always included; its share;
    * of each a `NAME_high`: its upper bound, as if threads were on this queue whenever it is
      unknown what they did or on which queue they were; equal where nothing is unknown;
    * `waiting`: threads' time on this queue within `observed`; `waiting_unknown`: outside it (ns);
    * `n`, `n_censored`, `n_excluded`: waits that were last on this queue: seen from start to end;
      start seen, end not, counted for as long as they were certainly waiting; start not seen,
      which no depth includes.

    A last row with a null `cpu` has what was on no known queue, if anything was.
    `waiting` and `waiting_unknown` of all rows sum up to the time that all
    threads were runnable.

    Raises `UsageError` for a quantile outside (0, 1], or another `by`.

    >>> from schedscope import Trace
    >>> states = pl.DataFrame({
    ...     "ts": [0, 10, 0, 4],
    ...     "dur": [10, 10, 20, 6],
    ...     "utid": [1, 2, 3, 2],
    ...     "state": ["running", "running", "sleeping", "runnable"],
    ...     "cpu": [0, 0, None, 0],
    ... })
    >>> trace = Trace.from_tables({"states": states}, {"ncpu": 1, "window": [0, 20]})
    >>> queue_depth_summary(trace).select("cpu", "mean", "p50", "max", "overload_frac")
    shape: (1, 5)
    ┌─────┬──────┬─────┬─────┬───────────────┐
    │ cpu ┆ mean ┆ p50 ┆ max ┆ overload_frac │
    │ --- ┆ ---  ┆ --- ┆ --- ┆ ---           │
    │ u16 ┆ f64  ┆ i32 ┆ i32 ┆ f64           │
    ╞═════╪══════╪═════╪═════╪═══════════════╡
    │ 0   ┆ 1.3  ┆ 1   ┆ 2   ┆ 0.3           │
    └─────┴──────┴─────┴─────┴───────────────┘
    """
    shares = shares_of(quantiles)
    schema: dict[str, type[pl.DataType]] = {
        "cpu": pl.UInt16,
        "observed": pl.Int64,
        "unknown": pl.Int64,
        "mean": pl.Float64,
        "mean_high": pl.Float64,
        **{f"{column_name(share)}{end}": pl.Int32 for share in shares for end in ("", "_high")},
        "max": pl.Int32,
        "max_high": pl.Int32,
        "ts_max": pl.Int64,
        "overload": pl.Int64,
        "overload_high": pl.Int64,
        "overload_frac": pl.Float64,
        "overload_frac_high": pl.Float64,
        "waiting": pl.Int64,
        "waiting_unknown": pl.Int64,
    }
    check(by, ["cpu", "all"])
    ncpu = len(online_cpus(trace)) if by == "all" else 1
    held = _levels_held(trace, by)
    elsewhere = anywhere(trace, queues=by == "cpu")
    rows = [
        _summary(levels, running, shares, ncpu, elsewhere)
        for levels in held.partition_by("cpu", maintain_order=True)
    ]
    frame = pl.DataFrame(rows, schema=schema)
    counts = _counts(trace, by)
    how: Literal["left", "full"] = "left" if by == "all" else "full"
    # A wait that ended where it began has a row here and no interval: a full join keeps it even if
    # its CPU appears nowhere else.
    joined = frame.join(counts, on="cpu", how=how, coalesce=True, nulls_equal=True)
    zero = ["observed", "overload", "overload_high", "waiting", "waiting_unknown"]
    zero += ["n", "n_censored", "n_excluded"]
    # Waits on an unknown queue are on no CPU, so there is no time to weight them by.
    none_seen = pl.when(pl.col("cpu").is_null() & (by == "cpu")).then(0).otherwise(trace.duration)
    return joined.with_columns(
        pl.col(zero).fill_null(0), pl.col("unknown").fill_null(none_seen)
    ).sort("cpu", nulls_last=True)


@needs("switches", "queue_load")
def queue_load_agreement(trace: Trace, *, tolerance: str | int = "10us") -> pl.DataFrame:
    """One row per queue whose length the kernel itself reported: does ours agree?

    Each report is compared with our `depth`, the running thread included as the kernel counts it.
    Kernel and recorder do not update in the same nanosecond: the length goes down before the thread
    is seen to leave the CPU. So most reports may be off by one at their own instant although all
    agree `near` it.

    * `cpu`: the queue's; null for one that all CPUs share, compared with the sum over all;
    * `n`: reports compared; `n_excluded`: those at times when the depth is not known;
    * `agree`, `agree_frac`: how many equal our depth just before or from their instant on;
      their share of `n`;
    * `near`, `near_frac`: how many equal a depth that we had within `tolerance` of them;
    * `mean_difference`: the kernel's number minus ours from that instant on, over the `n`;
      `max_difference`: the largest one in either direction.

    Empty if the trace has no such reports: Linux makes none. Raises
    `UsageError` for a tolerance that is not a duration, or negative.
    """
    slack = nanoseconds(tolerance)
    if slack < 0:
        raise UsageError(f"tolerance={tolerance!r}", "a duration of 0 ns or more", "as in 10us")
    schema = {
        "cpu": pl.UInt16,
        "n": pl.UInt32,
        "n_excluded": pl.UInt32,
        "agree": pl.UInt32,
        "agree_frac": pl.Float64,
        "near": pl.UInt32,
        "near_frac": pl.Float64,
        "mean_difference": pl.Float64,
        "max_difference": pl.Int64,
    }
    reports = trace.queue_load.select("ts", "cpu", "load").collect()
    rows = []
    if reports.height:
        from schedscope.analysis.cpus.depth_steps import STEPS, steps_of_cpus, together

        parts = {steps["cpu"][0]: steps for steps in steps_of_cpus(trace)}
        if reports["cpu"].has_nulls():
            parts[None] = together(trace, list(parts.values()))
        for (cpu,), part in sorted(
            reports.partition_by("cpu", as_dict=True).items(),
            key=lambda item: (item[0][0] is None, item[0][0]),
        ):
            steps = parts.get(cpu, pl.DataFrame(schema=STEPS))
            rows.append({"cpu": cpu, **_agreement(part.sort("ts"), steps, slack)})
    return pl.DataFrame(rows, schema=schema)


def _over_time(trace: Trace, by: str, every: str | int) -> pl.DataFrame:
    step = nanoseconds(every)
    if step <= 0:
        raise UsageError(f"every={every!r}", "a duration longer than 0 ns", "as in 10ms")
    cpus = online_cpus(trace) if by == "all" else recorded_cpus(trace)
    if (rows := trace.duration // step * len(cpus)) > MOST_ROWS:
        raise UsageError(f"every={every!r} gives {rows:,} rows", f"at most {MOST_ROWS:,}")
    found = pl.DataFrame(occupancy(trace).parts(cpus, by == "all", step))
    known = pl.col("dur") - pl.col("unknown")
    known = pl.when(known > 0).then(known)
    return found.select(
        "cpu",
        "ts",
        "dur",
        "unknown",
        waiting=pl.col("waiting") / known,
        depth=(pl.col("waiting") + pl.col("running")) / known,
        waiting_max=pl.col("waiting_max").cast(pl.Int32),
        depth_max=pl.col("depth_max").cast(pl.Int32),
        held=pl.col("waiting") + pl.col("waiting_unknown"),
    )


def _levels_held(trace: Trace, by: str) -> pl.DataFrame:
    """One row per CPU and pair of `waiting` and `running`: how long held, `ts` when first."""
    begin, end = trace.window
    if begin == end:
        return pl.DataFrame(schema={"cpu": pl.UInt16, "ts": pl.Int64})
    numbers = online_cpus(trace) if by == "all" else recorded_cpus(trace)
    return pl.DataFrame(occupancy(trace).levels(numbers, by == "all"))


def _check_length(trace: Trace, cpus: Collection[int] | None) -> None:
    """Raises `UsageError` where the steps would be too many to hold."""
    from schedscope.analysis.cpus.depth_steps import of_cpus

    if trace.states.select(pl.len()).collect().item() <= MOST_INTERVALS:
        return
    number = of_cpus(trace.states, cpus).select(pl.len()).collect(engine="streaming").item()
    if number > MOST_INTERVALS:
        raise UsageError(
            f"steps of {number:,} intervals of running and waiting",
            f"at most {MOST_INTERVALS:,}",
            "choose some CPUs or a part of the time, or means by buckets of time (every)",
        )


def _summary(
    pairs: pl.DataFrame, running: bool, shares: list[Fraction], ncpu: int, doubt: Anywhere
) -> dict[str, Any]:
    cpu = pairs["cpu"][0]
    depth = "depth" if running else "waiting"
    unknown = pairs.filter(pl.col("running").is_null())
    pairs = pairs.filter(pl.col("running").is_not_null()).with_columns(
        depth=pl.col("waiting") + pl.col("running")
    )
    levels = (
        pairs.group_by(pl.col(depth).alias("level").cast(pl.Int64))
        .agg(pl.col("dur").sum(), pl.col("ts").min())
        .sort("level")
    )
    time = int(levels["dur"].sum())
    until = levels["dur"].cum_sum()
    held = (pl.col("waiting").cast(pl.Int64) * pl.col("dur")).sum()
    overload = int(pairs.filter(pl.col("depth") > ncpu)["dur"].sum())
    row: dict[str, Any] = {
        "cpu": cpu,
        "observed": time,
        "unknown": int(unknown["dur"].sum()),
        "overload": overload,
        "waiting": pairs.select(held).item(),
        "waiting_unknown": unknown.select(held).item(),
    }
    row["overload_high"] = min(time, overload + doubt.time)
    if time:
        depths = int((levels["level"] * levels["dur"]).sum())
        row["mean"], row["mean_high"] = depths / time, (depths + doubt.threads) / time
        row["max"], row["ts_max"] = levels["level"][-1], levels["ts"][-1]
        row["max_high"] = row["max"] + doubt.most
        row["overload_frac"] = overload / time
        row["overload_frac_high"] = row["overload_high"] / time
        for share in shares:
            name = column_name(share)
            # Quantiles over nanoseconds, each with its depth; doubtful ones may have any higher
            # depth.
            at = rank(time, share)
            row[name] = levels["level"][int((until <= at).sum())]
            beyond = at + doubt.time
            row[f"{name}_high"] = (
                levels["level"][int((until <= beyond).sum())] if beyond < time else row["max_high"]
            )
    return row


def _counts(trace: Trace, by: str) -> pl.DataFrame:
    """The ledger's counts of waits that were last on each queue."""
    queue = pl.coalesce("queue_cpu", "cpu").cast(pl.UInt16)
    counts = [
        ledger.group_by((pl.lit(None, dtype=pl.UInt16) if by == "all" else queue).alias("cpu"))
        .agg(**{name: many.cast(pl.UInt32) for name, many in COUNTS.items()})
        .collect()
        for ledger in in_batches(trace.waits)
    ]
    return pl.concat(counts).group_by("cpu").agg(pl.all().sum())


def _agreement(reports: pl.DataFrame, steps: pl.DataFrame, tolerance: int) -> dict[str, Any]:
    """Each report compared with our depth at its time, and around it."""
    ours = steps.select("ts", "depth", until=pl.col("ts") + pl.col("dur"))
    both = reports.select("ts", "load").join_asof(ours, on="ts")
    # The last step ends with the window; before the first there is none.
    known = both.filter(pl.col("depth").is_not_null() & (pl.col("ts") < pl.col("until")))
    apart = known["load"].cast(pl.Int64) - known["depth"]
    agree, near = (_said(known, ours, slack) for slack in (0, tolerance))
    return {
        "n": known.height,
        "n_excluded": reports.height - known.height,
        "agree": agree,
        "agree_frac": agree / known.height if known.height else None,
        "near": near,
        "near_frac": near / known.height if known.height else None,
        "mean_difference": apart.mean(),
        "max_difference": apart.abs().max(),
    }


def _said(reports: pl.DataFrame, ours: pl.DataFrame, slack: int) -> int:
    """How many reports say a depth that we had within `slack` of them."""
    # The last step of that depth to begin in time: none before it ended later.
    found = reports.select("load", latest=pl.col("ts") + slack).join_asof(
        ours.select("ts", "until", load="depth"),
        left_on="latest",
        right_on="ts",
        by="load",
        check_sortedness=False,  # both are; with `by` it cannot be checked
    )
    return int((found["until"] >= found["latest"] - 2 * slack).sum())
