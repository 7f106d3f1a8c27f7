"""Figures with bounds, in tables and as verdicts."""

from __future__ import annotations

import polars as pl

import schedscope as ss
from schedscope.analysis.starvation.possible import most_episodes
from schedscope.fleets.measures import comparable, left_out
from schedscope.parsers.schema import TABLES
from schedscope.present.columns import choose
from schedscope.present.text_table import cells

MS = 1_000_000


def test_table_shows_both_bounds_only_where_they_differ() -> None:
    frame = pl.DataFrame(
        {
            "total": [40 * MS, 40 * MS],
            "total_high": [60 * MS, 40 * MS],
            "mean": [5 * MS, 5 * MS],
            "mean_high": [5 * MS, 5 * MS],
            "max": [7 * MS, 8 * MS],
            "max_high": [None, 8 * MS],
        }
    )
    shown = [cells(frame, column) for column in choose(frame, ["total", "mean", "max"])]
    assert shown == [
        ["40.0 to 60.0 ms", "40.0 ms"],
        ["5.00 ms", "5.00 ms"],
        [">= 7.00 ms", "8.00 ms"],
    ]


def test_column_of_zeros_with_a_bound_above_is_shown() -> None:
    frame = pl.DataFrame({"throttled": [0, 0], "throttled_high": [0, MS]})
    (column,) = choose(frame, ["throttled?"])
    assert cells(frame, column) == ["0 ns", "<= 1.00 ms"]


def test_wait_whose_upper_bound_reaches_the_limit_is_a_possible_episode() -> None:
    """Bounds of 50 to 150 ms; a wait of 150 ms is an episode, one of at most 40 ms is none."""
    rows = [(50, 150, "right"), (150, 150, "none"), (30, 40, "right")]
    waits = [
        {"utid": 1, "cause": "wake", "ts_ready": 0, "wait": low * MS, "wait_high": high * MS}
        | {"censored": censored, "ts_run": low * MS if censored == "none" else None}
        for low, high, censored in rows
    ]
    tables = {"waits": pl.DataFrame(waits, schema=TABLES["waits"].schema)}
    trace = ss.Trace.from_tables(tables, {"ncpu": 1, "window": [0, 1000 * MS]})
    assert most_episodes(trace, 100 * MS).rows() == [(1, 2, 300 * MS, 150 * MS)]


def test_wait_that_began_before_the_recording_is_a_possible_episode() -> None:
    """A thread that is first seen when it is switched in, 400 ms after the recording began."""
    unknown = {"cause": "unknown", "wait": None, "censored": "left"}
    waits = [
        {"utid": 1, "ts_run": 400 * MS, **unknown},
        {"utid": 2, "ts_run": 99 * MS, **unknown},
        {"utid": 3, "ts_run": 400 * MS, **unknown},
    ]
    born = [{"utid": utid, "start_ts": 350 * MS if utid == 3 else None} for utid in (1, 2, 3)]
    tables = {
        "waits": pl.DataFrame(waits, schema=TABLES["waits"].schema),
        "threads": pl.DataFrame(born, schema=TABLES["threads"].schema),
    }
    trace = ss.Trace.from_tables(tables, {"ncpu": 1, "window": [0, 1000 * MS]})
    assert most_episodes(trace, 100 * MS).rows() == [(1, 1, 400 * MS, 400 * MS)]
    later = trace.between("300ms", "900ms")
    assert most_episodes(later, 100 * MS).rows() == [(1, 1, 100 * MS, 100 * MS)]


def test_host_with_mostly_unknown_time_is_not_compared() -> None:
    table = pl.DataFrame(
        {
            "error": [None, None],
            "host": ["whole", "lossy"],
            "level": ["ok", "ok"],
            "n": [500, 500],
            "coverage": [1.0, 0.6],
        },
        schema_overrides={"error": pl.String},
    )
    assert comparable(table)["host"].to_list() == ["whole"]
    assert left_out(table) == {"have less than 95% of their waiting time measured": 1}
