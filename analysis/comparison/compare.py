"""What is different between two settings, beyond the noise?

The inputs are runs of A and B in turn, the order in which they should be recorded:
A B A2 B2 A3 B3.

Threads are matched by name pattern (worker-12 is worker-*) and role. A
difference counts only if it is larger than its noise: the smallest difference that these
runs can distinguish from chance. The confidence intervals hold simultaneously. With one
run of each, the noise is estimated from blocks of time within the recordings; the noise
between runs is then unknown, and no setting is called better.
"""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from schedscope.analysis.asking.arguments import THREAD_COLUMNS
from schedscope.analysis.asking.command import Command
from schedscope.analysis.asking.needs import needs
from schedscope.analysis.comparison.matching import Match, match_threads
from schedscope.analysis.comparison.run_digest import ALL, busy, digest
from schedscope.analysis.comparison.setting_values import MEASURES, Side, tested
from schedscope.analysis.comparison.significance import Test, multiplicities
from schedscope.analysis.threads.of_threads import Where, where_in
from schedscope.errors import UsageError
from schedscope.store.trace import Trace

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

BLOCKS = 32
"""Blocks of time that one recording is cut into when there is nothing to repeat."""

RESAMPLES = 1000

CAUSES = ("wake", "new", "preempt", "yield", "unknown")

VERDICT = pl.Enum(["more", "less", "within noise", "unclear", "untested"])

_SCHEMA: dict[str, Any] = {
    "setting": pl.String,
    "thread": pl.String,
    "role": pl.String,
    "measure": pl.String,
    "unit": pl.String,
    "a": pl.Float64,
    "a_high": pl.Float64,
    "b": pl.Float64,
    "b_high": pl.Float64,
    "difference": pl.Float64,
    "difference_frac": pl.Float64,
    "lower": pl.Float64,
    "upper": pl.Float64,
    "noise": pl.Float64,
    "verdict": VERDICT,
    "better": pl.String,
    "hedges_g": pl.Float64,
    "cliffs_delta": pl.Float64,
    "p": pl.Float64,
    "p_adjusted": pl.Float64,
    "p_mann_whitney": pl.Float64,
    "basis": pl.Enum(["runs", "blocks"]),
    "runs_a": pl.UInt32,
    "runs_b": pl.UInt32,
    "threads_a": pl.Float64,
    "threads_b": pl.Float64,
    "n_a": pl.UInt32,
    "n_b": pl.UInt32,
    "n_censored_a": pl.UInt32,
    "n_censored_b": pl.UInt32,
    "n_excluded_a": pl.UInt32,
    "n_excluded_b": pl.UInt32,
    "coverage_a": pl.Float64,
    "coverage_b": pl.Float64,
}


COMMAND = Command(
    heading="compare",
    help="what differs between settings, beyond the noise",
    example="""\
  schedscope compare before.capture after.capture
  schedscope compare cfs1 bfs1 cfs2 bfs2 cfs3 bfs3 --name CFS --name BFS
  schedscope compare a1 b1 c1 a2 b2 c2 --settings 3 --comm 'nginx*' --all
""",
    page="docs/definitions/compare.md",
)


@needs("switches", "wakeups")
def compare(
    a: Trace | Sequence[Trace],
    b: Trace | Sequence[Trace],
    *more: Trace | Sequence[Trace],
    match: Match = "role",
    where: Where = None,
    cause: str | None = None,
    measures: Sequence[str] | None = None,
    confidence: float = 0.95,
    top: int = 8,
    labels: Sequence[str] | None = None,
    blocks: int = BLOCKS,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> pl.DataFrame:
    """One row per thread group and measure: is it different in B, beyond the noise?

    Single traces are runs of A and B in turn, the order in which they should have been recorded:
    `compare(a1, b1, a2, b2)`. A list has the runs of one setting; of several lists, each is
    compared with the first: `compare([a1, a2, a3], [b1, b2, b3], [c1, c2, c3])`.

    Threads of different traces are matched by name pattern and role (`match`, see `match_threads`).
    Rows with a null `thread` are about all threads together; the `top` groups that ran and waited
    longest, in all traces together, have rows of their own: each is a test, and the more there are,
    the less a single one can show. `where` selects threads and CPUs, as in
    `latency`; it may also be a function of a trace that makes such an expression, as in
    `lambda trace: ss.of_processes(trace, service="nginx.service")`. `cause` selects waits by their
    cause, and the switches that ended them.

    * `setting`: which one is `b` here; `thread`, `role`; `measure` (`MEASURES`) and its `unit`;
    * `a`, `b`: means over the runs, and with `a_high`, `b_high` between which two values they are
      where events are missing; `difference` = b - a, `difference_frac` = that over `a`;
    * `lower`, `upper`: interval of the difference; `noise`: half its width, the smallest difference
      that could have been distinguished from noise here. The intervals about all threads hold
      simultaneously with `confidence`, and so do those about groups (Bonferroni);
    * `verdict`: `more` or `less` in b, if the difference is larger than the noise whatever is
      missing; else `within noise`; `unclear` if what is missing may be the reason for the
      difference; `untested` where no test is possible;
    * `better`: the better setting: null within the noise, for measures where neither more nor less
      is better, and always with one run each, because another run might differ;
    * `hedges_g`, `cliffs_delta`: size of the effect in standard deviations of runs, and as the
      excess of pairs of runs in which b is above a (null with one run each);
    * `p` (Welch's test, or of the blocks), `p_adjusted` (for the number of tests) and
      `p_mann_whitney`, which is not corrected for the number of tests;
    * `basis`: `runs`, or `blocks` where each setting has only one run. Then the interval comes from
      `resamples` resamples of `blocks` blocks of time of each run, and does not include the noise
      from one run to the next;
    * `runs_a`, `runs_b`: runs that had the measure; `threads_a`, `threads_b`: threads in the group,
      on average; `n_*`, `n_censored_*`, `n_excluded_*`: waits of all runs that are complete, whose
      end was not seen (`waiting` includes them for as long as they were seen), and whose start was
      not seen; `coverage_a`, `coverage_b`: the measured part of the time that may have been waited.

    Definition: docs/definitions/compare.md. Raises `UsageError` for traces that do
    not pair up, settings with one run beside others with several, an unknown measure or cause, and
    numbers out of range.

    >>> from schedscope import simulate, workload
    >>> draws = [workload.requests(6, requests=100, seed=seed) for seed in range(1, 6)]
    >>> a, b = (
    ...     [simulate(draw, policy=policy, cpus=2) for draw in draws]
    ...     for policy in ("eevdf-6.12", "bfs")
    ... )
    >>> frame = compare(a, b, top=2, measures=["wait_mean"])
    >>> frame.select("thread", pl.col("a", "b", "noise").round_sig_figs(3), "better")
    shape: (3, 5)
    ┌──────────┬─────────┬─────────┬─────────┬────────┐
    │ thread   ┆ a       ┆ b       ┆ noise   ┆ better │
    │ ---      ┆ ---     ┆ ---     ┆ ---     ┆ ---    │
    │ str      ┆ f64     ┆ f64     ┆ f64     ┆ str    │
    ╞══════════╪═════════╪═════════╪═════════╪════════╡
    │ null     ┆ 49100.0 ┆ 40300.0 ┆ 6890.0  ┆ B      │
    │ server-* ┆ 50900.0 ┆ 82700.0 ┆ 13600.0 ┆ A      │
    │ client-* ┆ 48200.0 ┆ 8980.0  ┆ 6670.0  ┆ B      │
    └──────────┴─────────┴─────────┴─────────┴────────┘
    """
    settings = grouped_runs([a, b, *more])
    names = setting_labels(labels, len(settings))
    chosen = _measures(measures)
    if not isinstance(confidence, Real) or not 0 < confidence < 1:
        raise UsageError(f"confidence {confidence!r}", "a number between 0 and 1", "as in 0.95")
    if top < 0:
        raise UsageError(f"top={top}", "0 or more")
    if blocks < 8:
        raise UsageError(f"blocks={blocks}", "8 or more", "fewer runs tell nothing about the noise")
    if resamples < 100:
        raise UsageError(f"resamples={resamples}", "100 or more")
    if cause is not None and cause not in CAUSES:
        raise UsageError(f"cause={cause!r}", "a cause of waits", f"one of {', '.join(CAUSES)}")
    repeated = len(settings[0]) > 1
    traces = [trace for runs in settings for trace in runs]
    for trace in traces:
        if trace.duration <= 0:
            raise UsageError(f"{trace.name} has no length", "a recording that is longer than 0 ns")
    wheres = [where_in(trace, where) for trace in traces]
    for one in wheres:
        _check_where(one)
    parts = _Parts(traces, match, wheres, top)
    digests = [
        digest(
            trace,
            parts.group_of[i],
            len(parts),
            blocks=1 if repeated else blocks,
            where=wheres[i],
            cause=cause,
        )
        for i, trace in enumerate(traces)
    ]
    first = len(settings[0])
    grouped, at = [], 0
    for runs in settings:
        grouped.append(range(at, at + len(runs)))
        at += len(runs)
    drawn = None if repeated else multiplicities(blocks, resamples, seed)
    rows = []
    for label, members in zip(names[1:], grouped[1:], strict=True):
        for group in range(len(parts)):
            pair = (
                Side(digests[:first], parts.threads[:first], group, drawn),
                Side([digests[i] for i in members], parts.threads[members], group, drawn),
            )
            for name in chosen:
                if group == ALL or MEASURES[name].of_threads:
                    rows.append((label, group, name, pair, tested(name, *pair)))
    return _frame(rows, parts, confidence, names[0])


def grouped_runs(given: Sequence[Trace | Sequence[Trace]]) -> list[list[Trace]]:
    """The runs of each setting: of traces, A and B in turn; of lists, one setting each."""
    alone = [one for one in given if isinstance(one, Trace)]
    if len(alone) == len(given):
        if len(alone) % 2:
            raise UsageError(
                f"{len(alone)} traces", "runs of A and B in turn, equally many", "or give lists"
            )
        return [alone[0::2], alone[1::2]]
    if alone:
        raise UsageError("traces and lists of traces together", "one or the other")
    settings = [list(runs) for runs in given if not isinstance(runs, Trace)]
    counts = [len(runs) for runs in settings]
    if 0 in counts:
        raise UsageError("a setting without runs", "one trace or more in each")
    if min(counts) == 1 and max(counts) > 1:
        raise UsageError(
            f"settings of {', '.join(map(str, counts))} runs",
            "one run of each, or two or more of each",
            "a single run has no spread to compare with",
        )
    return settings


def setting_labels(labels: Sequence[str] | None, n: int) -> list[str]:
    """Names of the settings: A, B, ... unless given."""
    if labels is None:
        return [chr(ord("A") + i) if i < 26 else f"#{i + 1}" for i in range(n)]
    if len(labels) != n or len(set(labels)) != n:
        raise UsageError(f"labels {list(labels)}", f"{n} different ones, one for each setting")
    return list(labels)


def _measures(measures: Sequence[str] | None) -> list[str]:
    if measures is None:
        return list(MEASURES)
    for name in measures:
        if name not in MEASURES:
            raise UsageError(
                f"measure {name!r}", "one that is defined", f"one of {', '.join(MEASURES)}"
            )
    if not measures:
        raise UsageError("no measures", "one or more")
    return [name for name in MEASURES if name in measures]


def _check_where(where: pl.Expr | None) -> None:
    known = ("utid", "cpu", *THREAD_COLUMNS)
    for name in where.meta.root_names() if where is not None else ():
        if name not in known:
            raise UsageError(
                f"where names {name!r}", "a column of threads, or cpu", f"one of {', '.join(known)}"
            )


def _matched(
    traces: Sequence[Trace], match: Match, wheres: Sequence[pl.Expr | None]
) -> pl.DataFrame:
    """The threads of `match_threads`, and how long each ran and waited."""
    times = pl.concat(
        [
            busy(trace, wheres[i]).with_columns(trace=pl.lit(i, dtype=pl.UInt32))
            for i, trace in enumerate(traces)
        ]
    )
    return match_threads(traces, match=match).join(times, on=["trace", "utid"], how="left")


def _ranked(matched: pl.DataFrame) -> pl.DataFrame:
    """Thread groups that ran or waited, those that did so longest first."""
    return (
        matched.group_by("thread", "role")
        .agg(pl.col("busy").sum())
        .filter(pl.col("busy") > 0)
        .sort("busy", "thread", "role", descending=[True, False, False])
    )


def thread_groups(traces: Sequence[Trace], match: Match, wheres: Sequence[pl.Expr | None]) -> int:
    """How many thread groups `compare` could compare."""
    return _ranked(_matched(traces, match, wheres)).height


class _Parts:
    """The thread groups, and which threads of each trace are in them."""

    def __init__(
        self, traces: Sequence[Trace], match: Match, wheres: Sequence[pl.Expr | None], top: int
    ) -> None:
        matched = _matched(traces, match, wheres)
        chosen = _ranked(matched).head(top).select("thread", "role")
        self.keys: list[tuple[str | None, str | None]] = [(None, None), *chosen.iter_rows()]
        numbered = matched.join(
            chosen.with_row_index("group", offset=1), on=["thread", "role"], nulls_equal=True
        )
        worked = pl.col("busy") > 0
        self.group_of = []
        self.threads = np.zeros((len(traces), len(self)))
        for i, trace in enumerate(traces):
            mine = numbered.filter(pl.col("trace") == i)
            highest = trace.threads.select(pl.col("utid").max()).collect().item()
            used = trace.states.select(pl.col("utid").max()).collect().item()
            waited = trace.waits.select(pl.col("utid").max()).collect().item()
            top_utid = max(trace.ncpu, highest or 0, used or 0, waited or 0)
            lookup = np.zeros(top_utid + 1, dtype=np.int64)
            lookup[mine["utid"].to_numpy()] = mine["group"].to_numpy()
            self.group_of.append(lookup)
            seen = matched.filter(pl.col("trace") == i, worked).height
            counts = np.bincount(mine.filter(worked)["group"].to_numpy(), minlength=len(self))
            self.threads[i] = counts
            self.threads[i, ALL] = seen

    def __len__(self) -> int:
        return len(self.keys)


_Row = tuple[str, int, str, tuple[Side, Side], Test | None]


def _frame(rows: list[_Row], parts: _Parts, confidence: float, reference: str) -> pl.DataFrame:
    # Two families of tests: all threads together, and the thread groups. In each, a false alarm
    # anywhere has the probability 1 - confidence at most.
    families = [sum(t is not None and (g == ALL) is whole for _, g, _, _, t in rows)
                for whole in (False, True)]  # fmt: skip
    found = []
    for label, group, name, (a, b), test in rows:
        tests = families[group == ALL]
        about = MEASURES[name]
        values_a, values_b = a.values(name), b.values(name)
        row: dict[str, Any] = {
            "setting": label,
            "thread": parts.keys[group][0],
            "role": parts.keys[group][1],
            "measure": name,
            "unit": about.unit,
            "a": float(values_a.mean()) if len(values_a) else None,
            "b": float(values_b.mean()) if len(values_b) else None,
            "coverage_a": a.coverage,
            "coverage_b": b.coverage,
            "basis": "runs" if a.drawn is None else "blocks",
            "runs_a": len(values_a),
            "runs_b": len(values_b),
            "threads_a": a.threads,
            "threads_b": b.threads,
            "n_a": a.n,
            "n_b": b.n,
            "n_censored_a": a.n_censored,
            "n_censored_b": b.n_censored,
            "n_excluded_a": a.n_excluded,
            "n_excluded_b": b.n_excluded,
            "verdict": "untested",
        }
        for side, values in (("a", a.bounds(name)), ("b", b.bounds(name))):
            # For an exact figure the two are equal, except for the order of summation.
            if values is not None and (row[side] is None or values[1] - values[0] > 1e-9):
                row[side], row[f"{side}_high"] = values
            else:
                row[f"{side}_high"] = row[side]
        if row["a"] is not None and row["b"] is not None:
            row["difference"] = row["b"] - row["a"]
            if row["a"]:
                row["difference_frac"] = row["difference"] / row["a"]
        if test is not None:
            row |= _decided(test, tests, confidence, row)
            if row["verdict"] in ("more", "less") and a.drawn is None:
                less = row["verdict"] == "less"
                if about.less_is_better is not None:
                    row["better"] = label if less == about.less_is_better else reference
        found.append(row)
    return pl.DataFrame(found, schema=_SCHEMA)


def _decided(test: Test, tests: int, confidence: float, row: dict[str, Any]) -> dict[str, Any]:
    noise = test.margin(1 - (1 - confidence) / tests)
    difference = row["difference"]
    more, less = row["b"] - row["a_high"], row["a"] - row["b_high"]
    verdict = "within noise"
    if max(more, less) > noise:
        verdict = "more" if more > less else "less"
    elif max(abs(difference), abs(row["b_high"] - row["a_high"])) > noise:
        verdict = "unclear"
    return {
        "lower": difference - noise,
        "upper": difference + noise,
        "noise": noise,
        "verdict": verdict,
        "hedges_g": test.hedges_g,
        "cliffs_delta": test.cliffs_delta,
        "p": test.p,
        "p_adjusted": min(test.p * tests, 1.0),
        "p_mann_whitney": test.p_rank,
    }
