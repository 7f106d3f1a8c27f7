"""`latency`: hand-made waits in round numbers, and a naive implementation on random ones."""

from __future__ import annotations

import math

import polars as pl
import pytest
from hypothesis import given, strategies as st
from ledgers import ledger

import schedscope as ss
from schedscope.parsers.schema import TABLES

WORLD = """
    web  wake    100 -> 110  cpu0
    web  wake    200 -> 230  cpu1
    web  preempt 300 -> 320  cpu0
    db   wake    400 -> 500  cpu1
    db   preempt 600 -> open cpu1
    db   unknown ?   -> 250  cpu1
"""


def test_all_waits_in_one_row() -> None:
    """n, censored and excluded add up to all waits. The unfinished wait is the longest: it lasted
    for 400 within the window, and how long it went on is unknown.
    """
    row = ss.latency(ledger(WORLD)).row(0, named=True)
    assert row == {
        "n": 4,
        "n_high": 4,
        "n_censored": 1,
        "n_excluded": 1,
        "total": 560,
        "total_high": 560,
        "mean": 112.0,
        "mean_high": None,
        "p50": 30,
        "p50_high": 30,
        "p90": 400,
        "p90_high": None,
        "p99": 400,
        "p99_high": None,
        "p99.9": 400,
        "p99.9_high": None,
        "max": 400,
        "max_high": None,
        "max_censored": 400,
        "ts_max": 600,
        "coverage": 1.0,
    }


def test_by_comm_largest_total_first() -> None:
    """Groups come in order of the time they lost; each keeps its own counts."""
    frame = ss.latency(ledger(WORLD), by="comm")
    assert frame.select("comm", "n", "n_censored", "n_excluded", "total", "ts_max").rows() == [
        ("db", 1, 1, 1, 500, 600),
        ("web", 3, 0, 0, 60, 200),
    ]


def test_by_several_columns() -> None:
    """A combination that never occurs has no row."""
    frame = ss.latency(ledger(WORLD), by=["comm", "cause"])
    assert frame.select("comm", "cause", "n", "n_censored", "total").rows() == [
        ("db", "preempt", 0, 1, 400),
        ("db", "wake", 1, 0, 100),
        ("web", "wake", 2, 0, 40),
        ("web", "preempt", 1, 0, 20),
        ("db", "unknown", 0, 0, 0),
    ]


def test_a_wait_that_never_ran_belongs_to_the_queue_it_waited_on() -> None:
    """By CPU, an unfinished wait counts for the CPU whose queue it is on."""
    frame = ss.latency(ledger(WORLD), by="cpu").sort("cpu")
    assert frame.select("cpu", "n", "n_censored").rows() == [(0, 2, 0), (1, 2, 1)]


def test_group_of_unfinished_waits_has_no_upper_bounds() -> None:
    """It has waited for 900 so far; its final length is unknown."""
    trace = ledger("hog wake 100 -> open cpu0")
    row = ss.latency(trace, by="comm").row(0, named=True)
    assert (row["n"], row["n_censored"], row["max_censored"]) == (0, 1, 900)
    assert [row[c] for c in ("mean", "p50", "p99.9", "max", "ts_max")] == [900, 900, 900, 900, 100]
    assert [row[f"{c}_high"] for c in ("p50", "p99.9", "max")] == [None] * 3


def bounded(*rows: dict[str, object], unknown: tuple[int, int] | None = None) -> ss.Trace:
    """Waits of thread 1 in a window of 0..1000 that `ledger` cannot write."""
    given = {"utid": 1, "cause": "wake", "censored": "none"}
    waits = pl.DataFrame([given | row for row in rows], schema=TABLES["waits"].schema)
    tables = {"waits": waits, "threads": pl.DataFrame({"utid": [0, 1], "comm": ["idle", "a"]})}
    if unknown is not None:
        begin, end = unknown
        interval = {"ts": begin, "dur": end - begin, "utid": 1, "state": "unknown", "end": "lost"}
        tables["states"] = pl.DataFrame([interval], schema=TABLES["states"].schema)
    return ss.Trace.from_tables(tables, {"ncpu": 1, "window": [0, 1000]})


CUT = {"ts_ready": 200, "wait": 30, "wait_high": 100, "censored": "right"}
REST = {"ts_run": 300, "wait_high": 70, "censored": "left"}


def test_bounded_wait_gives_bounded_figures() -> None:
    """One wait of 10, and one of 30 to 100, cut by a loss; unknown from 230 to 300."""
    measured = {"ts_ready": 100, "ts_run": 110, "wait": 10, "wait_high": 10}
    row = ss.latency(bounded(measured, CUT, unknown=(230, 300)), by="comm").row(0, named=True)
    figures = {name: (row[name], row[f"{name}_high"]) for name in ("total", "mean", "p50", "max")}
    assert figures == {"total": (40, 110), "mean": (20, 55), "p50": (10, 10), "max": (30, 100)}
    assert row["coverage"] == 10 / 110


def test_remainder_of_a_cut_wait_may_be_a_second_wait() -> None:
    """Two waits of 30 to 100 and 0 to 70, or one of 30 to 100: never 170 in total."""
    row = ss.latency(bounded(CUT, REST, unknown=(230, 300))).row(0, named=True)
    figures = {name: (row[name], row[f"{name}_high"]) for name in ("total", "mean", "p50", "max")}
    assert figures == {"total": (30, 100), "mean": (15, 100), "p50": (0, 100), "max": (30, 100)}


def test_unknown_time_may_belong_to_any_group_not_of_threads() -> None:
    """No wait is recorded there, but there may have been one, of any cause."""
    measured = {"ts_ready": 100, "ts_run": 110, "wait": 10, "wait_high": 10}
    other = {"ts_ready": 120, "ts_run": 125, "wait": 5, "wait_high": 5, "cause": "new"}
    frame = ss.latency(bounded(measured, other, unknown=(500, 600)), by="cause")
    assert frame.select("cause", "total", "total_high").rows() == [
        ("wake", 10, 110),
        ("new", 5, 105),
    ]


def test_left_censored_wait_is_at_least_its_queued_time() -> None:
    queued = {"ts_enqueued": 100, "ts_run": 150, "queue": 50, "wait_high": 90, "censored": "left"}
    row = ss.latency(bounded(queued)).row(0, named=True)
    assert (row["n_excluded"], row["max"], row["max_high"]) == (1, 50, 90)


def test_time_buckets_count_a_wait_at_its_start() -> None:
    """Buckets start at the start of the window and are in order of time."""
    trace = ledger("a wake 150 -> 390 cpu0\na wake 360 -> 370 cpu0", window=(100, 500))
    frame = ss.latency(trace, every=100)
    assert frame.select("ts", "n", "max").rows() == [(100, 1, 240), (300, 1, 10)]


def test_where_selects_waits_by_any_column_of_wait_or_thread() -> None:
    """`where` may combine columns of both tables."""
    frame = ss.latency(ledger(WORLD), where=(pl.col("comm") == "web") & (pl.col("cause") == "wake"))
    assert frame["n"].item() == 2


def test_trace_without_waits_has_zero_counts() -> None:
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
def test_invalid_arguments_are_refused(arguments: dict[str, object], message: str) -> None:
    """The error names the argument and what is possible."""
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
def test_latency_equals_a_naive_implementation(
    waits: list[tuple[str, str, int | None, int | None, int]], by: list[str]
) -> None:
    """Compared with a loop over the rows that sorts each group and takes the ranked element."""
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
        ended = [length for begin, length in rows if begin is not None and length is not None]
        cut = [1000 - begin for begin, length in rows if begin is not None and length is None]
        # Among equal ones, unfinished waits rank as longer.
        every = sorted(
            [*((length, False) for length in ended), *((length, True) for length in cut)]
        )

        def at(percent: int, values: list[tuple[int, bool]] = every) -> tuple[int | None, ...]:
            if not values:
                return None, None
            length, is_open = values[math.ceil(percent * len(values) / 100) - 1]
            return length, None if is_open else length

        expected[key_] = (
            len(ended),
            len(cut),
            sum(begin is None for begin, _ in rows),
            sum(ended) + sum(cut),
            *at(7),
            *at(50),
            *at(90),
            *at(100),
            max(cut, default=None),
        )
    columns = ["n", "n_censored", "n_excluded", "total"]
    columns += [f"{name}{end}" for name in ("p7", "p50", "p90", "max") for end in ("", "_high")]
    columns += ["max_censored"]
    assert {row[: len(by)]: row[len(by) :] for row in got.select(*by, *columns).rows()} == expected


def test_a_wait_of_a_thread_without_a_row_is_still_counted() -> None:
    """It is a group of its own, with a null name."""
    trace = ledger(WORLD)
    half = ss.Trace.from_tables(
        {"waits": trace.waits, "threads": trace.threads.filter(pl.col("comm") != "db")}, trace.info
    )
    frame = ss.latency(half, by="comm")
    assert frame.select("comm", "n").rows() == [(None, 1), ("web", 3)]


@given(st.lists(st.integers(0, 10_000_000), max_size=60), st.integers(0, 5))
def test_histogram_counts_each_measured_wait_in_its_range(lengths: list[int], open_: int) -> None:
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
