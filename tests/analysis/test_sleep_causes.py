"""What sleeps were for: hand-made calls, and a recorded program that noted what it slept in."""

from __future__ import annotations

import re
from pathlib import Path

import polars as pl
import pytest
from decoded import FIXTURES
from scenes import MS, scene

import schedscope as ss
from schedscope import cli
from schedscope.analysis.causes.sleep_causes import causes
from schedscope.analysis.causes.system_calls import names
from schedscope.errors import MissingEventsError
from schedscope.parsers.schema import TABLES

OFF = ["sleeping", "blocked", "stopped", "parked"]
RECORDED = FIXTURES / "linux-syscalls.capture"
LOG = FIXTURES / "linux-syscalls.log.txt"

# Each thread sleeps once, from 100 to 200 ms; x86_64's numbers.
CASES = {
    "in a call": (["90 enter 202", "210 exit 202"], ("futex", "futex", "in the call")),
    "still in it": (["90 enter 61"], ("child", "wait4", "in the call")),
    "the very instant": (["100 enter 61", "200 exit 61"], ("child", "wait4", "in the call")),
    "no name": (["90 enter 9999", "210 exit 9999"], ("other call", "call 9999", "in the call")),
    "none before": (["210 exit 202"], ("unknown", None, "no call seen")),
    "no call at all": ([], ("unknown", None, "no call seen")),
    "between calls": (["90 exit 0", "210 enter 0"], ("unknown", None, "between calls")),
    "another returns": (["90 enter 202", "210 exit 61"], ("unknown", None, "calls contradict")),
    "returns unseen": (["90 enter 202", "210 enter 202"], ("unknown", None, "calls contradict")),
    "entry unseen": (["90 exit 0", "210 exit 202"], ("unknown", None, "calls contradict")),
}  # fmt: skip


def world(
    calls: dict[str, list[str]],
    *,
    state: str = "sleeping",
    losses: pl.DataFrame | None = None,
    kernel: bool = False,
    recorder: str = "ftrace",
    unknown: tuple[int, int] | None = None,
    calls_of: str = "all",
) -> ss.Trace:
    lines = []
    for number, name in enumerate(calls):
        before = f"0..{unknown[0]}" if unknown else "0..100"
        lines.append(f"t{number} running@0 {before}")
        if unknown:
            lines.append(f"t{number} unknown {unknown[0]}..{unknown[1]}")
        assert name
        lines += [f"t{number} {state} 100..200", f"t{number} running@0 200..1000"]
    made = scene("\n".join(lines))
    rows = [
        {"ts": int(ts) * MS, "cpu": 0, "utid": 2 + number, "step": step, "number": int(call),
         "value": 0 if step == "exit" else None}
        for number, steps in enumerate(calls.values())
        for ts, step, call in (text.split() for text in steps)
    ]  # fmt: skip
    table = pl.DataFrame(rows, TABLES["system_calls"].schema).sort("ts", maintain_order=True)
    ends = pl.when(pl.col("state").is_in(OFF)).then(pl.lit("woken")).otherwise(pl.lit("switched"))
    tables = {
        "states": made.states.with_columns(end=ends),
        "threads": made.threads.with_columns(kernel=pl.lit(kernel)),
        "waits": made.waits,
        "system_calls": table,
    }
    if losses is not None:
        tables["losses"] = losses
    about = made.info | {"machine": "x86_64", "recorder": {"name": recorder}}
    about["ftrace"] = {"calls_of": calls_of}
    return ss.Trace.from_tables(tables, about)


def lost(begin: int, end: int, cpu: int | None = 0, reason: str = "overrun") -> pl.DataFrame:
    row = {"cpu": cpu, "ts_begin": begin * MS, "ts_end": end * MS, "count": 1, "reason": reason}
    return pl.DataFrame([row], TABLES["losses"].schema)


def found(trace: ss.Trace) -> list[tuple[object, ...]]:
    frame = ss.off_cpu(trace)
    return frame.select("cause", "reason", "evidence").rows()


@pytest.mark.parametrize("case", CASES)
def test_the_cause_of_one_sleep(case: str) -> None:
    steps, expected = CASES[case]
    # A trace without any call is another case: another source has one.
    trace = world({case: steps, "other": ["90 enter 202", "210 exit 202"]})
    frame = ss.off_cpu(trace, by="utid").filter(pl.col("utid") == 2)
    assert frame.select("cause", "reason", "evidence", "n", "total").rows() == [
        (*expected, 1, 100 * MS)
    ]


def test_blocked_between_calls_is_a_fault_only_where_every_call_was_recorded() -> None:
    calls = {"a": CASES["between calls"][0]}
    assert found(world(calls, state="blocked")) == [("fault", None, "between calls")]
    other = world(calls, state="blocked", recorder="trace-cmd")
    assert found(other) == [("unknown", None, "between calls")]


@pytest.mark.parametrize(
    ("steps", "evidence"),
    [
        ([], "not chosen"),
        (["210 exit 202"], "no call seen"),
        (["90 enter 202", "210 exit 202"], "in the call"),
        # Its number was its process's first thread's, which the kernel follows no more.
        (["90 enter 59"], "not chosen"),
        (["90 enter 59", "210 exit 59"], "in the call"),
    ],
)
def test_unselected_threads_have_unknown_causes(steps: list[str], evidence: str) -> None:
    trace = world({"a": steps, "other": ["90 enter 202", "210 exit 202"]}, calls_of="command")
    frame = ss.off_cpu(trace, by="utid").filter(pl.col("utid") == 2)
    known = evidence == "in the call"
    assert frame["evidence"].to_list() == [evidence]
    assert (frame["cause"].to_list() == ["unknown"]) != known


def test_the_state_and_the_kind_of_thread_may_be_enough() -> None:
    assert found(world({"a": ["90 exit 0"]}, state="stopped")) == [("stop", None, "state")]
    assert found(world({"a": ["90 exit 0"]}, kernel=True)) == [("kernel", None, "kernel thread")]


@pytest.mark.parametrize(
    ("hole", "doubtful"),
    [
        (lost(92, 95), True),
        (lost(92, 95, None), True),
        (lost(10, 95), True),
        (lost(10, 500), True),
        (lost(99, 300), True),
        (lost(10, 80), False),
        (lost(92, 95, 1), False),
        (lost(110, 300), False),
        (lost(92, 95, reason="chain_break"), False),
    ],
)
def test_lost_events_between_the_entry_and_the_sleep(hole: pl.DataFrame, doubtful: bool) -> None:
    in_call = ("futex", "futex", "in the call")
    expected = ("unknown", None, "events lost") if doubtful else in_call
    assert found(world({"a": CASES["in a call"][0]}, losses=hole)) == [expected]


@pytest.mark.parametrize(("unknown", "doubtful"), [((92, 100), True), ((80, 100), False)])
def test_thread_unknown_during_its_call_has_no_cause(
    unknown: tuple[int, int], doubtful: bool
) -> None:
    """One that was unknown before has an event in its call: only its run is missing."""
    trace = world({"a": CASES["in a call"][0]}, unknown=unknown)
    assert (found(trace)[0][2] == "events lost") == doubtful


def test_causes_alone_and_with_names() -> None:
    calls = {"a": CASES["in a call"][0], "b": CASES["still in it"][0]}
    frame = ss.off_cpu(world(calls), by=["comm", "cause"])
    assert frame.columns[:4] == ["comm", "cause", "n", "total"]
    assert sorted(frame.select("comm", "cause").rows()) == [("t0", "futex"), ("t1", "child")]


def test_traces_without_calls_have_no_causes(tmp_path: Path) -> None:
    trace = ss.open(FIXTURES / "linux-dtrace.capture", cache=tmp_path)
    assert set(ss.off_cpu(trace)["cause"]) == {None}
    with pytest.raises(MissingEventsError, match="capture --with syscalls"):
        ss.off_cpu(trace, by="cause")
    path = str(FIXTURES / "linux-dtrace.capture")
    assert cli.main(["off-cpu", path, "--cache", str(tmp_path), "--by", "cause"]) == 1


# ------------------------------------------------------------------ the recorded program


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> ss.Trace:
    return ss.open(RECORDED, cache=tmp_path_factory.mktemp("cache"))


def assert_agrees(trace: ss.Trace, log: str) -> None:
    """Inside each span of the log its thread slept, longest for the reason that it notes."""
    off = trace.states.filter(pl.col("state").cast(pl.String).is_in(OFF))
    threads = trace.threads.filter(pl.col("tid") == pl.col("pid")).select("utid", "process_name")
    slept = causes(trace, off).join(threads, on="utid").collect()
    slept = slept.filter(pl.col("process_name").str.starts_with("python"))
    lines = [line.split() for line in log.splitlines()]
    assert len(lines) == 9
    for cause, begin, end in lines:
        inside = (pl.col("ts") >= int(begin)) & (pl.col("ts") + pl.col("dur") <= int(end))
        longest = slept.filter(inside).sort("dur", descending=True)
        if cause == "fault" and not longest.height:
            continue  # the page had come in again
        assert longest["cause"][0] == cause, (cause, longest)


def test_a_program_that_notes_its_sleeps_agrees(recorded: ss.Trace) -> None:
    assert_agrees(recorded, LOG.read_text())


def test_causes_add_up_to_the_time_off_the_cpu(recorded: ss.Trace) -> None:
    off = recorded.states.filter(
        pl.col("state").cast(pl.String).is_in(OFF)
        & (pl.col("end").cast(pl.String) == "woken")
        & (pl.col("utid") >= recorded.ncpu)
    )
    total = off.select(pl.col("dur").sum()).collect().item()
    for by in ("all", "cause", "thread"):
        assert ss.off_cpu(recorded, by=by)["total"].sum() == total


def test_the_command_names_calls_and_causes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["off-cpu", str(RECORDED), "--cache", str(tmp_path)]
    assert cli.main(words) == 0
    text = capsys.readouterr().out
    assert re.search(r"^timer +clock_nanosleep +in the call +sleeping +7 ", text, re.M)
    assert cli.main([*words, "--by", "cause"]) == 0
    assert re.search(r"^timer +7 ", capsys.readouterr().out, re.M)


# ------------------------------------------------------------------ names

HEADERS = {
    "x86_64": Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
    "aarch64": Path("/usr/include/asm-generic/unistd.h"),
    "i686": Path("/usr/include/x86_64-linux-gnu/asm/unistd_32.h"),
    "s390x": Path("/usr/s390x-linux-gnu/include/asm/unistd_64.h"),
    "ppc64le": Path("/usr/powerpc64le-linux-gnu/include/asm/unistd_64.h"),
    "armv7l": Path("/usr/arm-linux-gnueabihf/include/asm/unistd-eabi.h"),
}
# Of the generic header: for 32 bits only, or no calls.
NO_NAMES = {"aarch64": {"sync_file_range2", "arch_specific_syscall", "syscalls"}}
LINE = re.compile(r"^#define __NR(?:3264)?_(\w+)\s+\(?(?:__NR_SYSCALL_BASE \+ )?(\d+)\)?$", re.M)


@pytest.mark.parametrize("machine", HEADERS)
def test_names_are_those_of_the_kernels_headers(machine: str) -> None:
    if not HEADERS[machine].exists():
        pytest.skip("needs the kernel's headers")
    known = names(machine)
    left_out = NO_NAMES.get(machine, set())
    calls = {
        (name.removesuffix("_time64"), int(number))
        for name, number in LINE.findall(HEADERS[machine].read_text())
        if name not in left_out
    }
    calls = {call for call in calls if not (machine == "aarch64" and 403 <= call[1] < 424)}
    assert len(calls) > 300
    different = {call for call in calls if known.get(call[1]) != call[0]}
    # Called so by 64-bit programs, and by all other architectures.
    assert different <= {("fstatat", 79), ("arm_fadvise64_64", 270), ("arm_sync_file_range", 341)}
