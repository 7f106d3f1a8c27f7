"""Services of a trace, and the figures that `whatif` compares.

A service is a set of threads that answer a request together: those of one name, process, control
group, unit or container. The same figures describe prediction and reality (`whatif`,
`research/benchmarks/campaign.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from schedscope.analysis.comparison.matching import name_pattern
from schedscope.analysis.sums.quantiles import quantile
from schedscope.analysis.threads.of_threads import threads_with
from schedscope.errors import UsageError
from schedscope.store.trace import Trace

if TYPE_CHECKING:
    from schedscope.simulator.runs.replay import Replay

BY = ("comm", "name", "process_name", "cgroup", "service")
"""What a service may be; a `name` has `*` for its numbers, as `compare` groups threads."""


def check_by(by: str) -> None:
    """Raises `UsageError` unless services can be identified by this."""
    if not isinstance(by, str) or by not in BY:
        raise UsageError(f"by={by!r}", "what a service is", f"one of {', '.join(BY)}")


def services(trace: Trace, by: str) -> pl.DataFrame:
    """One row per thread of the trace: `utid`, and `service`, null where the trace has none.

    Raises `UsageError` if no thread has one.
    """
    check_by(by)
    column = "comm" if by == "name" else by
    known = threads_with(trace, [column]).select("utid", service=column).collect()
    if by == "name":
        known = known.with_columns(
            pl.col("service").map_elements(name_pattern, return_dtype=pl.String)
        )
    if known["service"].is_null().all():
        raise UsageError(
            f"{trace.name} has no {by} of any thread",
            "a trace that does",
            "group by comm, or record with `schedscope capture`",
        )
    return known


def replayed_services(way: Replay, by: str) -> pl.DataFrame:
    """One row per thread of the workload: `row`, `utid`, and `service`, null for none."""
    known = services(way.trace, by)
    rows = pl.DataFrame({"utid": way.utids}).with_row_index("row")
    unnamed = pl.when(pl.col("utid").is_not_null()).then(pl.lit("-"))
    return rows.join(known, on="utid", how="left", maintain_order="left").with_columns(
        service=pl.coalesce("service", unnamed)
    )


NOTHING: dict[str, Any] = {
    **dict.fromkeys(("alive", "cpu_time", "n_waits", "waiting"), 0),
    **dict.fromkeys(("wait_mean", "wait_p50", "wait_p99", "completion", "busy", "throughput")),
    **dict.fromkeys(("wait_p10", "wait_p30", "wait_p70", "wait_p90", "few")),
}
"""`few`: how much of the waiting a few waits are: 1 if all of it is one wait, 1/n if it is n equal
ones (the sum of the squares of their shares)."""


def figures(
    trace: Trace,
    named: pl.DataFrame,
    whole: Sequence[str] = (),
    window: int | None = None,
) -> dict[str, dict[str, Any]]:
    """The figures of each service, by name, those of `NOTHING`; times in ns.

    `named` has the `service` of each `utid`; threads of null are left out. Of services that are
    not `whole` only the first `window` ns count.
    """
    begin, end = trace.window
    end = end if window is None else min(end, begin + window)
    limits = (
        named.filter(pl.col("service").is_not_null())
        .with_columns(
            limit=pl.when(pl.col("service").is_in(list(whole)))
            .then(trace.window[1])
            .otherwise(end)
            .cast(pl.Int64)
        )
        .lazy()
    )
    dur = pl.min_horizontal("dur", pl.col("limit") - pl.col("ts")).clip(0)
    states = (
        trace.states.filter(pl.col("state").is_in(["running", "runnable"]))
        .join(limits, on="utid")
        .with_columns(dur=dur)
        .group_by("service")
        .agg(
            cpu_time=pl.col("dur").filter(pl.col("state") == "running").sum(),
            waiting=pl.col("dur").filter(pl.col("state") == "runnable").sum(),
            busy=_span(),
        )
    )
    waits = (
        trace.waits.filter(pl.col("censored") == "none")
        .join(limits, on="utid")
        .filter(pl.col("ts_run") <= pl.col("limit"))
        .group_by("service")
        .agg(pl.col("wait").drop_nulls().sort())
    )
    lives = trace.threads.join(limits, on="utid").select(
        "service", start=pl.col("start_ts").fill_null(begin), end=pl.col("exit_ts").fill_null(end)
    )
    alive = (
        pl.concat(
            [
                lives.select("service", at="start", more=pl.lit(1)),
                lives.select("service", at="end", more=pl.lit(-1)),
            ]
        )
        .sort("at", "more")
        .group_by("service")
        .agg(alive=pl.col("more").cum_sum().max())
    )
    ends = (
        trace.threads.join(limits, on="utid")
        .group_by("service")
        .agg(
            completion=pl.when(pl.col("exit_ts").is_not_null().all()).then(
                pl.col("exit_ts").max() - begin
            )
        )
    )
    found: dict[str, dict[str, Any]] = {}
    frames = pl.collect_all([states, waits, ends, alive])
    for frame in frames:
        for row in frame.iter_rows(named=True):
            one = found.setdefault(row.pop("service"), dict(NOTHING))
            if "wait" in row:
                row = _of_waits(pl.Series(row["wait"], dtype=pl.Int64).to_numpy())
            one.update(row)
    return found


def _of_waits(waits: np.ndarray[Any, Any]) -> dict[str, Any]:
    """The figures of these waits, shortest first."""
    if not len(waits):
        return {"n_waits": 0}
    total = int(waits.sum())
    levels = {f"wait_p{percent}": percent / 100 for percent in (10, 30, 50, 70, 90, 99)}
    return {
        "n_waits": len(waits),
        "wait_mean": round(total / len(waits)),
        **{name: quantile(waits, level) for name, level in levels.items()},
        "few": float(((waits / total) ** 2).sum()) if total else None,
    }


def _span() -> pl.Expr:
    """From when threads first ran to when they last did."""
    ran = (pl.col("state") == "running") & (pl.col("dur") > 0)
    return (pl.col("ts") + pl.col("dur")).filter(ran).max() - pl.col("ts").filter(ran).min()


def median_of(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """The median of each figure, null where half of the runs have none."""
    found: dict[str, Any] = {}
    for key in NOTHING:
        values = sorted(run[key] for run in runs if run[key] is not None)
        found[key] = values[len(values) // 2] if 2 * len(values) > len(runs) else None
    return found
