"""Parts that stand out: a queue simulated in numpy, without and with one bad minute."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from decoded import FIXTURES

import schedscope as ss
from schedscope import _native
from schedscope.analysis.outliers import FENCE, MEASURES
from schedscope.cli import main
from schedscope.errors import UsageError
from schedscope.parsers.schema import TABLES

S = 1_000_000_000
MINUTE = 60 * S
POOL = 5_000


def queue(
    minutes: int, *, seed: int, bad: int | None = None, slower: float = 1.8, begin: int = 0
) -> ss.Trace:
    """One CPU, threads that arrive at random and need 5 ms on average: it is busy for half of the
    time.

    In the minute `bad` they need `slower` times as much.
    """
    rng = np.random.default_rng(seed)
    end = minutes * MINUTE
    come = np.cumsum(rng.exponential(10e6, int(end / 10e6 * 1.1))).astype(np.int64)
    come = come[come < end]
    need = rng.exponential(5e6, len(come))
    if bad is not None:
        need[come // MINUTE == bad] *= slower
    need = np.maximum(need.astype(np.int64), 1)
    # First come, first served: each starts when all before it are done (Lindley).
    done = np.cumsum(need)
    start = np.maximum.accumulate(come - (done - need)) + done - need
    come, start = come + begin, start + begin
    return traced(come, start, start + need, begin, begin + end)


def traced(
    come: np.ndarray, start: np.ndarray, end: np.ndarray, begin: int, until: int, **info: object
) -> ss.Trace:
    utid = (np.arange(len(come)) % POOL + 1).astype(np.uint32)
    runnable = pl.DataFrame({"ts": come, "dur": start - come, "utid": utid}).with_columns(
        state=pl.lit("runnable"), end=pl.lit("switched")
    )
    running = pl.DataFrame({"ts": start, "dur": end - start, "utid": utid}).with_columns(
        state=pl.lit("running"), end=pl.lit("switched")
    )
    idle = pl.DataFrame({"ts": np.append(begin, end), "until": np.append(start, until)})
    idle = idle.select("ts", dur=pl.col("until") - pl.col("ts")).with_columns(
        utid=pl.lit(0, pl.UInt32), state=pl.lit("running"), end=pl.lit("switched")
    )
    states = pl.concat([runnable, running, idle]).filter(pl.col("dur") > 0).sort("ts")
    waits = pl.DataFrame({"utid": utid, "ts_ready": come, "ts_run": start}).with_columns(
        wait=pl.col("ts_run") - pl.col("ts_ready"), censored=pl.lit("none"), cause=pl.lit("wake")
    )
    switches = pl.DataFrame({"ts": start, "next_utid": utid}).with_columns(
        cpu=pl.lit(0), prev_utid=pl.lit(0), prev_state=pl.lit("runnable")
    )
    threads = pl.DataFrame({"utid": np.arange(POOL + 1)}).with_columns(
        tid=pl.col("utid"), comm=pl.lit("job"), comm_first=pl.lit("job")
    )
    tables = {
        "threads": filled("threads", threads),
        "states": filled("states", states.with_columns(cpu=pl.lit(0))),
        "waits": filled("waits", waits),
        "switches": filled("switches", switches),
    }
    return ss.Trace.from_tables(tables, {"ncpu": 1, "window": [begin, until], **info})


def filled(name: str, frame: pl.DataFrame) -> pl.DataFrame:
    schema = TABLES[name].schema
    missing = [pl.lit(None, dtype).alias(column) for column, dtype in schema.items()
               if column not in frame.columns]  # fmt: skip
    return frame.with_columns(missing).select(schema.names()).cast(schema)  # type: ignore[arg-type]


def test_the_bad_minute_of_two_hours_comes_first() -> None:
    trace = queue(120, seed=1, bad=84, begin=7 * S)
    frame = ss.outliers(trace)
    assert frame.height == 120
    worst = frame.row(0, named=True)
    assert worst["ts"] == 7 * S + 84 * MINUTE
    assert worst["dur"] == MINUTE
    assert worst["select"] == "--since 5040 --until 5100"
    assert worst["measure"] in ("waiting", "wait_p99", "busy_frac")
    assert "threads waiting for a CPU" in worst["story"]
    # The rest of its queue may reach into the next minute; nothing else stands out.
    others = frame.filter("outlier")["ts"].to_list()
    assert set(others) <= {7 * S + minute * MINUTE for minute in (84, 85)}


def test_steady_trace_has_no_outlier() -> None:
    for seed in range(3):
        frame = ss.outliers(queue(120, seed=seed))
        assert frame["outlier"].to_list() == [False] * 120
        assert frame["deviation"].max() < FENCE  # type: ignore[operator]


def test_measures_of_a_part_equal_those_of_the_cut_trace() -> None:
    """The cut part has the same waits, queue depth and busy time in the other questions."""
    trace = queue(30, seed=5, bad=10)
    row = ss.outliers(trace, every="1m").sort("ts").row(10, named=True)
    begin, end = row["ts"], row["ts"] + row["dur"]
    mine = trace.waits.filter(pl.col("ts_ready").is_between(begin, end, closed="left")).collect()
    assert row["n"] == mine.height
    assert row["wait_p99"] == mine["wait"].sort()[-(-99 * mine.height // 100) - 1]
    depth = ss.queue_depth(trace, every="1m").sort("ts").row(10, named=True)
    assert row["waiting"] == pytest.approx(depth["waiting"])
    assert row["busy_frac"] == pytest.approx(depth["depth"] - depth["waiting"])
    assert row["unknown"] == 0
    assert row["switches_hz"] * 60 == pytest.approx(
        trace.switches.filter(pl.col("ts").is_between(begin, end, closed="left")).collect().height
    )


def test_selecting_all_threads_equals_selecting_none() -> None:
    trace = queue(30, seed=5, bad=10)
    everyone = ss.outliers(trace, every="1m", where=pl.col("comm") == "job")
    assert everyone.equals(ss.outliers(trace, every="1m"))
    with pytest.raises(UsageError, match="no thread is selected"):
        ss.outliers(trace, where=pl.col("comm") == "nobody")


def test_slow_minute_of_one_service_is_found_by_selection() -> None:
    """Every tenth thread is `mine`: in minute 84 it needs four times as much, which does not show
    for the machine as a whole.
    """
    trace = queue(120, seed=1)
    mine = pl.col("utid") % 10 == 0
    named = trace.threads.with_columns(comm=pl.when(mine).then(pl.lit("mine")).otherwise("comm"))
    in_it = (pl.col("ts") // MINUTE == 84) & mine & (pl.col("state").cast(pl.String) == "runnable")
    states = trace.states.with_columns(dur=pl.when(in_it).then(20 * pl.col("dur")).otherwise("dur"))
    late = (pl.col("ts_ready") // MINUTE == 84) & mine
    waits = trace.waits.with_columns(wait=pl.when(late).then(20 * pl.col("wait")).otherwise("wait"))
    tables = {"threads": named, "states": states, "waits": waits, "switches": trace.switches}
    trace = ss.Trace.from_tables(tables, trace.info)
    frame = ss.outliers(trace, every="1m", where=pl.col("comm") == "mine")
    worst = frame.row(0, named=True)
    assert worst["ts"] == 84 * MINUTE
    assert worst["outlier"]
    mine_then = waits.filter(late).collect()
    assert (worst["n"], worst["irq_frac"]) == (mine_then.height, None)
    begun = trace.switches.filter(pl.col("next_utid") % 10 == 0)
    then = begun.filter(pl.col("ts") // MINUTE == 84).select(pl.len()).collect().item()
    assert worst["switches_hz"] * 60 == pytest.approx(then)
    ran = trace.states.filter(mine, pl.col("utid") > 0, pl.col("ts") // MINUTE == 80)
    busy = ran.filter(pl.col("state").cast(pl.String) == "running").collect()["dur"].sum()
    assert frame.sort("ts")["busy_frac"][80] == pytest.approx(busy / MINUTE, rel=0.05)
    assert not ss.outliers(trace, every="1m", where=pl.col("comm") == "job")["outlier"].any()


def test_the_fence_is_three_interquartile_ranges_beyond_the_nearer_quartile() -> None:
    """20 parts of 1 s, busy for 200, 210, ..., 380 ms, and the last one for longer."""
    busy = [S // 5 + 10_000_000 * number for number in range(20)]
    begin = np.arange(20) * S
    for last, outlier in ((630, False), (650, True)):
        busy[-1] = last * 1_000_000
        # No thread waits: only the busy share differs.
        trace = traced(begin, begin, begin + np.array(busy), 0, 20 * S)
        frame = ss.outliers(trace, every="1s").sort("ts")
        # The 5th and the 15th of them are 0.24 and 0.34: the fence is at 0.64.
        assert frame["deviation"][-1] == pytest.approx((last / 1000 - 0.34) / 0.10)
        assert frame["outlier"].to_list() == [False] * 19 + [outlier]
        assert frame["measure"][-1] == "busy_frac"


def test_blocked_throttled_and_interrupt_time_is_cut_to_each_part() -> None:
    window, step = (100, 350), 100
    spans = pl.DataFrame({"ts": [100, 150, 290, 310], "dur": [10, 100, 30, 40]})
    assert _native.time_in_parts(spans, window, step) == [60, 60, 60]
    # An interval across an edge of the window counts with its part inside.
    spans = pl.DataFrame({"ts": [50, 340], "dur": [100, 100]})
    assert _native.time_in_parts(spans, window, step) == [50, 0, 10]
    # States of one kind only, without idle threads.
    states = pl.DataFrame(
        {"ts": [110, 120, 130], "dur": [50] * 3, "utid": [4, 1, 4], "state": [3, 3, 2]},
        schema_overrides={"utid": pl.UInt32, "state": pl.UInt8},
    )
    assert _native.time_in_parts(states, window, step, (3, 2)) == [50, 0, 0]


def test_too_few_parts_are_not_judged() -> None:
    trace = queue(10, seed=1)
    few = ss.outliers(trace, every="1m")
    assert few["outlier"].null_count() == few.height == 10
    for every in ("0s", "-1s", "1us"):
        with pytest.raises(UsageError):
            ss.outliers(trace, every=every)


def test_command_names_the_next_command(
    tmp_path_factory: pytest.TempPathFactory,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = tmp_path_factory.mktemp("outliers")
    for name, bad in (("bad", 20), ("good", None)):
        queue(40, seed=3, bad=bad).to_sched(folder / f"{name}.sched")
    assert main(["outliers", str(folder / "bad.sched"), "--every", "30s"]) == 0
    said = capsys.readouterr().out
    assert f"go on with: schedscope findings {folder}/bad.sched --since 12" in said
    # On a narrow terminal it still shows what happened: `at` and the note have the rest.
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["outliers", str(folder / "bad.sched"), "--every", "30s"]) == 0
    narrow = capsys.readouterr().out
    assert "in half of them)" in " ".join(narrow.split())
    assert "\N{HORIZONTAL ELLIPSIS}" not in narrow
    assert main(["outliers", str(folder / "good.sched")]) == 0
    assert "parts of 30.0 s: none stands out from the others" in capsys.readouterr().out
    assert main(["outliers", str(folder / "good.sched"), "--every", "10m"]) == 0
    assert "too few to say what is usual" in capsys.readouterr().out


def test_a_real_capture_in_which_a_thread_starves() -> None:
    """Every part is in the answer, and the sums of the parts are the trace's."""
    trace = ss.open(FIXTURES / "linux-ftrace-starved.capture")
    frame = ss.outliers(trace)
    assert frame["dur"].sum() == trace.duration
    begun = trace.waits.filter(pl.col("ts_ready").is_not_null()).collect().height
    assert (frame["n"] + frame["n_censored"]).sum() == begun
    known = {measure.name for measure in MEASURES if frame[measure.name].null_count() < 50}
    assert {"waiting", "busy_frac", "switches_hz", "blocked"} <= known
    blocked = trace.states.filter(
        (pl.col("state").cast(pl.String) == "blocked") & (pl.col("utid") >= trace.ncpu)
    )
    asleep = (frame["blocked"] * frame["dur"]).sum()
    assert asleep == pytest.approx(blocked.select("dur").collect()["dur"].sum())
