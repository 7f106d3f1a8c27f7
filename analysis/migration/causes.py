"""What decided that a thread moved to another CPU, and what did the kernel itself report?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from schedscope.analysis.asking.needs import needs
from schedscope.analysis.cpus.topology import cpu_list
from schedscope.store.native_tables import coded

if TYPE_CHECKING:
    from schedscope.store.trace import Trace

CAUSE = pl.Enum(["wake", "balance", "fork", "exec", "affinity", "unknown"])

_COUNTS = (
    *("n", "n_reported", "n_fork", "n_silent", "n_events"),
    *("n_repeated", "n_returned", "n_open", "n_early", "n_idle", "n_elsewhere"),
    "n_unseen",
)
_REPORT = ("ts", "utid", "to_cpu")


def causes(trace: Trace, moved: pl.DataFrame) -> pl.DataFrame:
    """`moved` with `cause`, and `arrived`: when the thread got to the queue it then ran from.

    Needs the ledger's columns of the wait, `waiting` being its cause, and `new`:
    the first run of a thread that was seen to be made.
    """
    moved = _last_report(trace, moved)
    enqueued, report = pl.col("ts_enqueued"), pl.col("report_ts")
    # A wakeup chose the CPU on which the thread was enqueued; a later move is a balancer's. Without
    # a queue's name (4BSD's shared one) any free CPU takes the thread, also later.
    later = (report > enqueued) | pl.col("queue_cpu").ne_missing(pl.col("to_cpu"))
    elsewhere = (report > enqueued) | (pl.col("queue_cpu") != pl.col("to_cpu"))
    woken = (
        pl.when(enqueued.is_not_null())
        .then(pl.when(later.fill_null(False)).then(pl.lit("balance")).otherwise(pl.lit("wake")))
        .when(report.is_not_null())
        .then(pl.when("in_wakeup").then(pl.lit("wake")).otherwise(pl.lit("balance")))
        .when(pl.col("ts_ready").is_not_null() & (pl.col("queue_cpu") == pl.col("to_cpu")))
        .then(pl.lit("wake"))
        .otherwise(pl.lit("unknown"))
    )
    pushed = pl.col("waiting").is_in(["preempt", "yield"])
    cause = (
        pl.when(pl.col("waiting") == "unknown")
        .then(pl.lit("unknown"))
        .when("new")
        .then(pl.when(elsewhere.fill_null(False)).then(pl.lit("balance")).otherwise(pl.lit("fork")))
        .when("forbidden")
        .then(pl.lit("affinity"))
        .when("exec")
        .then(pl.lit("exec"))
        .when(pushed)
        .then(pl.lit("balance"))
        .otherwise(woken)
    )
    moved = _forbidden(trace, _exec(trace, _in_wakeup(trace, moved)))
    moved = moved.with_columns(cause.cast(CAUSE).alias("cause"))
    # If it moved after it was enqueued, only the report has the time; else it moved at the wakeup.
    # A thread that was pushed off its CPU was enqueued there.
    there = pl.when(pushed | later.fill_null(False)).then(report).otherwise(enqueued)
    known = pl.col("waiting") != "unknown"
    arrived = pl.when(known).then(
        pl.coalesce(
            there, pl.when(~pushed & enqueued.is_null()).then(pl.coalesce(report, "ts_ready"))
        )
    )
    return moved.with_columns(arrived=arrived)


@needs("switches")
def migration_agreement(trace: Trace) -> pl.DataFrame:
    """One row: our migrations compared with the moves that the kernel itself reported.

    Linux reports `sched_migrate_task` when it assigns a runnable or waking thread to another CPU;
    a migration of ours is a run on another CPU. Each report belongs to the thread's next run.

    * `n`: our migrations: `n_reported` with one or more reports, `n_fork` new threads placed
      on another CPU than their parent's (Linux reports nothing then), and `n_silent`, the rest:
      placed without a report, or the report was lost;
    * `n_events`: rows of `trace.migrations`: `n_reported`; `n_repeated`, second and further moves
      before a run; `n_returned`, moves after which the thread ran on the CPU it came from;
      `n_open`, moves after which it was not seen to run; `n_early`, moves before a run whose
      predecessor is not known, or is one of `n_unseen`; `n_idle`, of idle threads;
    * `n_elsewhere`: runs that began on another CPU than the last report before them says; 0 unless
      reports are missing;
    * `n_unseen`: threads seen to leave a CPU that is not the one where they ran before, although
      their switch-in there was not seen. They migrated, too, but the switch was not recorded, so
      neither the ledger nor `n` includes these runs. It is 0 unless switches are missing.

    `n = n_reported + n_fork + n_silent` and
    `n_events = n_reported + n_repeated + n_returned + n_open + n_early + n_idle`, always.
    """
    from schedscope import _native

    columns = ("utid", "cause", "ts_run", "prev_cpu", "cpu", "waker_utid", "waker_cpu")
    waits, reports = coded(trace, "waits", *columns), coded(trace, "migrations", *_REPORT)
    found = _native.migration_agreement(waits, reports, trace.ncpu)
    if found is None:
        waits = coded(trace, "waits", *columns, rows=trace.waits.sort("ts_run"))
        reports = coded(trace, "migrations", *_REPORT, rows=trace.migrations.sort("ts"))
        found = _native.migration_agreement(waits, reports, trace.ncpu)
    assert found is not None
    return pl.DataFrame([found], schema=dict.fromkeys(_COUNTS, pl.UInt32))


def _last_report(trace: Trace, moved: pl.DataFrame) -> pl.DataFrame:
    """The kernel's last report of each move, if it came during the wait."""
    # A wakeup may be raised, and the thread moved, before it has left its CPU.
    since = pl.coalesce("ts_waking", "ts_ready")
    first, last = moved.select(since=since.min(), ts=pl.col("ts").max()).row(0)
    told = trace.migrations if first is None else trace.part("migrations", first, last)
    reports = (
        told.filter(pl.col("utid") >= trace.ncpu)
        .filter(pl.col("ts").is_between(first, last))
        .select(
            "ts", "utid", report_ts="ts",
            report_cpu=pl.col("cpu").cast(pl.UInt16), report_to=pl.col("to_cpu").cast(pl.UInt16),
        )
        .sort("ts")
        .collect()
    )  # fmt: skip
    both = moved.sort("ts", "ts_ready").join_asof(
        reports, on="ts", by="utid", check_sortedness=False
    )
    during = (pl.col("report_ts") >= since) & (pl.col("report_to") == pl.col("to_cpu"))
    return both.with_columns(pl.when(during).then(pl.col("report_ts", "report_cpu"))).drop(
        "report_to"
    )


def _in_wakeup(trace: Trace, moved: pl.DataFrame) -> pl.DataFrame:
    """Is the report part of the wakeup? Asked only where the enqueue was not recorded.

    The waker chooses a CPU at once and does not switch in between.
    """
    asked = (
        pl.col("ts_enqueued").is_null()
        & pl.col("report_ts").is_not_null()
        & (pl.col("report_cpu") == pl.col("waker_cpu"))
    )
    moved = moved.with_row_index("row")
    rows = moved.filter(asked).select("row", "ts_waking", "report_ts", cpu="report_cpu")
    switched = pl.Series("row", [], dtype=pl.UInt32)
    if rows.height:
        # Waits that began before the first wakeup belong to no wakeup.
        first, last = rows.select(pl.col("ts_waking").min(), pl.col("report_ts").max()).row(0)
        within = pl.col("ts").is_between(first, last)
        begun = (
            trace.part("states", first, last)
            .filter(pl.col("state") == "running", within)
            .select(pl.col("cpu").cast(pl.UInt16), "ts", begun="ts")
            .sort("ts")
            .collect()
        )
        last = rows.sort("report_ts").join_asof(
            begun, left_on="report_ts", right_on="ts", by="cpu", check_sortedness=False
        )
        switched = last.filter(pl.col("begun") > pl.col("ts_waking"))["row"]
    return moved.with_columns(
        in_wakeup=asked.fill_null(False) & ~pl.col("row").is_in(switched.implode())
    ).drop("row")


def _exec(trace: Trace, moved: pl.DataFrame) -> pl.DataFrame:
    """Is the move part of an exec? The thread is moved, then renamed before it waits again.

    Linux looks for a CPU while exec opens the program (`sched_exec`), and lets the CPU's
    stopper thread, so on the CPU that is left, preempt and move the caller.
    """
    asked = pl.col("waiting").is_in(["preempt", "yield"]) & (
        pl.col("report_cpu") == pl.col("from_cpu")
    )
    moved = moved.with_row_index("row")
    named = pl.Series("row", [], dtype=pl.UInt32)
    renames = trace.renames.select("ts", "utid", renamed="ts").sort("ts").collect()
    rows = moved.filter(asked).select("row", "utid", "ts").join(renames, on="utid", how="semi")
    if rows.height:
        first, last = rows.select(first=pl.col("ts").min(), last=pl.col("ts").max()).row(0)
        runs = (
            trace.part("states", first, last)
            .filter(
                pl.col("state") == "running",
                pl.col("utid").is_in(rows["utid"].unique().implode()),
            )
            .select("utid", "ts", until=pl.col("ts") + pl.col("dur"))
            .collect()
        )
        both = rows.join(runs, on=["utid", "ts"]).sort("ts")
        both = both.join_asof(
            renames, on="ts", by="utid", strategy="forward", check_sortedness=False
        )
        named = both.filter(pl.col("renamed") <= pl.col("until"))["row"]
    return moved.with_columns(pl.col("row").is_in(named.implode()).alias("exec")).drop("row")


def _forbidden(trace: Trace, moved: pl.DataFrame) -> pl.DataFrame:
    """Does the thread's recorded mask leave out the CPU that it left?"""
    masks = trace.threads.select("utid", "affinity").drop_nulls().collect()
    allowed = {text: cpu_list(text) for text in masks["affinity"].unique()}
    rows = [
        (text, cpu, True)
        for text, cpus in allowed.items()
        for cpu in set(moved["from_cpu"].unique().to_list()) - set(cpus)
    ]
    schema = {"affinity": pl.String, "from_cpu": pl.UInt16, "forbidden": pl.Boolean}
    outside = pl.DataFrame(rows, schema=schema, orient="row")
    return (
        moved.join(masks, on="utid", how="left", maintain_order="left")
        .join(outside, on=["affinity", "from_cpu"], how="left", maintain_order="left")
        .with_columns(pl.col("forbidden").fill_null(False))
        .drop("affinity")
    )
