"""A question is three files: what answers it and declares its command, its page, and its test."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

import schedscope as ss
from schedscope import cli
from schedscope.analysis.asking.needs import QUESTIONS
from schedscope.present.registry import is_quantile, meaning

ROOT = Path(__file__).parents[2]
DECLARED = {name: one for name, one in cli.commands().items() if one.question}
# Of files of numbers, not of a trace.
NO_TRACE = {"ministat"}

for public in ss.__all__:
    getattr(ss, public)  # loads every question, which declares itself


@pytest.mark.parametrize("name", DECLARED)
def test_the_declaration_that_help_reads_as_text_is_that_of_the_module(name: str) -> None:
    entry = DECLARED[name]
    assert entry.declared == import_module(entry.question_module).COMMAND


def test_every_question_of_a_command_declares_it() -> None:
    """Whichever file of the command line has the name of a question belongs to that question."""
    for stem in {*QUESTIONS, *NO_TRACE}:
        command = cli.commands().get(stem.replace("_", "-"))
        assert command is None or command.question, stem
    for entry in DECLARED.values():
        stem = entry.name.replace("-", "_")
        assert stem in {*QUESTIONS, *NO_TRACE}
        assert getattr(ss, stem).__module__ == entry.question_module


@pytest.mark.parametrize("name", DECLARED)
def test_each_has_a_page_that_names_it(name: str) -> None:
    page = (ROOT / DECLARED[name].declared.page).read_text()
    assert re.search(rf"`(schedscope )?{name}\b", page)


@pytest.mark.parametrize("name", DECLARED)
def test_each_has_a_test_that_asks_it(name: str) -> None:
    stem = name.replace("-", "_")
    test = (ROOT / "tests" / "analysis" / f"test_{stem}.py").read_text()
    assert re.search(rf"\bss\.{stem}\(|\b{stem}\(|\"{name}\"", test)


@pytest.mark.parametrize("name", QUESTIONS)
def test_each_function_that_is_a_question_is_on_a_page_and_in_a_test(name: str) -> None:
    pages = [path.read_text() for path in (ROOT / "docs").rglob("*.md")]
    assert any(re.search(rf"`[^`]*\b{name}\b", page) for page in pages)
    tests = [path.read_text() for path in (ROOT / "tests" / "analysis").glob("test_*.py")]
    assert any(re.search(rf"\b{name}\(", test) for test in tests)


@pytest.mark.parametrize("name", DECLARED)
def test_the_columns_that_it_declares_have_a_meaning(name: str) -> None:
    declared = DECLARED[name].declared
    columns = [one.rstrip("?") for one in declared.columns.split() if one not in ("*by", "p*")]
    for column in [*columns, *declared.narrow.split()]:
        assert is_quantile(column) or meaning(column, name.replace("-", "_")), column
