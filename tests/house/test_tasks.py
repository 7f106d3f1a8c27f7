"""research/notes/tasks.md: every test that it names exists, and it has twenty tasks."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "research/notes/tasks.md").read_text(encoding="utf-8")


def test_tests_of_the_tasks_exist() -> None:
    driven = (ROOT / "tests/present/test_view_browser.py").read_text(encoding="utf-8")
    named = re.findall(r"`(test_\w+)`", PAGE)
    assert len(named) == 20
    for name in named:
        assert f"def {name}(" in driven, name
    for path in re.findall(r"`(tests/\S+\.py)`", PAGE):
        assert (ROOT / path).is_file(), path


def test_there_are_twenty_tasks() -> None:
    rows = re.findall(r"^\| (\d+)\. ", PAGE, re.MULTILINE)
    assert [int(number) for number in rows] == list(range(1, 21))
    assert all(line.count("|") == 5 for line in PAGE.splitlines() if line.startswith("| "))
