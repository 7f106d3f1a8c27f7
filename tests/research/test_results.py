"""Tables of measurements: kept, printed and drawn."""

from __future__ import annotations

from pathlib import Path

import pytest

from research import results

pytestmark = pytest.mark.research

TABLE = ["| what | ms |", "|---|--:|", "| **a** | 1,234 |", "| [b](x.md) | - |"]


def test_a_table_is_kept_with_what_it_was_measured_on(tmp_path: Path) -> None:
    path = results.keep("x", results.parse(TABLE), folder=tmp_path, measured_on="2026-01-02")
    assert results.read(path) == [
        {"measured_on": "2026-01-02", "what": "a", "ms": "1234"},
        {"measured_on": "2026-01-02", "what": "b", "ms": "-"},
    ]
    assert list(tmp_path.iterdir()) == [path]


def test_rows_of_other_keys_stay_in_their_places(tmp_path: Path) -> None:
    results.keep("x", results.parse(TABLE), folder=tmp_path)
    new = [{"what": "c", "ms": "3"}, {"what": "a", "ms": "1"}]
    kept = results.read(results.keep("x", new, key="what", folder=tmp_path))
    assert [(row["what"], row["ms"]) for row in kept] == [("a", "1"), ("b", "-"), ("c", "3")]


def test_two_columns_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="two columns of one name"):
        results.parse(["| a | a |", "|---|---|"])


def test_constant_columns_are_printed_once() -> None:
    rows = [{"measured_on": "2026-01-02", "what": name, "ms": "1"} for name in "ab"]
    assert results.text(rows) == "2026-01-02\nwhat  ms\na     1\nb     1"


def test_figure_needs_an_existing_column(tmp_path: Path) -> None:
    rows = results.parse(TABLE)
    results.figure(rows, "ms", tmp_path / "x.svg")
    assert (tmp_path / "x.svg").stat().st_size > 1000
    with pytest.raises(SystemExit, match="no column 'us'"):
        results.figure(rows, "us", tmp_path / "y.svg")


def test_every_table_that_pages_and_notes_name_exists() -> None:
    names = {path.stem for path in results.FOLDER.glob("*.csv")} | results.computed().keys()
    root = results.FOLDER.parents[1]
    for page in (*root.glob("docs/**/*.md"), *root.glob("research/**/*.md")):
        for line in (
            page.read_text(encoding="utf-8").replace("\n", " ").split("research.results ")[1:]
        ):
            name = line.split()[0].strip("`.,:;)")
            assert name in names or name.startswith("-"), (page.name, name)
