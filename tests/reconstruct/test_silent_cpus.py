"""A CPU without events while others put threads on it is a loss; one that no event names is idle.

The traces are text: a thread `w` on CPU 1 is woken by `s` on CPU 0 every 10 ms.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from faults import campaign

from schedscope import _native

MS = 1_000_000
FORKS = Path(__file__).parents[2] / "fixtures/lab/amd64-6.1-forks.tar.xz"


def _line(who: str, cpu: int, us: int, event: str, fields: str) -> str:
    return f"{who:>16} [{cpu:03}] d..2. {us // 10**6:6}.{us % 10**6:06}: {event}: {fields}\n"


def _switch(us: int, cpu: int, prev: str, prev_tid: int, state: str, to: str, tid: int) -> str:
    text = (
        f"prev_comm={prev} prev_pid={prev_tid} prev_prio=120 prev_state={state} ==> "
        f"next_comm={to} next_pid={tid} next_prio=120"
    )
    return _line(f"{prev}-{prev_tid}", cpu, us, "sched_switch", text)


def _wake(us: int, cpu: int, target: int, step: str = "sched_wakeup") -> str:
    return _line("s-10", cpu, us, step, f"comm=w pid=11 prio=120 target_cpu={target:03}")


def world(periods: int = 30) -> list[tuple[int, int, str]]:
    """(us, cpu, line): every 10 ms `s` runs 2 ms on CPU 0 and wakes `w`, which runs 1 ms on 1."""
    lines = []
    for period in range(periods):
        us = 10_000 * period
        for at, cpu, text in (
            (0, 0, _switch(us, 0, "swapper/0", 0, "R", "s", 10)),
            (1000, 0, _wake(us + 1000, 0, 1, "sched_waking")),
            (1002, 0, _wake(us + 1002, 0, 1)),
            (1010, 1, _switch(us + 1010, 1, "swapper/1", 0, "R", "w", 11)),
            (2000, 0, _switch(us + 2000, 0, "s", 10, "S", "swapper/0", 0)),
            (2010, 1, _switch(us + 2010, 1, "w", 11, "S", "swapper/1", 0)),
        ):
            lines.append((us + at, cpu, text))
    return lines


def decode(tmp_path: Path, lines: list[tuple[int, int, str]]) -> tuple[dict[str, Any], Any]:
    path = tmp_path / "trace.txt"
    path.write_text("# tracer: nop\n" + "".join(text for _, _, text in lines))
    tables, about = _native.decode(str(path))
    recorded = pl.DataFrame(tables["losses"]).filter(pl.col("reason") != "chain_break")
    return json.loads(about), recorded


def rows(losses: pl.DataFrame) -> list[tuple[object, ...]]:
    return losses.select("cpu", "ts_begin", "ts_end", "count", "reason").rows()


def test_complete_trace_has_no_loss(tmp_path: Path) -> None:
    """CPU 1's thread is woken by CPU 0 before its first line, as on every idle CPU."""
    about, losses = decode(tmp_path, world())
    assert (about["ncpu"], rows(losses)) == (2, [])


def test_cpu_without_lines_is_one_loss(tmp_path: Path) -> None:
    about, losses = decode(tmp_path, [line for line in world() if line[1] == 0])
    assert about["ncpu"] == 2
    assert rows(losses) == [(1, 0, 292 * MS, None, "unrecorded")]
    assert about["per_cpu"][1]["unknown"] == 292 * MS


def test_cpu_named_only_by_sleepers_is_idle(tmp_path: Path) -> None:
    """`sched_waking` names the CPU where a thread last ran: that CPU counts, but has no loss."""
    lines = [line for line in world() if line[1] == 0]
    lines.insert(3, (1003, 0, _wake(1003, 0, 5, "sched_waking")))
    # Its waker moves it from there, which leaves the queue of that CPU as it was.
    moved = "comm=w pid=11 prio=120 orig_cpu=5 dest_cpu=1"
    lines.insert(4, (1003, 0, _line("s-10", 0, 1003, "sched_migrate_task", moved)))
    kept = [line for line in lines if "sched_wakeup" not in line[2] and line[0] < 2000]
    about, losses = decode(tmp_path, kept)
    assert (about["ncpu"], rows(losses)) == (6, [(1, 0, 1_003_000, None, "unrecorded")])


def test_lines_missing_at_the_beginning_are_a_late_start(tmp_path: Path) -> None:
    lines = [line for line in world() if line[1] == 0 or line[0] > 100_000]
    _, losses = decode(tmp_path, lines)
    assert rows(losses) == [(1, 0, 101_010_000, None, "late_start")]


def test_cpu_starts_late_with_any_first_line(tmp_path: Path) -> None:
    """Of a real capture the first half of CPU 0 is removed; its first record is then a rename."""
    case = campaign.load(FORKS, tmp_path)
    cut = campaign.draw(case, "start of a CPU missing, unmarked", 0, seed=1)
    assert cut.what == "first 50% of CPU 0 missing"
    trace = campaign.opened(cut, tmp_path)
    first = cut.recording.cpus[0][0]
    late = trace.losses.filter(reason="late_start").collect()
    assert rows(late) == [(0, trace.window[0], first.ts, None, "late_start")]
    assert cut.recording.name(first).startswith(("sched_process_", "task_"))


def test_lines_missing_at_the_end_are_an_early_end(tmp_path: Path) -> None:
    lines = [line for line in world() if line[1] == 0 or line[0] < 200_000]
    _, losses = decode(tmp_path, lines)
    assert rows(losses) == [(1, 192_010_000, 292 * MS, None, "early_end")]


def test_cpu_going_idle_has_no_early_end(tmp_path: Path) -> None:
    """No thread is put on it any more: it has no events because it is idle."""
    lines = [line for line in world() if line[0] < 200_000 or line[1] == 0]
    lines = [line for line in lines if line[0] < 200_000 or "target_cpu" not in line[2]]
    _, losses = decode(tmp_path, lines)
    assert rows(losses) == []


def test_thread_migrated_away_does_not_prove_a_loss(tmp_path: Path) -> None:
    """CPU 1 has no events; a thread put on it is pulled off its queue at once."""
    lines = [(0, 1, _switch(0, 1, "a", 20, "S", "hog", 21))]
    for us, cpu, text in world(10):
        if cpu == 0:
            lines.append((us + 10, 0, text))
        if "sched_wakeup" in text:
            moved = "comm=w pid=11 prio=120 orig_cpu=1 dest_cpu=0"
            lines.append((us + 20, 0, _line("s-10", 0, us + 20, "sched_migrate_task", moved)))
    _, losses = decode(tmp_path, lines)
    assert rows(losses) == []


@pytest.mark.parametrize("left", ["moved", "woken", "no"])
def test_thread_that_left_a_silent_cpu_proves_a_loss(tmp_path: Path, left: str) -> None:
    """CPU 1 shows nothing of w, which was put there and left: it is moved from CPU 2, or woken.

    Otherwise it may wait there still, for so short a time.
    """
    lines = [(0, 1, _switch(0, 1, "a", 20, "S", "hog", 21)), *world(2)[:-1]]
    lines = [line for line in lines if line[1] == 0 or line[0] == 0]
    moved = "comm=w pid=11 prio=120 orig_cpu=2 dest_cpu=0"
    if left == "moved":
        lines.append((13_000, 0, _line("s-10", 0, 13_000, "sched_migrate_task", moved)))
    elif left == "woken":
        lines.append((13_000, 0, _wake(13_000, 0, 1, "sched_waking")))
    lines = [line for line in lines if line[0] == 0 or line[0] > 9000]
    lines.append((25_000, 0, _switch(25_000, 0, "swapper/0", 0, "R", "b", 12)))
    _, losses = decode(tmp_path, lines)
    assert rows(losses) == ([] if left == "no" else [(1, 0, 25 * MS, None, "early_end")])


def test_recording_without_a_visible_end_ends_early(tmp_path: Path) -> None:
    """Linux 6.1 on one CPU: the process that reads the clock at the end got the CPU by a switch."""
    hogs = campaign.load(FORKS.with_name("amd64-6.1-hogs.tar.xz"), tmp_path)
    whole = campaign.opened(campaign.draw(hogs, "nothing", 0, 1), tmp_path)
    assert whole.losses.filter(pl.col("reason") == "early_end").collect().is_empty()
    kind, early = "end of a CPU missing, unmarked", 0
    for number in range(6):
        mutant = campaign.draw(hogs, kind, number, 1)
        trace = campaign.opened(mutant, tmp_path)
        losses = trace.losses.filter(pl.col("reason") == "early_end").collect()
        last = max(record.ts for record in mutant.recording.cpus[0])
        if trace.window[1] - last <= 20 * MS:
            assert losses.is_empty()
            continue
        early += 1
        assert losses.select("cpu", "ts_begin", "ts_end").rows() == [(0, last, trace.window[1])]
        result = campaign.judge(hogs, kind, number, 1, tmp_path, (number, 6))
        assert not result["wrong_waits"] + result["wrong_bounds"] + result["wrong_state_time"]
        # A hole of which nothing counts the events may hide several waits of one thread.
        assert not [name for name in result["wrong_figures"] if not name.startswith("latency ")]
    assert early > 2
