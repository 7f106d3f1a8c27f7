"""`findings --fail-on`: the exit code that stops a CI job, apart from a failure to read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from schedscope.cli import main

FIXTURES = Path(__file__).parents[2] / "fixtures"
STARVED = str(FIXTURES / "linux-ftrace-starved.capture")  # its worst finding is a warning
QUIET = str(FIXTURES / "linux-ftrace-placement.capture")


@pytest.mark.parametrize(("level", "code"), [("violated", 0), ("warning", 3), ("note", 3)])
def test_finding_at_the_level_or_above_exits_with_3(
    level: str, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["findings", STARVED, "--cache", str(tmp_path), "--fail-on", level]
    assert main(words) == code
    said = capsys.readouterr().out
    assert (f"exit code 3: --fail-on {level}" in said) == (code == 3)


def test_a_finding_that_is_not_shown_counts_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["findings", STARVED, "--cache", str(tmp_path), "--format", "json"]
    assert main(words) == 0
    levels = [row["level"] for row in json.loads(capsys.readouterr().out)["rows"]]
    last = levels[-1]
    assert last not in levels[:1], "else --top 1 shows one of that level"
    assert main([*words, "--top", "1", "--fail-on", "note"]) == 3
    assert len(json.loads(capsys.readouterr().out)["rows"]) == 1


def test_unreadable_trace_does_not_exit_with_3(tmp_path: Path) -> None:
    (tmp_path / "x.capture").mkdir()
    assert main(["findings", str(tmp_path / "x.capture"), "--fail-on", "note"]) == 1
    assert main(["findings", STARVED, "--fail-on", "critical"]) == 2
