"""Kaplan-Meier: a textbook's numbers, limits, and the plain quantile where nothing is cut."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st
from ledgers import ledger

import schedscope as ss
from schedscope.analysis import survival as module
from schedscope.analysis.survival import STEP, kaplan_meier_quantiles, lengths_of

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
    # R: survfit(Surv(t, d) ~ 1, conf.type = "log-log")
    assert curve["lower"][0] == pytest.approx(0.620, abs=5e-4)
    assert curve["upper"][0] == pytest.approx(0.952, abs=5e-4)
    assert curve["lower"][-1] == pytest.approx(0.188, abs=5e-4)
    assert curve["upper"][-1] == pytest.approx(0.680, abs=5e-4)


def test_the_median_of_the_textbook_example() -> None:
    """23 weeks; and no third quartile, the curve ends at 0.448."""
    got = kaplan_meier_quantiles(lengths_of(np.array(REMISSION), np.array(CUT)), [0.5, 0.75])
    assert got == [23, None]


def test_scipy_agrees() -> None:
    """The same curve by somebody else's program."""
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
    finite = got.filter(got["lower"].is_not_null())
    at = finite["wait"].to_numpy()
    assert finite["lower"].to_list() == pytest.approx(interval.low.evaluate(at))
    assert finite["upper"].to_list() == pytest.approx(interval.high.evaluate(at))


def test_latency_quantiles_take_open_waits_into_account() -> None:
    """One long open wait moves p90 out of reach, instead of vanishing."""
    lines = [f"t wake 10 -> {10 + i} cpu0" for i in range(1, 9)]
    trace = ledger("\n".join([*lines, "t wake 0 -> open cpu0", "t wake 0 -> open cpu0"]))
    plain = ss.latency(trace).row(0, named=True)
    honest = ss.latency(trace, censored="kaplan-meier").row(0, named=True)
    assert (plain["p50"], plain["p90"]) == (4, 8)
    assert (honest["p50"], honest["p90"]) == (5, None)


@given(st.lists(st.integers(0, 100), min_size=1), st.sampled_from([0.1, 0.5, 0.9, 0.99, 1]))
def test_without_open_waits_it_is_the_order_statistic(waits: list[int], q: float) -> None:
    """Kaplan-Meier of complete data is the empirical distribution."""
    lines = [f"t wake {1000 - w} -> 1000 cpu0" for w in waits]
    lines.append("other wake 0 -> open cpu0")  # other groups do not matter
    trace = ledger("\n".join(lines))
    plain = ss.latency(trace, by="comm", quantiles=[q])
    honest = ss.latency(trace, by="comm", quantiles=[q], censored="kaplan-meier")
    assert plain.filter(plain["comm"] == "t").equals(honest.filter(honest["comm"] == "t"))
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
def test_the_curve_falls_from_one_and_accounts_for_everybody(
    ended: list[int], cut: list[int]
) -> None:
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
    monkeypatch.setattr("schedscope.analysis._base.batches.BATCH", 100)
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
