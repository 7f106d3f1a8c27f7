"""Cut a trace in time: what lies across the cut is censored, not measured."""

from __future__ import annotations

from typing import Any

import polars as pl

from schedscope.store.losses import BROKEN_CHAINS, IS_BREAK

# Tables about the machine and its threads, of all times.
TIMELESS = ("threads", "cpus")


def rows(frame: pl.LazyFrame, name: str, begin: int, end: int, *, closed: bool) -> pl.LazyFrame:
    """What lies within `[begin, end)` of a table; with `closed` also what happened at the end."""
    if name in TIMELESS:
        return frame
    if name in _CUTS:
        return _CUTS[name](frame, begin, end)
    return (_waits if name == "waits" else _instants)(frame, begin, end, closed)


def _instants(frame: pl.LazyFrame, begin: int, end: int, closed: bool) -> pl.LazyFrame:
    return frame.filter(pl.col("ts") >= begin, pl.col("ts") < end + closed)


def _intervals(frame: pl.LazyFrame, begin: int, end: int) -> pl.LazyFrame:
    until = pl.col("ts") + pl.col("dur")
    return frame.filter(pl.col("ts") < end, until > begin).with_columns(
        ts=pl.max_horizontal("ts", begin),
        dur=pl.min_horizontal(until, end) - pl.max_horizontal("ts", begin),
    )


def _states(frame: pl.LazyFrame, begin: int, end: int) -> pl.LazyFrame:
    dtype = frame.collect_schema()["end"]
    beyond = pl.col("ts") + pl.col("dur") > end
    marked = frame.with_columns(
        end=pl.when(beyond).then(pl.lit("window", dtype=dtype)).otherwise("end")
    )
    return _intervals(marked, begin, end)


def _losses(frame: pl.LazyFrame, begin: int, end: int) -> pl.LazyFrame:
    # A loss may have no length: an overrun between two events of one instant.
    inside = pl.col("ts_begin") < end, pl.col("ts_end").fill_null(end) >= begin
    whole = (pl.col("ts_begin") >= begin) & (pl.col("ts_end") <= end).fill_null(value=False)
    return frame.filter(*inside).with_columns(
        pl.max_horizontal("ts_begin", begin).alias("ts_begin"),
        pl.min_horizontal("ts_end", end).alias("ts_end"),
        # A part of a loss has no count.
        pl.when(whole).then("count").alias("count"),
    )


def _waits(frame: pl.LazyFrame, begin: int, end: int, closed: bool) -> pl.LazyFrame:
    """As if only this window had been reconstructed."""
    columns = frame.collect_schema()
    ready, run = pl.col("ts_ready"), pl.col("ts_run")
    # How far it is known to have lasted; of those without any time, the step of the wakeup.
    last = pl.coalesce(run, ready + pl.col("wait"), "ts_enqueued", "ts_waking")
    inside = (pl.coalesce(ready, last) < end + closed) & pl.when(run.is_not_null()).then(
        run >= begin
    ).otherwise(last > begin)
    before = ready.is_null() | (ready < begin)
    beyond = last > end
    beyond |= (run >= end + closed).fill_null(value=False)  # a switch-in at the end is behind it
    cut = before | beyond
    # A wait without a start may have begun at most `wait_high` before its end.
    earliest = pl.coalesce(ready, run - pl.col("wait_high"))
    cut_at_begin = (earliest < begin).fill_null(value=False)
    late = pl.col("ts_enqueued") >= end + closed
    # A wait that may have gone on beyond the window has no upper bound.
    on = pl.coalesce(run, ready + pl.col("wait_high")) > end
    side = (
        pl.when(before & (beyond | run.is_null()))
        .then(pl.lit("both"))
        .when(before)
        .then(pl.lit("left"))
        .when(beyond)
        .then(pl.lit("right"))
        .otherwise(pl.col("censored").cast(pl.String))
        .cast(columns["censored"])
    )

    def unless(condition: pl.Expr, name: str) -> pl.Expr:
        return pl.when(~condition).then(pl.col(name))

    return frame.filter(inside.fill_null(True)).with_columns(
        ts_waking=unless(pl.col("ts_waking") < begin, "ts_waking"),
        ts_ready=unless(before, "ts_ready"),
        ts_enqueued=unless((pl.col("ts_enqueued") < begin) | late, "ts_enqueued"),
        ts_run=unless(beyond, "ts_run"),
        cpu=unless(beyond, "cpu"),
        placement=unless(before | late, "placement"),
        queue=unless(cut, "queue"),
        wait=pl.when(before).then(None).when(beyond).then(end - ready).otherwise("wait"),
        wait_high=unless(cut_at_begin | beyond | on.fill_null(value=False), "wait_high"),
        censored=side,
    )


_CUTS = {"states": _states, "irqs": _intervals, "losses": _losses}


def recounted(info: dict[str, Any], tables: dict[str, pl.LazyFrame], ncpu: int) -> dict[str, Any]:
    """`info` with what can be counted again in the window, and without what cannot."""
    begin, end = info["window"]
    kinds = ("switches", "wakeups", "migrations", "yields")
    idle = pl.col("utid") < ncpu
    counts = [tables[kind].group_by("cpu").len() for kind in kinds if kind != "yields"]
    running = (
        tables["states"]
        .filter(pl.col("state") == "running")
        .group_by("cpu")
        .agg(
            running=pl.col("dur").filter(~idle).sum(),
            idle=pl.col("dur").filter(idle).sum(),
        )
    )
    edges = (
        tables["switches"]
        .group_by("cpu")
        .agg(
            first_ts=pl.col("ts").min(),
            last_ts=pl.col("ts").max(),
            switches=pl.len(),
            ins=(pl.col("next_utid") >= ncpu).sum(),
        )
    )
    waits = tables["waits"].select(
        waits=pl.len(), right_censored=(pl.col("censored") == "right").sum()
    )

    breaks = tables["losses"].filter(IS_BREAK)
    breaks = breaks.select(BROKEN_CHAINS.sum().cast(pl.UInt32))
    *events, time, seen, ledger, broken = pl.collect_all([*counts, running, edges, waits, breaks])
    info["events"] = {
        kind: {str(cpu): n for cpu, n in frame.sort("cpu").iter_rows()}
        for kind, frame in zip(kinds, events, strict=False)
        if frame.height
    }
    if info.get("per_cpu") is not None:
        times = {row["cpu"]: row for row in time.iter_rows(named=True)}
        marks = {row["cpu"]: row for row in seen.iter_rows(named=True)}
        info["per_cpu"] = [
            _of_cpu(cpu["cpu"], end - begin, times.get(cpu["cpu"]), marks.get(cpu["cpu"]))
            for cpu in info["per_cpu"]
        ]
    if info.get("reconstruction") is not None:
        info["reconstruction"] = {
            **ledger.row(0, named=True),
            "switch_ins": int(seen["ins"].sum()),
            "chain_breaks": broken.item(),
        }
    return info


def _of_cpu(
    cpu: int, length: int, time: dict[str, int] | None, mark: dict[str, int] | None
) -> dict[str, int | None]:
    running, idle = (time["running"], time["idle"]) if time else (0, 0)
    return {
        "cpu": cpu,
        "running": running,
        "idle": idle,
        "unknown": length - running - idle,
        "switches": mark["switches"] if mark else 0,
        "first_ts": mark["first_ts"] if mark else None,
        "last_ts": mark["last_ts"] if mark else None,
    }
