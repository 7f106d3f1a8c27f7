"""Mutants are drawn where a mistake could be, and the tool's own words are read right."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from research import mutants

pytestmark = pytest.mark.research


def test_share_leaves_out_annotations_and_absurd_operators(tmp_path: Path) -> None:
    session = tmp_path / "session.sqlite"
    jobs = [
        ("a", "core/ReplaceBinaryOperator_BitOr_BitAnd", 1),
        ("b", "core/ReplaceBinaryOperator_Add_RShift", 2),
        ("c", "core/ReplaceBinaryOperator_Add_Sub", 2),
        ("d", "core/ReplaceComparisonOperator_Lt_LtE", 3),
    ]
    with sqlite3.connect(session) as file:
        file.execute("create table work_items (job_id)")
        file.execute(
            "create table mutation_specs"
            " (job_id, operator_name, start_pos_row, start_pos_col, occurrence)"
        )
        file.executemany("insert into work_items values (?)", [(job,) for job, *_ in jobs])
        file.executemany("insert into mutation_specs values (?, ?, ?, 0, 0)", jobs)
    source = tmp_path / "module.py"
    source.write_text("def f(x: int | None) -> int:\n    y = 1 + 2\n    return 1 if y < 4 else 2\n")
    mutants._draw(session, mutants._annotated(source), share=5, seed=1)
    with sqlite3.connect(session) as file:
        left = file.execute("select job_id from mutation_specs order by 1").fetchall()
        assert left == [("c",), ("d",)]
        assert file.execute("select job_id from work_items order by 1").fetchall() == left
    mutants._draw(session, set(), share=1, seed=1)
    with sqlite3.connect(session) as file:
        assert file.execute("select count(*) from work_items").fetchone() == (1,)


def test_only_a_mutant_with_passing_tests_is_unnoticed() -> None:
    lines = [
        json.dumps(
            [
                {"mutations": [{"start_pos": [line, 0], "operator_name": "core/AddNot"}]},
                {"test_outcome": outcome, "diff": None},
            ]
        )
        for line, outcome in ((7, "killed"), (8, "survived"), (9, "incompetent"))
    ]
    found = mutants._read("\n".join(lines))
    assert [(one.line, one.noticed) for one in found] == [(7, True), (8, False), (9, True)]


def test_all_mutants_of_a_function_are_in_one_text() -> None:
    """The number in the environment chooses one; without, the function does as it did."""
    text = "fn f(a: [i64; 2]) -> bool {\n    a[0] < 1\n}\nfn g() {}\n"

    def one(first: int, last: int, replacement: str) -> dict[str, object]:
        def span(*places: tuple[int, int]) -> dict[str, dict[str, int]]:
            ends = zip(("start", "end"), places, strict=True)
            return {end: {"line": line, "column": column} for end, (line, column) in ends}

        return {
            "function": {"span": span((1, 1), (3, 2))},
            "span": span((2, first), (2, last)),
            "replacement": replacement,
        }

    found = mutants.with_all(text, {4: one(10, 11, "<="), 9: one(5, 13, "true")})
    assert found == (
        "fn f(a: [i64; 2]) -> bool { match chosen_mutant() {\n"
        "4 => /* mutant 4 */ {\n    a[0] <= 1\n},\n"
        "9 => /* mutant 9 */ {\n    true\n},\n"
        "_ => /* mutant 0 */ {\n    a[0] < 1\n},\n"
        "} }\nfn g() {}\n" + mutants.CHOSEN
    )
