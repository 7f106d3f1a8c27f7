"""Frames for reading: units by the conventions of the trace model, in text and in HTML."""

from __future__ import annotations

import polars as pl

import schedscope as ss

FRAME = pl.DataFrame(
    {
        "comm": ["web", "<b>", None],
        "cpu": [12, 1, None],
        "n": [12_345, 1, 0],
        "wait": [4_523, 2_000_000_000, None],
        "moved_frac": [0.25, 1.0, None],
        "ts_ready": [1_500_000_000, 1_000_000_000, None],
        "ratio": [1.23456789, 2.0, None],
        "weight": [1024, 15, None],
    }
)


def test_readable_prints_like_the_command_line() -> None:
    text = repr(ss.readable(FRAME, origin=1_000_000_000))
    assert text.splitlines() == [
        "comm  cpu       n     wait  moved_frac    ts_ready  ratio  weight",
        "web    12  12,345  4.52 µs      25.0 %  0.500000 s  1.235   1,024",
        "<b>     1       1  2.00 s        100 %  0.000000 s      2      15",
        "-       -       0        -           -           -      -       -",
    ]


def test_readable_escapes_names_in_html() -> None:
    """A thread chooses its own name, which is not markup."""
    html = ss.readable(FRAME)._repr_html_()
    assert html.count("<tr>") == 4
    assert "&lt;b&gt;" in html
    assert "<b>" not in html
    assert ">4.52 µs</td>" in html
    assert ">12,345</td>" in html


def test_empty_frame_is_a_heading_without_rows() -> None:
    assert repr(ss.readable(FRAME.clear())).count("\n") == 0
    assert ss.readable(FRAME.clear())._repr_html_().count("<tr>") == 1


def test_readable_keeps_the_frame() -> None:
    assert ss.readable(FRAME).frame is FRAME


def test_mean_is_a_duration_when_declared() -> None:
    frame = pl.DataFrame({"mean": [1_500.5]})
    assert repr(ss.readable(frame)).split() == ["mean", "1500"]
    assert repr(ss.readable(frame, times=["mean"])).split() == ["mean", "1.50", "µs"]


def test_mean_with_its_sum_is_a_duration() -> None:
    frame = pl.DataFrame({"n": [2, 0], "total": [3001, 0], "mean": [1500.5, None]})
    assert repr(ss.readable(frame)).splitlines()[1].split() == [
        "2",
        "3.00",
        "µs",
        "1.50",
        "µs",
    ]
    in_us = frame.with_columns(pl.col("mean") / 1000)
    assert repr(ss.readable(in_us)).splitlines()[1].split()[-1] == "1.5"


def test_thread_numbers_are_not_durations() -> None:
    trace = ss.simulate(ss.workload.hogs(3, time="40ms"), policy="rr", cpus=2)
    for frame in (
        ss.queue_depth(trace),
        ss.queue_depth_summary(trace).select("p50", "p99", "max"),
        ss.whatif(trace, cpus=3).select("threads", "alive"),
    ):
        depths = frame.select(pl.exclude("ts", "dur", "cpu"))
        assert "ns" not in repr(ss.readable(depths))


def test_sums_identify_durations() -> None:
    trace = ss.simulate(ss.workload.hogs(3, time="40ms"), policy="rr", cpus=2)
    by_thread = repr(ss.readable(ss.fairness(trace).select("running", "due", "lag").head(1)))
    assert by_thread.count("ms") + by_thread.count("0 ns") == 3
    assert (
        repr(ss.readable(ss.slowdown(trace).select("cpu", "waiting", "slowdown"))).count("ms") == 6
    )


def test_bounds_are_one_column_of_intervals_in_the_unit_of_their_kind() -> None:
    frame = pl.DataFrame(
        {"wait": [1_000_000, 2_000_000], "wait_high": [1_000_000, None], "x_frac": [0.1, 0.2]}
    ).with_columns(x_frac_high=pl.Series([0.3, 0.2]))
    heading, first, second = (line.split("  ") for line in repr(ss.readable(frame)).splitlines())
    assert [word.strip() for word in heading if word] == ["wait", "x_frac"]
    assert [word.strip() for word in first if word] == ["1.00 ms", "10.0 to 30.0 %"]
    assert [word.strip() for word in second if word] == [">= 2.00 ms", "20.0 %"]
