"""Kaplan-Meier: a textbook's numbers, limits, and the plain quantile where nothing is cut."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given, strategies as st
from ledgers import ledger

import schedscope as ss
from schedscope.analysis.survival import survival as module
from schedscope.analysis.survival.interval import BLOCKS, Steps, _steps_of, block_variances, student
from schedscope.analysis.survival.survival import (
    STEP,
    _at_risk,
    _curve,
    kaplan_meier_quantiles,
    lengths_of,
    wait_lengths,
)
from schedscope.analysis.waits.grouping import Grouping

# Weeks of remission under 6-MP, + still in remission: Freireich et al., Blood
# 21 (1963), the example of every textbook on survival.
REMISSION = [6, 6, 6, 7, 10, 13, 16, 22, 23]
CUT = [6, 9, 10, 11, 17, 19, 20, 25, 32, 32, 34, 35]


def test_the_textbook_example() -> None:
    """Every step of the published curve, to its three printed digits, and its intervals."""
    lines = [f"t wake {1000 - w} -> {1000} cpu0" for w in REMISSION]
    # In a window of 1000 an open wait of length w began at 1000 - w.
    lines += [f"t wake {1000 - w} -> open cpu0" for w in CUT]
    curve = ss.survival(ledger("\n".join(lines)))
    assert curve.select("wait", "n_at_risk", "n_ended").rows() == [
        (6, 21, 3),
        (7, 17, 1),
        (10, 15, 1),
        (13, 12, 1),
        (16, 11, 1),
        (22, 7, 1),
        (23, 6, 1),
    ]
    assert [round(s, 3) for s in curve["survival"]] == [
        0.857,
        0.807,
        0.753,
        0.690,
        0.627,
        0.538,
        0.448,
    ]
    # R: survfit(Surv(t, d) ~ 1, conf.type = "log-log"), which takes patients as independent
    lengths = lengths_of(np.array(REMISSION), np.array(CUT))
    curve = _curve(lengths, NormalDist().inv_cdf(0.975), np.zeros(len(lengths.wait)))
    assert curve["lower"][0] == pytest.approx(0.620, abs=5e-4)
    assert curve["upper"][0] == pytest.approx(0.952, abs=5e-4)
    assert curve["lower"][-1] == pytest.approx(0.188, abs=5e-4)
    assert curve["upper"][-1] == pytest.approx(0.680, abs=5e-4)


def test_the_median_of_the_textbook_example() -> None:
    """23 weeks; and no third quartile, the curve ends at 0.448."""
    got = kaplan_meier_quantiles(lengths_of(np.array(REMISSION), np.array(CUT)), [0.5, 0.75])
    assert got == [23, None]


def test_scipy_agrees() -> None:
    """The same curve by another program."""
    stats = pytest.importorskip("scipy.stats")
    rng = np.random.default_rng(7)
    ended = np.sort(rng.integers(1, 50, 200))
    cut = np.sort(rng.integers(1, 60, 80))
    data = stats.CensoredData(uncensored=ended, right=cut)
    curve = stats.ecdf(data).sf
    lines = [f"t wake {1000 - w} -> 1000 cpu0" for w in ended]
    lines += [f"t wake {1000 - w} -> open cpu0" for w in cut]
    got = ss.survival(ledger("\n".join(lines)))
    assert got["survival"].to_list() == pytest.approx(curve.evaluate(got["wait"].to_numpy()))
    interval = curve.confidence_interval(method="log-log")
    lengths = lengths_of(ended, cut)
    independent = _curve(lengths, NormalDist().inv_cdf(0.975), np.zeros(len(lengths.wait)))
    finite = independent.filter(got["lower"].is_not_null())
    at = finite["wait"].to_numpy()
    assert finite["lower"].to_list() == pytest.approx(interval.low.evaluate(at))
    assert finite["upper"].to_list() == pytest.approx(interval.high.evaluate(at))
    wider = got.filter(got["lower"].is_not_null())
    assert (wider["lower"] <= finite["lower"] + 1e-12).all()
    assert (wider["upper"] >= finite["upper"] - 1e-12).all()


def test_wait_longer_than_all_lengths_is_in_the_last_step() -> None:
    """Of the one curve as of several. Where all have ended, nothing is added to the sum."""
    curve = Steps(np.array([5, 10]), np.array([2, 1]), np.array([1, 1]))
    waits = np.array([7, 99, 3])
    assert _steps_of(np.zeros(3, int), waits, [curve], np.array([0])).tolist() == [1, 1, 0]
    two = _steps_of(np.array([0, 1, 1]), waits, [curve, curve], np.array([0, 2]))
    assert two.tolist() == [1, 3, 2]
    one, greenwood = curve.hazards()
    assert (one.tolist(), greenwood.tolist()) == ([1, 0], [0.5, 0.5])
    # R: qt(0.975, 31)
    assert student(1.959964, 31) == pytest.approx(2.039513, abs=1e-4)


def queued(rng: np.random.Generator, n: int, busy: float) -> tuple[list[int], list[int]]:
    """When `n` jobs arrive at one CPU, and how long they wait: times exponential, unit 1,000 ns."""
    arrivals = np.cumsum(rng.exponential(1 / busy, n))
    service = rng.exponential(1, n)
    free = rng.exponential(1 / (1 - busy)) if rng.random() < busy else 0.0
    waits = []
    for at, needs in zip(arrivals, service, strict=True):
        waits.append(max(0.0, free - at))
        free = max(free, at) + needs
    return [int(1000 * at) for at in arrivals], [int(1000 * wait) for wait in waits]


def test_intervals_hold_where_waits_are_alike() -> None:
    """Of a queue (M/M/1, 60 % busy) a share of 0.6 exp(-0.4 t) waits longer than t. Of Greenwood's
    intervals, which take waits as independent, about half hold it."""
    rng = np.random.default_rng(2)
    truth, trials = 0.6 * math.exp(-0.8), 60
    held = independent = 0
    for _ in range(trials):
        arrivals, waits = queued(rng, 600, 0.6)
        lines = [f"t wake {a} -> {a + w} cpu0" for a, w in zip(arrivals, waits, strict=True)]
        curve = ss.survival(ledger("\n".join(lines), window=(0, arrivals[-1] + waits[-1] + 1)))
        row = curve.filter(curve["wait"] <= 2000).row(-1, named=True)
        held += row["lower"] <= truth <= row["upper"]
        lengths = lengths_of(np.array(waits), np.zeros(0, np.int64))
        plain = _curve(lengths, NormalDist().inv_cdf(0.975), np.zeros(len(lengths.wait)))
        row = plain.filter(plain["wait"] <= 2000).row(-1, named=True)
        independent += row["lower"] <= truth <= row["upper"]
    assert held >= 50
    assert independent < 45


def test_the_variance_between_blocks_is_that_of_sums_over_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without cut waits: of the shares of waits longer than t, block by block, as a person would.

    At 64 points of the curve as at all of them.
    """
    rng = np.random.default_rng(3)
    arrivals, waits = queued(rng, 500, 0.7)
    end = arrivals[-1] + waits[-1] + 1
    lines = [f"t wake {a} -> {a + w} cpu0" for a, w in zip(arrivals, waits, strict=True)]
    grouping = Grouping(ledger("\n".join(lines), window=(0, end)), "all")
    (lengths,) = wait_lengths(grouping)
    steps = Steps(lengths.wait, _at_risk(lengths), lengths.ended)
    (found,) = block_variances(grouping, [steps], (0, end))
    x, block = np.array(waits), np.array(arrivals) * BLOCKS // end
    for row in (0, 50, 200, len(lengths.wait) - 5):
        longer = x > lengths.wait[row]
        share = longer.mean()
        sums = np.bincount(block, longer - share, BLOCKS) / len(x) / share
        assert found[row] == pytest.approx((sums**2).sum() * BLOCKS / (BLOCKS - 1))
    monkeypatch.setattr("schedscope.analysis.survival.interval._POINTS", 64)
    (rough,) = block_variances(grouping, [steps], (0, end))
    assert np.median(np.abs(rough / found - 1)[:-1]) < 0.05


def test_latency_quantiles_account_for_unfinished_waits() -> None:
    """Two long open waits make p90 a lower bound, and the estimate of it unknown."""
    lines = [f"t wake 10 -> {10 + i} cpu0" for i in range(1, 9)]
    trace = ledger("\n".join([*lines, "t wake 0 -> open cpu0", "t wake 0 -> open cpu0"]))
    plain = ss.latency(trace).row(0, named=True)
    honest = ss.latency(trace, censored="kaplan-meier").row(0, named=True)
    assert (plain["p50"], plain["p50_high"]) == (5, 5)
    assert (plain["p90"], plain["p90_high"]) == (1000, None)
    assert (honest["p50"], honest["p90"]) == (5, None)


@given(st.lists(st.integers(0, 100), min_size=1), st.sampled_from([0.1, 0.5, 0.9, 0.99, 1]))
def test_estimate_is_the_order_statistic_without_unfinished_waits(
    waits: list[int], q: float
) -> None:
    """Kaplan-Meier of complete data is the empirical distribution."""
    lines = [f"t wake {1000 - w} -> 1000 cpu0" for w in waits]
    lines.append("other wake 0 -> open cpu0")  # other groups do not matter
    trace = ledger("\n".join(lines))
    plain = ss.latency(trace, by="comm", quantiles=[q])
    honest = ss.latency(trace, by="comm", quantiles=[q], censored="kaplan-meier")
    same = plain.select(honest.columns)
    assert same.filter(same["comm"] == "t").equals(honest.filter(honest["comm"] == "t"))
    estimate = kaplan_meier_quantiles(
        lengths_of(np.array(waits), np.array([], dtype=np.int64)), [q]
    )
    assert plain.filter(plain["comm"] == "t")[f"p{100 * q:g}"].to_list() == estimate


def test_waits_too_long_to_share_a_number_with_their_thread() -> None:
    """Two waits of 2^62 ns leave no bit of 64 for which of two threads: found by another sort."""
    long = 2**62
    lines = [f"{name} wake 0 -> {end} cpu0" for end in (long, 7, long) for name in "ab"]
    lines += ["b wake 0 -> 9 cpu0", "a wake 1 -> open cpu0"]
    got = ss.survival(ledger("\n".join(lines), window=(0, long)), by="comm")
    names = ("comm", "wait", "n_at_risk", "n_ended", "n_censored")
    assert got.select(names).rows() == [
        ("a", 7, 4, 1, 1),
        ("a", long, 2, 2, 0),
        ("b", 7, 4, 1, 0),
        ("b", 9, 3, 1, 0),
        ("b", long, 2, 2, 0),
    ]


@given(st.lists(st.integers(0, 100)), st.lists(st.integers(0, 100)))
def test_curve_falls_from_one_and_counts_every_wait(ended: list[int], cut: list[int]) -> None:
    """Monotone, within [0, 1], and every wait that ended is in a row."""
    lines = [f"t wake {1000 - w} -> 1000 cpu0" for w in ended]
    lines += [f"t wake {1000 - w} -> open cpu0" for w in cut]
    curve = ss.survival(ledger("\n".join(lines)))
    share = curve["survival"].to_list()
    assert all(0 <= b <= a <= 1 for a, b in zip([1.0, *share], share, strict=False))
    assert curve["n_ended"].sum() == len(ended)
    first = min(ended, default=0)
    assert curve["n_censored"].sum() == sum(c >= first for c in cut if ended)


@pytest.mark.parametrize("limit", [0, 60, 1000])
def test_many_waits_are_counted_in_steps(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each row of the curve is a point of the exact one, and quantiles are 0.1 % too long at most.

    800 waits, of two threads, in batches of 100; those cut at 30 ms are in no step with others.
    """
    rng = np.random.default_rng(1)
    waits = np.unique(np.exp(rng.uniform(0, 17, 1200)).astype(np.int64))[:800]
    rng.shuffle(waits)
    end = 10**9
    lines = [f"{'ab'[i % 2]} wake {end - w} -> {end} cpu0" for i, w in enumerate(waits)]
    lines += [f"b wake {end - 30_000_000} -> open cpu0"] * 5
    trace = ledger("\n".join(lines), window=(0, end))
    exact = ss.survival(trace, by="comm")
    options = {"by": "comm", "censored": "kaplan-meier", "quantiles": [0.1, 0.5, 0.9, 0.99]}
    longest = ss.latency(trace, **options)
    monkeypatch.setattr(module, "EXACT", limit)
    monkeypatch.setattr("schedscope.analysis.asking.batches.BATCH", 100)
    curve = ss.survival(trace, by="comm")
    assert (curve.height < exact.height) == (limit < len(lines))
    assert curve["n_ended"].sum() == len(waits)
    assert curve["n_censored"].sum() == 5
    both = curve.join(exact, on=["comm", "wait"], how="left", maintain_order="left")
    for name in ("survival", "lower", "upper"):
        assert both[name].to_list() == pytest.approx(both[f"{name}_right"].to_list(), abs=1e-12)
    found = ss.latency(trace, **options)
    for name in ("p10", "p50", "p90", "p99"):
        ratio = found[name] / longest[name]
        assert ratio.min() >= 1
        assert ratio.max() < 1 + STEP
