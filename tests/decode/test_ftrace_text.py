"""ftrace text: one set of events in five dialects, and lines that could break parsers."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import polars as pl
import pytest
from decoded import FIXTURES, decode, migrations, switches, tids, wakeups
from hypothesis import given, strategies as st
from tools import tool

import schedscope as ss
from schedscope import _native
from schedscope.errors import FormatError, SchedscopeError

ODD_NAMES = {
    "lto cgu.05",
    "a:7 [120] R",
    "x ==> y:1 [2]",
    "b prev_pid=1",
    "<...>-3",
    "k/1:1H [001]",
}
RAW = "text-report-R.txt"


@pytest.mark.parametrize("name", ["text-report.txt", "text-report-l.txt", "text-report-3.4.txt"])
def test_dialects_of_trace_cmd_agree(name: str) -> None:
    """Plain, latency and newer reports equal those of -R.

    libtraceevent prints R+ as R: only there `preempted` is null instead of true.
    """
    ours, raw = switches(decode(FIXTURES / name)), switches(decode(FIXTURES / RAW))
    assert ours.drop("preempted").equals(raw.drop("preempted"), null_equal=True)
    known = raw["preempted"] & raw["preempted"].is_not_null()
    assert ours.filter(known)["preempted"].null_count() == known.sum()
    assert ours.filter(~known)["preempted"].equals(raw.filter(~known)["preempted"], null_equal=True)
    wakes, raw_wakes = wakeups(decode(FIXTURES / name)), wakeups(decode(FIXTURES / RAW))
    # Only dialects with flags distinguish wakes from interrupts, which have no waker.
    assert wakes.drop("waker").equals(raw_wakes.drop("waker"), null_equal=True)
    assert migrations(decode(FIXTURES / name)).equals(migrations(decode(FIXTURES / RAW)))


def test_kernel_text_agrees_with_the_raw_trace() -> None:
    """`cat trace` is the same, rounded to the next µs, and distinguishes R+ from R."""
    kernel, raw = switches(decode(FIXTURES / "text-tracefs.txt")), switches(decode(FIXTURES / RAW))
    assert kernel["ts"].to_list() == ((raw["ts"] + 500) // 1000 * 1000).to_list()
    assert kernel.drop("ts").equals(raw.drop("ts"), null_equal=True)
    flags = wakeups(decode(FIXTURES / "text-tracefs.txt"))
    latency = wakeups(decode(FIXTURES / "text-report-l.txt"))
    assert flags["waker"].null_count() > 0
    assert flags["waker"].equals(latency["waker"], null_equal=True)


def counted(tmp_path: Path, entries: int, written: int, dropped: range = range(0)) -> ss.Trace:
    """The kernel's text with other counts in its header, and without some of its events."""
    lines = (FIXTURES / "text-tracefs.txt").read_text().splitlines(keepends=True)
    head = [line for line in lines if line.startswith("#")]
    rows = [line for line in lines if not line.startswith("#")]
    said = f"# entries-in-buffer/entries-written: {entries}/{written}   #P:2\n"
    head = [said if "entries-in-buffer" in line else line for line in head]
    path = tmp_path / f"{entries}-{written}-{len(dropped)}.txt"
    path.write_text("".join([*head, *(row for n, row in enumerate(rows) if n not in dropped)]))
    return ss.open(path)


def test_the_header_counts_what_the_kernel_overwrote(tmp_path: Path) -> None:
    """A ring that wrapped: 4,300 events were overwritten, and no line reports them."""
    whole = counted(tmp_path, 700, 700)
    broken = whole.losses.collect()
    assert set(broken["reason"]) == {"chain_break"}
    trace = counted(tmp_path, 700, 5000)
    late = trace.losses.filter(pl.col("reason") != "chain_break").collect()
    (row,) = late.filter(pl.col("cpu").is_null()).to_dicts()
    # And the CPU whose lines start 13 us after the other's.
    assert trace.losses.collect().height == broken.height + 2 == broken.height + late.height
    assert (row["count"], row["reason"], row["cpu"]) == (4300, "late_start", None)
    assert row["ts_begin"] == row["ts_end"] <= trace.wakeups.collect()["ts"].min()
    assert "4300 events that the kernel overwrote" in "".join(trace.info["warnings"])
    assert trace.waits.collect().equals(whole.waits.collect())


def test_a_cpu_that_begins_late_in_an_overwritten_buffer_was_overwritten(tmp_path: Path) -> None:
    """Threads may have run there: no wait is measured across it, as with a trace.dat."""
    whole = counted(tmp_path, 700, 700)
    rows = (FIXTURES / "text-tracefs.txt").read_text().splitlines(keepends=True)
    rows = [row for row in rows if not row.startswith("#")]
    at = [n for n, row in enumerate(rows[:300]) if "[001]" in row]
    path = tmp_path / "late.txt"
    head = f"# tracer: nop\n# entries-in-buffer/entries-written: {700 - len(at)}/700   #P:2\n"
    path.write_text(head + "".join(row for n, row in enumerate(rows) if n not in at))
    trace = ss.open(path)
    late = trace.losses.filter(pl.col("reason") == "late_start", pl.col("cpu") == 1).collect()
    until = trace.switches.filter(pl.col("cpu") == 1).collect()["ts"].min()
    assert late["ts_end"].item() <= until
    # Of two waits across a mismatch on CPU 1 the whole file has only the end.
    known = whole.waits.filter(pl.col("censored") == "none").collect()
    measured = trace.waits.filter(pl.col("censored") == "none").collect()
    both = measured.join(known, on=["ts_run", "cpu"], suffix="_whole")
    assert both.filter(pl.col("wait") != pl.col("wait_whole")).is_empty()
    assert both.height > 100
    assert measured.height - both.height <= 2


def test_lines_counted_by_the_header_but_absent_are_losses(tmp_path: Path) -> None:
    """One event in 350 was removed: nothing is measured across where it may have been."""
    whole = counted(tmp_path, 700, 700)
    trace = counted(tmp_path, 700, 700, dropped=range(300, 302))
    assert "of 700 events that the header counts, 2 are not in" in "".join(trace.info["warnings"])
    (unplaced,) = [row for row in ss.check(trace).to_dicts() if row["check"] == "unplaced losses"]
    assert unplaced["level"] == "warning"
    true = set(whole.waits.collect().select("utid", "ts_run", "wait").iter_rows())
    measured = trace.waits.filter(pl.col("censored") == "none").collect()
    assert set(measured.select("utid", "ts_run", "wait").iter_rows()) <= true
    # An excerpt is recognised, and the rest of it can be analysed.
    excerpt = counted(tmp_path, 2023, 2023)
    assert "1323 are not in the file" in "".join(excerpt.info["warnings"])
    assert excerpt.waits.collect().equals(whole.waits.collect())
    # Counts that do not belong to these lines are ignored.
    assert counted(tmp_path, 600, 900).info["warnings"] == []


def test_latency_format_counts_from_the_start_of_the_buffer() -> None:
    """The same steps between events; another origin."""
    latency = switches(decode(FIXTURES / "text-latency.txt"))
    kernel = switches(decode(FIXTURES / "text-tracefs.txt"))
    apart = (kernel["ts"] - latency["ts"]).unique()
    assert apart.max() - apart.min() <= 1000
    assert latency.drop("ts").equals(kernel.drop("ts"), null_equal=True)


@pytest.mark.parametrize("name", [RAW, "text-report.txt", "text-tracefs.txt", "text-latency.txt"])
def test_names_that_look_like_fields(name: str) -> None:
    """Spaces, colons, brackets, arrows and `key=` in a name stay in the name."""
    trace = decode(FIXTURES / name)
    assert set(trace.threads.collect()["comm"]) >= ODD_NAMES
    # text-tracefs.txt is the start of what its header counts.
    assert [text for text in trace.info["warnings"] if "header counts" not in text] == []


def test_perf_script_agrees_with_perf_data() -> None:
    """All but what its text omits: R+ (printed as R), and interrupt context."""
    text, data = decode(FIXTURES / "text-perf-script.txt"), decode(FIXTURES / "perf-sched.data")
    ours = switches(text)
    assert ours.drop("preempted").equals(switches(data).drop("preempted"), null_equal=True)
    assert wakeups(text).drop("waker").equals(wakeups(data).drop("waker"), null_equal=True)
    assert migrations(text).sort("ts", "tid").equals(migrations(data).sort("ts", "tid"))


IRQS = ("ts", "cpu", "kind", "id", "dur")


@pytest.mark.needs("trace-cmd")
@pytest.mark.parametrize("option", [(), ("-t",), ("-l",), ("-R",)])
def test_handlers_of_a_report_are_those_of_the_trace_dat(
    tmp_path: Path, option: tuple[str, ...]
) -> None:
    binary = tmp_path / "trace.dat"
    shutil.copy(FIXTURES / "linux-trace-cmd-yield.dat", binary)
    report = tmp_path / "report.txt"
    command = [*(tool("trace-cmd") or ()), "report", *option, "-i", str(binary)]
    done = subprocess.run(command, capture_output=True, check=True)
    report.write_bytes(done.stdout)
    if b"]-0x" in done.stdout:
        with pytest.raises(FormatError, match="without a gap"):
            decode(report)
        return
    recorded, ours = decode(binary).irqs.collect(), decode(report).irqs.collect()
    assert recorded.height > 100
    assert ours.select(IRQS).equals(recorded.select(IRQS))


def test_handlers_nest_and_a_loss_resets_them(tmp_path: Path) -> None:
    """During a loss the handler may have been left and entered again."""
    path = tmp_path / "trace.txt"
    lines = [
        ("1.000010", "softirq_entry: vec=1 [action=TIMER]"),
        ("1.000012", "irq_handler_entry: irq=33 name=a name irq=7"),
        ("1.000015", "irq_handler_exit: irq=33 ret=handled"),
        ("1.000020", "softirq_exit: vec=1 [action=TIMER]"),
        ("1.000025", fields("S")),
        ("1.000030", "softirq_entry: vec=9 [action=RCU]"),
        None,
        ("1.000090", "softirq_exit: vec=9 [action=RCU]"),
    ]
    texts = [
        "CPU:0 [LOST 3 EVENTS]" if line is None else f"  a-11 [000] d.s2. {line[0]}: {line[1]}"
        for line in lines
    ]
    path.write_text("# tracer: nop\n" + "\n".join(texts) + "\n")
    found = decode(path).irqs.select("ts", "kind", "id", "dur").collect()
    assert found.sort("ts").rows() == [
        (1_000_010_000, "soft", 1, 10_000),
        (1_000_012_000, "hard", 33, 3_000),
    ]


def test_system_calls_in_every_dialect(tmp_path: Path) -> None:
    path = tmp_path / "trace.txt"
    heads = ["sys_{}: NR {}", "raw_syscalls:sys_{}: NR {}", "sys_{}: id={}"]
    texts = [f"  a-11 [000] d... 1.000001: {fields('S')}"]
    for number, head in enumerate(heads):
        entry, back = head.format("enter", 202), head.format("exit", 202)
        args, value = (
            (" args=ARRAY[01]", " ret=0x2") if "id=" in head else (" (7f, 80, 2, 0)", " = -11")
        )
        texts.append(f"  a-11 [001] d... 1.00000{2 * number + 2}: {entry}{args}")
        texts.append(f"  a-11 [001] d... 1.00000{2 * number + 3}: {back}{value}")
    path.write_text("# tracer: nop\n" + "\n".join(texts) + "\n")
    table = decode(path).system_calls.collect()
    rows = table.select("cpu", "step", "number", "value").rows()
    assert rows[::2] == [(1, "enter", 202, None)] * 3
    assert rows[1::2] == [(1, "exit", 202, -11), (1, "exit", 202, -11), (1, "exit", 202, 2)]
    none = (None, None, None)
    arguments = table.select("arg0", "arg1", "arg2").rows()
    assert arguments == [(0x7F, 0x80, 2), none, (0x7F, 0x80, 2), none, none, none]


def test_locks_and_groups_in_every_dialect(tmp_path: Path) -> None:
    """Names or numbers, in an interrupt or not; a group may be named like the fields after it."""
    path = tmp_path / "x.txt"
    lines = [
        "a-7 [000] d..2.  1.000001: sched_switch: prev_comm=a prev_pid=7 prev_prio=120 "
        "prev_state=S ==> next_comm=b next_pid=9 next_prio=120",
        "b-9 [000] d..2.  1.000002: contention_begin: 00000000f3431c60 (flags=READ|PERCPU)",
        "b-9 [000] d.h2.  1.000003: contention_begin: 00000000f3431c60 (flags=SPIN)",
        "b-9 [000] d..2.  1.000004: contention_end: 00000000f3431c60 (ret=-4)",
        "b-9 [000] d..2.  1.000005: contention_begin: lock_addr=0xffff8881003c35ec flags=0x20",
        "b-9 [000] d..2.  1.000006: contention_end: lock_addr=0xffff8881003c35ec ret=0",
        "b-9 [000] d..2.  1.000007: contention_begin: 0xffff8881003c35ec (flags=)",
        "b-9 [000] d..2.  1.000008: cgroup_attach_task: dst_root=0 dst_id=2 dst_level=1 "
        "dst_path=/a pid=3 b pid=9 comm=b",
        "b-9 [000] d..2.  1.000009: cgroup_transfer_tasks: dst_root=0 dst_level=1 dst_id=0x3 pid=7 "
        "dst_path=/c comm=a",
    ]
    path.write_text("# tracer: nop\n" + "\n".join(lines) + "\n")
    trace = decode(path)
    hashed, plain = 0xF3431C60, 0xFFFF_8881_003C_35EC
    assert trace.locks.select("ts", "step", "address", "kind", "value").collect().rows() == [
        (1_000_002_000, "begin", hashed, "percpu-rwsem", None),
        (1_000_004_000, "end", hashed, None, -4),
        (1_000_005_000, "begin", plain, "mutex", None),
        (1_000_006_000, "end", plain, None, 0),
        (1_000_007_000, "begin", plain, "other", None),
    ]
    moves = [(one["tid"], one["cgroup"]) for one in trace.info["group_moves"]]
    assert moves == [(9, "/a pid=3 b"), (7, "/c")]
    assert not trace.info["warnings"]


def test_requests_to_disks_of_old_and_new_kernels(tmp_path: Path) -> None:
    path = tmp_path / "trace.txt"
    path.write_text(
        "# tracer: nop\n"
        f"  a-11 [000] d... 1.000001: {fields('S')}\n"
        "  a-11 [001] .... 1.000002: block_io_start: 254,1 RA 4096 () 7000000000 + 8 be,0,4 [a]\n"
        "  a-11 [001] d.s. 1.000003: block_rq_issue: 8,0 WS 512 (2a + 1) 16 + 1 [a b]\n"
        "  a-11 [001] d.h. 1.000004: block_rq_complete: 254,1 RA () 7000000000 + 8 [0]\n"
        "  a-11 [001] .... 1.000005: block_rq_issue: of a kernel to come\n"
    )
    trace = decode(path)
    requests = trace.disk_requests.collect()
    table = requests.join(tids(trace), on="utid", how="left").sort("ts")
    assert table.select("cpu", "tid", "step", "device", "sector", "sectors").rows() == [
        (1, 11, "start", 254 << 20 | 1, 7_000_000_000, 8),
        (1, None, "issue", 8 << 20, 16, 1),
        (1, None, "complete", 254 << 20 | 1, 7_000_000_000, 8),
    ]


# --- Lines by hand. ---


def read(tmp_path: Path, *lines: str, head: str = "# tracer: nop\n") -> list[tuple[object, ...]]:
    path = tmp_path / "trace.txt"
    path.write_text(head + "\n".join(lines) + "\n")
    trace = decode(path)
    return switches(trace).select("ts", "cpu", "prev", "prev_state", "preempted", "next").rows()


def fields(state: str, prev: str = "a", following: str = "b") -> str:
    return (
        f"sched_switch: prev_comm={prev} prev_pid=11 prev_prio=120 prev_state={state} ==> "
        f"next_comm={following} next_pid=22 next_prio=120"
    )


@pytest.mark.parametrize(
    ("head", "ts"),
    [
        ("           a-11    [003] d..2.  4836.436159: ", 4836436159000),
        ("           a-11    [003] d..2  4836.436159475: ", 4836436159475),
        ("           a-11    [003]  4836.436159: ", 4836436159000),
        ("           a-11    (   10) [003] d..2.  4836.436159: ", 4836436159000),
        ("           a-11    (-----) [003] d..2.  4836.436159: ", 4836436159000),
        ("      a: b [1]-11  [003] d..2.  4836.436159: ", 4836436159000),
        ("        <idle>-11  [003] d..2.  4836.436159: ", 4836436159000),
        ("       a-11      3d..2. 4836436159us : ", 4836436159000),
        ("       a-11      3d..2. 4836436159us!: ", 4836436159000),
    ],
)
def test_headers_of_tracefs_are_read(tmp_path: Path, head: str, ts: int) -> None:
    """CPU, stamp in µs or ns, with and without flags and thread group."""
    assert read(tmp_path, head + fields("S")) == [(ts, 3, 11, "sleeping", False, 22)]


@pytest.mark.parametrize(
    ("state", "name", "preempted"),
    [
        ("R", "runnable", None),
        ("R+", "runnable", True),
        ("S", "sleeping", False),
        ("D", "blocked", False),
        ("D|K", "blocked", False),
        ("t", "stopped", False),
        ("Z", "dead", False),
        ("I", "parked", False),
        ("0", "runnable", None),
        ("1", "sleeping", False),
        ("256", "runnable", True),
    ],
)
def test_states_as_letters_and_numbers(
    tmp_path: Path, state: str, name: str, preempted: bool | None
) -> None:
    line = "  a-11    [000] d..2.  1.000000: " + fields(state)
    assert read(tmp_path, line) == [(10**9, 0, 11, name, preempted, 22)]


def test_late_lines_of_trace_pipe_are_sorted(tmp_path: Path) -> None:
    """A CPU's event may be printed after a later one of another CPU."""
    rows = read(
        tmp_path,
        "  a-11    [000] d..2.  1.000002: " + fields("S"),
        "  a-11    [001] d..2.  1.000001: " + fields("S"),
    )
    assert [row[:2] for row in rows] == [(1_000_001_000, 1), (1_000_002_000, 0)]


def test_lost_events_are_losses(tmp_path: Path) -> None:
    """A line of tracefs or trace-cmd: the loss is between the CPU's events around it."""
    for line in ["CPU:0 [LOST 17 EVENTS]", "CPU:0 [17 EVENTS DROPPED]"]:
        path = tmp_path / "trace.txt"
        path.write_text(
            "# tracer: nop\n"
            f"  a-11  [000] d..2.  1.000001: {fields('S')}\n"
            f"  a-11  [001] d..2.  1.000002: {fields('S')}\n"
            f"{line}\n"
            f"  a-11  [000] d..2.  1.000009: {fields('S')}\n"
        )
        lost = decode(path).losses.filter(pl.col("reason") == "overrun").collect()
        assert lost.select("cpu", "ts_begin", "ts_end", "count").rows() == [
            (0, 1_000_001_000, 1_000_009_000, 17)
        ]


def test_systrace_html(tmp_path: Path) -> None:
    """Only the lines in the report's trace-data scripts are trace."""
    line = "  a-11    [000] d..2.  1.000000: " + fields("S")
    path = tmp_path / "report.html"
    path.write_text(
        "<!DOCTYPE html>\n<html><script>var x = '[000] 1.0: sched_switch: ';</script>\n"
        f'<script class="trace-data" type="application/text">\n# tracer: nop\n{line}\n</script>\n'
        f"</html>\n{line}\n"
    )
    assert len(switches(decode(path))) == 1


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("# tracer: function\n  a-11 [000] ....  1.000000: do_exit <-x\n", "function tracer"),
        ("a-11 [000]-0x951699164020946: sched_switch: prev_comm=a", "without a gap"),
        ("# tracer: nop\n  a-11 [000] ....  1.000000: sys_read: fd 3\n", "none of the scheduler"),
        ("<html><body>nothing</body></html>\n", "HTML without a trace"),
        ("# tracer: nop\n  a-11 [000] d..2. 123456789: " + fields("S") + "\n", "counts ticks"),
        ("TRACE:\nx\x9c\x03", "compressed"),
        (
            "# tracer: nop\n  a-11 [000] d..2.  1.000000: sched_waking: comm=b pid=2 prio=1\n"
            + "  a-11 [000] d..2.  1.000000: sched_switch: from a to b\n" * 20,
            "20 of 21 switches and wakeups cannot be read; the first is line 3",
        ),
    ],
)
def test_unreadable_text_is_refused_with_the_line(tmp_path: Path, text: str, found: str) -> None:
    """Never an empty trace: the error quotes the line and gives a hint."""
    path = tmp_path / "trace.txt"
    path.write_text(text)
    with pytest.raises(FormatError, match=found) as caught:
        decode(path)
    assert caught.value.hint


def test_time_going_back_on_a_cpu_is_reported(tmp_path: Path) -> None:
    """Two boots in one file are merged by time: its numbers are of little value."""
    path = tmp_path / "trace.txt"
    lines = [f"  a-11 [000] d..2. {ts:.6f}: {fields('S')}" for ts in (100, 101, 5, 6)]
    path.write_text("# tracer: nop\n" + "\n".join(lines) + "\n")
    assert decode(path).info["warnings"] == [
        "time goes back within one CPU, first at line 4, 1 in all: two traces in one file, "
        "or a clock that was set back"
    ]


LINE = "  a-11 [000] d..2. {:.6f}: sched_switch: prev_comm={} ==> next_comm={}\n".format
IDLE, BUSY = (f"{name} {{0}}_pid={pid} {{0}}_prio=120" for name, pid in (("i", 0), ("a", 11)))
TURNS = [
    (IDLE.format("prev") + " prev_state=R", BUSY.format("next")),
    (BUSY.format("prev") + " prev_state=S", IDLE.format("next")),
]
"""The thread runs, and sleeps."""
HEADERS = ("# tracer: nop\n", "# ========\n# captured on    : today\n", "cpus=2\n")


@pytest.mark.parametrize("header", HEADERS)
def test_time_between_joined_recordings_is_unknown(tmp_path: Path, header: str) -> None:
    """Else the CPUs idle and the threads sleep for as long as nothing was recorded."""
    parts = [
        "".join(LINE(at + step / 100, *turn) for step, turn in enumerate(TURNS))
        for at in (100, 101)
    ]
    path = tmp_path / "trace.txt"
    path.write_text("".join(header + part for part in parts))
    trace = decode(path)
    lost = trace.losses.select("cpu", "ts_begin", "ts_end").collect().row(0)
    assert lost == (None, 100_010_000_000, 101_000_000_000)
    assert trace.info["warnings"] == [
        "2 recordings in one file, with 0.990 s between them: what happened then is unknown"
    ]
    known = trace.states.filter(pl.col("state") != "unknown").collect()
    assert known["dur"].max() == 10_000_000

    path.write_text(header + "".join(parts))
    assert decode(path).losses.collect().is_empty()


def test_time_between_joined_recordings_does_not_suggest_a_filter(tmp_path: Path) -> None:
    """A thread of the kernel need not run in 0.7 s that were recorded; in 400 s it would."""

    def lines(at: float, apart: float) -> str:
        return "".join(LINE(at + step * apart, *TURNS[step % 2]) for step in range(120))

    path = tmp_path / "trace.txt"
    path.write_text("".join("# tracer: nop\n" + lines(at, 0.003) for at in (100, 500)))
    info = decode(path).info
    assert info["warnings"] == [
        "2 recordings in one file, with 399.643 s between them: what happened then is unknown"
    ]
    assert "filtered" not in info
    path.write_text("# tracer: nop\n" + lines(100, 3.3))
    assert "filtered" in decode(path).info


def test_files_of_single_cpus_make_one_recording(tmp_path: Path) -> None:
    """As in `cat per_cpu/cpu*/trace`: each has a header, and their times overlap."""
    path = tmp_path / "trace.txt"
    path.write_text(
        "".join(
            "# tracer: nop\n"
            + "".join(f"  a-11 [00{cpu}] d..2. {ts:.6f}: {fields('S')}\n" for ts in (100, 102))
            for cpu in (0, 1)
        )
    )
    trace = decode(path)
    assert trace.losses.filter(pl.col("cpu").is_null()).collect().is_empty()
    assert trace.info["warnings"] == []


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("text")


@given(st.data())
def test_any_damage_is_an_error_or_a_trace(folder: Path, data: st.DataObject) -> None:
    """Truncated anywhere, with bytes replaced: no crash, and no invented event."""
    source = FIXTURES / data.draw(st.sampled_from([RAW, "text-tracefs.txt", "text-report-l.txt"]))
    damaged = bytearray(source.read_bytes()[: data.draw(st.integers(0, 60_000))])
    for _ in range(data.draw(st.integers(0, 8))):
        if damaged:
            damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    path = folder / "trace.txt"
    path.write_bytes(bytes(damaged))
    try:
        trace = decode(path)
    except SchedscopeError:
        return
    assert trace.switches.collect().height <= damaged.count(b"sched_switch") + 8


NAME = st.text(
    st.characters(codec="ascii", exclude_categories=["Cc"]), min_size=1, max_size=15
).map(str.strip)


@given(prev=NAME.filter(bool), following=NAME.filter(bool), plugin=st.booleans())
def test_any_name_survives(folder: Path, prev: str, following: str, plugin: bool) -> None:
    """The line is read correctly for any 15 printable bytes as names of the two threads."""
    if plugin:
        line = f"sched_switch: {prev}:11 [120] S ==> {following}:22 [120]"
    else:
        line = fields("S", prev, following)
    path = folder / "trace.txt"
    path.write_text(f"# tracer: nop\n {prev[:15]:>16}-11    [001] d..2.  1.000000: {line}\n")
    trace = decode(path)
    assert switches(trace).select("ts", "cpu", "prev", "prev_state", "next").rows() == [
        (10**9, 1, 11, "sleeping", 22)
    ]
    if "<...>" not in (prev, following):
        names = trace.threads.filter(pl.col("tid") > 0).sort("tid").collect()["comm"].to_list()
        assert names == [prev, following]


def _switches_of(tmp_path: Path, states: list[str]) -> list[tuple[str, bool | None]]:
    """The states and `preempted` of one switch for each `prev_state`."""
    path = tmp_path / "states.txt"
    path.write_text(
        "".join(
            f"a-1 [000] 1.{n:06}: sched_switch: prev_comm=a prev_pid=1 prev_prio=120 "
            f"prev_state={state} ==> next_comm=b next_pid=2 next_prio=120\n"
            for n, state in enumerate(states)
        )
    )
    tables, _ = _native.decode(str(path))
    frame = pl.DataFrame(tables["switches"])
    return list(frame.select(pl.col("prev_state").cast(pl.String), "preempted").iter_rows())


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        # Linux 4.8 to 4.13 in numbers: x, D|K, R+.
        (["1", "64", "130", "4096"], ["sleeping", "dead", "blocked", "runnable"]),
        # Linux 4.14 logs indexes of letters, which a printer takes for bits.
        (["S", "D", "S|T", "D|T", "S|D|T", "t", "R+"], [
            "sleeping", "blocked", "dead", "dead", "parked", "parked", "runnable"
        ]),
        (["1", "5", "6", "8", "4096"], ["sleeping", "dead", "dead", "parked", "runnable"]),
        # Since 2017: X, Z, P, I, R+.
        (["1", "16", "32", "64", "128", "256"], [
            "sleeping", "dead", "dead", "parked", "parked", "runnable"
        ]),
        (["S", "t", "X"], ["sleeping", "stopped", "dead"]),
    ],
)  # fmt: skip
def test_kernel_is_inferred_from_the_state_letters(
    tmp_path: Path, states: list[str], expected: list[str]
) -> None:
    found = _switches_of(tmp_path, states)
    assert [state for state, _ in found] == expected
    plus = [preempted for state, preempted in found if state == "runnable"]
    assert plus == [True] * len(plus)


def test_a_header_that_reads_as_an_event_is_a_header(tmp_path: Path) -> None:
    """Found by fuzzing: its CPU was counted nowhere."""
    path = tmp_path / "x.txt"
    path.write_text(
        "cpus=2sched_switch:         bash:7 [100] d..3.5782739796632: sched_migrate_task:   "
        "comm=bash pid=7 prio=120 orig_cpu=0 dest_cpu=1\n"
        "     migration/0-18    [000] d..2.5782739815260: sched_switch:         "
        "migration/0:18 [0] S ==> bash:7 [120]\n"
    )
    trace = decode(path)
    assert trace.info["events"] == {"sched:sched_switch": {"0": 1}}
    assert trace.info["ncpu"] == 2


def test_wait_beside_an_unmarked_loss_is_a_lower_bound(tmp_path: Path) -> None:
    """CPU 1 has no line for 300 ms; that a switch is missing shows when the wait is over."""

    def switch(cpu: int, ms: int, prev: str, state: str, following: str) -> str:
        def of(who: str, name: str) -> str:
            return f"{who}_comm=t{name} {who}_pid={name} {who}_prio=120"

        return (
            f" t-1 [{cpu:03d}] d..2. 1.{ms:03d}000: sched_switch: {of('prev', prev)} "
            f"prev_state={state} ==> {of('next', following)}"
        )

    def waits(*lines: str) -> list[tuple[int, str]]:
        path = tmp_path / "trace.txt"
        path.write_text("# tracer: nop\n" + "\n".join(lines) + "\n")
        trace = decode(path)
        who = trace.threads.filter(pl.col("tid") == 11).select("utid")
        of_it = trace.waits.join(who, on="utid").filter(pl.col("ts_ready").is_not_null())
        return of_it.select("wait", pl.col("censored").cast(pl.String)).collect().rows()

    moved = (
        " t-1 [000] d..2. 1.005000: sched_migrate_task: comm=t9 pid=9 prio=120 "
        "orig_cpu=0 dest_cpu=1"
    )
    before = [switch(1, 1, "7", "S", "8"), moved, switch(0, 10, "11", "R", "12")]
    after = switch(0, 300, "12", "S", "11")
    whole = waits(*before, after, switch(1, 310, "8", "S", "7"))
    assert whole == [(290_000_000, "none")]
    # Not 8, which CPU 1 ran in its last event: it may have run thread 11 meanwhile.
    assert waits(*before, after, switch(1, 310, "13", "S", "7")) == [(0, "right")]


HEALTHY = """\
          <idle>-0       [000] d..2. 10.000100: sched_waking: comm=a pid=10 prio=120 target_cpu=000
          <idle>-0       [000] d..2. 10.000200: sched_switch: prev_comm=swapper/0 prev_pid=0 \
prev_prio=120 prev_state=R ==> next_comm=a next_pid=10 next_prio=120
               a-10      [000] d..2. 10.000300: sched_waking: comm=b pid=11 prio=120 target_cpu=001
          <idle>-0       [001] d..2. 10.000400: sched_switch: prev_comm=swapper/1 prev_pid=0 \
prev_prio=120 prev_state=R ==> next_comm=b next_pid=11 next_prio=120
               a-10      [000] d..2. 10.000500: sched_switch: prev_comm=a prev_pid=10 \
prev_prio=120 prev_state=S ==> next_comm=swapper/0 next_pid=0 next_prio=120
"""


@pytest.mark.parametrize(
    "line",
    [
        # Two lines in one: the name would be too long.
        "          <idle>-0       [001] d..2. 10.000350: sched_switch: prev_comm=swapper/1 "
        "prev_pi=1 switch prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=c next_pid=12 "
        "next_prio=120",
        "          <idle>-0       [001] d..2. 10.000350: sched_switch: c:12 [120] swi: d:13 "
        "[120] R ==> c:12 [120]",
        # Without its middle, its start, its fields.
        "          <idle>-0       [001] d..2. 10.000350: sched_swget_cpu=001",
        "e=S ==> next_comm=c next_pid=12 next_prio=120",
        "          <idle>-0       [001] d..2. 10.000350: sched_wakeup: comm=c pi",
        "          <idle>-0       [001] d..2. 10.000350: sch",
    ],
)
def test_damaged_line_is_a_loss(tmp_path: Path, line: str) -> None:
    """On every CPU: the overwritten or removed text may have had events of any."""
    text = HEALTHY.splitlines()
    path = tmp_path / "report.txt"
    path.write_text("\n".join([*text[:3], line, *text[3:]]) + "\n")
    trace = decode(path)
    (lost,) = trace.losses.collect().iter_rows(named=True)
    assert (lost["ts_begin"], lost["ts_end"]) == (10_000_300_000, 10_000_400_000)
    assert (lost["cpu"], lost["count"], lost["reason"]) == (None, None, "truncated")
    assert switches(trace).height == 3


def test_lines_that_are_not_events_are_not_damage(tmp_path: Path) -> None:
    """Call chains, lines of the function tracer and trace markers may be between events."""
    others = [
        "            bash-1977  [000] .... 10.000350: sys_close <-system_call_fastpath",
        " => futex_wait_queue",
        "second line of what [a] program: printed",
        "",
    ]
    text = HEALTHY.splitlines()
    path = tmp_path / "report.txt"
    path.write_text("\n".join([*text[:3], *others, *text[3:]]) + "\n")
    assert decode(path).losses.collect().is_empty()


def test_any_byte_but_nul_may_be_in_a_name(tmp_path: Path) -> None:
    """trace-cmd and the kernel print names as they are, also in the first lines."""
    path = tmp_path / "report.txt"
    path.write_text("cpus=2\n" + HEALTHY.replace("comm=a ", "comm=\x01\x1c\x7f "))
    assert switches(decode(path)).height == 3


@pytest.mark.parametrize("name", ["text-tracefs.txt", "text-perf-script.txt", "text-report.txt"])
def test_text_changed_by_an_editor_is_read_the_same(tmp_path: Path, name: str) -> None:
    """A byte-order mark, Windows line ends, a decimal comma. With the comma, parts of the time used
    to be read as a CPU, flags and a time.
    """
    text = (FIXTURES / name).read_bytes()
    there = tmp_path / "x.txt"
    comma = re.sub(rb"(\d)\.(\d{6,9}: )", rb"\1,\2", text)
    assert comma != text or name == "text-report.txt"
    whole = decode(FIXTURES / name)
    for other in (b"\xef\xbb\xbf" + text, text.replace(b"\n", b"\r\n"), comma):
        there.write_bytes(other)
        again = decode(there)
        assert switches(again).equals(switches(whole), null_equal=True)
        assert wakeups(again).equals(wakeups(whole), null_equal=True)
    there.write_bytes(text.decode("latin1").encode("utf-16"))
    with pytest.raises(FormatError, match="is text in UTF-16"):
        decode(there)


def test_a_cpu_that_shows_only_clones_is_silent(tmp_path: Path) -> None:
    """Its switches and wakeups are missing: a clone at each end does not make the CPU complete."""
    lines = (FIXTURES / "text-tracefs.txt").read_text().splitlines(keepends=True)
    kept = [line for line in lines if "[001]" not in line]
    events = [n for n, line in enumerate(kept) if "[000]" in line]
    clone = (
        "     bash-77  [001] ..... {} task_newtask: pid={} comm=x clone_flags=0 oom_score_adj=0\n"
    )
    for pid, at in ((70001, events[-1]), (70002, events[20])):
        kept.insert(at, clone.format(kept[at].split("[000]")[1].split()[1], pid))
    there = tmp_path / "x.txt"
    there.write_text("".join(kept))
    trace = decode(there)
    assert "unrecorded" in trace.losses.collect().filter(cpu=1)["reason"].to_list()


def test_timestamps_that_count_events_are_refused(tmp_path: Path) -> None:
    """`trace-cmd report` with the clock `counter`: one event per nanosecond."""
    line = "  a-{0} [000] 0.{1:09d}: sched_waking: comm=b pid=9 prio=120 target_cpu=000\n"
    path = tmp_path / "t.txt"
    path.write_text("".join(line.format(8, 1000 + n) for n in range(2000)))
    with pytest.raises(ss.FormatError, match="2000 scheduler events in 1999 ns"):
        ss.open(path, cache=tmp_path)
