"""Do the ranges of `whatif` hold for genuine recordings of FreeBSD?

    python -m research.lab.freebsd_ranges FOLDER --write

FOLDER is that of `research.lab.freebsd`. Each capture alone is asked what it would have been under
its own scheduler and under the other one. What happened are the figures of each thread of the
recorded command in all captures of that scheduler, number of CPUs and workload, but for the one
that was asked. A row has how many of them are inside the stated range, and how many times the
recorded value that range is long (median).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

import schedscope as ss
from research.lab.freebsd import ACROSS, KERNELS, OWN, opened, show
from schedscope.errors import SchedscopeError
from schedscope.processes import of_processes
from schedscope.simulator.runs.services import figures, services
from schedscope.store.trace import Trace

FIGURES = ("cpu_time", "waiting", "wait_p50", "wait_p99")
FEW = 10
"""A thread with fewer waits has no quantiles to speak of."""
TABLE = "freebsd-ranges"


def happened(trace: Trace) -> dict[str, dict[str, Any]]:
    """The figures of each thread of the recorded command, by its name."""
    mine = trace.threads.filter(of_processes(trace, workload=True)).select("utid").collect()
    return figures(trace, services(trace, "comm").join(mine, on="utid"))


def said(
    trace: Trace, kernel: str, truths: Sequence[dict[str, dict[str, Any]]]
) -> Iterator[dict[str, Any]]:
    """One row per thread, figure and capture of what happened: was it inside?"""
    frame = ss.whatif(trace, policy=KERNELS[kernel], by="comm")
    for row in frame.filter(configuration="changed").iter_rows(named=True):
        for truth in truths:
            true = truth.get(row["comm"])
            if true is None or true["n_waits"] < FEW:
                continue
            for figure in FIGURES:
                value = true.get(figure)
                low, high = row[f"{figure}_alike_low"], row[f"{figure}_alike_high"]
                if value is None or low is None or high is None:
                    continue
                yield {
                    "thread": row["comm"],
                    "figure": figure,
                    "verdict": row[f"{figure}_verdict"],
                    "inside": low <= value <= high,
                    "length": (high - low) / max(value, 1),
                }


def rows(captures: Mapping[tuple[str, ...], Trace]) -> Iterator[dict[str, Any]]:
    """Of all captures, with what was asked."""
    truths = {name: happened(trace) for name, trace in captures.items()}
    for name, trace in captures.items():
        kernel, ncpu, work, _ = name
        for asked in KERNELS:
            others = [
                truth for other, truth in truths.items()
                if other[:3] == (asked, ncpu, work) and other != name
            ]  # fmt: skip
            about = {
                "CPUs": ncpu, "workload": work, "kernel": asked,
                "model": OWN if asked == kernel else ACROSS,
            }  # fmt: skip
            try:
                for row in said(trace, asked, others):
                    yield {**about, **row}
            except SchedscopeError as error:
                print(f"{'-'.join(name)} under {asked}: {error}", file=sys.stderr)


def table(found: pl.DataFrame) -> pl.DataFrame:
    """A row for each model, number of CPUs and figure."""
    keys = ["model", "CPUs", "figure"]
    return (
        found.group_by(*keys)
        .agg(
            n=pl.len(),
            inside=(100 * pl.col("inside").mean()).round(),
            length=pl.col("length").median().round(2),
        )
        .sort(keys)
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Asks each capture of a folder, and keeps the table if told to."""
    parser = argparse.ArgumentParser(description="Ranges of whatif for recordings of FreeBSD.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="", help="only captures with this in their names")
    parser.add_argument("--rows", type=Path, help="write each figure into this Parquet file")
    parser.add_argument("--write", action="store_true", help="keep the table")
    options = parser.parse_args(arguments)
    with opened(options.folder, options.only) as captures:
        found = pl.DataFrame(list(rows(captures)))
    if options.rows:
        found.write_parquet(options.rows)
    show(table(found), TABLE if options.write else "")
    return 0


if __name__ == "__main__":
    sys.exit(main())
