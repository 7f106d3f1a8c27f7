"""What did the CPUs do with their time?

One line per CPU: busy, idle and unknown time, context switches per second, and the share
of involuntary switches. Where the trace does not distinguish preemptions from yields,
that share is a range.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import polars as pl

from schedscope.analysis.asking.by import check
from schedscope.analysis.asking.command import Command
from schedscope.analysis.asking.needs import needs
from schedscope.analysis.cpus.run_sums import run_sums
from schedscope.analysis.cpus.topology import recorded_cpus

if TYPE_CHECKING:
    from schedscope.store.trace import Trace

_SUMS = ("busy", "idle", "switches", "n_voluntary", "n_involuntary", "n_ambiguous")
_IRQS = ("irq_hard", "irq_soft")


COMMAND = Command(
    heading="how well was the machine used?",
    help="busy and idle time of the CPUs, context switches",
    example="""\
  schedscope efficiency web.capture
  schedscope efficiency web.capture --by all --format json
""",
    page="docs/definitions/efficiency.md",
)


@needs("switches")
def efficiency(trace: Trace, *, by: Literal["cpu", "all"] = "cpu") -> pl.DataFrame:
    """One row per CPU: its time, its context switches, and which of them were forced.

    * `busy`, `idle`, `unknown`: time in which a thread ran, in which none ran, and for which the
      trace does not show either (ns); they add up to the window;
    * `busy_frac`: `busy` as a share of `busy + idle`; null if nothing is known;
    * `switches`: context switches recorded; `switches_hz`: per second of `busy + idle`;
    * `n_voluntary`: times that a thread gave up the CPU: to sleep, to wait for something, to exit,
      or by a yield that the source reports;
    * `n_involuntary`: times that it was preempted, where the source says so;
    * `n_ambiguous`: times that it left the CPU while it still wanted it and the source does not say
      why (Linux's plain R without recorded yields), or that its state is not known;
    * `involuntary_frac_min`, `involuntary_frac_max`: the share of involuntary ones among all three,
      if none and if all of the ambiguous ones were involuntary; equal if nothing is ambiguous;
    * `irq_hard`, `irq_soft`: time in handlers of interrupts and in softirqs (ns), included in the
      times above, whichever thread was interrupted; null where the trace has no interrupts.

    `by="all"`: one row, with a null `cpu`, for the sum over all CPUs; `switches_hz` is then the
    rate of all CPUs together.

    Definition: docs/definitions/efficiency.md. Raises `UsageError` for another `by`.

    >>> from schedscope import Trace
    >>> states = pl.DataFrame({
    ...     "ts": [0, 60, 70],
    ...     "dur": [60, 10, 20],
    ...     "utid": [1, 0, 2],
    ...     "state": ["running", "running", "running"],
    ...     "cpu": [0, 0, 0],
    ... })
    >>> trace = Trace.from_tables({"states": states}, {"ncpu": 1, "window": [0, 100]})
    >>> efficiency(trace).select("cpu", "busy", "idle", "unknown", "busy_frac")
    shape: (1, 5)
    ┌─────┬──────┬──────┬─────────┬───────────┐
    │ cpu ┆ busy ┆ idle ┆ unknown ┆ busy_frac │
    │ --- ┆ ---  ┆ ---  ┆ ---     ┆ ---       │
    │ u16 ┆ i64  ┆ i64  ┆ i64     ┆ f64       │
    ╞═════╪══════╪══════╪═════════╪═══════════╡
    │ 0   ┆ 80   ┆ 10   ┆ 10      ┆ 0.888889  │
    └─────┴──────┴──────┴─────────┴───────────┘
    """
    check(by, ["cpu", "all"])
    begin, end = trace.window
    found = _times(trace).join(_switches(trace), on="cpu", how="full", coalesce=True)
    every = pl.DataFrame({"cpu": recorded_cpus(trace)}, schema={"cpu": pl.UInt16}).lazy()
    irqs = trace.irqs.select(pl.len()).collect().item() > 0
    frame = (
        every.join(found, on="cpu", how="full", coalesce=True)
        .join(_irq_times(trace), on="cpu", how="left")
        .with_columns(pl.col(_SUMS).fill_null(0))
        .with_columns(pl.col(_IRQS).fill_null(0) if irqs else pl.col(_IRQS))
        .with_columns(unknown=(end - begin) - pl.col("busy") - pl.col("idle"))
        .sort("cpu")
        .collect()
    )
    known = pl.col("busy") + pl.col("idle")
    lanes = 1
    if by == "all":
        # Null, not 0, where nothing was recorded.
        whole = [pl.col(name).sum() if irqs else pl.col(name).first() for name in _IRQS]
        lanes = frame.height
        frame = frame.select(
            pl.lit(None, dtype=pl.UInt16).alias("cpu"), pl.col(*_SUMS, "unknown").sum(), *whole
        )
    kinds = ("n_voluntary", "n_involuntary", "n_ambiguous")
    outs = pl.sum_horizontal(kinds)
    forced, untold = pl.col("n_involuntary"), pl.col("n_ambiguous")
    return frame.select(
        "cpu",
        "busy",
        "idle",
        "unknown",
        busy_frac=pl.when(known > 0).then(pl.col("busy") / known),
        switches=pl.col("switches"),
        switches_hz=pl.when(known > 0).then(pl.col("switches") * 1e9 * lanes / known),
        **{name: pl.col(name) for name in kinds},
        involuntary_frac_min=pl.when(outs > 0).then(forced / outs),
        involuntary_frac_max=pl.when(outs > 0).then((forced + untold) / outs),
        irq_hard=pl.col("irq_hard"),
        irq_soft=pl.col("irq_soft"),
    )


def _times(trace: Trace) -> pl.LazyFrame:
    held, idle = pl.col("running"), pl.col("utid") < trace.ncpu
    return (
        run_sums(trace)
        .lazy()
        .filter(pl.col("cpu").is_not_null())
        .group_by("cpu")
        .agg(busy=held.filter(~idle).sum(), idle=held.filter(idle).sum())
    )


def _switches(trace: Trace) -> pl.LazyFrame:
    state, forced = pl.col("prev_state"), pl.col("preempted")
    thread = pl.col("prev_utid") >= trace.ncpu
    wants = state == "runnable"
    untold = thread & ((wants & forced.is_null()) | (state == "unknown") | (state == "running"))
    preempted = thread & wants & forced.fill_null(False)
    return (
        trace.switches.select(
            pl.col("cpu").cast(pl.UInt16),
            n_involuntary=preempted,
            n_ambiguous=untold,
            n_voluntary=thread & ~preempted & ~untold,
        )
        .group_by("cpu")
        .agg(
            pl.len().cast(pl.Int64).alias("switches"),
            pl.col("n_voluntary", "n_involuntary", "n_ambiguous").sum().cast(pl.Int64),
        )
    )


def _irq_times(trace: Trace) -> pl.LazyFrame:
    begin, end = trace.window
    held = (
        (pl.col("ts") + pl.col("dur")).clip(upper_bound=end) - pl.col("ts").clip(lower_bound=begin)
    ).clip(lower_bound=0)
    return (
        trace.irqs.with_columns(held=held)
        .group_by("cpu")
        .agg(
            irq_hard=pl.col("held").filter(pl.col("kind") == "hard").sum(),
            irq_soft=pl.col("held").filter(pl.col("kind") == "soft").sum(),
        )
    )
