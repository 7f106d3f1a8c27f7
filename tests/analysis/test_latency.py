"""`latency`: hand-made ledgers in round numbers, and a naive twin on random ones."""

from __future__ import annotations

import math

import polars as pl
import pytest
from hypothesis import given, strategies as st
from ledgers import ledger

import schedscope as ss

WORLD = """
    web  wake    100 -> 110  cpu0
    web  wake    200 -> 230  cpu1
    web  preempt 300 -> 320  cpu0
    db   wake    400 -> 500  cpu1
    db   preempt 600 -> open cpu1
    db   unknown ?   -> 250  cpu1
"""


def test_all_waits_in_one_row() -> None:
    """n, censored and excluded add up to the ledger; statistics are over the n."""
    row = ss.latency(ledger(WORLD)).row(0, named=True)
    assert row == {
        "n": 4,
        "n_censored": 1,
        "n_excluded": 1,
        "total": 160,
        "mean": 40.0,
        "p50": 20,
        "p90": 100,
        "p99": 100,
        "p99.9": 100,
        "max": 100,
        "max_censored": 400,
        "ts_max": 400,
    }


def test_by_comm_largest_total_first() -> None:
    """Groups come in order of the time they lost; each keeps its own counts."""
    frame = ss.latency(ledger(WORLD), by="comm")
    assert frame.select("comm", "n", "n_censored", "n_excluded", "total", "ts_max").rows() == [
        ("db", 1, 1, 1, 100, 400),
        ("web", 3, 0, 0, 60, 200),
    ]


def test_by_several_columns() -> None:
    """A combination that never occurs has no row."""
    frame = ss.latency(ledger(WORLD), by=["comm", "cause"])
    assert frame.select("comm", "cause", "n", "n_censored", "total").rows() == [
        ("db", "wake", 1, 0, 100),
        ("web", "wake", 2, 0, 40),
        ("web", "preempt", 1, 0, 20),
        ("db", "preempt", 0, 1, 0),
        ("db", "unknown", 0, 0, 0),
    ]


def test_a_wait_that_never_ran_belongs_to_the_queue_it_waited_on() -> None:
    """By CPU, an open wait counts for the CPU whose queue it is on."""
    frame = ss.latency(ledger(WORLD), by="cpu").sort("cpu")
    assert frame.select("cpu", "n", "n_censored").rows() == [(0, 2, 0), (1, 2, 1)]


def test_a_group_of_open_waits_only_has_no_quantiles() -> None:
    """Nothing is invented where nothing ended: nulls, and the lower bound."""
    trace = ledger("hog wake 100 -> open cpu0")
    row = ss.latency(trace, by="comm").row(0, named=True)
    assert (row["n"], row["n_censored"], row["max_censored"]) == (0, 1, 900)
    assert [row[c] for c in ("mean", "p50", "p99.9", "max", "ts_max")] == [None] * 5


def test_time_buckets_count_a_wait_where_it_began() -> None:
    """Buckets start at the window's begin and come in order of time."""
    trace = ledger("a wake 150 -> 390 cpu0\na wake 360 -> 370 cpu0", window=(100, 500))
    frame = ss.latency(trace, every=100)
    assert frame.select("ts", "n", "max").rows() == [(100, 1, 240), (300, 1, 10)]


def test_where_selects_waits_by_any_column_of_wait_or_thread() -> None:
    """`where` may mix columns of both tables."""
    frame = ss.latency(ledger(WORLD), where=(pl.col("comm") == "web") & (pl.col("cause") == "wake"))
    assert frame["n"].item() == 2


def test_an_empty_ledger_answers_with_zero() -> None:
    """No waits: one row of zeros and nulls in all, no row by comm."""
    trace = ledger("")
    assert ss.latency(trace).select("n", "total", "max").row(0) == (0, 0, None)
    assert ss.latency(trace, by="comm").height == 0
    assert ss.latency(trace, by=["comm", "cause"], every="1ms").height == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"by": "color"}, "by='color'"),
        ({"by": ["comm", "comm"]}, "names a column twice"),
        ({"quantiles": [1.5]}, "quantile 1.5"),
        ({"every": 0}, "every=0"),
        ({"every": "ten"}, "'ten' is not a duration"),
        ({"where": pl.col("colour") == 1}, "no column 'colour'"),
        ({"censored": "ignore"}, "censored='ignore'"),
    ],
)
def test_impossible_questions_are_refused(arguments: dict[str, object], message: str) -> None:
    """The error says what was asked and what is possible."""
    with pytest.raises(ss.UsageError, match=message) as caught:
        ss.latency(ledger(WORLD), **arguments)  # type: ignore[arg-type]
    assert caught.value.expected


WAITS = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "c"]),
        st.sampled_from(["wake", "preempt", "yield"]),
        st.one_of(st.none(), st.integers(0, 999)),
        st.one_of(st.none(), st.integers(0, 2**45)),
        st.integers(0, 1),
    ),
    max_size=60,
)


@given(WAITS, st.sampled_from([[], ["comm"], ["cpu"], ["cause", "comm"], ["tid", "cpu", "cause"]]))
def test_agrees_with_the_definition_spelled_out(
    waits: list[tuple[str, str, int | None, int | None, int]], by: list[str]
) -> None:
    """Against a loop over the rows that sorts each group and takes the ranked element."""
    lines = [
        f"{comm} {cause} {'?' if begin is None else begin} -> "
        f"{'open' if length is None else (begin or 0) + length} cpu{cpu}"
        for comm, cause, begin, length, cpu in waits
    ]
    got = ss.latency(ledger("\n".join(lines)), by=by, quantiles=(0.07, 0.5, 0.9, 1))
    tids: dict[str, int] = {}
    groups: dict[tuple[object, ...], list[tuple[int | None, int | None]]] = {}
    for comm, cause, begin, length, cpu in waits:
        tids.setdefault(comm, 100 + len(tids))
        key = {"comm": comm, "cause": cause, "cpu": cpu, "tid": tids[comm]}
        groups.setdefault(tuple(key[name] for name in by), []).append((begin, length))
    if not by:
        groups.setdefault((), [])
    expected = {}
    for key_, rows in groups.items():
        ended = sorted(length for begin, length in rows if None not in (begin, length))  # type: ignore[type-var]
        cut = [1000 - begin for begin, length in rows if begin is not None and length is None]

        def at(percent: int, values: list[int] = ended) -> int | None:  # type: ignore[assignment]
            return values[math.ceil(percent * len(values) / 100) - 1] if values else None

        expected[key_] = (
            len(ended),
            len(cut),
            sum(begin is None for begin, _ in rows),
            sum(ended),  # type: ignore[arg-type]
            at(7),
            at(50),
            at(90),
            at(100),
            max(cut, default=None),
        )
    columns = ["n", "n_censored", "n_excluded", "total", "p7", "p50", "p90", "max", "max_censored"]
    assert {row[: len(by)]: row[len(by) :] for row in got.select(*by, *columns).rows()} == expected


def test_a_wait_of_a_thread_without_a_row_is_still_counted() -> None:
    """In a group of its own, under the name null."""
    trace = ledger(WORLD)
    half = ss.Trace.from_tables(
        {"waits": trace.waits, "threads": trace.threads.filter(pl.col("comm") != "db")}, trace.info
    )
    frame = ss.latency(half, by="comm")
    assert frame.select("comm", "n").rows() == [(None, 1), ("web", 3)]


@given(st.lists(st.integers(0, 10_000_000), max_size=60), st.integers(0, 5))
def test_a_histogram_has_every_measured_wait_in_its_range(lengths: list[int], open_: int) -> None:
    """Ranges adjoin, and a naive count of each gives the same numbers."""
    lines = [f"web wake {n} -> {n + wait} cpu0" for n, wait in enumerate(lengths)]
    lines += [f"web wake {n} -> open cpu0" for n in range(open_)]
    trace = ledger("\n".join(lines))
    frame = ss.latency_histogram(trace)
    assert frame["to"].to_list()[:-1] == frame["from"].to_list()[1:]
    for row in frame.iter_rows(named=True):
        inside = [wait for wait in lengths if row["from"] <= wait < row["to"]]
        assert (row["n"], row["total"]) == (len(inside), sum(inside))
        assert row["to"] == max(1000, 2 * row["from"])
    assert sum(frame["n"]) == len(lengths)
