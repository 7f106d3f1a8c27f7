"""Long traces: sums from the overview, rows of a part, and whole lanes agree."""

from __future__ import annotations

import base64
import gzip
import json
import random
import re
import time
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import schedscope as ss
from schedscope.errors import SchedscopeError, UsageError
from schedscope.parsers.schema import TABLES
from schedscope.store import overview, overview_writer
from schedscope.timelines import lanes as lanes_module, level_sums, levels, page, questions
from schedscope.timelines.answer import Timeline
from schedscope.timelines.questions import Questions, opened
from schedscope.timelines.slice import slice_at
from schedscope.timelines.threads import thread_list

FIXTURES = Path(__file__).parents[2] / "fixtures"
NAMES = ("linux-ftrace-mixed", "linux-ftrace-lossy")


@pytest.fixture(scope="module", params=NAMES)
def trace(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ss.Trace:
    """A short trace that is treated as a long one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(overview_writer, "LEAST", 0)
        patch.setattr(overview_writer, "_CHUNK", 32)
        patch.setattr(overview_writer, "_LEAST_BINS", 1)
        cache = tmp_path_factory.mktemp("cache")
        return ss.open(FIXTURES / f"{request.param}.capture", cache=cache)


@pytest.fixture
def long(trace: ss.Trace, monkeypatch: pytest.MonkeyPatch) -> Timeline:
    monkeypatch.setattr(overview_writer, "LEAST", 0)
    monkeypatch.setattr(overview_writer, "_CHUNK", 32)
    monkeypatch.setattr(overview_writer, "_LEAST_BINS", 1)
    monkeypatch.setattr(lanes_module, "MOST_ROWS", 600)
    found = overview.of(trace)
    assert found is not None
    return Timeline(trace, overview=found)


def summed(
    answer: tuple[dict[str, Any], list[bytes]], request: dict[str, Any]
) -> dict[str, dict[int, list[int]]]:
    """ns per pixel and state of every lane that the answer has exactly."""
    said, buffers = answer

    def array(at: list[Any]) -> np.ndarray[Any, Any]:
        return np.frombuffer(buffers[at[0]], f"<{at[1]}").astype(np.int64)

    edges = np.arange(request["bins"] + 1) * request["scale"] + request["first"] * request["scale"]
    found: dict[str, dict[int, list[int]]] = {}
    for row in said["lanes"]:
        if row["kind"] == "bins" and "scale" not in row:
            found[row["key"]] = {
                int(code): array(at).tolist() for code, at in row["states"].items()
            }
        elif row["kind"] == "intervals":
            starts = row["from"] + np.cumsum(array(row["gaps"]))
            ends, codes, spent = starts + array(row["durs"]), array(row["codes"]), {}
            for code in np.unique(codes):
                one = codes == code
                inside = np.minimum(ends[one], edges[1:, None]) - np.maximum(
                    starts[one], edges[:-1, None]
                )
                ns = np.maximum(inside, 0).sum(axis=1)
                if ns.any():
                    spent[int(code)] = ns.tolist()
            found[row["key"]] = spent
    return found


@pytest.mark.parametrize("quick", [lanes_module.QUICK_ROWS, 40])
def test_exact_answers_equal_sums_over_rows(
    trace: ss.Trace, long: Timeline, monkeypatch: pytest.MonkeyPatch, quick: int
) -> None:
    """Random parts and scales, before and after lanes were read; CPUs are always exact."""
    monkeypatch.setattr(lanes_module, "QUICK_ROWS", quick)
    whole = Timeline(trace)
    utids = [f"utid:{utid}" for utid in trace.threads.collect()["utid"].to_list()[trace.ncpu :]]
    chance = random.Random(18)
    grain = long.about()["grain"]
    assert grain == overview.of(trace).width  # type: ignore[union-attr]
    exact = refining = 0
    for _ in range(150):
        bins = chance.choice([1, 7, 300])
        scale = chance.choice([1, grain, 3 * grain, max(1, grain // 50), 40 * grain])
        first = chance.randrange(-2, max(1, long.lanes.duration // scale + 2))
        keys = whole.first + chance.sample(utids, 2)
        request = {"lanes": keys, "first": first, "bins": bins, "scale": scale}
        said = long.answer(request)
        found, wanted = summed(said, request), summed(whole.answer(request), request)
        for key, spent in found.items():
            assert spent == wanted[key], (request, key)
        exact += len(found)
        refining += sum(bool(row.get("refining")) for row in said[0]["lanes"])
        if scale % grain == 0:
            assert {f"cpu:{cpu}" for cpu in whole.lanes.cpus()} <= found.keys()
        for row in said[0]["lanes"]:
            if "scale" not in row or row["kind"] != "bins":
                continue
            # Sums over longer stretches, that hold all that was asked for.
            begin, end = (max(0, min(at, long.lanes.duration)) for at in
                          (first * scale, (first + bins) * scale))  # fmt: skip
            assert row["first"] * row["scale"] <= begin
            assert begin >= end or (row["first"] + row["bins"]) * row["scale"] >= end
            rough = {
                "lanes": [row["key"]],
                **{name: row[name] for name in ("first", "bins", "scale")},
            }
            plain = {**row, "states": row["states"]}
            del plain["scale"]
            mine = summed(({"lanes": [plain]}, said[1]), rough)
            assert mine == summed(whole.answer(rough), rough)
    assert exact > 500
    assert refining


def test_lanes_are_exact_once_read(trace: ss.Trace, long: Timeline) -> None:
    request = {"lanes": long.first, "first": 0, "bins": 500, "scale": long.lanes.duration // 499}
    ends = time.monotonic() + 60
    while any(row.get("refining") for row in long.answer(request)[0]["lanes"]):
        assert time.monotonic() < ends
        time.sleep(0.01)
    found, wanted = (summed(each.answer(request), request) for each in (long, Timeline(trace)))
    threads = {key for key in long.first if key.startswith("utid:")}
    assert threads
    assert all(found[key] == wanted[key] for key in threads)


def test_lanes_with_few_rows_are_read_before_the_answer(
    trace: ss.Trace, long: Timeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others are read in the background: until then there are sums; with `now` a request waits."""
    monkeypatch.setattr(lanes_module, "QUICK_ROWS", 0)
    monkeypatch.setattr(lanes_module, "MOST_ROWS", 1 << 30)
    assert long.lanes.overview is not None
    grain = long.lanes.overview.width
    request = {"lanes": ["cpu:0"], "first": 0, "bins": 300, "scale": max(1, grain // 3)}
    (row,) = long.answer(request)[0]["lanes"]
    assert (row["kind"], row["scale"], row["refining"]) == ("bins", grain, True)
    ends = time.monotonic() + 60
    while row["kind"] == "bins":
        assert row["refining"]
        assert time.monotonic() < ends
        time.sleep(0.01)
        (row,) = long.answer(request)[0]["lanes"]
    assert "refining" not in row
    wanted = summed(Timeline(trace).answer(request), request)
    assert summed(long.answer(request), request) == wanted
    fresh = Timeline(trace, overview=long.lanes.overview)
    assert summed(fresh.answer({**request, "now": True}), request) == wanted


def test_interval_is_found_from_nearby_rows(trace: ss.Trace, long: Timeline) -> None:
    whole, chance = Timeline(trace), random.Random(5)
    for key in [*whole.first, "cpu:0", "cpu:1"]:
        for _ in range(6):
            at = chance.randrange(trace.duration)
            assert slice_at(long.lanes, key, at) == slice_at(whole.lanes, key, at)


def test_lanes_beyond_the_memory_limit_are_not_read(
    trace: ss.Trace, long: Timeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = [key for key in long.first if key.startswith("utid:")]
    assert long.lanes.overview is not None
    rows = [long.lanes.overview.rows_of(int(key[5:])) for key in keys]
    monkeypatch.setattr(lanes_module, "ROOM", rows[0])
    assert long.lanes.load(keys) == set(keys[:1])
    assert rows == [
        trace.states.filter(pl.col("utid") == int(key[5:])).collect().height for key in keys
    ]


def test_the_list_of_threads_is_that_of_the_tables(trace: ss.Trace, long: Timeline) -> None:
    assert long.lanes.overview is not None
    known = thread_list(trace, long.lanes.overview.thread_totals())
    assert known.equals(thread_list(trace))
    assert known["wait"].sum() > 0 < known["run"].sum()
    longest = pl.col("ts_ready").sort_by("wait", descending=True, maintain_order=True).first()
    waited = (
        trace.waits.filter(pl.col("wait").is_not_null(), pl.col("ts_ready").is_not_null())
        .filter(pl.col("utid") >= trace.ncpu)
        .sort("ts_ready")
        .group_by("utid")
        .agg(
            pl.col("wait").sum(),
            ready=longest - trace.window[0],
            longest=pl.col("wait").max(),
        )
        .sort("utid")
        .collect()
    )
    mine = known.filter(pl.col("longest").is_not_null()).sort("utid")
    assert mine.select("utid", "wait", "ready", "longest").equals(waited)
    # Some never waited, or never ran.
    assert known["longest"].null_count()
    assert known["cpu"].null_count()


def _on_page(trace: ss.Trace) -> list[dict[str, Any]]:
    """The answers in a page, each lane with its arrays instead of their position."""
    html = ss.timeline_html(trace, max_bytes=250_000)
    found = re.search(r'<script type="application/json">(.*?)</script>', html, re.DOTALL)
    assert found is not None
    data = json.loads(found[1])
    assert data["about"]["grain"] is None
    blob = gzip.decompress(base64.b64decode(data["data"]))
    ends = np.cumsum(data["sizes"])
    parts = [blob[end - size : end] for end, size in zip(ends, data["sizes"], strict=True)]

    def filled(value: Any, first: int) -> Any:
        if isinstance(value, dict):
            return {key: filled(one, first) for key, one in value.items()}
        if isinstance(value, list):
            return np.frombuffer(parts[first + value[0]], f"<{value[1]}").astype(int).tolist()
        return value

    for answer in data["answers"]:
        answer["lanes"] = [filled(row, answer["buffer"]) for row in answer["lanes"]]
    answers: list[dict[str, Any]] = data["answers"]
    return answers


def test_long_page_has_sums_and_no_cpu_lanes(
    trace: ss.Trace, long: Timeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It agrees with one for which everything was read, and its content is not refined."""
    monkeypatch.setattr(page, "_ROUGH", 10**9)
    read: list[str] = []
    get = lanes_module.Lanes.get
    monkeypatch.setattr(lanes_module.Lanes, "get", lambda self, keys: get(self, read_of(keys)))

    def read_of(keys: Iterable[str]) -> list[str]:
        read.extend(keys := list(keys))
        return keys

    of_long = _on_page(trace)
    assert not read
    monkeypatch.setattr(overview_writer, "LEAST", 10**9)
    of_short = _on_page(trace)
    assert read
    assert not any(row.get("refining") for answer in of_long for row in answer["lanes"])

    def totals(answer: dict[str, Any]) -> dict[str, dict[str, int]]:
        return {
            row["key"]: {state: sum(ns) for state, ns in row["states"].items()}
            for row in answer["lanes"]
        }

    assert totals(of_long[0]) == totals(of_short[0])

    def intervals(answers: list[dict[str, Any]]) -> dict[Any, dict[str, Any]]:
        return {
            (answer["first"], answer["scale"], row["key"]): row
            for answer in answers
            for row in answer["lanes"]
            if row["kind"] == "intervals"
        }

    one, two = intervals(of_long), intervals(of_short)
    assert one.keys() & two.keys()
    assert all(one[key] == two[key] for key in one.keys() & two.keys())


def test_damaged_or_foreign_overview_is_rebuilt(trace: ss.Trace, long: Timeline) -> None:
    assert trace.path is not None
    path = trace.path / overview.NAME
    whole = path.read_bytes()
    line = whole.index(b"\n")
    head = json.loads(whole[:line])

    def other(**more: Any) -> bytes:
        data = json.dumps({**head, **more}).encode() + whole[line:-8]
        return data + f"{zlib.crc32(data):08x}".encode()

    damaged = bytearray(whole)
    damaged[len(whole) // 2] ^= 1
    for data in (
        b"", whole[:-1], whole[: line // 2], bytes(damaged), other(version=0),
        other(states=[1, "0"]), other(bins=[1 << 40, 1]), other(cpus=-1), other(chunk=0),
        other(waits=[{"utid": 1}]), other(waits=[1]), other(bins=[0, 0]), other(totals=-1),
        other(totals=1 << 40), b"[]" + whole[line:],
    ):  # fmt: skip
        path.write_bytes(data)
        found = overview.of(trace)
        assert found is not None
        assert found.waits == long.waits
        assert path.read_bytes() == whole
    path.unlink()
    assert overview.of(trace) is not None
    assert path.read_bytes() == whole


def test_error_while_reading_lanes_is_reported(trace: ss.Trace, long: Timeline) -> None:
    """The next request starts again."""

    def broken(*_: Any) -> None:
        raise SchedscopeError("the disk is gone")

    lanes = long.lanes
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lanes, "_thread_lanes", broken)
        lanes.load([key for key in long.first if key.startswith("utid:")])
        ends = time.monotonic() + 60
        while lanes._whole.failed is None:
            assert time.monotonic() < ends
            time.sleep(0.01)
    with pytest.raises(SchedscopeError, match="the disk is gone"):
        lanes.within(long.first, 0, trace.duration)
    assert len(lanes.within(long.first, 0, trace.duration)[0]) == len(long.first)


def test_tables_of_another_writer_have_no_overview(
    trace: ss.Trace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tables written by Polars are shown like short ones."""
    monkeypatch.setattr(overview_writer, "LEAST", 0)
    copy = trace.to_sched(tmp_path / "copy.sched")
    assert overview.of(copy) is None
    assert not (tmp_path / "copy.sched" / overview.NAME).exists()
    assert Questions(copy).about()["grain"] is None


def test_short_trace_or_part_has_no_overview(trace: ss.Trace, long: Timeline) -> None:
    assert Questions(trace).about()["grain"]
    half = trace.between(None, f"{trace.duration // 2}ns")
    assert overview.of(half) is None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(overview_writer, "LEAST", 10**9)
        assert overview.of(trace) is None
        assert Questions(trace).about()["grain"] is None


def test_hours_long_trace_of_few_events_has_an_overview(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sums of a chunk have 32 bits, that is 4.29 s: long windows need many chunks."""
    monkeypatch.setattr(overview_writer, "LEAST", 0)
    lines = [
        f"  a-{10 + i % 2} [000] d..2. {1000 + 3600 * i}.000000: sched_switch: prev_comm=a "
        f"prev_pid={10 + i % 2} prev_prio=120 prev_state=S ==> next_comm=a next_pid={11 - i % 2}"
        " next_prio=120\n"
        for i in range(6)
    ]
    (tmp_path / "hours.txt").write_text("".join(lines))
    trace = ss.open(tmp_path / "hours.txt")
    found = overview.of(trace)
    assert found is not None
    assert trace.duration == 5 * 3600 * 10**9
    assert found.running.sum(dtype=np.int64) == trace.duration
    assert found.width < 2**32


def heights(answer: tuple[dict[str, Any], list[bytes]], key: str) -> dict[str, list[int]] | None:
    """The pixels of a lane with a height, if the answer has them exactly."""
    said, buffers = answer
    (row,) = (each for each in said["lanes"] if each["key"] == key)
    if row["kind"] == "later" or "scale" in row:
        return None
    return {
        name: np.frombuffer(buffers[row[name][0]], f"<{row[name][1]}").astype(np.int64).tolist()
        for name in ("sum", "known", "max")
        if name in row
    }


def test_lanes_with_a_height_are_those_of_the_whole_tables(
    trace: ss.Trace, long: Timeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Zoomed out (sums made in parts), zoomed in (rows), and where there are only sums."""
    for module in (levels, level_sums):
        monkeypatch.setattr(module, "MOST_ROWS", 1200)
    begin, end = trace.window
    chance = random.Random(7)
    rows = sorted(
        (begin + chance.randrange(end - begin), cpu) for _ in range(400) for cpu in (0, 1)
    )
    irqs = pl.DataFrame(
        [(ts, cpu, "hard", 27, chance.choice([1, 900, 400_000])) for ts, cpu in rows],
        TABLES["irqs"].schema,
        orient="row",
    )
    traced = ss.Trace(trace.info, {"irqs": irqs.lazy()}, trace.path)
    known = long.lanes.overview
    assert known is not None
    near, whole = Timeline(traced, overview=known), Timeline(traced)
    keys = ["depth:0", "depth:1", "depth:all", "rate:0", "rate:all", "irq:1"]
    everything = {"lanes": keys, "first": 0, "bins": 1, "scale": known.width << 30}
    ends = time.monotonic() + 60
    while any(row["kind"] == "later" for row in near.answer(everything)[0]["lanes"]):
        assert time.monotonic() < ends
        time.sleep(0.01)
    grain, exact, coarse = known.width, 0, 0
    for _ in range(20):
        bins = chance.choice([1, 7, 300])
        scale = chance.choice([1, grain, 3 * grain, max(1, grain // 50), 40 * grain + 1])
        first = chance.randrange(-2, max(1, trace.duration // scale + 2))
        request = {"lanes": keys, "first": first, "bins": bins, "scale": scale}
        mine, wanted = near.answer(request), whole.answer(request)
        for key in keys:
            if (found := heights(mine, key)) is None:
                coarse += 1
                assert scale % grain
            else:
                exact += 1
                assert found == heights(wanted, key), (request, key)
        tops = [{row["key"]: row["top"] for row in each[0]["lanes"]} for each in (mine, wanted)]
        assert tops[0] == tops[1]
    assert exact > 60
    assert coarse
    for key in ("depth:0", "depth:all", "irq:1"):
        for at in (chance.randrange(trace.duration) for _ in range(3)):
            found, wanted_step = (each.levels.at(key, at) for each in (near, whole))
            if not found.get("least"):
                assert found == wanted_step


def test_sums_are_cached_and_rebuilt_when_they_do_not_match(
    trace: ss.Trace, long: Timeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = ["depth:0", "depth:all", "rate:0", "rate:all"]
    known = long.lanes.overview
    assert known is not None
    request = {"lanes": keys, "first": 0, "bins": 1, "scale": known.width << 30}

    def answer() -> dict[str, dict[str, list[int]] | None]:
        near, ends = Timeline(trace, overview=known), time.monotonic() + 60
        said = near.answer(request)
        while any(row["kind"] == "later" for row in said[0]["lanes"]):
            assert time.monotonic() < ends
            time.sleep(0.01)
            said = near.answer(request)
        return {key: heights(said, key) for key in keys}

    monkeypatch.setattr(levels, "QUICK_ROWS", 0)
    monkeypatch.setattr(levels, "MOST_ROWS", 0)
    assert trace.path is not None
    paths = [trace.path / f"sums-{kind}.bin" for kind in ("depth", "rate")]
    for path in paths:
        path.unlink(missing_ok=True)
    wanted, whole = answer(), [path.read_bytes() for path in paths]
    with pytest.MonkeyPatch.context() as patch:
        for name in ("_depth", "_rate"):
            patch.delattr(level_sums.Sums, name)
        assert answer() == wanted
    for path, data in zip(paths, whole, strict=True):
        damaged = bytearray(data)
        damaged[len(data) // 2] ^= 1
        head, _, rest = data[:-8].partition(b"\n")
        other = json.dumps({**json.loads(head), "window": [0, 1]}).encode() + b"\n" + rest
        other += f"{zlib.crc32(other):08x}".encode()
        for wrong in (bytes(damaged), other, b"", data[:100]):
            path.write_bytes(wrong)
            assert answer() == wanted
            assert path.read_bytes() == data


def test_quotas_of_a_long_trace_are_compared_in_the_background(
    trace: ss.Trace, long: Timeline
) -> None:
    """From then on they equal those of a short one."""
    begin, end = trace.window
    refills = pl.DataFrame(
        {"ts": list(range(begin, end, 100_000_000)), "cpu": 0, "timer": 1},
        TABLES["quota_refills"].schema,
    )
    groups = [{"cgroup": "/", "quota": 1_000_000, "period": 100_000_000, "n_throttled": 99}]
    threads = trace.threads.with_columns(cgroup=pl.when(pl.col("utid") % 3 == 2).then(pl.lit("/a")))
    tables = {"quota_refills": refills.lazy(), "threads": threads}
    limited = ss.Trace({**trace.info, "groups": groups}, tables, trace.path)
    answers = Questions(limited)
    (offered,) = (each for each in answers.about()["more"] if "quota" in each["name"])
    assert offered["lanes"] == ["quota:0"]
    near, whole = (Timeline(limited, overview=each) for each in (long.lanes.overview, None))
    request = {"lanes": ["quota:0"], "first": 0, "bins": 50, "scale": trace.duration // 50}
    said, ends = near.answer(request), time.monotonic() + 60
    assert said[0]["lanes"][0]["refining"]
    while said[0]["lanes"][0]["kind"] == "later":
        assert time.monotonic() < ends
        time.sleep(0.01)
        said = near.answer(request)
    found = heights(said, "quota:0")
    assert found == heights(whole.answer(request), "quota:0")
    assert found is not None
    assert sum(found["sum"]) > 0


def test_long_part_is_shown_within_the_whole_trace(
    trace: ss.Trace, long: Timeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin, length = trace.window[0] - trace.origin, trace.duration
    since = f"{begin + length // 4}ns"
    found, view = opened(trace, since, None)
    assert found.timeline.lanes.trace is trace
    assert view == f"view={begin + length // 4}-{begin + length}"
    monkeypatch.setattr(overview_writer, "LEAST", 1_000_000_000)
    part, view = opened(trace, since, None)
    assert (part.timeline.lanes.duration, view) == (length - length // 4, "")
    assert part.timeline.lanes.overview is None
    # Without an overview a trace above the limit is refused, with a hint.
    monkeypatch.setattr(questions, "MOST_HELD", 10)
    for wanted in (None, since):
        with pytest.raises(UsageError, match="--since"):
            opened(trace, wanted, None)
