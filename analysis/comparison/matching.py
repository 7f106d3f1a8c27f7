"""Which threads of one trace correspond to which threads of another?"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import polars as pl

from schedscope.analysis.asking.needs import needs
from schedscope.errors import UsageError

if TYPE_CHECKING:
    from schedscope.store.trace import Trace

Match = Literal["role", "name", "behaviour"]

HOG = 0.5
"""From this share of its life on in which a thread wants a CPU it is called a hog."""

_WORKERS = "kworker/*"
_NUMBERS = re.compile(r"\d+(?:[.:]\d+)*")


def name_pattern(comm: str) -> str:
    """A thread's name with `*` for what only numbers it.

    A kernel worker is named after its CPU, its pool and what it last did, none of which recurs in
    the next run: all are `kworker/*`.

    >>> [name_pattern(n) for n in ("worker-12", "kworker/3:1-events", "irq/24-eth0", "sshd")]
    ['worker-*', 'kworker/*', 'irq/*-eth*', 'sshd']
    """
    if comm.startswith("kworker/"):
        return _WORKERS
    return _NUMBERS.sub("*", comm)


@needs()
def match_threads(traces: Sequence[Trace], *, match: Match = "role") -> pl.DataFrame:
    """One row per thread of each trace: the group in which traces are compared.

    * `trace`: number of the trace in `traces`; `utid`;
    * `thread`: pattern of its last name; the name itself where all traces together have only one
      that fits the pattern (except for the kernel's workers);
    * `role`: with `match="role"`, `main` for the first thread of a process, `thread` for another
      one, `kernel` for one of the kernel; with `match="behaviour"`, `hog` if it wants a CPU (runs
      or is runnable) for half of its known life or more, else `sleeper`; null with `match="name"`,
      and where the trace does not show it.

    Idle threads are left out. A thread that wants a CPU and does not get it is still a hog: a
    scheduler that starves a thread does not change its behaviour.

    Raises `UsageError` for another `match`.
    """
    if match not in ("role", "name", "behaviour"):
        raise UsageError(f"match={match!r}", '"role", "name" or "behaviour"')
    frames = [_threads(trace, number, match) for number, trace in enumerate(traces)]
    frame = pl.concat(frames)
    names = frame["comm"].unique().to_list()
    patterns = {name: name_pattern(name) for name in names}
    fits = Counter(patterns.values())
    shown = {
        # Which kernel worker it was is arbitrary, even if there was only one.
        name: pattern if fits[pattern] > 1 or pattern == _WORKERS else name
        for name, pattern in patterns.items()
    }
    return frame.with_columns(
        thread=pl.col("comm").replace_strict(shown, return_dtype=pl.String) if shown else pl.lit("")
    ).select("trace", "utid", "thread", "role")


def _threads(trace: Trace, number: int, match: Match) -> pl.DataFrame:
    threads = (
        trace.threads.filter(pl.col("utid") >= trace.ncpu)
        .select("utid", "tid", "pid", "kernel", pl.col("comm").fill_null("(no name)"))
        .collect()
    )
    role = pl.lit(None, dtype=pl.String)
    if match == "role":
        role = (
            pl.when(pl.col("kernel"))
            .then(pl.lit("kernel"))
            .when(pl.col("tid") == pl.col("pid"))
            .then(pl.lit("main"))
            .when(pl.col("tid") != pl.col("pid"))
            .then(pl.lit("thread"))
            .otherwise(None)
        )
    elif match == "behaviour":
        threads = threads.join(_wanting(trace), on="utid", how="left")
        wants = pl.col("wants")
        role = (
            pl.when(wants >= HOG)
            .then(pl.lit("hog"))
            .when(wants < HOG)
            .then(pl.lit("sleeper"))
            .otherwise(None)
        )
    return threads.select("utid", "comm", role.alias("role"), trace=pl.lit(number, dtype=pl.UInt32))


def _wanting(trace: Trace) -> pl.DataFrame:
    """The share of each thread's known life in which it ran or could have run."""
    state = pl.col("state").cast(pl.String)
    wants = state.is_in(["running", "runnable"])
    return (
        trace.states.filter(state != "unknown")
        .group_by("utid")
        .agg(wants=pl.col("dur").filter(wants).sum() / pl.col("dur").sum())
        .collect()
    )
