"""The programs here under `capture`: how much of the machine their processes got, and how much was
wasted.

    for n in 2 3 4 5; do collectors/capture -o counter-$n -- ./counter $n 0.15; done
    python research/benchmarks/workloads/captured.py counter-*.capture
    for n in 1 2 3 4; do collectors/capture -o loop-4194304-$n -- ./loop $n 4194304 200; done
    python research/benchmarks/workloads/captured.py loop-*.capture

The name of a capture gives the program, the working set where it has one, and the number of
processes. One CSV row per capture, over the time from the first process's start to the last one's
end: `bytes`; `n`; `wall`, that time in units of the CPU time of one process; `others`, the share of
the CPUs that everything else took; `idle`, the idle share; `ratio`, the CPU time that was left to
the processes over what they used (1: nothing lost; what others took is taken out, so a busy host
does not matter); `migrations` of the processes; `cpu`, the CPU seconds that one of them took;
`losses`, gaps in the record, of which each hides some of it.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import polars as pl

import schedscope as ss

COLUMNS = ("bytes", "n", "wall", "others", "idle", "ratio", "migrations", "cpu", "losses")
NAMED = re.compile(r"([a-z]+)(?:-(\d+))?-(\d+)")


def row(trace: ss.Trace, n: int, comm: str) -> dict[str, float]:
    """The columns above but `bytes`, for the `n` threads named `comm`... that ran most."""
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
        .tail(n)  # The parent and the calibration process ran less.
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
        "cpu": own / n / 1e9,
        "losses": trace.info["rows"]["losses"],
    }


def main() -> int:
    found = []
    for path in sys.argv[1:]:
        named = NAMED.fullmatch(Path(path).stem)
        if named is None:
            print(f"{path}: not named PROGRAM-N or PROGRAM-BYTES-N", file=sys.stderr)
            return 2
        comm, size, n = named[1], named[2], int(named[3])
        found.append((int(size or 0), n, row(ss.open(path), n, comm)))
    print(",".join(COLUMNS))
    for size, _, values in sorted(found, key=lambda f: f[:2]):
        print(size or "", *(f"{values[c]:.4g}" for c in COLUMNS[1:]), sep=",")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
