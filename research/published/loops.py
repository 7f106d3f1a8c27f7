"""The loop program on a real host: what a working set adds to counting."""

from __future__ import annotations

import polars as pl

from research.published.claims import Claim, Row, data
from research.published.counters import lost, mean

REAL = "research/benchmarks/workloads/loop-linux-6.18.csv"
SIZES = {1024: "1 KiB", 4 << 20: "4 MiB"}
POLICY = "eevdf-6.18"


def _rows() -> list[Row]:
    table = pl.read_csv(data(REAL))
    rows, gaps = [], []
    for size, words in SIZES.items():
        own = table.filter(pl.col("bytes") == size)
        alone = own.filter(pl.col("n") == 1)["cpu"].item()
        some = own.filter(pl.col("n") > 1)
        for n, ratio in some.select("n", "ratio").rows():
            # A process takes the time that it took alone: the model has no caches.
            model = lost(POLICY, n, round(alone * 1e9))
            rows.append(Row(f"{words}, N = {n}: ratio", ratio, model))
            gaps.append(abs(model - ratio))
        rows += [
            Row(f"{words}, N = {n}: CPU time of a process, over that of one alone", cpu / alone, 1)
            for n, cpu in some.select("n", "cpu").rows()
        ]
    return [*rows, Row("ratio: mean absolute gap", 0.0, mean(gaps))]


LOOP = Claim(
    "Loop",
    "The loop program on a real host",
    "loop",
    "Linux 6.18, 2 CPUs of a virtual machine with 1 MiB of L2 cache each, "
    "`research/benchmarks/workloads/loop.c` under `capture`, N = 1 to 8, working sets of 1 KiB and "
    "4 MiB, "
    "beside other people's builds (8 to 42 % of the CPUs); of three rounds the one with the fewest "
    f"gaps in the record. `{POLICY}`, where a process takes what it took alone; no costs",
    "what a process's CPU time owes to the caches and the memory that it shares with others, the "
    "builds among them: nothing at 1 KiB, up to three times at 4 MiB. A cost charged for each "
    "migration does not give it: there are fewer than ten for each process",
    _rows,
)
"""Run for this project: no publication."""
