"""The timeline's numbers: sums per pixel, intervals, what a page carries, the command."""

from __future__ import annotations

import base64
import gzip
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, strategies as st

import schedscope as ss
from schedscope.cli import main
from schedscope.errors import MissingExtraError, UsageError
from schedscope.parsers.schema import conform
from schedscope.timelines.answer import Timeline
from schedscope.timelines.lanes import NOBODY, STATES
from schedscope.timelines.script import script

ROOT = Path(__file__).parents[2]
FIXTURE = ROOT / "fixtures/linux-ftrace-mixed.capture"


def small() -> ss.Trace:
    """One CPU, two threads, 100 ns from 1000 on: A runs 10..40, B waits 20..40 and runs to 60."""
    states = pl.DataFrame(
        {
            "ts": [1000, 1010, 1020, 1040, 1060, 1000],
            "dur": [10, 30, 20, 20, 30, 20],
            "utid": [0, 1, 2, 2, 0, 2],
            "state": ["running", "running", "runnable", "running", "running", "sleeping"],
            "cpu": [0, 0, 0, 0, 0, None],
            "waker_utid": [None, None, 1, None, None, None],
            "end": ["switched"] * 6,
        }
    )
    waits = pl.DataFrame(
        {
            "utid": [2],
            "ts_ready": [1020],
            "ts_run": [1040],
            "wait": [20],
            "cause": ["wake"],
            "waker_utid": [1],
            "waker_cpu": [0],
            "queue_cpu": [0],
            "cpu": [0],
            "censored": ["none"],
        }
    )
    threads = pl.DataFrame(
        {"utid": [0, 1, 2], "tid": [0, 7, 8], "comm": ["idle", "A", "</script><b>"]}
    ).with_columns(comm_first="comm")
    tables = {
        name: conform(name, frame)
        for name, frame in {"states": states, "waits": waits, "threads": threads}.items()
    }
    return ss.Trace.from_tables(tables, {"ncpu": 1, "window": [1000, 1100]})


def array(at: list[Any], buffers: list[bytes]) -> list[int]:
    """The numbers of one array of an answer."""
    return [int(x) for x in np.frombuffer(buffers[at[0]], dtype=f"<{at[1]}")]


def bins(source: Timeline, lane: str, first: int, count: int, scale: int) -> dict[str, list[int]]:
    """ns per pixel by the name of the state."""
    request = {"lanes": [lane], "first": first, "bins": count, "scale": scale, "intervals": -1}
    answer, buffers = source.answer(request)
    assert answer["lanes"][0]["kind"] == "bins"
    states = answer["lanes"][0]["states"]
    return {STATES[int(code)]: array(at, buffers) for code, at in states.items()}


def test_a_pixel_holds_the_time_of_each_state() -> None:
    source = Timeline(small())
    assert source.first == ["cpu:0", "utid:2"]
    assert bins(source, "cpu:0", 0, 4, 25) == {"running": [15, 25, 10, 0], "idle": [10, 0, 15, 15]}
    assert bins(source, "utid:2", 0, 4, 25) == {
        "sleeping": [20, 0, 0, 0],
        "runnable": [5, 15, 0, 0],
        "running": [0, 10, 10, 0],
    }
    assert bins(source, "cpu:0", 3, 1, 10) == {"running": [10]}


def test_few_intervals_come_as_they_are() -> None:
    answer, buffers = Timeline(small()).answer(
        {"lanes": ["utid:2"], "first": 3, "bins": 2, "scale": 10, "id": 5}
    )
    (row,) = answer["lanes"]
    assert (answer["id"], row["kind"], row["from"]) == (5, "intervals", 20)
    assert array(row["gaps"], buffers) == [0, 20]
    assert array(row["durs"], buffers) == [20, 20]
    assert [STATES[c] for c in array(row["codes"], buffers)] == ["runnable", "running"]
    assert array(row["waker"], buffers) == [1, NOBODY]
    assert array(row["waker_cpu"], buffers) == [0, NOBODY]
    assert answer["names"] == {"1": "A 7", "2": "</script><b> 8"}


@st.composite
def lanes(draw: st.DrawFn) -> list[tuple[int, int, str]]:
    """Random intervals on one CPU, even some that contradict each other."""
    interval = st.tuples(
        st.integers(0, 400), st.integers(1, 150), st.sampled_from(["idle", "running"])
    )
    return draw(st.lists(interval, max_size=12))


@given(lanes(), st.integers(0, 60), st.integers(1, 40), st.integers(1, 90))
def test_sums_equal_counting_every_nanosecond(
    intervals: list[tuple[int, int, str]], first: int, count: int, scale: int
) -> None:
    """The reference counts each ns separately; the first interval of a ns counts."""
    states = pl.DataFrame(
        {
            "ts": [ts for ts, _, _ in intervals],
            "dur": [dur for _, dur, _ in intervals],
            "utid": [int(state == "running") for _, _, state in intervals],
            "state": ["running"] * len(intervals),
            "cpu": [0] * len(intervals),
            "end": ["switched"] * len(intervals),
        },
        schema={
            "ts": pl.Int64,
            "dur": pl.Int64,
            "utid": pl.UInt32,
            "state": pl.String,
            "cpu": pl.UInt16,
            "end": pl.String,
        },
    )
    trace = ss.Trace.from_tables(
        {"states": conform("states", states)}, {"ncpu": 1, "window": [0, 500]}
    )
    each: dict[int, str] = {}
    for ts, dur, state in sorted(intervals, key=lambda row: row[0]):
        for ns in range(ts, min(ts + dur, 500)):
            each.setdefault(ns, state)
    expected: dict[str, list[int]] = {"idle": [0] * count, "running": [0] * count}
    for ns, state in each.items():
        if first <= ns // scale < first + count:
            expected[state][ns // scale - first] += 1
    found = bins(Timeline(trace), "cpu:0", first, count, scale)
    assert found == {state: sums for state, sums in expected.items() if any(sums)}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lanes": "cpu:0"}, "a list of at most"),
        ({"lanes": ["disk:0"]}, "expected cpu:N or utid:N"),
        ({"lanes": ["cpu:-1"]}, "expected cpu:N or utid:N"),
        ({"bins": 0}, "1 to 16384 bins"),
        ({"scale": 0}, "1 ns or more"),
        ({"scale": 1.5}, "a whole number"),
        ({"first": 1 << 60}, "within 2\\^53 ns"),
        ({"first": None}, "a whole number"),
    ],
)
def test_invalid_request_is_refused(change: dict[str, Any], message: str) -> None:
    request = {"lanes": ["cpu:0"], "first": 0, "bins": 4, "scale": 25, **change}
    with pytest.raises(UsageError, match=message):
        Timeline(small()).answer(request)


@pytest.mark.parametrize("longer", [0, 1])
def test_a_trace_whose_times_a_browser_would_round_is_refused(longer: int) -> None:
    """2^53 ns are 104 days."""
    end = (1 << 53) - 1 + longer
    trace = ss.Trace.from_tables({}, {"ncpu": 1, "window": [1000, 1000 + end]})
    if not longer:
        assert "9007199254740991" in ss.timeline_html(trace)
    else:
        with pytest.raises(UsageError, match=r"a trace of 9,007,199 s.*104 days.*--since"):
            ss.timeline_html(trace)


def test_lanes_are_selected_by_tid_cpu_and_comm() -> None:
    trace = small()
    assert Timeline(trace, ["tid:8", "cpu:0", "comm:A"]).first == ["utid:2", "cpu:0", "utid:1"]
    for wrong in ("cpu:9", "tid:99", "comm:none"):
        with pytest.raises(UsageError, match="not in this trace"):
            Timeline(trace, [wrong])
    with pytest.raises(UsageError, match="a list of lanes"):
        Timeline(trace, "cpu:0")


def test_pixels_of_the_fixture_add_up_to_the_states(tmp_path: Path) -> None:
    """Each lane's pixels sum to the table's value, at any size."""
    trace = ss.open(FIXTURE, cache=tmp_path)
    source = Timeline(trace)
    for lane in source.first:
        kind, number = lane.split(":")
        mine = trace.states.filter(pl.col(kind) == int(number))
        if kind == "cpu":
            mine = mine.filter(pl.col("state") == "running")
        total = mine.select(pl.col("dur").sum()).collect().item()
        for count in (1, 7, 1000):
            scale = -(-trace.duration // count)
            assert sum(map(sum, bins(source, lane, 0, count, scale).values())) == total


def carried(page: str) -> dict[str, Any]:
    """The data inside a page."""
    found = re.search(r'<script type="application/json">(.*?)</script>', page)
    assert found
    data: dict[str, Any] = json.loads(found[1])
    blob = gzip.decompress(base64.b64decode(data["data"]))
    assert len(blob) == sum(data["sizes"])
    return data


def test_a_page_carries_every_interval_if_they_fit(tmp_path: Path) -> None:
    data = carried(ss.timeline_html(ss.open(FIXTURE, cache=tmp_path)))
    assert data["about"]["finest"] is None
    assert {row["kind"] for row in data["answers"][0]["lanes"]} == {"intervals"}


def test_a_page_that_is_too_small_carries_sums_and_the_worst_waits(tmp_path: Path) -> None:
    trace = ss.open(FIXTURE, cache=tmp_path)
    room = len(script().encode()) + 36_000
    page = ss.timeline_html(trace, max_bytes=room)
    assert len(page.encode()) <= room
    data = carried(page)
    assert data["about"]["finest"] >= trace.duration // 4096
    assert {row["kind"] for row in data["answers"][0]["lanes"]} == {"bins"}
    worst = data["about"]["waits"][0]
    assert {row["key"] for row in data["answers"][1]["lanes"]} == {
        f"utid:{worst['utid']}",
        f"cpu:{worst['queue']}",
    }
    with pytest.raises(UsageError, match="use a larger max_bytes"):
        ss.timeline_html(trace, max_bytes=40_000)


def test_page_of_selected_threads_starts_with_them(tmp_path: Path) -> None:
    """With their lanes and their longest waits; the others are in the page for search."""
    trace = ss.open(FIXTURE, cache=tmp_path)
    waited = ss.latency(trace, by=("comm", "utid"))
    comm = waited["comm"][-1]
    of_name = trace.threads.filter(pl.col("comm") == comm).collect()["utid"].to_list()
    about = carried(ss.timeline_html(trace, where=pl.col("comm") == comm))["about"]
    cpus = [f"cpu:{cpu}" for cpu in about["cpus"]]
    lanes = about["lanes"][len(cpus) :]
    assert about["lanes"][: len(cpus)] == cpus
    assert len(lanes) == min(len(of_name), 16)
    assert set(lanes) <= {f"utid:{utid}" for utid in of_name}
    assert {wait["utid"] for wait in about["waits"]} <= set(of_name)
    assert {row["comm"] for row in about["threads"]["rows"]} > {comm}


def test_page_of_one_cpu_starts_with_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With only its lane, and the longest waits for it; the other CPUs can be added."""
    target = tmp_path / "page.html"
    words = ["timeline", str(FIXTURE), "--cache", str(tmp_path), "-o", str(target)]
    assert main([*words, "--cpu", "1"]) == 0
    about = carried(target.read_text())["about"]
    assert [lane for lane in about["lanes"] if lane.startswith("cpu:")] == ["cpu:1"]
    assert about["cpus"] == [0, 1]
    trace = ss.open(FIXTURE, cache=tmp_path)
    on_it = trace.waits.filter(pl.coalesce("queue_cpu", "cpu") == 1, pl.col("ts_ready") > 0)
    assert about["waits"][0]["wait"] == on_it.collect()["wait"].max()
    assert {wait["queue"] for wait in about["waits"]} == {1}
    capsys.readouterr()
    assert main([*words, "--force", "--cpu", "9"]) == 2
    assert "expected a CPU of this trace" in capsys.readouterr().err


def test_widget_of_selected_threads_starts_with_them(tmp_path: Path) -> None:
    pytest.importorskip("anywidget")
    trace = ss.open(FIXTURE, cache=tmp_path)
    comm = ss.latency(trace, by="comm").filter(pl.col("n") > 2)["comm"][-1]
    utids = set(trace.threads.filter(comm=comm).collect()["utid"])
    about = ss.timeline(trace, where=pl.col("comm") == comm).about
    assert {wait["utid"] for wait in about["waits"]} <= utids
    lanes = [lane for lane in about["lanes"] if lane.startswith("utid:")]
    assert lanes
    assert set(lanes) <= {f"utid:{utid}" for utid in utids}


def test_thread_name_cannot_end_the_script() -> None:
    page = ss.timeline_html(small())
    assert "</script><b>" not in page
    # The namespace of a language is not an address that is fetched.
    page = page.replace('xmlns="http://www.w3.org/2000/svg"', "")
    assert "http:" not in page
    assert "https:" not in page
    assert carried(page)["about"]["names"]["2"] == "</script><b> 8"


def test_a_trace_without_events_has_a_timeline() -> None:
    empty = ss.Trace.from_tables({}, {"ncpu": 2, "window": [0, 0]})
    assert carried(ss.timeline_html(empty))["about"]["lanes"] == ["cpu:0", "cpu:1"]


def test_the_command_writes_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "out.html"
    arguments = ["timeline", str(FIXTURE), "-o", str(target), "--cache", str(tmp_path / "cache")]
    assert main([*arguments, "--since", "0.5s", "--until", "1s"]) == 0
    about = carried(target.read_text())["about"]
    assert (about["origin"], about["duration"]) == (500_000_000, 500_000_000)
    assert "wrote" in capsys.readouterr().out
    assert main(arguments) == 2
    assert "--force" in capsys.readouterr().err
    assert main([*arguments, "-f", "--max-size", "1K"]) == 2
    assert "larger max_bytes" in capsys.readouterr().err
    assert main([*arguments, "-f", "--since", "1h"]) == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cache", "out.html"]


def test_widget_answers_requests_of_the_page() -> None:
    pytest.importorskip("anywidget")
    widget = ss.timeline(small(), lanes=["cpu:0"])
    sent: list[tuple[Any, Any]] = []
    widget.send = lambda content, buffers=None: sent.append((content, buffers))
    assert widget.about["lanes"] == ["cpu:0"]
    request = {"lanes": ["cpu:0"], "first": 0, "bins": 4, "scale": 25, "id": 1}
    widget._handle_custom_msg(request, [])
    widget._handle_custom_msg({**request, "lanes": ["what"], "id": 2}, [])
    (answer, buffers), (error, none) = sent
    assert (answer["kind"], answer["id"], len(buffers)) == ("answer", 1, 4)
    assert (error["kind"], error["id"], none) == ("error", 2, [])
    assert "expected cpu:N or utid:N" in error["text"]


def test_missing_anywidget_is_reported_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    from schedscope.timelines import widget

    widget._widget_class.cache_clear()
    monkeypatch.setitem(sys.modules, "anywidget", None)
    with pytest.raises(MissingExtraError, match="pip install 'jupyterlab>=4' 'anywidget"):
        ss.timeline(small())
