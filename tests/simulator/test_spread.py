"""How far recordings of one workload lie apart, estimated from one of them."""

from __future__ import annotations

import math
from typing import Any

import polars as pl
import pytest

import schedscope as ss
from schedscope.simulator.changes.ranges import APART, INTERVAL, of_change
from schedscope.simulator.changes.verdicts import BRIEF
from schedscope.simulator.closeness.spread import (
    BESIDE,
    FEW,
    MOST,
    OTHERS,
    OWN,
    PARTS,
    UNKNOWN,
    from_others,
    moved,
    own_spreads,
    spreads,
)
from schedscope.simulator.runs.replay import replay
from schedscope.simulator.runs.run import simulate
from schedscope.store.trace import Trace

MS = 1_000_000


def recording(ran: list[int], waited: list[list[int]] | None = None) -> dict[str, dict[str, float]]:
    """The spreads of a thread that runs so many ms of every 10, and waits at the end of each."""
    rows: list[dict[str, Any]] = []
    waits: list[dict[str, Any]] = []
    for i, ms in enumerate(ran):
        rows.append({"ts": 10 * i * MS, "dur": ms * MS, "state": "running", "utid": 1})
        for wait in (waited or [[]] * len(ran))[i]:
            waits.append({"ts_run": (10 * i + 9) * MS, "wait": wait, "utid": 1})
    # It is recorded to the end of the last part.
    rows.append({"ts": 10 * len(ran) * MS - 1, "dur": 1, "state": "runnable", "utid": 1})
    tables = {
        "states": pl.DataFrame(rows).with_columns(cpu=pl.lit(0)),
        "waits": pl.DataFrame(
            waits, schema={"ts_run": pl.Int64, "wait": pl.Int64, "utid": pl.UInt32}
        ).with_columns(censored=pl.lit("none")),
    }
    trace = Trace.from_tables(tables, {"ncpu": 1, "window": [0, 10 * len(ran) * MS]})
    named = pl.DataFrame({"utid": [1], "service": ["web"]}, schema_overrides={"utid": pl.UInt32})
    return own_spreads(trace, named)


def test_equal_parts_have_no_spread() -> None:
    assert recording([2] * PARTS)["web"]["cpu_time"] == pytest.approx(0, abs=1e-5)


def test_spread_of_a_sum_follows_from_its_parts() -> None:
    """Parts of 1 and 3 ms in turn: two neighbours differ by 2, so a part is off by sqrt(2).

    The sum of 16, which is 32 ms, is then off by 4 sqrt(2).
    """
    found = recording([1, 3] * (PARTS // 2))["web"]["cpu_time"]
    assert found == pytest.approx(math.log1p(4 * math.sqrt(2) / 32))
    # The same parts sorted: a phase of the program, which the next recording has, too.
    phases = recording([1] * (PARTS // 2) + [3] * (PARTS // 2))["web"]["cpu_time"]
    assert phases < found / 3


def test_tail_seen_in_few_parts_has_a_wider_spread() -> None:
    same = recording([2] * PARTS, [[100, 200, 900]] * PARTS)
    assert same["web"]["wait_p99"] == pytest.approx(0, abs=1e-9)
    once = recording([2] * PARTS, [[100, 200, 900_000 if i == 3 else 900] for i in range(PARTS)])
    assert once["web"]["wait_p99"] > 1
    alone = recording([2] * PARTS, [[100] if i == 3 else [] for i in range(PARTS)])
    assert alone["web"]["wait_p99"] == UNKNOWN


def two_processes(**more: Any) -> Trace:
    """Process 7 runs for 30 ms; process 8, which is not part of the command, for 10 ms."""
    b = ss.workload.Builder()
    b.thread("mine", tid=7, pid=7).run("30ms")
    b.thread("other", tid=8, pid=8).run("10ms")
    real = simulate(b.workload(), policy="rr", cpus=2)
    names = ("switches", "wakeups", "states", "waits", "threads")
    about = {"ncpu": 2, "window": list(real.window), "scheduler": {"name": "rr"}, **more}
    return Trace.from_tables({name: getattr(real, name).collect() for name in names}, about)


def test_the_share_of_others_widens_the_ranges_of_one_capture() -> None:
    named = pl.DataFrame({"utid": [2], "service": ["mine"]}, schema_overrides={"utid": pl.UInt32})
    trace = two_processes(workload={"pid": 7})
    found = spreads(replay(trace), named)["mine"]
    assert found["outside"] == 0.25
    assert found["cpu_time"] == pytest.approx(BESIDE["cpu_time"])
    assert found["waiting"] == pytest.approx(BESIDE["waiting"])
    # Without a recorded command others are those that are not selected.
    plain = two_processes()
    assert spreads(replay(plain), named)["mine"]["outside"] == 0
    selected = replay(plain, where=pl.col("comm") == "mine")
    assert spreads(selected, named)["mine"]["outside"] == 0.25
    frame = ss.whatif(trace, cpus=1)
    assert frame.filter(comm="mine", configuration="changed")["others_share"].item() == 0.25
    said = [note for note in ss.whatif_notes(trace, frame) if note.startswith("ranges in brackets")]
    assert len(said) == 1
    assert "while others take 15.0 % to 35.0 % of the CPU time" in said[0]


def test_a_thread_waits_as_long_as_others_make_it() -> None:
    """A quarter of the CPU time was others': it may be a tenth of that, or the most."""
    down, up = from_others("waiting", 0.25)
    assert OTHERS * 0.25 > MOST
    assert math.exp(up) == pytest.approx((MOST + OWN) / (1 - MOST) * 0.75 / (0.25 + OWN))
    least = 0.25 / OTHERS
    assert math.exp(down) == pytest.approx((0.25 + OWN) / 0.75 * (1 - least) / (least + OWN))
    # More than the most is no less than it was.
    assert from_others("waiting", 0.9)[1] == 0
    # While others take as much, it is at most so much more and less.
    down, up = from_others("waiting", 0.25, near=0.1)
    assert math.exp(up) == pytest.approx((0.35 + OWN) / 0.65 * 0.75 / (0.25 + OWN))
    assert math.exp(down) == pytest.approx((0.25 + OWN) / 0.75 * 0.85 / (0.15 + OWN))
    # On a quiet host they cannot take less than nothing, and the range is that of any recording.
    assert from_others("waiting", 0.01, near=0.1) == from_others("waiting", 0.01)


def test_waiting_that_is_a_few_waits_may_be_others_in_the_next_recording() -> None:
    run = {"cpu_time": 100 * MS, "waiting": 100 * MS, "wait_p99": 5 * MS, "few": 0.25}
    captures = [{"recorded": run, "changes": [run]}]
    found = of_change(captures, dict.fromkeys(APART, 1.0), fitted={"outside": 0.0})
    width = math.exp(INTERVAL * math.hypot(APART["waiting"], FEW["waiting"] / 2))
    assert found["waiting_high"] == pytest.approx(100 * MS * width, abs=2)
    simulated = of_change(captures, dict.fromkeys(APART, 1.0))
    assert simulated["waiting_high"] == pytest.approx(
        100 * MS * math.exp(INTERVAL * APART["waiting"]), abs=2
    )


def test_captures_count_as_if_others_had_taken_the_same_in_each() -> None:
    """They wait as long as others make them, and no longer besides: that is no chance."""
    shares = (0.3, 0.5, 0.6)
    captures = []
    for share in shares:
        waiting = 100 * MS * math.exp(moved("waiting", 0.3, share))
        run = {"cpu_time": 100 * MS, "waiting": waiting, "wait_p99": 5 * MS, "few": 0.0}
        captures.append({"recorded": run, "changes": [run], "fitted": {"outside": share}})
    found = of_change(captures, dict.fromkeys(APART, 1.0), fitted={"outside": 0.48})
    middle = 100 * MS * math.exp(moved("waiting", 0.3, 0.5))
    alike = found["waiting_alike_high"] / found["waiting_alike_low"]
    assert found["waiting_alike_low"] < middle < found["waiting_alike_high"]
    assert alike < 4 < found["waiting_high"] / found["waiting_low"]


def test_short_waits_differ_by_microseconds_and_not_by_factors() -> None:
    """A median of 4 us that becomes 20 us is five times as much, and nothing to anybody."""
    run = dict.fromkeys(("wait_p30", "wait_p50", "wait_p70"), 4_000) | {"few": 0.0}
    captures = [{"recorded": run, "changes": [run]}]
    found = of_change(captures, dict.fromkeys(APART, 1.0), fitted={"outside": 0.0})
    assert found["wait_p50_low"] == 0
    assert BRIEF / 4 < found["wait_p50_high"] < 2 * BRIEF


def test_simulated_trace_has_no_spread() -> None:
    real = simulate(ss.workload.hogs(3, time="20ms"), policy="rr", cpus=1)
    named = pl.DataFrame({"utid": [1], "service": ["hog"]}, schema_overrides={"utid": pl.UInt32})
    assert spreads(replay(real), named) == {}


def test_spread_of_one_capture_adds_to_the_usual_spread() -> None:
    run = {"cpu_time": 100 * MS, "waiting": 100 * MS, "wait_p99": 5 * MS}
    captures = [{"recorded": run, "changes": [run]}]
    found = of_change(captures, dict.fromkeys(APART, 1.0), fitted={"waiting": 0.5})
    width = math.exp(INTERVAL * math.hypot(APART["waiting"], 0.5))
    assert found["waiting_high"] == pytest.approx(100 * MS * width, abs=2)
    assert found["cpu_time_high"] == pytest.approx(
        100 * MS * math.exp(INTERVAL * APART["cpu_time"]), abs=2
    )
