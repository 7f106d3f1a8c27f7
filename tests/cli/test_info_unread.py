"""`schedscope info` names the other tracers' events that no question uses."""

from __future__ import annotations

from pathlib import Path

import pytest

from schedscope.cli import main

FIXTURES = Path(__file__).parents[2] / "fixtures"


@pytest.mark.parametrize(
    ("name", "named"),
    [
        ("perf-iowait.data", "sched_stat_blocked, sched_stat_sleep, sched_stat_wait"),
        ("perf-sched.data", "sched_stat_runtime"),
        ("perf-zstd.data", None),
        ("linux-ftrace-mixed.capture", None),
    ],
)
def test_info_names_events_that_are_only_counted(
    name: str, named: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["info", str(FIXTURES / name), "--cache", str(tmp_path)]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if "counted, but" in line]
    assert lines == ([f"counted, but not used by any question: {named}"] if named else [])
