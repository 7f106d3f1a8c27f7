"""Text from other tools: broken lines, other options, other timestamps."""

from __future__ import annotations

import re
from pathlib import Path

import polars as pl
import pytest
from decoded import FIXTURES, decode, switches, tids, wakeups

import schedscope as ss
from schedscope.errors import FormatError

TRACEFS = FIXTURES / "text-tracefs.txt"
HEAD = "# tracer: nop\n"


def renamed(tmp_path: Path, old: str, new: str) -> tuple[ss.Trace, ss.Trace]:
    """The kernel's text, and the same with another name for a thread."""
    text = TRACEFS.read_text()
    assert f"comm={old} " in text
    path = tmp_path / "renamed.txt"
    path.write_text(text.replace(f"comm={old} ", f"comm={new} "))
    return decode(TRACEFS), decode(path)


def some_name() -> str:
    """The thread that is woken most."""
    wakes = wakeups(decode(TRACEFS))
    tid = wakes["tid"].mode()[0]
    threads = decode(TRACEFS).threads.filter(pl.col("tid") == tid).collect()
    name = threads["comm"][0]
    assert isinstance(name, str)
    return name


@pytest.mark.parametrize("name", ["new\nline", "\n", "a\n\n\nb", "x 1\n", "x\n#y", "7\n8 9"])
def test_name_with_newlines_keeps_events_intact(tmp_path: Path, name: str) -> None:
    """Every event is there, and the name is complete."""
    whole, broken = renamed(tmp_path, some_name(), name)
    assert switches(broken).equals(switches(whole), null_equal=True)
    assert wakeups(broken).equals(wakeups(whole), null_equal=True)
    assert broken.info["warnings"] == whole.info["warnings"]
    assert name in broken.threads.collect()["comm"].to_list()


def test_truncated_line_loses_only_itself(tmp_path: Path) -> None:
    """An event without its end is damage; the next line is read normally."""
    lines = TRACEFS.read_text().splitlines()
    at = next(n for n, line in enumerate(lines) if n > 100 and "sched_waking: " in line)
    lines[at] = lines[at][: lines[at].index(" pid=")]
    path = tmp_path / "cut.txt"
    path.write_text("\n".join(lines) + "\n")
    trace = decode(path)
    assert wakeups(trace).height == wakeups(decode(TRACEFS)).height - 1
    assert switches(trace).height == switches(decode(TRACEFS)).height
    assert f"line {at + 1}: " in "".join(trace.info["warnings"])


def test_stack_traces_between_events_are_skipped(tmp_path: Path) -> None:
    """The option `stacktrace`: each event has one, and all events are read."""
    lines = []
    for line in TRACEFS.read_text().splitlines():
        lines.append(line)
        if not line.startswith("#"):
            head = line[: line.index(": ") + 2]
            lines += [head + "<stack trace>", " => __schedule", " => schedule+0x1f/0x90"]
    path = tmp_path / "stack.txt"
    path.write_text("\n".join(lines) + "\n")
    trace = decode(path)
    assert switches(trace).equals(switches(decode(TRACEFS)), null_equal=True)
    assert trace.info["warnings"] == []


def test_perf_records_between_events_are_skipped(tmp_path: Path) -> None:
    """`perf script --show-task-events`."""
    lines = []
    for line in (FIXTURES / "text-perf-script.txt").read_text().splitlines():
        lines += [line, "         swapper       0 [000]     0.000000: PERF_RECORD_FORK(1:1):(0:0)"]
    path = tmp_path / "records.txt"
    path.write_text("\n".join(lines) + "\n")
    whole = decode(FIXTURES / "text-perf-script.txt")
    assert switches(decode(path)).equals(switches(whole), null_equal=True)


def test_names_that_trace_cmd_prints_as_arrays(tmp_path: Path) -> None:
    """`report -R` does so from the first non-ASCII name on."""
    hexed = ", ".join(f"{byte:02x}" for byte in "été".encode().ljust(16, b"\0"))
    path = tmp_path / "arrays.txt"
    path.write_text(
        f"cpus=1\n   <...>-7 [000]1000000: sched_switch: prev_comm=ARRAY[{hexed}] prev_pid=7 "
        "prev_prio=120 prev_state=1 next_comm=b next_pid=8 next_prio=120\n"
        f"   <...>-8 [000]1004000: sched_waking: comm=ARRAY[{hexed}] pid=7 prio=120 "
        "target_cpu=000\n"
    )
    trace = decode(path)
    assert switches(trace).select("prev", "next").rows() == [(7, 8)]
    assert trace.threads.filter(pl.col("tid") == 7).collect()["comm"].to_list() == ["été"]


def test_names_that_start_like_fields_are_read_from_libtraceevent(tmp_path: Path) -> None:
    """`NAME:TID [PRIO]`, with a name that starts like the kernel's fields."""
    path = tmp_path / "plugin.txt"
    path.write_text(
        '   a 7 [000]  1.000001: sched:sched_wakeup: comm=" x:8 [4294967295] CPU:000\n'
        "   a 7 [000]  1.000002: sched:sched_switch: a:7 [120] S ==> prev_comm=y:8 [-1]\n"
        "   b 8 [000]  1.000003: sched:sched_switch: prev_comm=y:8 [-1] R ==> a:7 [120]\n"
    )
    trace = decode(path)
    assert wakeups(trace).select("tid", "prio").rows() == [(8, -1)]
    named = switches(trace).select("prev", "prev_prio", "next", "next_prio")
    assert named.rows() == [(7, 120, 8, -1), (8, -1, 7, 120)]
    assert trace.info["warnings"] == []


def test_name_with_a_slash_is_not_read_as_a_tid(tmp_path: Path) -> None:
    """`perf script -F comm,cpu,time,event,trace` prints no tid."""
    path = tmp_path / "no-tid.txt"
    path.write_text(
        "  ksoftirqd/1 [000]  1.000001: sched:sched_waking: b:8 [120] CPU:000\n"
        "  ksoftirqd/1 [000]  1.000002: sched:sched_switch: ksoftirqd/1:7 [120] S ==> b:8 [120]\n"
    )
    assert wakeups(decode(path))["waker"].to_list() in ([None], [7])
    assert 1 not in tids(decode(path))["tid"].to_list()


def test_differences_of_times_are_refused(tmp_path: Path) -> None:
    """`perf script --deltatime` prints times relative to the previous event."""
    rows = [
        f"  a 7 [000]  0.0000{n % 3:02}: sched:sched_switch: a:7 [120] S ==> b:8 [120]"
        for n in range(100)
    ]
    path = tmp_path / "delta.txt"
    path.write_text("\n".join(rows) + "\n")
    with pytest.raises(FormatError, match="time stamps may be differences"):
        decode(path)


@pytest.mark.parametrize(
    ("first", "last", "said"),
    [
        ("1.000001", "1.000004", None),
        ("0.900000", "1.000004", "100.001 ms before the first line"),
        ("1.000001", "3.000003", "2000.000 ms behind the last line"),
    ],
)
def test_a_header_that_names_a_later_event(
    tmp_path: Path, first: str, last: str, said: str | None
) -> None:
    """`perf script --header` prints when the recording's samples start and end."""
    path = tmp_path / "header.txt"
    path.write_text(
        f"# ========\n# captured on    : today\n# time of first sample : {first}\n"
        f"# time of last sample : {last}\n# ========\n"
        "   a 7 [000]  1.000001: sched:sched_waking: b:8 [120] CPU:000\n"
        "   a 7 [000]  1.000003: sched:sched_switch: a:7 [120] S ==> b:8 [120]\n"
    )
    warnings = "".join(decode(path).info["warnings"])
    assert (said in warnings) if said else (warnings == "")


def test_text_without_tids_has_no_tids_from_names(tmp_path: Path) -> None:
    """`perf script -F comm,cpu,time,event,trace`: `ld-linux-x86-64` is not thread 64."""
    source = (FIXTURES / "text-perf-script.txt").read_text()
    whole = tmp_path / "whole.txt"
    whole.write_text(re.sub(r"(?m)^ +perf(?= +\d+ \[)", "ld-linux-x86-64", source))
    path = tmp_path / "no-ids.txt"
    path.write_text(re.sub(r"(?m)^ *(\S.*?) +\d+ (?=\[\d+\])", r"\1 ", whole.read_text()))
    assert "\nld-linux-x86-64 [" in path.read_text()
    trace, same = decode(path), decode(whole)
    assert switches(trace).equals(switches(same), null_equal=True)
    known = ["ts", "kind", "tid", "target_cpu"]
    assert wakeups(trace).select(known).equals(wakeups(same).select(known), null_equal=True)
    assert 64 not in trace.threads.collect()["tid"].to_list()
    assert trace.wakeups.collect()["current_utid"].null_count() == wakeups(trace).height


def test_filter_in_perfs_command_line_is_reported(tmp_path: Path) -> None:
    """In text only the header of `perf script --header` has it."""
    path = tmp_path / "filtered.txt"
    line = "# cmdline : /usr/bin/perf record -a -e sched:* --filter prev_pid==7 \n"
    path.write_text(line + (FIXTURES / "text-perf-script.txt").read_text())
    trace = decode(path)
    assert any("recorded with --filter 'prev_pid==7'" in one for one in trace.info["warnings"])
    assert "filtered" not in trace.info
