"""The counter program under `capture`: how much of the machine its processes got, and wasted.

    for n in 2 3 4 5; do collectors/capture -o counter-$n -- ./counter $n 0.15; done
    python benchmarks/workloads/captured.py counter-*.capture

One CSV row per capture, over the time from the first counting process's start
to the last one's end: `n`; `wall`, that time in units of the CPU time of one
process; `others`, the share of the CPUs that everything else took; `idle`, the
share that nobody used; `ratio`, the CPU time that was left to the processes
over what they used (1: nothing lost; what others took is taken out, so a busy
host does not matter); `migrations` of the processes.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import polars as pl

import schedscope as ss

COLUMNS = ("n", "wall", "others", "idle", "ratio", "migrations")


def row(trace: ss.Trace, n: int, comm: str = "counter") -> dict[str, float]:
    """The columns above for the `n` threads named `comm`... that ran most."""
    named = trace.threads.filter(pl.col("comm").cast(pl.String).str.starts_with(comm))
    runs = (
        trace.states.filter(pl.col("state") == "running")
        .filter(pl.col("utid") >= trace.ncpu)
        .select("utid", "dur", begin="ts", end=pl.col("ts") + pl.col("dur"))
        .collect()
    )
    used = (
        runs.join(named.select("utid").collect(), on="utid")
        .group_by("utid")
        .agg(pl.sum("dur"), pl.min("begin"), pl.max("end"))
        .sort("dur")
        .tail(n)  # The parent and the calibration ran less.
    )
    first, last = used["begin"].min(), used["end"].max()
    within = runs.filter((pl.col("end") > first) & (pl.col("begin") < last)).with_columns(
        dur=pl.col("end").clip(first, last) - pl.col("begin").clip(first, last)
    )
    mine = pl.col("utid").is_in(used["utid"].to_list())
    own, others = (within.filter(which)["dur"].sum() for which in (mine, ~mine))
    wall = last - first  # type: ignore[operator]
    capacity = wall * trace.ncpu
    moved = trace.migrations.filter(mine & pl.col("ts").is_between(first, last))
    return {
        "n": n,
        "wall": wall * n / own,
        "others": others / capacity,
        "idle": 1 - (own + others) / capacity,
        "ratio": (capacity - others) / own,
        "migrations": moved.select(pl.len()).collect().item(),
    }


def main() -> None:
    print(",".join(COLUMNS))
    paths = sorted(sys.argv[1:], key=lambda p: int(re.findall(r"\d+", Path(p).name)[-1]))
    for path in paths:
        n = int(re.findall(r"\d+", Path(path).name)[-1])
        found = row(ss.open(path), n)
        print(",".join(f"{found[c]:.4g}" for c in COLUMNS))


if __name__ == "__main__":
    main()
