"""Makes the overview of a long trace: what `overview` reads.

It is made at conversion, or at the first view, and kept beside the tables as `overview.bin`
(`checked_file`): the numbers of `_native.overview`, and those of `thread_totals`. It belongs to the
table `states` of one size and checksum; if it belongs to another, or is damaged, it is made again.
Only tables that schedscope wrote have an overview, because in those no two intervals of a thread,
or of a CPU, overlap.

NumPy is not loaded here: each conversion asks whether the trace is long.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl

from schedscope.parsers import derived, files
from schedscope.store import checked_file, stored
from schedscope.store.thread_totals import RUN_COLUMNS, WAIT_COLUMNS, thread_totals

NAME = "overview.bin"
LEAST = 4_000_000
"""Rows of `states` from which on a trace has one; shorter ones are read as quickly."""
VERSION = 2
"""Of the file's format."""
_CELLS = 1 << 22
"""Most stretches of all CPUs together, and of all threads and states together."""
_FINE, _COARSE = 1 << 19, 1 << 12
"""Most stretches of one CPU, of one thread."""
_ROWS_PER_STRETCH = 16
_CHUNK = 1 << 15
_BITS = 1 << 27
CODES = 8
"""States of a thread that are told apart."""
_LEAST_BINS = 256
"""A thread's picture of fewer stretches would say little."""
_WAITS = 50
STATES = "states.parquet"
"""The file that it is an overview of."""


def write(folder: Path, about: Mapping[str, Any]) -> None:
    """Make that of the tables in `folder`, which were just written; of long ones only."""
    if about["rows"]["states"] >= LEAST:
        path = folder / STATES
        identity = [path.stat().st_size, stored.checksum(path)]
        if (parts := made(folder, about, identity)) is not None:
            with (folder / NAME).open("wb") as file:
                file.writelines(parts)


def worst(waits: pl.LazyFrame, begin: int, n: int) -> list[dict[str, Any]]:
    """The longest waits, worst first; one that was not seen to end is at least that long.

    `ready` counts from `begin`.
    """
    rows = (
        waits.filter(pl.col("wait").is_not_null() & pl.col("ts_ready").is_not_null())
        .select(
            "utid",
            "wait",
            "cause",
            ready=pl.col("ts_ready") - begin,
            queue=pl.coalesce("queue_cpu", "cpu"),
            waker="waker_utid",
            waker_cpu="waker_cpu",
            open=pl.col("censored") != "none",
        )
        .top_k(n, by="wait")
        .collect(engine="streaming")
    )
    # Equal waits in order of time, or two runs would differ.
    return rows.sort("wait", "ready", "utid", descending=[True, False, False]).to_dicts()


def made(folder: Path, about: Mapping[str, Any], identity: list[Any]) -> list[bytes] | None:
    """The bytes of the file, for the table `states` of this `identity`; None if it has none."""
    from schedscope import _native

    def largest(table: str, column: str) -> int:
        frame = files.scan_parquet(folder / f"{table}.parquet").select(pl.col(column).max())
        return int(frame.collect().item() or 0)

    states = _native.StoredTable.open(str(folder), "states", list(RUN_COLUMNS))
    waits = _native.StoredTable.open(str(folder), "waits", list(WAIT_COLUMNS))
    if states is None or waits is None:
        return None  # of another writer
    ncpu, rows, (begin, end) = int(about["ncpu"]), int(about["rows"]["states"]), about["window"]
    cpus, threads = max(largest("cpus", "cpu") + 1, ncpu), largest("threads", "utid") + 1
    fewest = _fewest_bins(end - begin)
    if fewest * cpus > _CELLS:
        return None  # weeks
    bins = [_power(min(_FINE, rows // _ROWS_PER_STRETCH // cpus, _CELLS // cpus))]
    bins[0] = max(bins[0], fewest)
    coarse = _power(min(_COARSE, min(_CELLS, rows // 8) // (threads * CODES)))
    bins.append(coarse if coarse >= max(_LEAST_BINS, fewest) else 0)
    chunk = _CHUNK
    while -(-rows // chunk) * threads > _BITS:
        chunk *= 2
    parts, runs = _native.overview(
        states, (begin, end), cpus, threads, ncpu, (bins[0], bins[1]), chunk
    )
    waited = pl.DataFrame(_native.wait_sums(waits))
    totals = thread_totals(pl.DataFrame(runs), waited, begin, ncpu)
    head = {
        "version": VERSION,
        "states": identity,
        "window": [begin, end],
        "rows": rows,
        "cpus": cpus,
        "threads": threads,
        "bins": bins,
        "chunk": chunk,
        "totals": totals.height,
        "waits": worst(_waits(folder), begin, _WAITS),
    }
    sums = b"".join(column.fill_null(-1).to_numpy().astype("<i8").tobytes() for column in totals)
    return checked_file.sealed(head, [*parts, sums])


def _waits(folder: Path) -> pl.LazyFrame:
    return derived.plain("waits", files.scan_parquet(folder / "waits.parquet"))


def _fewest_bins(length: int) -> int:
    """Into how many stretches, a power of 2, so long a window has to be divided: the ns of one are
    counted in 32 bits."""
    return 1 << (max(1, -(-length // (2**32 - 1))) - 1).bit_length()


def _power(most: int) -> int:
    """The largest power of 2 that is not more."""
    return 1 << max(0, most.bit_length() - 1) if most > 0 else 0
