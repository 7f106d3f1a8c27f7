"""Classes and weights of threads, as levels for native code: what a share of a CPU goes by."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    from schedscope.store.trace import Trace

LINUX_WEIGHTS = (
    *(88761, 71755, 56483, 46273, 36291, 29154, 23254, 18705, 14949, 11916),  # nice -20 to -11
    *(9548, 7620, 6100, 4904, 3906, 3121, 2501, 1991, 1586, 1277),  # nice -10 to -1
    *(1024, 820, 655, 526, 423, 335, 272, 215, 172, 137),  # nice 0 to 9
    *(110, 87, 70, 56, 45, 36, 29, 23, 18, 15),  # nice 10 to 19
)
"""Weights of prio 100 to 139 (nice -20 to 19): `sched_prio_to_weight` in kernel/sched/core.c of
Linux 6.12; 2.6.32 has the same values."""

LINUX_IDLE_WEIGHT = 3
"""SCHED_IDLE: `WEIGHT_IDLEPRIO` in kernel/sched/sched.h of Linux 6.12."""

EQUAL_WEIGHT = 1024
"""What a thread weighs where nothing better is known: as much as any other of its class."""

BASIS = pl.Enum(["kernel table", "equal"])
"""Where a weight is from: Linux's table, or the assumption that a class shares equally."""

FAIR_PRIOS = (100, 139)
TABLE = [*LINUX_WEIGHTS, LINUX_IDLE_WEIGHT, EQUAL_WEIGHT]
"""Weight by level: 0 to 39 are prio 100 to 139."""
EQUAL_LEVEL = 41


class Levels:
    """What is known of the threads' classes and priorities, for native code to find weights by."""

    def __init__(self, trace: Trace) -> None:
        """Read the table of threads."""
        threads = trace.threads.select(
            pl.col("utid").cast(pl.UInt32),
            pl.col("prio").cast(pl.Int16),
            sched_class=pl.col("sched_class").cast(pl.String).fill_null("unknown"),
        ).collect()
        self.linux = linux_priorities(trace)
        names = threads["sched_class"]
        if self.linux:
            # One run queue, one sum of weights: SCHED_BATCH and SCHED_IDLE share with the rest.
            names = names.replace(["batch", "idle"], ["fair", "fair"])
        self.classes: list[str] = sorted({*names.unique(), "fair", "realtime", "unknown"})
        code = {name: number for number, name in enumerate(self.classes)}
        self.fair, self.realtime = code["fair"], code["realtime"]
        size = int(threads["utid"].max() or 0) + 2  # type: ignore[arg-type]
        known = threads.select(
            "utid",
            "prio",
            names.replace_strict(code, return_dtype=pl.UInt8).alias("class"),
            idle=(pl.col("sched_class") == "idle").cast(pl.UInt8),
        )
        every = pl.int_range(0, size, dtype=pl.UInt32, eager=True).alias("utid").to_frame()
        self.known = every.join(known, on="utid", how="left", maintain_order="left").select(
            pl.col("class").fill_null(code["unknown"]), "prio", pl.col("idle").fill_null(0)
        )
        """By utid, and in a last row for all others: `class` (its number), `prio`, `idle`."""

    def to_native(self) -> tuple[pl.DataFrame, list[int], bool, int, int]:
        """All that native code needs to find class and level itself."""
        return self.known, TABLE, self.linux, self.fair, self.realtime


def linux_priorities(trace: Trace) -> bool:
    """Are the trace's priority numbers those of Linux, 100 to 139 for nice -20 to 19?"""
    if trace.metadata("source", "format") == "simulation":
        # As the policy declared; some change the number, or use another scale.
        return bool(trace.metadata("scheduler", "priorities") == "linux")
    return str(trace.info.get("os") or "").lower() == "linux"
