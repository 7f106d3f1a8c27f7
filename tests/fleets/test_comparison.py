"""Intervals have their stated coverage, in simulations with a known answer; outliers are found."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from schedscope.errors import UsageError
from schedscope.fleets import groups, hosts
from schedscope.fleets.intervals import difference, group_means
from schedscope.fleets.measures import Host, comparable, left_out


def drawn(
    rng: np.random.Generator, n: int, traces: int, between: float, within: float
) -> list[Host]:
    means = rng.normal(0, between, n)
    return [Host(str(i), mean + rng.normal(0, within, (traces, 1))) for i, mean in enumerate(means)]


@pytest.mark.parametrize(
    ("n_a", "n_b", "traces", "between", "within"),
    [(5, 5, 3, 0.5, 0.3), (12, 6, 2, 0.5, 0.3), (10, 10, 1, 0.5, 0.3), (8, 8, 4, 0.1, 0.5)],
)
def test_intervals_of_groups_cover_the_truth(
    n_a: int, n_b: int, traces: int, between: float, within: float
) -> None:
    """Both groups are alike: 95 % of the intervals should contain 0.

    Of 300, fewer than 272 would have a chance of 1 in 1,000 at 95 %.
    """
    rng = np.random.default_rng(3)
    covered, widths = 0, []
    for seed in range(300):
        a, b = (drawn(rng, n, traces, between, within) for n in (n_a, n_b))
        means = group_means(a, 500, seed), group_means(b, 500, 1000 + seed)
        _, low, high = difference(a, b, *means, 0.95)
        covered += bool(low[0] <= 0 <= high[0])
        widths.append(float(high[0] - low[0]))
    assert covered >= 272
    # They are not trivially wide: at most twice the width with a known spread.
    spread = np.sqrt((between**2 + within**2 / traces) * (1 / n_a + 1 / n_b))
    assert np.median(widths) < 2 * 2 * 1.96 * spread


def test_interval_width_follows_hosts_not_traces() -> None:
    """Resampling traces as if they were independent would be wrong by a factor of ten here."""
    rng = np.random.default_rng(5)
    a = drawn(rng, 6, 100, 0.5, 0.05)
    spread = float(group_means(a, 500, 0).std())
    assert spread > 0.1
    flat = [Host("all", np.concatenate([host.values for host in a]))]
    assert float(group_means(flat, 500, 0).std()) < spread / 5


def table(rng: np.random.Generator, n: int, traces: int = 4, **effect: float) -> pl.DataFrame:
    """Hosts h0, h1, ...: even ones with kernel 6.6, and a label; `effect` multiplies a host's."""
    rows = []
    for number in range(n):
        host = f"h{number}"
        base = np.exp(rng.normal(0, 0.2)) * effect.get(host, 1.0)
        for k in range(traces):
            factor = base * np.exp(rng.normal(0, 0.1))
            rows.append(
                {
                    "trace": f"{host}-{k}",
                    "path": f"{host}-{k}",
                    "host": host,
                    "release": "6.12" if number % 2 else "6.6",
                    "label_rack": f"r{number}",
                    "os": "Linux",
                    "machine": "x86_64",
                    "scheduler": "eevdf",
                    "preempt": None,
                    "hz": 250,
                    "cpus": 4,
                    "n": 1000,
                    "p99": int(1e6 * factor),
                    "mean": 1e5 * factor,
                    "waiting_frac": 0.1 * factor,
                    "level": "ok",
                    "error": None,
                }
            )
    return pl.DataFrame(rows)


def test_only_the_host_with_long_waits_is_an_outlier() -> None:
    frame = hosts.outliers(table(np.random.default_rng(1), 30, h7=8.0))
    sure = frame.filter(pl.col("verdict") == "more")
    assert sure["host"].unique().to_list() == ["h7"]
    assert sure.height == 3, "by each measure"
    assert frame.filter(pl.col("verdict") != "", pl.col("host") != "h7").is_empty()
    row = frame.row(0, named=True)
    assert row["lower"] < row["ratio"] < row["upper"]
    assert 4 < row["ratio"] < 16


@pytest.mark.parametrize("n", [8, 30])
def test_rate_of_chance_outliers_is_the_documented_one(n: int) -> None:
    """Hosts with one wide distribution, so that the limit of the ratio excludes none."""
    rng = np.random.default_rng(n)
    fleets, listed = 1200 // n, 0
    for _ in range(fleets):
        frame = table(rng, n, traces=1)
        for measure in ("p99", "mean", "waiting_frac"):
            values = pl.Series(1e6 * np.exp(rng.normal(0, 1, n)))
            frame = frame.with_columns(values.cast(frame.schema[measure]).alias(measure))
        listed += hosts.outliers(frame, resamples=2).filter(pl.col("verdict") != "").height
    rows = 3 * n * fleets
    said = hosts.by_chance(n) * rows
    # Hosts of one fleet share its median: they spread more than independent ones.
    assert abs(listed - said) < 5 * np.sqrt(said)


@pytest.mark.parametrize(("factor", "verdict"), [(1.02, ""), (1.2, ""), (0.82, ""), (1.4, "more")])
def test_a_host_that_differs_by_little_does_not_stand_out(factor: float, verdict: str) -> None:
    """Hosts equal to a thousandth: 2 % is 14 robust deviations, but too little to act upon."""
    rng = np.random.default_rng(1)
    frame = table(rng, 12)
    noise = pl.Series(np.exp(rng.normal(0, 0.001, frame.height)))
    mine = pl.when(pl.col("host") == "h7").then(factor).otherwise(1.0)
    frame = frame.with_columns(
        p99=(1e6 * noise * mine).cast(pl.Int64), mean=1e5 * noise * mine, waiting_frac=0.1 * mine
    )
    found = hosts.outliers(frame)
    row = found.filter(pl.col("host") == "h7", pl.col("measure") == "p99").row(0, named=True)
    assert abs(row["score"]) > 10
    assert row["lower"] < row["ratio"] < row["upper"]
    assert row["ratio"] == pytest.approx(factor, rel=0.002)
    assert row["verdict"] == verdict
    assert found.filter(pl.col("host") != "h7", pl.col("verdict") != "").is_empty()


def test_among_equal_hosts_few_stand_out() -> None:
    """3.5 robust deviations: about 0.05 % of normal hosts, more where 20 hosts set the scale."""
    found = sum(
        hosts.outliers(table(np.random.default_rng(seed), 20), resamples=200)
        .filter(pl.col("verdict").is_in(["more", "less"]))
        .height
        for seed in range(10)
    )
    assert found <= 12, "of 600 rows"


def test_single_traces_give_only_possible_outliers() -> None:
    frame = hosts.outliers(table(np.random.default_rng(1), 30, traces=1, h7=8.0))
    assert set(frame.filter(pl.col("host") == "h7")["verdict"]) == {"perhaps more"}
    assert not set(frame["verdict"]) & {"more", "less"}
    assert frame["lower"].null_count() == frame.height


def test_too_few_hosts_are_not_judged() -> None:
    assert hosts.outliers(table(np.random.default_rng(1), 7)).is_empty()


def test_groups_that_differ_are_found_and_others_are_not() -> None:
    rng = np.random.default_rng(2)
    slow = {f"h{number}": 3.0 for number in range(1, 20, 2)}
    frame, resamples = groups.grouped(table(rng, 20, **slow))
    assert set(frame["column"]) == {"release"}, "racks have one host each"
    compared = frame.filter(pl.col("ratio").is_not_null())
    assert set(compared["group"]) == {"6.6"}, "the first of two of one size is the reference"
    assert set(compared["verdict"]) == {"less"}
    for row in compared.iter_rows(named=True):
        assert row["lower"] < 1 / 3 < row["upper"]
    assert resamples == 2000
    equal, _ = groups.grouped(table(rng, 20))
    assert set(equal["verdict"].drop_nulls()) == {"within noise"}
    again, _ = groups.grouped(table(np.random.default_rng(4), 20))
    assert again.equals(groups.grouped(table(np.random.default_rng(4), 20))[0]), "the seed is fixed"


def test_unknown_column_is_refused() -> None:
    with pytest.raises(UsageError, match=r"label_row.*one of release"):
        groups.grouped(table(np.random.default_rng(2), 6), ["label_row"])


def test_excluded_traces_are_counted() -> None:
    frame = table(np.random.default_rng(2), 6, traces=1).with_columns(
        host=pl.Series(["h0", None, "h2", "h3", "h4", "h5"]),
        level=pl.Series(["ok", "ok", "violated", "ok", "ok", "ok"]),
        n=pl.Series([99, 5, 5, 100, 100, 100]),
        error=pl.Series([None, None, None, None, None, "broken"]),
    )
    assert comparable(frame)["host"].to_list() == ["h3", "h4"]
    assert left_out(frame) == {
        "contradict themselves": 1,
        "do not name their host": 1,
        "have fewer than 100 waits": 1,
    }


def test_loss_of_events_makes_no_difference() -> None:
    """h7 waits as long as the others, and shows two thirds of it: it may be like them."""
    rng = np.random.default_rng(1)
    frame = table(rng, 12)
    noise = pl.Series(np.exp(rng.normal(0, 0.001, frame.height)))
    seen = pl.when(pl.col("host") == "h7").then(2 / 3).otherwise(1.0)
    frame = frame.with_columns(
        p99=(1e6 * noise * seen).cast(pl.Int64), mean=1e5 * noise * seen, waiting_frac=0.1 * seen
    )
    assert set(hosts.outliers(frame).filter(host="h7")["verdict"]) == {"less"}
    known = frame.with_columns(total=10**8 * seen, total_high=10**8, p99_high=10**6 * noise)
    found = hosts.outliers(known).filter(host="h7")
    assert set(found["verdict"]) == {"perhaps less"}
    assert (found["upper"] > 0.95).all()
    both, _ = groups.grouped(known.with_columns(release=pl.col("host") == "h7"), ["release"])
    assert both.is_empty(), "one host is no group"
    lossy = pl.col("host").is_in([f"h{number}" for number in range(5)])
    less = pl.when(lossy).then(2 / 3).otherwise(1.0)
    half = known.with_columns(
        p99=(1e6 * noise * less).cast(pl.Int64), mean=1e5 * noise * less,
        waiting_frac=0.1 * noise * less, total=10**8 * less, label_lossy=lossy.cast(pl.String),
    )  # fmt: skip
    for columns, verdict in (([], "within noise"), (["total_high"], "less")):
        found, _ = groups.grouped(half.drop(columns), ["label_lossy"])
        assert set(found["verdict"].drop_nulls()) == {verdict}
