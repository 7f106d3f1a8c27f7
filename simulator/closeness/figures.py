"""What `fidelity` compares of two traces of one workload: its figures, and how far apart they are.

Times are in ns. Two sets of waits are apart by the Wasserstein distance of their distributions, and
two orders of blocks by Kendall's tau.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl

from schedscope.analysis.sums.quantiles import quantile
from schedscope.analysis.threads.of_threads import Where, chosen_threads, where_in
from schedscope.store.trace import Trace


def compared_threads(trace: Trace, where: Where) -> pl.Series | None:
    """The utids of the threads that are compared; None for all."""
    chosen = where_in(trace, where)
    return None if chosen is None else chosen_threads(trace, chosen)


class Figures:
    """The data of one trace that are compared: of all threads, or of those utids."""

    def __init__(self, trace: Trace, mine: pl.Series | None) -> None:
        """Reads the trace; `mine` are the utids that count, None for all."""
        threads = (
            trace.threads.filter(pl.col("utid") >= trace.ncpu)
            .filter(True if mine is None else pl.col("utid").is_in(mine.implode()))
            # Numbers of threads rise in the order of their first event.
            .sort("utid")
            .select("utid", "comm", "tid", rank=pl.int_range(pl.len()).over("comm"))
            .collect()
        )
        own = threads["utid"].implode()
        states = (
            trace.states.filter(
                pl.col("utid").is_in(own) & pl.col("state").is_in(["running", "runnable"])
            )
            .select("ts", "dur", "utid", "state", "cpu")
            .collect()
        )
        running = states.filter(pl.col("state") == "running")
        waiting = states.filter(pl.col("state") == "runnable")
        self.cpu_time = (
            running.join(threads, on="utid").group_by("tid", "comm").agg(pl.col("dur").sum())
        )
        waits = (
            trace.waits.filter((pl.col("censored") == "none") & pl.col("utid").is_in(own))
            .select("wait")
            .collect()
        )
        self.waits = waits["wait"].drop_nulls().sort().to_numpy()
        out = trace.switches.filter(pl.col("prev_utid").is_in(own))
        blocked = out.filter(pl.col("prev_state") != "runnable")
        preempted = out.filter(
            (pl.col("prev_state") == "runnable") & pl.col("preempted").fill_null(True)
        )
        begin = trace.window[0]
        frames = pl.collect_all(
            [
                out.select(pl.len()),
                preempted.select(pl.len()),
                blocked.select(utid="prev_utid", ts=pl.col("ts") - begin),
            ]
        )
        first, last = running["ts"].min(), frames[2]["ts"].max()
        self.elapsed = (
            last + begin - first if isinstance(first, int) and isinstance(last, int) else None
        )
        self.switches = frames[0].item()
        self.preemptions = frames[1].item()
        runs = running.sort("utid", "ts")
        self.migrations = int(
            runs.select((pl.col("cpu") != pl.col("cpu").shift().over("utid")).sum()).item() or 0
        )
        self.depth = float(waiting["dur"].sum()) / max(1, trace.duration)
        # Threads are matched by number and name: a reused number belongs at most to a thread of
        # another program.
        self.blocks = (
            frames[2]
            .join(threads, on="utid")
            .with_columns(k=pl.int_range(pl.len()).over("utid"))
            .select("tid", "comm", "rank", "k", "ts")
            .unique(["tid", "comm", "k"], keep="none")
        )

    def absolute(self) -> dict[str, Any]:
        """The trace's own figures, without a comparison."""
        return {
            "n_waits": len(self.waits),
            "wait_p50": quantile(self.waits, 0.5),
            "wait_p99": quantile(self.waits, 0.99),
        }

    def against(self, real: Figures, *, matched: bool, apart: int) -> dict[str, Any]:
        """This trace compared with the real one; `matched`: the threads are the same."""
        key = ("tid", "comm", "k") if matched else ("comm", "rank", "k")
        order, shift = _agreement(real.blocks, self.blocks, key, apart)
        here = self.absolute()
        there = real.absolute()
        return {
            **here,
            "cpu_time_err": time_error(
                real.cpu_time, self.cpu_time, ["tid", "comm"] if matched else ["comm"]
            ),
            "wait_p50_ratio": _ratio(here["wait_p50"], there["wait_p50"]),
            "wait_p99_ratio": _ratio(here["wait_p99"], there["wait_p99"]),
            "wait_distance": wasserstein(real.waits, self.waits),
            "waits_ratio": _ratio(here["n_waits"], there["n_waits"]),
            "switches_ratio": _ratio(self.switches, real.switches),
            "preemptions_ratio": _ratio(self.preemptions, real.preemptions),
            "migrations_ratio": _ratio(self.migrations, real.migrations),
            "elapsed_ratio": _ratio(self.elapsed, real.elapsed),
            "depth_ratio": _ratio(self.depth, real.depth),
            "order": order,
            "shift": shift,
        }


def _ratio(a: float | None, b: float | None) -> float | None:
    return a / b if a is not None and b else None


def time_error(real: pl.DataFrame, other: pl.DataFrame, by: list[str]) -> float | None:
    """Half the L1 distance of the CPU shares."""
    one, two = (f.group_by(by).agg(pl.col("dur").sum()) for f in (real, other))
    both = one.join(two, on=by, how="full", coalesce=True, suffix="_other").fill_null(0)
    both = both.sort(by)  # sums of shares depend on their order in the last digit
    a = both["dur"].cast(pl.Float64)
    b = both["dur_other"].cast(pl.Float64)
    if not a.sum() or not b.sum():
        return None
    return float((a / a.sum() - b / b.sum()).abs().sum()) / 2


def wasserstein(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> int | None:
    """Area between two empirical distribution functions, in the values' unit.

    >>> wasserstein(np.array([0, 10]), np.array([5, 15]))
    5
    """
    if not len(a) or not len(b):
        return None
    x, y = np.sort(a), np.sort(b)
    points = np.sort(np.concatenate([x, y]))
    widths = np.diff(points)
    below_x = np.searchsorted(x, points[:-1], side="right") / len(x)
    below_y = np.searchsorted(y, points[:-1], side="right") / len(y)
    return round(float(np.sum(np.abs(below_x - below_y) * widths)))


def _agreement(
    real: pl.DataFrame, replay: pl.DataFrame, on: Sequence[str], apart: int
) -> tuple[float | None, int | None]:
    """Kendall's tau of matched blocks, and their median distance in time."""
    both = real.join(replay, on=list(on), suffix="_other").sort("ts", *on)
    if both.height < 2:
        return None, None
    late = both["ts_other"] - both["ts"]
    if "rank" in on:
        # A second capture started at another moment.
        late = late - late.median()
    shift = late.abs().median()
    return (
        kendall(both["ts"].to_list(), both["ts_other"].to_list(), apart=apart),
        round(float(shift)),  # type: ignore[arg-type]
    )


def kendall(first: Sequence[int], second: Sequence[int], *, apart: int = 0) -> float | None:
    """Kendall's tau: 1 if two things `apart` in `first`, which rises, keep their order.

    Pairs in `first` that are not more than `apart` from each other do not count;
    a tie in `second` counts as agreement. None if no pair is left.

    >>> kendall([1, 2, 3], [4, 5, 6]), kendall([1, 2, 3], [6, 5, 4])
    (1.0, -1.0)
    >>> kendall([1, 2, 3], [6, 5, 4], apart=2) is None
    True
    """
    from schedscope import _native

    pairs, inversions = _native.discordance(list(first), list(second), apart)
    return 1 - 2 * inversions / pairs if pairs else None
