"""`compare`: hand-computed values, no winner within the noise, and the command."""

from __future__ import annotations

import json
import math
import random
import shutil
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, strategies as st
from matplotlib.figure import Figure
from runs import noisy, of_spells, run

import schedscope as ss
from schedscope import cli
from schedscope.analysis.comparison.run_digest import digest
from schedscope.analysis.comparison.significance import (
    between_blocks,
    between_runs,
    cliffs_delta,
    mann_whitney,
    multiplicities,
    resampled_quantiles,
)
from schedscope.analysis.comparison.t_distribution import quantile, two_sided

stats = pytest.importorskip("scipy.stats")

FIXTURES = Path(__file__).parents[2] / "fixtures"
SLICES = [
    FIXTURES / f"linux-slice-{setting}-{number}.capture"
    for number in (1, 2, 3, 4)
    for setting in ("default", "short")
]


@pytest.fixture(scope="module")
def slices(tmp_path_factory: pytest.TempPathFactory) -> list[ss.Trace]:
    """Eight real runs: default, short, default, short, ..."""
    cache = tmp_path_factory.mktemp("cache")
    return [ss.open(path, cache=cache) for path in SLICES]


def row(frame: pl.DataFrame, measure: str, thread: str | None = None) -> dict[str, object]:
    chosen = frame.filter(pl.col("measure") == measure, pl.col("thread").eq_missing(thread))
    assert chosen.height == 1
    return chosen.row(0, named=True)


# Values

# Two CPUs for 1000 ns. beat waits 10, 20, 30, runs 3 * 10 and moves once; hog waits 40, runs 500.
A = "beat 0 10 on 0; beat 100 120 on 0; beat 200 230 on 1; hog 300 340 on 0 for 500"
# beat waits 10, 40 and runs 2 * 10; hog waits 40, runs 500.
B = "beat 0 10 on 0; beat 100 140 on 0; hog 300 340 on 0 for 500"


def test_measures_equal_hand_computed_values() -> None:
    frame = ss.compare(run(A), run(B))
    beat = {r["measure"]: (r["a"], r["b"]) for r in frame.filter(thread="beat").to_dicts()}
    assert beat == {
        "wait_mean": (20, 25),
        "wait_p50": (20, 10),
        "wait_p95": (30, 40),
        "wait_p99": (30, 40),
        "wait_p95_min": (20, 30),
        "wait_max_min": (20, 30),
        "waiting": (pytest.approx(0.06), pytest.approx(0.05)),
        "running": (pytest.approx(0.03), pytest.approx(0.02)),
        "switches_hz": (pytest.approx(3e6), pytest.approx(2e6)),
        "migrations_hz": (pytest.approx(1e6), 0),
    }
    assert row(frame, "wait_mean")["a"] == 25  # (10 + 20 + 30 + 40) / 4
    assert row(frame, "running")["b"] == pytest.approx(0.52)
    # No idle time was recorded, so all of the known CPU time was used.
    assert row(frame, "utilisation_frac")["a"] == 1
    mean = row(frame, "wait_mean", "beat")
    assert (mean["difference"], mean["difference_frac"]) == (5, 0.25)
    assert (mean["n_a"], mean["n_b"], mean["threads_a"]) == (3, 2, 1)


def test_utilisation_is_of_the_known_time() -> None:
    """Half a second running beside a quarter idle: two thirds, whatever the window is."""
    trace = run("hog 0 0 on 0 for 500")
    idle = trace.states.collect().with_columns(
        utid=pl.lit(0, dtype=pl.UInt32), dur=pl.lit(250, dtype=pl.Int64)
    )
    states = pl.concat([trace.states.collect(), idle])
    both = ss.Trace.from_tables(
        {"states": states, "waits": trace.waits, "threads": trace.threads}, trace.info
    )
    assert row(ss.compare(both, both), "utilisation_frac")["a"] == pytest.approx(2 / 3)


def test_means_over_runs() -> None:
    """Each run is one number: 20 and 40 make 30, however many waits each had."""
    first, second = run(A), run("beat 0 40 on 0")
    frame = ss.compare([first, second], [second, second])
    mean = row(frame, "wait_mean", "beat")
    assert (mean["a"], mean["b"], mean["runs_a"], mean["n_a"]) == (30, 40, 2, 4)


def test_group_missing_from_a_run_has_no_waits() -> None:
    """It ran and switched 0 times there; its waits are unknown, which is not 0."""
    frame = ss.compare([run(A), run(A)], [run("beat 0 10 on 0"), run("beat 0 20 on 0")])
    running, wait = row(frame, "running", "hog"), row(frame, "wait_mean", "hog")
    assert (running["b"], running["runs_b"], running["threads_b"]) == (0, 2, 0)
    assert (wait["b"], wait["runs_b"], wait["verdict"]) == (None, 0, "untested")


def test_censored_waits_count_with_their_observed_length(slices: list[ss.Trace]) -> None:
    """They are in `waiting`, not in the quantiles; the counts are those of `latency`."""
    frame = ss.compare(slices[0], slices[1], top=0)
    for side, trace in zip("ab", slices, strict=False):
        counts = ss.latency(trace).row(0, named=True)
        one = row(frame, "waiting")
        for n in ("n", "n_censored", "n_excluded"):
            assert one[f"{n}_{side}"] == counts[n]
        seen = trace.waits.select(pl.col("wait").sum()).collect().item()
        assert one[side] == pytest.approx(seen / trace.duration)


def test_real_runs_have_the_quantiles_of_latency(slices: list[ss.Trace]) -> None:
    """The mean over runs of what `schedscope latency` reports for each.

    The exception is a wait that may be the rest of another one: latency also counts it as part of
    that one.
    """
    frame = ss.compare(*slices)
    complete = (pl.col("censored") == "none") | pl.col("wait_high").is_not_null()
    for measure, column in (("wait_p95", "p95"), ("wait_mean", "mean"), ("wait_p99", "p99")):
        for side, runs in (("a", slices[0::2]), ("b", slices[1::2])):
            each = [
                ss.latency(
                    trace, where=(pl.col("comm") == "beat") & complete, quantiles=(0.95, 0.99)
                )[column].item()
                for trace in runs
            ]  # fmt: skip
            # Of the waits that unknown time may contain, compare counts only those of this thread.
            assert row(frame, measure, "beat")[side] == pytest.approx(sum(each) / 4, rel=1e-2)


def test_a_short_slice_shortens_the_tail(slices: list[ss.Trace]) -> None:
    """The experiment of the fixtures: a shorter slice gives the thread shorter longest waits."""
    frame = ss.compare(*slices, labels=["default", "short"])
    tail = row(frame, "wait_p95", "beat")
    assert (tail["verdict"], tail["better"], tail["setting"]) == ("less", "short", "short")
    # It does as much work as before, which is no effect, and the hogs wait no longer for it.
    assert row(frame, "running", "beat")["verdict"] == "within noise"
    assert not frame.filter(pl.col("better") == "default").height
    # There are more switches, which is neither better nor worse.
    assert row(frame, "switches_hz", "beat")["better"] is None


def test_single_runs_have_no_winner(slices: list[ss.Trace]) -> None:
    frame = ss.compare(slices[0], slices[1])
    assert row(frame, "wait_p95", "beat")["verdict"] == "less"
    assert frame["better"].null_count() == frame.height
    assert frame["basis"].unique().to_list() == ["blocks"]


def test_runs_of_one_setting_show_no_difference(slices: list[ss.Trace]) -> None:
    for runs in (slices[0::2], slices[1::2]):
        frame = ss.compare(runs[:2], runs[2:])
        assert set(frame["verdict"]) <= {"within noise", "unclear", "untested"}


# Statistics


def test_welch_and_mann_whitney_are_scipys() -> None:
    a, b = np.array([1.0, 2, 4, 8]), np.array([9.0, 10, 12])
    found = between_runs(a, b)
    assert found is not None
    welch = stats.ttest_ind(b, a, equal_var=False)
    assert found.p == pytest.approx(welch.pvalue, rel=1e-12)
    assert found.p_rank == pytest.approx(stats.mannwhitneyu(b, a).pvalue, rel=1e-12)
    interval = welch.confidence_interval(0.95)
    assert found.difference + found.margin(0.95) == pytest.approx(interval.high)
    assert found.difference - found.margin(0.95) == pytest.approx(interval.low)
    # Cohen's d of a pooled s of sqrt((3 * 9.583 + 2 * 2.333) / 5), times 1 - 3/19.
    assert found.hedges_g == pytest.approx((31 / 3 - 3.75) / math.sqrt(33.41667 / 5) * 16 / 19)
    assert found.cliffs_delta == 1


def test_mann_whitney_of_equal_values_is_exact() -> None:
    """Counted over all divisions of the runs: at least 0.1 with three each, as the page states."""
    assert mann_whitney(np.array([1.0, 1, 1]), np.array([2.0, 2, 3])) == 0.1
    assert mann_whitney(np.array([1.0, 1, 1, 1]), np.array([2.0, 2, 2, 2])) == 2 / 70
    assert mann_whitney(np.array([1.0, 2, 2]), np.array([2.0, 2, 1])) == 1
    chance = np.random.default_rng(4)
    for _ in range(40):
        a, b = (chance.integers(0, 4, size).astype(float) for size in (3, 5))
        if a.min() == a.max() and b.min() == b.max():
            continue
        exact = stats.mannwhitneyu(b, a, method=stats.PermutationMethod(n_resamples=10**6))
        assert mann_whitney(a, b) == pytest.approx(exact.pvalue)


def test_mann_whitney_of_different_values_is_exact() -> None:
    chance = np.random.default_rng(6)
    for sizes in ((2, 9), (9, 10), (12, 15)):
        a, b = (chance.normal(size=size) for size in sizes)
        judge = stats.mannwhitneyu(b, a, method="exact")
        assert mann_whitney(a, b) == pytest.approx(judge.pvalue, rel=1e-12)


def test_mann_whitney_of_many_runs_is_the_corrected_normal_approximation() -> None:
    chance = np.random.default_rng(5)
    for highest in (4, 1000):
        a, b = (chance.integers(0, highest, size).astype(float) for size in (40, 35))
        judge = stats.mannwhitneyu(b, a, method="asymptotic")
        assert mann_whitney(a, b) == pytest.approx(judge.pvalue, rel=1e-12)


@pytest.mark.parametrize("df", [1, 1.5, 3.3, 10, 62, 1000.5])
def test_students_t_is_scipys(df: float) -> None:
    for t in (0.001, 0.5, 1, 3, 10, 100):
        assert two_sided(-t, df) == pytest.approx(2 * stats.t.sf(t, df), rel=1e-10)
    for confidence in (0.5, 0.95, 0.9999):
        judge = stats.t.ppf(0.5 + confidence / 2, df)
        assert quantile(confidence, df) == pytest.approx(judge, rel=1e-9)


def test_runs_without_spread_are_not_tested() -> None:
    """5, 5 against 6, 6: with discrete numbers that happens by chance, so it is not tested."""
    assert between_runs(np.array([5.0, 5]), np.array([6.0, 6])) is None
    assert between_blocks(5, 6, np.array([5.0] * 9), np.array([6.0] * 9), 32) is None
    same = between_runs(np.array([0.1] * 3), np.array([0.1] * 3))
    assert same is not None
    assert (same.difference, same.p, same.margin(0.95)) == (0, 1, 0)
    assert between_runs(np.array([1.0]), np.array([2.0, 3])) is None


@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=12),
    st.lists(st.integers(0, 9), min_size=1, max_size=12),
)
def test_cliffs_delta_counts_pairs(a: list[int], b: list[int]) -> None:
    naive = sum((y > x) - (y < x) for x in a for y in b) / (len(a) * len(b))
    found = cliffs_delta(np.array(a, dtype=float), np.array(b, dtype=float))
    assert found == pytest.approx(naive)


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 7)), min_size=1, max_size=60),
    st.sampled_from([0.5, 0.9, 0.95, 1.0]),
)
def test_resampled_quantiles_are_those_of_the_drawn_blocks(
    waits: list[tuple[int, int]], q: float
) -> None:
    """Each resample, written out: the waits of every block as often as it was drawn."""
    waits.sort()
    wait, block = (np.array(column) for column in zip(*waits, strict=True))
    drawn = multiplicities(8, 20, seed=3)
    found, least = resampled_quantiles(wait, block, drawn, [q])
    for i, times in enumerate(drawn.astype(int)):
        whole = sorted(w for w, b in waits for _ in range(times[b]))
        if not whole:
            assert math.isnan(found[i, 0])
            continue
        assert found[i, 0] == whole[max(math.ceil(round(q * len(whole), 9)), 1) - 1]
        assert least[i] == whole[0]


def test_binned_quantiles_are_within_one_percent() -> None:
    """100,000 distinct waits: the quantile of all blocks is near the exact one."""
    chance = np.random.default_rng(1)
    wait = np.sort((chance.lognormal(10, 2, 100_000)).astype(np.int64))
    block = chance.integers(0, 8, len(wait))
    found, _ = resampled_quantiles(wait, block, np.ones((1, 8)), [0.5, 0.95, 0.99])
    exact = [wait[math.ceil(q * len(wait)) - 1] for q in (0.5, 0.95, 0.99)]
    assert found[0] == pytest.approx(exact, rel=0.01)


spells = st.lists(
    st.tuples(st.integers(0, 900), st.integers(0, 80), st.integers(0, 120)), max_size=25
)


@given(spells, st.sampled_from([1, 8, 13]))
def test_blocks_cut_time_exactly(given_spells: list[tuple[int, int, int]], blocks: int) -> None:
    """Running and waiting time of each block equal a count over every nanosecond."""
    trace = of_spells(
        [("t", at, at + wait, 0, min(length, 1000 - at - wait) or 1)
         for at, wait, length in given_spells if at + wait < 1000]
    )  # fmt: skip
    found = digest(trace, np.array([0, 0, 1]), 2, blocks=blocks)
    edges = [1000 * k // blocks for k in range(blocks + 1)]
    for name, state in (("running", "running"), ("waiting", "runnable")):
        intervals = [
            (r["ts"], r["ts"] + r["dur"])
            for r in trace.states.collect().to_dicts()
            if r["state"] == state
        ]
        naive = [
            sum(max(0, min(until, high) - max(since, low)) for since, until in intervals)
            for low, high in pairwise(edges)
        ]
        assert getattr(found, name)[1].tolist() == pytest.approx(naive)
        assert getattr(found, name)[0].tolist() == pytest.approx(naive)


def test_the_order_of_settings_and_runs() -> None:
    """Swapped settings swap signs and sides; the order of runs makes no difference."""
    a, b = [noisy(i) for i in range(3)], [noisy(10 + i, factor=3) for i in range(3)]
    keys = ["thread", "measure"]
    there, back = ss.compare(a, b).sort(keys), ss.compare(b, a).sort(keys)
    shuffled = ss.compare(a[::-1], [b[1], b[2], b[0]]).sort(keys)
    assert there["difference"].to_list() == pytest.approx((-back["difference"]).to_list())
    assert there["p"].to_list() == pytest.approx(back["p"].to_list(), nan_ok=True)
    assert there["noise"].to_list() == pytest.approx(shuffled["noise"].to_list())
    turned = {"more": "less", "less": "more"}
    assert [turned.get(v, v) for v in back["verdict"]] == there["verdict"].to_list()
    assert "B" in there["better"].to_list() or "A" in there["better"].to_list()
    winners = {"A": "B", "B": "A", None: None}
    assert [winners[w] for w in back["better"]] == there["better"].to_list()


def test_swapped_settings_mirror_the_result() -> None:
    a, b = noisy(1), noisy(2, factor=3)
    there, back = (
        frame.sort("thread", "measure") for frame in (ss.compare(a, b), ss.compare(b, a))
    )
    assert there["difference"].to_list() == (-back["difference"]).to_list()
    assert there["p"].to_list() == pytest.approx(back["p"].to_list())


def test_time_may_be_in_any_unit() -> None:
    """All times doubled: differences of waits double, rates halve, no verdict changes."""

    def doubled(trace: ss.Trace) -> ss.Trace:
        def twice(frame: pl.DataFrame, names: list[str]) -> pl.DataFrame:
            return frame.with_columns(pl.col(names) * 2)

        return ss.Trace.from_tables(
            {
                "states": twice(trace.states.collect(), ["ts", "dur"]),
                "waits": twice(trace.waits.collect(), ["ts_ready", "ts_run", "wait"]),
                "threads": trace.threads.collect(),
            },
            {"ncpu": 2, "window": [2 * t for t in trace.window]},
        )

    runs = [noisy(i, factor=1 + 2 * (i % 2)) for i in range(6)]
    here, there = ss.compare(*runs), ss.compare(*map(doubled, runs))
    assert here["verdict"].to_list() == there["verdict"].to_list()
    factor = {"ns": 2, "1/s": 0.5}
    for one, two in zip(here.to_dicts(), there.to_dicts(), strict=True):
        assert two["difference"] == pytest.approx(one["difference"] * factor.get(one["unit"], 1))
        assert two["p"] == pytest.approx(one["p"])


def test_a_trace_against_itself_never_differs() -> None:
    """The result is exactly equal, with either way of comparing."""
    a = noisy(1)
    for frame in (ss.compare(a, a), ss.compare([a, noisy(2)], [noisy(2), a])):
        assert set(frame["verdict"]) <= {"within noise", "untested"}
        assert frame["better"].null_count() == frame.height
    exact = ss.compare(a, a)
    assert set(exact["difference"]) == {0}


def test_equal_settings_rarely_have_a_winner() -> None:
    """20 experiments of 3 runs against 3 of the same: at 95 %, hardly any names one anywhere.

    In each there are 11 and 20 tests, of which chance alone would let 1.5 pass; for two families
    at 5 % the expected number of experiments with a winner is at most 2.
    """
    named = 0
    for i in range(20):
        runs = [noisy(100 * i + k, waits=60) for k in range(6)]
        named += ss.compare(*runs)["better"].null_count() < 31
    assert named <= 5


def test_false_positive_rate_of_one_test_is_the_stated_level() -> None:
    """Of Welch's tests of 4 skewed runs against 4, close to 5 % reach 5 %, and not more."""
    chance = np.random.default_rng(5)
    trials = 1500
    p = []
    for _ in range(trials):
        found = between_runs(*chance.lognormal(0, 0.3, (2, 4)))
        assert found is not None
        p.append(found.p)
    share = sum(value < 0.05 for value in p) / trials
    assert 0.02 < share < 0.05 + 4 * math.sqrt(0.05 * 0.95 / trials)


@pytest.mark.parametrize("burst", [1, 4])
def test_false_positive_rate_of_blocks_is_near_the_stated_level(burst: int) -> None:
    """Two recordings of one process, 32 blocks each: its mean, alone or correlated in bursts.

    A burst shorter than a block leaves the blocks nearly independent.
    """
    chance = np.random.default_rng(burst)
    trials, blocks = 600, 32
    drawn = multiplicities(blocks, 400, seed=1)
    wrong = 0
    for _ in range(trials):
        sides = []
        for _ in range(2):
            levels = np.repeat(chance.lognormal(0, 0.5, blocks * 16 // burst), burst)
            waits = (levels * chance.exponential(1, len(levels))).reshape(blocks, 16)
            sides.append((waits.mean(), (drawn @ waits.mean(axis=1)) / blocks))
        (a, first), (b, second) = sides
        found = between_blocks(float(a), float(b), first, second, blocks)
        assert found is not None
        wrong += found.p < 0.05
    assert 0.02 < wrong / trials < 0.05 + 4 * math.sqrt(0.05 * 0.95 / trials)


def test_a_real_difference_is_found() -> None:
    """Three times the waits, five runs each: every wait of every thread, and B is worse."""
    a, b = [noisy(i) for i in range(5)], [noisy(50 + i, factor=3) for i in range(5)]
    frame = ss.compare(a, b, measures=["wait_mean", "wait_p50", "running"])
    assert frame.filter(measure="wait_mean")["verdict"].to_list() == ["more"] * 3
    assert set(frame.filter(pl.col("measure") != "running")["better"]) == {"A"}
    assert frame.filter(measure="running")["better"].null_count() == 3


def test_more_measures_widen_the_intervals() -> None:
    """Fewer measures give the same p and less noise, since fewer intervals must hold
    simultaneously.
    """
    runs = [noisy(i) for i in range(6)]
    all_of_them, one = ss.compare(*runs), ss.compare(*runs, measures=["wait_mean"])
    many, alone = row(all_of_them, "wait_mean"), row(one, "wait_mean")
    assert many["p"] == alone["p"] == alone["p_adjusted"]
    assert many["p_adjusted"] == pytest.approx(min(1, 11 * float(str(many["p"]))))
    assert float(str(many["noise"])) > float(str(alone["noise"]))


def test_settings_are_compared_with_the_first() -> None:
    groups = [[noisy(10 * k + i, factor=k + 1) for i in range(2)] for k in range(3)]
    frame = ss.compare(*groups, labels=["one", "two", "three"])
    assert frame["setting"].unique(maintain_order=True).to_list() == ["two", "three"]
    assert set(frame["better"]) <= {None, "one", "two", "three"}


def test_selection_excludes_other_threads(slices: list[ss.Trace]) -> None:
    frame = ss.compare(*slices, where=pl.col("comm") == "beat")
    assert frame["thread"].unique().sort().to_list() == [None, "beat"]
    for measure in ("wait_p95", "running", "waiting", "switches_hz"):
        assert row(frame, measure)["a"] == pytest.approx(row(frame, measure, "beat")["a"])
    on_cpu = ss.compare(*slices, where=(pl.col("comm") == "beat") & (pl.col("cpu") == 1))
    assert row(on_cpu, "running")["a"] == pytest.approx(row(frame, "running")["a"])


def test_compare_is_restricted_to_one_cause(slices: list[ss.Trace]) -> None:
    """Effect of the short slice: wakeups are served at once, at the cost of preemptions."""
    beat = pl.col("comm") == "beat"
    wake, preempt = (
        ss.compare(*slices, where=beat, cause=cause, measures=["wait_mean", "switches_hz"])
        for cause in ("wake", "preempt")
    )
    waits = row(wake, "wait_mean", "beat")
    assert waits["better"] == "B"
    assert -0.95 < float(str(waits["difference_frac"])) < -0.85
    assert row(wake, "switches_hz", "beat")["verdict"] == "within noise"
    assert row(preempt, "switches_hz", "beat")["verdict"] == "more"
    each = [
        ss.latency(t, where=beat & (pl.col("cause") == "wake"))["mean"].item() for t in slices[1::2]
    ]
    assert waits["b"] == pytest.approx(sum(each) / 4)


@pytest.mark.parametrize(
    ("arguments", "options", "words"),
    [
        (3, {}, "3 traces; expected runs of A and B in turn"),
        (2, {"measures": ["speed"]}, "measure 'speed'"),
        (2, {"confidence": 95}, "confidence 95"),
        (2, {"match": "colour"}, "match='colour'"),
        (2, {"labels": ["x", "x"]}, "labels"),
        (2, {"blocks": 2}, "blocks=2"),
        (2, {"resamples": 5}, "resamples=5"),
        (2, {"top": -1}, "top=-1"),
        (2, {"where": pl.col("cause") == "wake"}, "where names 'cause'"),
        (2, {"cause": "spite"}, "cause='spite'"),
    ],
)
def test_invalid_arguments_are_refused(
    arguments: int, options: dict[str, object], words: str
) -> None:
    with pytest.raises(ss.UsageError, match=words):
        ss.compare(*[run(A)] * arguments, **options)  # type: ignore[arg-type]


def test_mismatched_settings_are_refused() -> None:
    one = run(A)
    with pytest.raises(ss.UsageError, match="settings of 1, 2 runs"):
        ss.compare([one], [one, one])
    with pytest.raises(ss.UsageError, match="a setting without runs"):
        ss.compare([one], [])
    with pytest.raises(ss.UsageError, match="together"):
        ss.compare(one, [one])
    with pytest.raises(ss.UsageError, match="has no length"):
        ss.compare(one, run(A, window=(0, 0)))


# Distributions and figures


def test_distribution_is_the_share_of_waits_up_to_a_length() -> None:
    frame = ss.wait_distribution(run("t 0 10 on 0; t 50 60 on 0; t 90 120 on 0"), run("t 0 5 on 0"))
    assert frame.select("setting", "run", "wait", "frac", "n").rows() == [
        ("A", 1, 10, pytest.approx(2 / 3), 3),
        ("A", 1, 30, 1.0, 3),
        ("B", 1, 5, 1.0, 1),
    ]


def test_distribution_is_empty_without_complete_waits() -> None:
    one = run("t 0 10 on 0; u 0 10 on 0")
    assert ss.wait_distribution(one, one, where=pl.col("comm") == "nobody").is_empty()


def test_long_distribution_is_thinned_without_changing_values() -> None:
    """Each point kept is a point of the full curve, and the last is the longest wait."""
    chance = random.Random(3)
    trace = of_spells(
        [("t", 1000 * i, 1000 * i + chance.randrange(1, 10**6), 0, 1) for i in range(9000)],
        window=(0, 10**9),
    )
    frame = ss.wait_distribution(trace, trace).filter(setting="A")
    waits = np.sort(trace.waits.collect()["wait"].to_numpy())
    assert frame.height <= 2000
    exact = np.searchsorted(waits, frame["wait"].to_numpy(), side="right") / len(waits)
    assert frame["frac"].to_list() == pytest.approx(exact.tolist())
    assert (frame["wait"][-1], frame["frac"][-1]) == (waits[-1], 1.0)


def test_forest_plot_shows_recorded_runs(slices: list[ss.Trace]) -> None:
    """Rows are named, blue where proven less; an interval beyond the axis ends in an arrow."""
    frame = ss.compare(*slices, labels=["default", "short"])
    axes = ss.plot.compare(frame, top=20)
    labels = [text.get_text() for text in axes.get_yticklabels()]
    assert len(labels) == 20
    assert "beat  ·  wait_p95" in labels
    assert "short" in axes.get_xlabel()
    assert isinstance(axes.figure, Figure)
    axes.figure.canvas.draw()
    narrow = ss.plot.compare(frame, limit=0.1)
    assert narrow.get_xlim() == (-0.1, 0.1)
    nothing = ss.plot.compare(frame.clear())
    assert nothing.texts[0].get_text() == "nothing could be tested"
    with pytest.raises(ss.UsageError, match=r"schedscope\.compare"):
        ss.plot.compare(frame.drop("noise"))


@pytest.mark.parametrize("tail", [False, True])
def test_distribution_plot_has_a_curve_for_each_run(slices: list[ss.Trace], tail: bool) -> None:
    frame = ss.wait_distribution(*slices, where=pl.col("comm") == "beat")
    axes = ss.plot.wait_distribution(frame, tail=tail)
    assert len(axes.lines) == 8
    legend = axes.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["A (4 runs)", "B (4 runs)"]
    assert isinstance(axes.figure, Figure)
    axes.figure.canvas.draw()
    assert not ss.plot.wait_distribution(frame.clear()).lines


# The command


@pytest.fixture
def words(slices: list[ss.Trace]) -> list[str]:
    return ["compare", *(str(trace.path) for trace in slices)]


def test_command_prints_its_table(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*words, "--name", "default", "--name", "short"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("default: linux-slice-default-1.capture · 1.35 s · 2,996 events")
    assert any(line.startswith("short: linux-slice-short-4.capture") for line in lines)
    (tail,) = [line for line in lines if line.startswith("beat") and "wait_p95 " in line]
    assert "less in short" in tail
    assert "-31.7 %" in tail
    assert any(line.startswith("better: short in") for line in lines)
    assert "--all" in lines[-1]
    assert cli.main([*words[:3], "--all", "--measure", "wait_p50"]) == 0
    out = capsys.readouterr().out
    assert "one run each" in out
    assert "better:" not in out


def test_command_reports_no_winner_between_equal_settings(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    same = [words[1], words[5], words[3], words[7]]
    assert cli.main(["compare", *same]) == 0
    assert "no winner: no wait differs by more than its noise" in capsys.readouterr().out


def test_command_writes_json_and_csv(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*words, "--format", "json", "--comm", "beat"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [len(runs) for runs in document["settings"].values()] == [4, 4]
    assert {one["thread"] for one in document["rows"]} == {None, "beat"}
    assert cli.main([*words, "--format", "csv", "--since", "200ms", "--until", "1s"]) == 0
    frame = pl.read_csv(capsys.readouterr().out.encode())
    assert {"within noise", "less"} <= set(frame["verdict"])


def test_command_reports_other_differences_between_the_hosts(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = ss.open(words[1])
    other = ss.Trace(trace.info | {"release": "5.15", "hz": 1000}, {}, trace.path)
    folder = str(other.to_sched(tmp_path / "other.sched").path)
    assert cli.main(["compare", words[1], folder]) == 0
    out = capsys.readouterr().out
    assert "also different: release (A 6.18" in out
    assert "also different: HZ (A 250; B 1000)" in out


@pytest.mark.parametrize(
    ("number", "options", "says"),
    [
        (1, [], "1 input; expected 2 settings in turn"),
        (3, [], "3 inputs"),
        (2, ["--settings", "1"], "--settings 1"),
        (2, ["--confidence", "100"], "--confidence 100"),
        (2, ["--measure", "speed"], "measure 'speed'"),
        (2, ["--name", "x"], "labels ['x']"),
        (2, ["--comm", "beet"], "did you mean beat?"),
        (2, ["--top", "-1"], "--top -1"),
        (2, ["--since", "1h"], "outside the trace"),
    ],
)
def test_invalid_input_is_refused(
    words: list[str], capsys: pytest.CaptureFixture[str], number: int, options: list[str], says: str
) -> None:
    """One sentence, nothing on stdout."""
    assert cli.main([*words[: number + 1], *options]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert says in err
    assert err.count("\n") == 1


def test_missing_input_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["compare", "nowhere", "neither"]) == 1
    assert "cannot open nowhere" in capsys.readouterr().err


@given(st.integers(0, 10**6))
def test_intervals_and_verdicts_agree(seed: int) -> None:
    """A row differs exactly if its interval leaves out 0, and wins only if it differs."""
    runs = [noisy(seed + i, waits=30, factor=1 + i % 2) for i in range(4)]
    for group in (runs, runs[:2]):
        for one in ss.compare(*group).to_dicts():
            if one["verdict"] == "untested":
                assert one["noise"] is None
                continue
            outside = one["lower"] > 0 or one["upper"] < 0
            assert outside == (one["verdict"] in ("more", "less"))
            assert one["better"] is None or outside


def test_recordings_of_one_name_are_distinguished(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for folder, number in (("before", 1), ("after", 2)):
        source = FIXTURES / f"linux-slice-default-{number}.capture"
        shutil.copytree(source, tmp_path / folder / "run.capture")
    paths = [str(tmp_path / folder / "run.capture") for folder in ("before", "after")]
    assert cli.main(["compare", *paths, "--cache", str(tmp_path), "--top", "0"]) == 0
    first, second = capsys.readouterr().out.splitlines()[:2]
    assert first.startswith("A: before/run.capture · ")
    assert second.startswith("B: after/run.capture · ")
