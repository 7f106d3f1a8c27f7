"""One large recording, and what other people's tools say of it, row by row.

SCHEDSCOPE_JUDGE names a folder with perf.data and what perf 7.2 prints of it (`sched latency -p`
as perf72.latency-by-tid.txt, `sched timehist --state` as perf72.timehist.txt), and
trace.pftrace with trace_processor's tables of it (tp.sched_slice.parquet,
tp.thread_state.parquet, threads by tid). It is too large to be kept beside the code.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from pathlib import Path

import polars as pl
import pytest
from decoded import decode, switches
from test_perfdata import LETTERS, TIMEHIST, latency_rows, our_rows

import schedscope as ss

pytestmark = pytest.mark.needs("judge")


@pytest.fixture(scope="module")
def folder() -> Path:
    return Path(os.environ["SCHEDSCOPE_JUDGE"])


@pytest.fixture(scope="module")
def perf(folder: Path) -> ss.Trace:
    return decode(folder / "perf.data")


@pytest.fixture(scope="module")
def perfetto(folder: Path) -> ss.Trace:
    return decode(folder / "trace.pftrace")


def test_every_threads_latency_is_perfs(perf: ss.Trace, folder: Path) -> None:
    """Count, mean, maximum and its place, in every printed digit."""
    theirs = latency_rows((folder / "perf72.latency-by-tid.txt").read_text())
    assert len(theirs) > 200
    assert our_rows(perf) == theirs


def test_every_row_of_timehist_is_a_switch(perf: ss.Trace, folder: Path) -> None:
    """Except rows of threads that perf has forgotten by then, which it calls [-1]."""
    text = (folder / "perf72.timehist.txt").read_text().splitlines()
    rows = [match for match in map(TIMEHIST.match, text) if match]
    ours = {(r["ts"] // 1000, r["cpu"], r["prev"]): r for r in switches(perf).to_dicts()}
    forgotten = 0
    for match in rows:
        name = re.search(r"\[(-?\d+)(?:/\d+)?\]$", match["task"])
        tid = int(name[1]) if name else 0
        forgotten += tid == -1
        if tid >= 0:
            row = ours[int(match["s"]) * 10**6 + int(match["us"]), int(match["cpu"]), tid]
            assert match["state"] in ("I" if tid == 0 else LETTERS[row["prev_state"]]), match[0]
    assert len(rows) == perf.switches.collect().height
    assert forgotten <= len(rows) // 10_000


def _tids(trace: ss.Trace) -> pl.LazyFrame:
    idle = pl.col("utid") < trace.ncpu
    return trace.threads.select("utid", tid=pl.when(idle).then(0).otherwise("tid").cast(pl.Int64))


def test_every_slice_is_trace_processors(perfetto: ss.Trace, folder: Path) -> None:
    """Time, length, CPU, thread, priority, and the end state where the compact form has it."""
    theirs = pl.read_parquet(folder / "tp.sched_slice.parquet")
    after = {"end": "ts", "state": "prev_state"}
    ours = (
        perfetto.switches.join(_tids(perfetto).rename({"utid": "next_utid"}), on="next_utid")
        .sort("cpu", "ts", maintain_order=True)
        .with_columns(**{new: pl.col(old).shift(-1).over("cpu") for new, old in after.items()})
        .select(
            "ts",
            pl.col("cpu").cast(pl.Int64),
            "tid",
            (pl.col("end") - pl.col("ts")).fill_null(-1).alias("dur"),
            pl.col("next_prio").cast(pl.Int64).alias("priority"),
            pl.col("state").cast(pl.String),
        )
        .collect()
    )
    same = ["ts", "cpu", "tid", "dur", "priority"]
    both = theirs.join(ours, on=same)
    assert len(both) == len(theirs)
    # It omits the first compact switch of each CPU.
    assert len(ours) == len(theirs) + perfetto.ncpu
    known = both.filter(pl.col("state").is_not_null() & (pl.col("state") != "unknown"))
    wrong = [
        row
        for row in known.select("end_state", "state").unique().rows()
        if row[0][0] not in LETTERS[row[1]]
    ]
    assert wrong == []
    # Where the compact form cannot name prev, it gives that state to another thread.
    unnamed = both.filter(pl.col("state") == "unknown")
    said = sum(int(text.split()[2]) for text in perfetto.info["warnings"])
    assert len(unnamed) == said


def test_runnable_states_are_trace_processors(perfetto: ss.Trace, folder: Path) -> None:
    """R and R+ rows start and last as our waits do; each difference has a reason."""
    states = pl.read_parquet(folder / "tp.thread_state.parquet")
    theirs = states.filter(pl.col("state").is_in(["R", "R+"]) & (pl.col("dur") >= 0))
    waits = (
        perfetto.waits.filter(pl.col("censored") == "none")
        .join(_tids(perfetto), on="utid")
        .select("tid", "cause", "ts_waking", ts="ts_ready", dur="wait")
        .collect()
    )
    equal = theirs.join(waits, on=["ts", "tid", "dur"])
    ours = waits.join(theirs, on=["ts", "tid", "dur"], how="anti")
    reasons = Counter(
        # The waking came before the switch-out: trace_processor counts no wait at all.
        "race"
        if row["ts_waking"] is not None and row["ts_waking"] < row["ts"]
        # A new thread's row starts at the fork, our wait at its first wakeup.
        else "new"
        if row["cause"] == "new"
        else "other"
        for row in ours.to_dicts()
    )
    assert len(equal) > 100_000
    # Theirs started earlier and ends with ours: it takes a thread for preempted at a switch whose
    # prev the compact form does not name, while we use the full events of the same bundle.
    ends = [pl.col("tid").cast(pl.Int64), pl.col("ts") + pl.col("dur")]
    longer = len(ours.join(theirs, on=ends, how="semi").filter(pl.col("cause") != "new"))
    # The rest starts or ends at switches whose threads are not named.
    assert reasons["other"] - longer <= len(equal) // 1000
    assert reasons["race"] <= len(equal) // 50
    assert len(theirs) - len(equal) <= reasons["new"] + longer + len(equal) // 800
