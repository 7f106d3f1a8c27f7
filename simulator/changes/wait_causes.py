"""What waits consisted of in a recording and in its replay: the cause that a change affects.

A replay may wait as long as the recording for another reason; then it predicts nothing about
changing the real one. Where a change takes a quota away, the recording's own times without
throttling show what waits are without it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from schedscope.analysis.asking.memo import once
from schedscope.analysis.causes.throttling import throttling, within
from schedscope.analysis.sums.quantiles import quantile
from schedscope.analysis.wait_breakdown import BEHIND, wait_breakdown
from schedscope.simulator.changes.change import Changed
from schedscope.simulator.runs.replay import Replay
from schedscope.simulator.workloads.groups import PERIOD
from schedscope.store.trace import Trace

QUOTA, THREADS = "throttled", "behind"
"""Causes of waits: a quota that was used up, and other threads."""

LITTLE = 0.1
"""A smaller share of the waiting counts as this share."""

ENOUGH = 30
"""So many waits without a cause show what waits are without it."""

Shares = dict[str, dict[str, int | None]]
"""By service: `known` waiting, and what of it has which cause, ns; None where that is not known."""


def touched(way: Replay, wanted: Changed) -> str:
    """The cause of waits that the change is about."""
    before, after = (_quotas(one.groups) for one in (way.workload, wanted.workload))
    return QUOTA if any(after.get(path) != quota for path, quota in before.items()) else THREADS


def lifted(way: Replay, wanted: Changed) -> list[str]:
    """The control groups that have a quota in the recording, and none with the change."""
    after = _quotas(wanted.workload.groups)
    return [path for path in _quotas(way.workload.groups) if path not in after]


def _quotas(groups: pl.DataFrame) -> dict[str, tuple[int, int]]:
    limited = groups.drop_nulls("quota").select("path", "quota", "period").iter_rows()
    return {path: (quota, period) for path, quota, period in limited}


def shares(trace: Trace, named: pl.DataFrame) -> Shares:
    """What the waits of each service consisted of; `named` has the `service` of each `utid`."""
    parts = wait_breakdown(trace, by="utid").join(named.drop_nulls(), on="utid")
    by_idling = parts.filter(pl.col("evidence") == "idle CPU")["service"].unique()
    sums = parts.group_by("service").agg(
        known=(pl.col("wait") - pl.col("unknown")).sum(),
        behind=pl.sum_horizontal(BEHIND).sum(),
        # Lower bounds cannot be compared.
        throttled=pl.when(pl.col("throttled").is_not_null().all()).then(pl.col("throttled").sum()),
    )
    unclear = pl.col("service").is_in(by_idling.implode())
    sums = sums.with_columns(throttled=pl.when(~unclear).then("throttled"))
    return {str(row.pop("service")): row for row in sums.to_dicts()}


def apart(
    recorded: Mapping[str, int | None], replayed: Mapping[str, int | None], cause: str
) -> tuple[float, float, float] | None:
    """The cause's share of the waiting in the recording and in the replay, and by which factor the
    two differ; None where it is not known.

    For a quota it is also the factor between the remaining waits.
    """
    times = [(one.get(cause), one.get("known")) for one in (recorded, replayed)]
    if any(part is None for part, _ in times):
        return None
    first, second = (part / whole if whole else 0.0 for part, whole in times)  # type: ignore[operator]
    factor = _factor(first, second)
    if cause == QUOTA:
        factor = max(factor, _factor(1 - first, 1 - second))
    return first, second, factor


def _factor(first: float, second: float) -> float:
    low, high = sorted((max(first, LITTLE), max(second, LITTLE)))
    return high / low


def without_quota(
    trace: Trace, named: pl.DataFrame, groups: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """For each service in `groups`, its waits at times when their quotas throttled no thread: `n`,
    `mean` and `p99`, ns; only services with `ENOUGH` of them.

    Times are periods of the quota, of which neither the one before nor the one after held a thread
    back.
    """
    held = once(throttling, trace)
    stretches = pl.concat(
        [held.by_quota[one] for one in groups if one in held.by_quota] or [held.stretches.clear()]
    )
    if stretches.is_empty():
        return {}
    told = {str(one["cgroup"]): one for one in trace.info.get("groups") or []}
    period = max(int(told[one].get("period") or PERIOD) for one in groups if one in told)
    begin = trace.window[0]
    bad: set[int] = set()
    for ts, dur in stretches.select("ts", "dur").unique().iter_rows():
        bad.update(range((ts - begin) // period - 1, (ts + dur - begin) // period + 2))
    threads = trace.threads.select("utid", "cgroup").drop_nulls().collect()
    inside = [u for u, path in threads.iter_rows() if any(within(path, one) for one in groups)]
    waits = (
        trace.waits.filter(
            (pl.col("censored") == "none") & pl.col("utid").is_in(inside) & (pl.col("wait") >= 0)
        )
        .select("utid", "wait", nth=(pl.col("ts_ready") - begin) // period)
        .filter(~pl.col("nth").is_in(sorted(bad)))
        .collect()
        .join(named.drop_nulls(), on="utid")
    )
    return {
        str(service): {
            "n": rows.height,
            "mean": round(rows["wait"].mean()),  # type: ignore[arg-type]
            "p99": quantile(rows["wait"].sort().to_numpy(), 0.99),
        }
        for (service,), rows in waits.group_by("service")
        if rows.height >= ENOUGH
    }
