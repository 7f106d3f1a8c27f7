"""How far a simulation can be believed: a real trace compared with its replay.

The workload is extracted from a real trace and replayed on the same machine for
the same time (`schedscope.simulator.replay`). Each row of the result compares one
replay, or a second capture of the same workload, with the real trace:

* `cpu_time_err`: half the sum over threads of |share of the CPU time there - here|:
  how much went to other threads (for a second capture: by names of threads);
* `wait_distance`: Wasserstein distance of the distributions of waits, ns;
  `wait_p50`, `wait_p99`: the quantiles, ns; `*_ratio`: replay divided by real;
* `waits_ratio`, `switches_ratio`, `preemptions_ratio`, `migrations_ratio`: counts;
* `elapsed_ratio`: the time from the first run of a thread to the last block or end
  of one: how long the workload took;
* `depth_ratio`: mean number of threads waiting for a CPU;
* `order`: Kendall's tau over the instants at which threads blocked, matched as
  the k-th block of a thread: 1 if every pair came in the same order. Pairs closer
  in the real trace than two captures are to each other have no order to keep and
  do not count; null if none is left;
* `shift`: median distance in time between matched blocks, ns.

Ratios are null where the real figure is 0. The threads of a second capture are
matched by name and by their place among those of that name; its `shift` is about
the median lateness, since the captures began at different moments.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from schedscope.analysis._base.arguments import by_name, check_traces
from schedscope.analysis._base.of_threads import Where, chosen_threads, where_in
from schedscope.analysis._base.policies import declaration, names, resolve
from schedscope.analysis._base.quantiles import quantile
from schedscope.errors import UsageError
from schedscope.simulator.machine import Costs
from schedscope.simulator.replay import replay
from schedscope.simulator.run import Progress, simulate
from schedscope.trace import Trace

SCHEMA = pl.Schema(
    {
        "against": pl.String(),
        "cpu_time_err": pl.Float64(),
        "n_waits": pl.Int64(),
        "wait_p50": pl.Int64(),
        "wait_p50_ratio": pl.Float64(),
        "wait_p99": pl.Int64(),
        "wait_p99_ratio": pl.Float64(),
        "wait_distance": pl.Int64(),
        "waits_ratio": pl.Float64(),
        "switches_ratio": pl.Float64(),
        "preemptions_ratio": pl.Float64(),
        "migrations_ratio": pl.Float64(),
        "elapsed_ratio": pl.Float64(),
        "depth_ratio": pl.Float64(),
        "order": pl.Float64(),
        "shift": pl.Int64(),
    }
)


def fidelity(
    trace: Trace,
    *,
    again: Trace | None = None,
    policies: Iterable[str] | None = None,
    set: Mapping[str, Mapping[str, Any]] | None = None,
    costs: Costs | None = None,
    where: Where = None,
    others: str = "occupy",
    external: str = "relative",
    cut: str = "extend",
    seed: int = 1,
    progress: Progress | None = None,
) -> pl.DataFrame:
    """One row per policy, and one for `again`, a second capture of the same workload.

    The first row, `against = "real"`, has the real trace's own figures. The columns are described
    at the top of the module.

    * `policies`: by default the model of the recorded scheduler, then all its other releases, then
      the baselines, which know nothing of threads;
    * `set`: tunables by policy. Those that the recording shows (`hz`, `base_slice`) have its values
      by default;
    * `costs`: None means those measured in the trace;
    * `where`: an expression by columns of `threads`, or a function of a trace that makes one. Only
      these threads are replayed and compared, for a host on which others ran, too;
    * `others`, as in `extract`: by default the other threads take the CPU time that they took;
    * `cut`, as in `extract`: by default a thread that wants a CPU when the window ends continues to
      want one.

    Raises `UsageError` for an unknown policy, and for `set` of one that is not replayed.
    """
    check_traces([trace] if again is None else [trace, again], "fidelity")
    example = '{"eevdf-6.18": {"base_slice": "3ms"}}'
    by_name("set", set, example)
    for values in (set or {}).values():
        by_name("set", values, example)
    way = replay(
        trace,
        where=where_in(trace, where),
        others=others,
        external=external,
        cut=cut,
        costs=costs,
    )
    if policies is None:
        family = declaration(way.policy)["family"]
        policies = [
            way.policy,
            *names(lambda row: row["family"] == family),
            *names(lambda row: row["role"] == "baseline"),
        ]
    asked = [policies] if isinstance(policies, str) else policies
    policies = list(dict.fromkeys(resolve(name) for name in asked))
    given = {resolve(name): values for name, values in (set or {}).items()}
    for name in given:
        if name not in policies:
            raise UsageError(
                f"a tunable of {name}, which is not replayed",
                f"one of {', '.join(policies)}",
                "also name it among the policies",
            )
    real = _Figures(trace, _mine(trace, where))
    # Threads of a workload are numbered after the idle ones; those that stand in are nobody's.
    replayed = way.utids.is_not_null().arg_true() + trace.ncpu if where is not None else None
    rows = [{"against": "real", **real.absolute()}]
    apart = 0
    if again is not None:
        second = _Figures(again, _mine(again, where)).against(real, matched=False, apart=0)
        apart = second["shift"] or 0
        rows.append({"against": "again", **second})
    for name in policies:
        simulated = simulate(
            way.workload,
            policy=name,
            set=way.settings(name, given.get(name)),
            costs=way.costs,
            seed=seed,
            until=way.until,
            progress=progress,
        )
        figures = _Figures(simulated, replayed).against(real, matched=True, apart=apart)
        rows.append({"against": name, **figures})
    return pl.DataFrame(rows, schema=SCHEMA)


def _mine(trace: Trace, where: Where) -> pl.Series | None:
    """The utids of the threads that are compared; None for all."""
    chosen = where_in(trace, where)
    return None if chosen is None else chosen_threads(trace, chosen)


class _Figures:
    """What is compared, of one trace: of all threads, or of those utids."""

    def __init__(self, trace: Trace, mine: pl.Series | None) -> None:
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
        # Threads are matched by number and name: a number is used again at most
        # by a thread of another program.
        self.blocks = (
            frames[2]
            .join(threads, on="utid")
            .with_columns(k=pl.int_range(pl.len()).over("utid"))
            .select("tid", "comm", "rank", "k", "ts")
            .unique(["tid", "comm", "k"], keep="none")
        )

    def absolute(self) -> dict[str, Any]:
        """The figures themselves, where they are no comparison."""
        return {
            "n_waits": len(self.waits),
            "wait_p50": quantile(self.waits, 0.5),
            "wait_p99": quantile(self.waits, 0.99),
        }

    def against(self, real: _Figures, *, matched: bool, apart: int) -> dict[str, Any]:
        """This trace compared with the real one; `matched`: the threads are the same."""
        key = ("tid", "comm", "k") if matched else ("comm", "rank", "k")
        order, shift = _agreement(real.blocks, self.blocks, key, apart)
        here = self.absolute()
        there = real.absolute()
        return {
            **here,
            "cpu_time_err": _time_error(
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


def _time_error(real: pl.DataFrame, other: pl.DataFrame, by: list[str]) -> float | None:
    """Half the L1 distance of the CPU shares."""
    one, two = (f.group_by(by).agg(pl.col("dur").sum()) for f in (real, other))
    both = one.join(two, on=by, how="full", coalesce=True, suffix="_other").fill_null(0)
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
        # A second capture was begun at another moment.
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
