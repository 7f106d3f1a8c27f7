"""trace_processor as second engine: how it is found, and how its tables become ours."""

from __future__ import annotations

import shutil
from pathlib import Path

import polars as pl
import pytest
from decoded import FIXTURES, decode, switches, wakeups

import schedscope as ss
from schedscope.errors import UsageError
from schedscope.parsers import perfetto

COMPACT = FIXTURES / "perfetto-compact.pftrace"


def test_trace_processor_is_found_by_argument_environment_and_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The argument, then the environment, then PATH; an invalid place is reported, not skipped."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv(perfetto.VARIABLE, raising=False)
    assert perfetto.find_program() is None
    program = tmp_path / "trace_processor_shell"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    assert perfetto.find_program() == str(program)
    other = tmp_path / "other"
    shutil.copy(program, other)
    monkeypatch.setenv(perfetto.VARIABLE, str(other))
    assert perfetto.find_program() == str(other)
    assert perfetto.find_program(program) == str(program)
    with pytest.raises(UsageError, match="from the argument"):
        perfetto.find_program(tmp_path / "none")


def test_sql_needs_a_perfetto_file(tmp_path: Path) -> None:
    trace = ss.open(FIXTURES / "perf-sched.data", cache=tmp_path)
    with pytest.raises(UsageError, match="not opened from a Perfetto file"):
        trace.sql("select 1")


def test_slices_and_states_become_switches_and_wakeups() -> None:
    """Two adjoining slices are a switch; R rows that no switch started are wakeups."""
    frames = {
        "slices": pl.DataFrame(
            {
                "ts": [100, 200, 300, 150],
                "dur": [100, 100, -1, 250],
                "cpu": [0, 0, 0, 1],
                "thread": [7, 8, 0, 9],
                "end_state": ["R+", "S", None, "S"],
                "priority": [120, 110, 120, 120],
            }
        ),
        "states": pl.DataFrame(
            {
                "ts": [180, 200, 310],
                "thread": [8, 7, 8],
                "state": ["R", "R+", "R"],
                "waker": [7, None, 0],
                "irq_context": [0, None, 1],
            }
        ),
        "threads": pl.DataFrame(
            {
                "thread": [0, 7, 8, 9],
                "tid": [0, 70, 80, 90],
                "pid": [0, 70, 70, 90],
                "name": ["swapper", "a", "b", None],
            }
        ),
    }
    trace = ss.Trace.from_tables(*perfetto.from_frames(frames, "x.pftrace"))
    assert switches(trace).rows() == [
        (200, 0, 70, "runnable", True, 120, 80, 110),
        (300, 0, 80, "sleeping", False, 110, 0, 120),
    ]
    assert wakeups(trace).select("ts", "waker", "kind", "tid").rows() == [
        (180, 70, "waking", 80),
        (310, None, "waking", 80),
    ]


@pytest.mark.needs("trace_processor_shell")
def test_both_engines_have_the_same_switches(tmp_path: Path) -> None:
    """Slices are equal, except the first switch of each CPU, which trace_processor omits."""
    theirs = switches(ss.open(COMPACT, engine="trace_processor"))
    ours = switches(decode(COMPACT))
    place = ["ts", "cpu", "next", "next_prio"]
    assert theirs.join(ours, on=place, how="anti", nulls_equal=True).is_empty()
    missing = ours.join(theirs, on=place, how="anti", nulls_equal=True)
    assert missing.group_by("cpu").len()["len"].to_list() == [2, 2]
