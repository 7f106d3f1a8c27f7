"""Events besides switches and wakeups in text: an unreadable one loses only itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import polars as pl
import pytest
from decoded import decode

import schedscope as ss
from schedscope.errors import FormatError

LARGEST = (1 << 64) - 1


def turns(line: Callable[[int], Iterable[str]], n: int = 60) -> str:
    """`n` times: thread 77 runs for 20 us with some other lines, and sleeps for 5 ms."""
    found = []
    for turn in range(n):
        ts = 100_000_000 + turn * 5010
        idle, own = "          <idle>-0       [001]", "               x-77      [001]"
        stamps = [f"{ts // 10**6:5d}.{ts % 10**6:06d}" for ts in (ts, ts + 10, ts + 20, ts + 5000)]
        found += [
            f"{idle} d..2. {stamps[0]}: sched_switch: prev_comm=swapper/1 prev_pid=0 prev_prio=120"
            " prev_state=R ==> next_comm=x next_pid=77 next_prio=120",
            *(f"{own} d..1. {stamps[1]}: {text}" for text in line(turn)),
            f"{own} d..2. {stamps[2]}: sched_switch: prev_comm=x prev_pid=77 prev_prio=120"
            " prev_state=S ==> next_comm=swapper/1 next_pid=0 next_prio=120",
            f"{idle} d.h2. {stamps[3]}: sched_waking: comm=x pid=77 prio=120 target_cpu=001",
        ]
    return "# tracer: nop\n#\n" + "\n".join(found) + "\n"


def opened(tmp_path: Path, text: str) -> ss.Trace:
    path = tmp_path / "trace.txt"
    path.write_text(text)
    return ss.open(path, cache=tmp_path / "cache")


@pytest.mark.parametrize("sector", [0, 1, (1 << 63) - 1, 1 << 63, LARGEST - 1, LARGEST])
@pytest.mark.parametrize("end", ["[x]", "none,0,0 [0]", "be,0,4 [a + 8 b]"])
def test_a_sector_is_read_over_the_whole_range_of_64_bits(
    tmp_path: Path, sector: int, end: str
) -> None:
    """Linux flushes a disk with the sector (u64)-1; a name after it may look like a length."""
    name = "block_rq_complete: 254,0 FF ()" if "none" in end else "block_rq_issue: 254,0 FF 0 ()"
    trace = opened(tmp_path, turns(lambda _: [f"{name} {sector} + 16 {end}"]))
    rows = trace.disk_requests.select("sector", "sectors").collect()
    assert set(rows.rows()) == {(sector, 16)}
    assert trace.info["warnings"] == []
    assert trace.switches.collect().height == 120


def test_a_negative_sector_is_the_same_bits(tmp_path: Path) -> None:
    trace = opened(tmp_path, turns(lambda _: ["block_rq_issue: 8,0 FF 0 () -1 + 0 [x]"]))
    assert set(trace.disk_requests.collect()["sector"]) == {LARGEST}


UNREADABLE = [
    "block_rq_issue: 8,0 FF",
    "block_rq_complete: 8,0 FF () 18446744073709551616 + 0 [0]",
    "irq_handler_entry: irq=-1 name=x",
    "softirq_entry: vec=many [action=X]",
    "sys_enter: NR none (0, 0, 0, 0, 0, 0)",
    "contention_begin: (____ptrval____) (flags=SPIN)",
    "sched_blocked_reason: pid=x iowait=1 caller=y",
    "sched_stat_iowait: comm=x delay=5 [ns]",
    "cgroup_attach_task: dst_root=x dst_path=/a pid=7 comm=x",
    "sched_pi_setprio: comm=x pid=77 oldprio=120 newprio=none",
    "task_rename: pid=x newcomm",
    "sched_process_exec: filename=/bin/x",
]


@pytest.mark.parametrize("line", UNREADABLE)
def test_unreadable_side_event_loses_only_itself(tmp_path: Path, line: str) -> None:
    """As many of them as switches make the file neither unreadable nor lossy."""
    whole = opened(tmp_path, turns(lambda _: []))
    trace = opened(tmp_path, turns(lambda _: [line]))
    assert trace.waits.collect().equals(whole.waits.collect())
    assert trace.losses.collect().is_empty()
    (warning,) = trace.info["warnings"]
    start = (
        "60 lines of events other than switches and wakeups could not be read and were excluded;"
        ' the first is line 4: "               x-77 '
    )
    assert warning.startswith(start)
    assert warning.endswith(f'{line}"')


def test_file_is_refused_above_one_unreadable_switch_in_a_hundred(
    tmp_path: Path,
) -> None:
    """Thousands of system calls do not hide that the switches are not understood."""
    calls = ["sys_enter: NR 1 (0, 0, 0, 0, 0, 0)"] * 50
    broken = "sched_switch: from a to b"
    assert opened(tmp_path, turns(lambda n: [*calls, *([broken] if n < 11 else [])]))
    with pytest.raises(FormatError, match="12 of 192 switches and wakeups cannot be read"):
        opened(tmp_path, turns(lambda n: [*calls, *([broken] if n < 12 else [])]))


@pytest.mark.parametrize(
    "marker",
    ["0: E", "0: B|655|draw", "0: trace_event_clock_sync: parent_ts=0.0", "0: ", "E",
     "0xc0034e54: E", "0: C|7|a target_cpu=|1", "tracing_mark_write: B|7|x next_prio=7"],
)  # fmt: skip
def test_trace_marker_lines_are_not_damage(tmp_path: Path, marker: str) -> None:
    """Linux before 3.4 names such a line by an address, which may be 0."""
    whole = opened(tmp_path, turns(lambda _: []))
    trace = opened(tmp_path, turns(lambda _: [marker, marker]))
    assert trace.waits.collect().equals(whole.waits.collect())
    assert trace.losses.collect().is_empty()
    assert trace.info["warnings"] == []


def test_systrace_page_of_2012_is_read_from_its_string(tmp_path: Path) -> None:
    text = turns(lambda _: ["0: E"])
    constant = text.replace("\n", "\\n\\\n")
    path = tmp_path / "trace.html"
    path.write_text(
        "<!DOCTYPE html>\n<html><body>\n<script>\n"
        f'  var linuxPerfData = "\\\n{constant}";\n</script>\n'
        "<script>\n  x = '[001] d..2. 1.000000: sched_switch: ';\n</script></body></html>\n"
    )
    page, plain = decode(path), opened(tmp_path, text)
    for table in ("switches", "wakeups"):
        assert getattr(page, table).collect().equals(getattr(plain, table).collect())
    assert page.info["warnings"] == []


def perf(records: Callable[[int], Iterable[str]]) -> str:
    """`perf script` output: thread 77 runs on CPU 1 for 1 ms, a hundred times."""
    lines = []
    for turn in range(100):
        begin = 2_000_000_000 + turn * 3_000_000
        at = [begin, begin + 1_000_000, begin + 2_950_000]
        stamps = [f"{ts // 10**9:5d}.{ts % 10**9:09d}" for ts in at]
        idle, own = "         swapper     0 [001]", "               x    77 [001]"
        lines += [
            *records(turn),
            f"{idle} {stamps[0]}:       sched:sched_switch: prev_comm=swapper/1 prev_pid=0"
            " prev_prio=120 prev_state=R ==> next_comm=x next_pid=77 next_prio=120",
            f"{own} {stamps[1]}:       sched:sched_switch: prev_comm=x prev_pid=77"
            " prev_prio=120 prev_state=S ==> next_comm=swapper/1 next_pid=0 next_prio=120",
            f"{idle} {stamps[2]}:       sched:sched_waking: comm=x pid=77 prio=120 target_cpu=001",
        ]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    "record",
    ["PERF_RECORD_SWITCH_CPU_WIDE OUT preempt next pid/tid:     7/8",
     "PERF_RECORD_SWITCH IN ",
     "PERF_RECORD_COMM exec: x:77/77",
     "PERF_RECORD_FORK(77:78):(77:77)",
     "PERF_RECORD_MMAP2 77/77: [0x5581(0x5000) @ 0 fe:01 3 4]: r-xp /bin/x"],
)  # fmt: skip
def test_other_perf_records_are_skipped(tmp_path: Path, record: str) -> None:
    """Also where the first 4096 bytes contain nothing else."""
    line = f"               x    77 [001]     1.990000000: {record}"
    whole = opened(tmp_path, perf(lambda _: []))
    trace = opened(tmp_path, perf(lambda turn: [line] * (80 if turn == 0 else 1)))
    assert trace.waits.collect().equals(whole.waits.collect())
    assert (trace.window, trace.info["warnings"]) == (whole.window, [])
    measured = trace.waits.filter(pl.col("censored") == "none").collect()["wait"]
    assert measured.to_list() == [50_000] * 99


@pytest.mark.parametrize("count", [1, 7500, LARGEST >> 1])
def test_a_loss_that_perf_script_shows_lies_between_the_cpus_events(
    tmp_path: Path, count: int
) -> None:
    line = f"         swapper     0 [001]     2.062500000: PERF_RECORD_LOST lost {count}"
    trace = opened(tmp_path, perf(lambda turn: [line] if turn == 21 else []))
    (row,) = trace.losses.collect().to_dicts()
    # From the wakeup before to the switch after it.
    expected = (1, 2_062_950_000, 2_063_000_000, count, "overrun")
    assert tuple(row[name] for name in ("cpu", "ts_begin", "ts_end", "count", "reason")) == expected


def test_loss_after_the_last_event_extends_to_the_end(tmp_path: Path) -> None:
    line = "         swapper     0 [000]     2.500000000: PERF_RECORD_LOST lost 9\n"
    trace = opened(tmp_path, perf(lambda _: []) + line)
    (row,) = trace.losses.collect().to_dicts()
    assert (row["cpu"], row["ts_begin"], row["ts_end"], row["count"]) == (0, *trace.window, 9)
