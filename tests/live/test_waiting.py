"""The table of `schedscope top`, from hand-made intervals in round numbers."""

from __future__ import annotations

import argparse
import json
import os
import signal
import threading
from typing import Any

import polars as pl
import pytest
from live_intervals import interval

from schedscope.cli import top
from schedscope.live.silence import Silence, told
from schedscope.live.waiting import Waiting, busy_and_unknown, lost


def row(frame: pl.DataFrame, **key: Any) -> dict[str, Any]:
    return frame.filter(**key).row(0, named=True)


def test_a_selection_shows_its_threads_alone_and_carries_all_waits() -> None:
    spells = [(2, "runnable", 80, 100), (3, "running", 0, 100), (4, "runnable", 50, 100)]
    waiting = Waiting()
    frame = waiting.table(interval(spells, (0, 100)), where=pl.col("comm") == "slow")
    assert frame.select("comm", "waiting").rows() == [("slow", 20)]
    # A wait without an event in the next interval, of a thread that was not selected before.
    later = interval([(3, "running", 100, 200)], (100, 200))
    frame = waiting.table(later, where=pl.col("tid") == 102)
    assert frame.select("tid", "waiting", "longest").rows() == [(102, 100, 150)]
    for by in ("process", "service"):
        assert waiting.table(later, by, where=pl.lit(value=False)).is_empty()  # type: ignore[arg-type]


def test_time_counts_within_the_interval_and_waits_at_full_length() -> None:
    """A wait of 60 of which 40 are in the interval [100, 200): both are shown."""
    now = interval(
        [(2, "runnable", 80, 140), (2, "running", 140, 150), (3, "running", 0, 140)],
        (0, 200),
        begin=100,
    )
    frame = Waiting().table(now)
    slow = row(frame, comm="slow")
    assert (slow["waiting"], slow["waiting_frac"], slow["longest"], slow["p99"]) == (
        40,
        0.4,
        60,
        60,
    )
    assert (slow["n_waits"], slow["running"], slow["n_wakeups"]) == (1, 10, 0)
    assert row(frame, comm="hog")["running"] == 40
    assert frame["comm"].to_list() == ["slow", "hog"], "who waited most is first"


def test_unfinished_wait_counts_for_longest_but_not_for_quantiles() -> None:
    now = interval([(2, "runnable", 0, 10), (2, "running", 10, 20), (2, "runnable", 20, 100)],
                   (0, 100))  # fmt: skip
    slow = row(Waiting().table(now), comm="slow")
    assert (slow["n_waits"], slow["p99"], slow["longest"], slow["waiting"]) == (1, 10, 80, 90)
    assert slow["n_wakeups"] == 2, "one row each, whatever steps a wakeup has"


def starving(*, third: list[tuple[int, str, int, int]], **more: Any) -> dict[str, Any] | None:
    """Ready at 50, without an event in the second interval; then the third."""
    waiting = Waiting()
    waiting.table(interval([(2, "runnable", 50, 100)], (0, 100), gap=None))
    second = waiting.table(interval([(2, "runnable", 50, 200)], (0, 200), begin=100))
    assert row(second, comm="slow")["longest"] == 150
    found = waiting.table(interval(third, (100, 300), begin=200, **more)).filter(comm="slow")
    return found.row(0, named=True) if len(found) else None


def test_a_thread_that_starves_for_longer_than_the_trace_is_not_forgotten() -> None:
    """Two snapshots in a row have no event of it."""
    silent = starving(third=[])
    assert silent is not None
    assert (silent["waiting"], silent["longest"], silent["n_waits"]) == (100, 250, 0)
    at_last = starving(third=[(2, "running", 260, 300)])
    assert at_last is not None
    assert (at_last["waiting"], at_last["longest"], at_last["n_waits"]) == (60, 210, 1)


def test_lost_events_end_an_unfinished_wait() -> None:
    gone = {"cpu": 0, "ts_begin": 210, "ts_end": 220, "count": 7, "reason": "overrun"}
    assert starving(third=[], losses=[gone]) is None
    assert starving(third=[], gap=5) is None
    assert starving(third=[], threads=(3, 4)) is None, "it is no longer in the list of threads"
    slept = starving(third=[(2, "sleeping", 260, 300)])
    assert slept is None, "what it did before is not known"


def test_rows_are_of_threads_processes_or_control_groups() -> None:
    now = interval([(2, "runnable", 0, 10), (3, "running", 0, 30), (4, "runnable", 0, 50),
                    (4, "running", 50, 60)], (0, 100))  # fmt: skip
    by_process = Waiting().table(now, "process")
    hogs = row(by_process, pid=101)
    assert (hogs["threads"], hogs["waiting"], hogs["running"], hogs["n_waits"]) == (2, 50, 40, 1)
    by_group = Waiting().table(now, "cgroup")
    assert by_group.select("cgroup", "threads", "waiting").rows() == [("/a", 3, 60)]


def test_losses_of_the_interval_are_named() -> None:
    old = {"cpu": 0, "ts_begin": 10, "ts_end": 20, "count": 9, "reason": "overrun"}
    new = {"cpu": 0, "ts_begin": 110, "ts_end": 120, "count": 7, "reason": "overrun"}
    broken = {"cpu": 0, "ts_begin": 130, "ts_end": 140, "count": None, "reason": "chain_break"}
    now = interval([], (0, 200), begin=100, losses=[old, new, broken])
    assert lost(now) == ["7 events LOST in 1 place"]
    assert lost(interval([], (0, 200), losses=[broken])) == []


def test_busy_idle_and_unknown_time_add_up() -> None:
    """Of 2 x 100: 40 busy, 30 idle, the rest is unknown."""
    now = interval([(2, "running", 60, 140), (0, "running", 170, 200)], (0, 200), begin=100)
    assert busy_and_unknown(now) == (0.2, 0.65)


def test_the_table_fits_the_terminal_below_whatever_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(top.shutil, "get_terminal_size", lambda: os.terminal_size((80, 24)))
    monkeypatch.setattr(top._output, "redraws", lambda: True)
    monkeypatch.setattr(top._output, "width", lambda: 80)
    head = ["x " * 60, "missing: " + "y " * 40, "missing: z", ""]
    # Two lines, two, one, one; headings, rows and (in two) columns left out, the cursor.
    assert top._fitting(head) == 24 - 6 - 5
    assert top._fitting(["x " * 60] * 20) == 3


def asked(**more: Any) -> argparse.Namespace:
    names = ("comm", "pid", "tid", "process", "cgroup", "service", "cmdline", "tree", "workload")
    return argparse.Namespace(by="thread", top=None, format="json", **dict.fromkeys(names), **more)


def test_interval_above_half_unknown_is_not_counted() -> None:
    """Of 2 x 100 ns 70 are known, then 110."""
    little = [(2, "running", 60, 140), (3, "runnable", 100, 150), (0, "running", 170, 200)]
    answer = top._answer(interval(little, (0, 200), begin=100), Waiting(), asked())
    assert answer.frame.is_empty()
    document = json.loads(json.dumps(answer.document()))
    assert (document["busy_frac"], document["unknown_frac"], document["rows"]) == (None, 0.65, [])
    [said] = [line for line in answer.lines() if "unknown" in line]
    assert said.endswith("too much of this interval is missing to count anything")
    assert "waited" not in said
    enough = [*little, (1, "running", 160, 200)]
    answer = top._answer(interval(enough, (0, 200), begin=100), Waiting(), asked())
    assert "1 thread waited for a CPU, 0.5 at a time" in answer.lines()[0]


def test_time_shown_is_the_end_of_the_interval() -> None:
    """Noon, UTC, of a day in 2026 when the capture's clock was 0; the printed time is local."""
    now = interval([(0, "running", 0, 10**9), (1, "running", 0, 10**9)], (0, 10**9))
    now.trace.info["clock"] = {"name": "mono", "pairs": [[0, 1_795_953_600 * 10**9]]}
    answer = top._answer(now, Waiting(), asked())
    local = now.trace.time_of_day(10**9)
    assert local is not None
    assert answer.lines()[0].startswith(f"{local:%H:%M:%S} · 1.00 s · 2 CPUs")


def test_progress_is_reported_repeatedly_until_the_answer() -> None:
    heard: list[bool] = []
    twice = threading.Event()

    def say(length: float, answered: bool) -> None:
        assert length > 0
        heard.append(answered)
        if len(heard) == 2:
            twice.set()

    with told(0.01, say) as silence:
        assert twice.wait(30)
        with silence.lock:
            silence.broken()
            heard.clear()
            twice.clear()
        assert twice.wait(30)
    assert heard[0] is True


def test_answer_resets_the_silence() -> None:
    silence = Silence()
    assert silence.after(1000) is None
    assert silence.after(0) is not None
    silence.broken()
    assert silence.after(1000) is None


def test_a_signal_ends_top_also_where_code_raises_another_error_for_it() -> None:
    with top._ended_by_signals() as came:
        try:
            signal.raise_signal(signal.SIGINT)
        except Exception as error:
            raise ValueError("of a library that it interrupted") from error
    assert came == [signal.SIGINT]
    with pytest.raises(ValueError, match="its own"), top._ended_by_signals():
        raise ValueError("its own")
