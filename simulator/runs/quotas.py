"""Quotas of a simulated trace: when periods ended, and how often a quota held a group back.

As on a real host (`schedscope.analysis.causes.throttling`) the times in which a group was held back
follow from the refills of its quota and the time that its threads ran.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl

from schedscope.analysis.causes.throttling import throttling
from schedscope.parsers.files import read_parquet
from schedscope.simulator.workloads.groups import keeps_quotas
from schedscope.simulator.workloads.workload import Workload
from schedscope.store.trace import Trace

_USED = ("states", "threads")


def add_quotas(
    workload: Workload,
    tables: dict[str, pl.DataFrame],
    about: dict[str, Any],
    folder: Path | None = None,
) -> None:
    """Completes a simulated trace: its refills, and the counts of `info["groups"]`.

    The tables are in `folder`, if there is one.
    """
    scheduler: Mapping[str, Any] = about["scheduler"]
    limited = workload.groups.drop_nulls("quota")
    if limited.is_empty() or not keeps_quotas(scheduler["name"], scheduler.get("tunables") or {}):
        return
    begin, end = about["window"]
    refills = pl.concat(
        pl.select(
            ts=pl.int_range(begin + phase % period, end, period, dtype=pl.Int64),
            cpu=pl.lit(0, pl.UInt16),
            timer=pl.lit(timer, pl.UInt32),
        )
        for timer, (period, phase) in enumerate(limited.select("period", "phase").iter_rows())
    ).sort("ts", "timer")
    about["rows"]["quota_refills"] = refills.height
    for row in about["groups"]:
        if row.get("quota"):
            # Treat each group as throttled: the accounting then finds whether it was, and for how
            # long.
            row["n_periods"] = row["n_throttled"] = (end - begin) // row["period"]
    if folder is None:
        tables["quota_refills"] = refills
        used = {name: tables[name] for name in (*_USED, "quota_refills")}
    else:
        refills.write_parquet(folder / "quota_refills.parquet")
        used = {name: read_parquet(folder / f"{name}.parquet") for name in _USED}
        used["quota_refills"] = refills
    held = throttling(Trace.from_tables(used, about)).by_quota
    for row in about["groups"]:
        if row.get("quota"):
            found = held.get(row["cgroup"])
            rows = (
                pl.DataFrame(schema={"ts": pl.Int64, "dur": pl.Int64})
                if found is None
                else found.filter("likely")
            )
            rows = rows.select("ts", "dur", *(["cpu"] if "cpu" in rows.columns else [])).unique()
            periods = (rows["ts"] - begin - (row["phase"] or 0)) // row["period"]
            row["n_throttled"] = periods.n_unique()
            row["throttled"] = int(rows["dur"].sum())
