"""The measures of published comparisons, against the figures published with them."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

import schedscope as ss
from schedscope.analysis.comparison.run_measures import (
    cost,
    improvement_frac,
    max_min,
    p95_min,
    scalability,
)

PUBLISHED = Path(__file__).parents[2] / "fixtures" / "published"


def printed(text: str) -> list[float]:
    return [float(word) for word in text.split()]


# What the article on BFS prints beside its times: seconds for each process under CFS and
# BFS, and per cent that BFS saves.
COSTS_CFS = printed("""
0.156739 0.110057 0.103825 0.079515 0.090389 0.082292 0.088248 0.079890 0.084390 0.078272
0.080322 0.078544 0.081271 0.078292 0.080532 0.079772 0.080042 0.078630 0.079352 0.080875
0.078690 0.078992 0.078137 0.078058 0.078368 0.078618 0.077557 0.078086 0.077803 0.078061
0.077843 0.078128
""")
COSTS_BFS = printed("""
0.151051 0.076014 0.076848 0.079092 0.075838 0.077157 0.076393 0.076795 0.076164 0.076638
0.075834 0.076113 0.076814 0.075898 0.075780 0.075943 0.075826 0.076263 0.075905 0.075525
0.075846 0.076407 0.075608 0.075593 0.075447 0.075667 0.075277 0.075458 0.075434 0.075460
0.075433 0.075925
""")
SAVED = printed("""
3.63 30.93 25.98 0.53 16.10 6.24 13.43 3.87 9.75 2.09 5.59 3.10 5.48 3.06 5.90 4.80 5.27
3.01 4.34 6.62 3.61 3.27 3.24 3.16 3.73 3.75 2.94 3.37 3.04 3.33 3.10 2.82
""")
SAVED_MAKE = printed("2.75 14.22 3.93 1.81 2.37")


def rows(name: str) -> list[dict[str, str]]:
    with (PUBLISHED / name).open() as file:
        return list(csv.DictReader(file))


def test_improvement_as_published() -> None:
    """All 32 and 5 rows, in the digits printed."""
    for name, saved in (("bfs-cfs-counter.csv", SAVED), ("bfs-cfs-make.csv", SAVED_MAKE)):
        found = [
            100 * improvement_frac(float(row["cfs_2_6_31_s"]), float(row["bfs_304_s"]))
            for row in rows(name)
        ]
        assert found == pytest.approx(saved, abs=0.0051)


def test_cost_as_published() -> None:
    table = rows("bfs-cfs-counter.csv")
    for column, costs in (("cfs_2_6_31_s", COSTS_CFS), ("bfs_304_s", COSTS_BFS)):
        found = [cost(float(row[column]), int(row["processes"])) for row in table]
        assert found == pytest.approx(costs, abs=1.1e-6)


def test_scalability() -> None:
    """16 clients take 4 s, 128 take 32 s: as the load; 30.4 s: 5 % better than that."""
    assert scalability(4, 32, a=16, b=128) == 1
    assert scalability(4, 30.4, a=16, b=128) == pytest.approx(0.95)
    assert scalability(4, 4, a=1, b=2) == 0.5


def test_extremes() -> None:
    """Of 20, the 19th is the 95 % quantile; of 1 everything is the same."""
    values = [30, *range(1, 20)]
    assert (max_min(values), p95_min(values)) == (29, 18)
    assert (max_min([7]), p95_min([7])) == (0, 0)


def test_compare_measures_the_same() -> None:
    from runs import run

    pytest.importorskip("scipy")
    waits = [3, 40, 8, 11, 25, 5]
    text = ";".join(f"t {50 * i} {50 * i + wait} on 0 for 1" for i, wait in enumerate(waits))
    frame = ss.compare(run(text), run(text)).filter(thread="t")
    found = dict(frame.select("measure", "a").iter_rows())
    assert found["wait_max_min"] == max_min(waits) == 37
    assert found["wait_p95_min"] == p95_min(waits) == 37


@pytest.mark.parametrize(
    "call",
    [
        lambda: cost(1, 0),
        lambda: improvement_frac(0, 1),
        lambda: scalability(0, 1, a=1, b=2),
        lambda: max_min([]),
        lambda: p95_min([]),
    ],
)
def test_what_has_no_answer_is_refused(call: object) -> None:
    with pytest.raises(ss.UsageError):
        call()  # type: ignore[operator]
