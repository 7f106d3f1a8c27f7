"""Every policy has a page under docs/policies that names its tunables and series."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from schedscope.simulator.policy import policies, series, tunables

PAGES = Path(__file__).parents[2] / "docs" / "policies"
REFERENCES = {"fifo", "rr", "srtf", "ps"}


@pytest.mark.parametrize(("name", "family"), policies().select("name", "family").rows())
def test_the_page_lists_what_can_be_set_and_recorded(name: str, family: str) -> None:
    """Name, tunables with their defaults, and series stand in the page of the family."""
    page = (PAGES / f"{'references' if family in REFERENCES else family}.md").read_text()
    lines = [line for line in page.splitlines() if line.startswith("| `")]
    for row in tunables(name).iter_rows(named=True):
        own = [line for line in lines if line.startswith(f"| `{row['name']}` |")]
        assert any(f"`{row['default']}`" in line for line in own), row["name"]
    for row in series(name).iter_rows(named=True):
        assert f"| `{row['name']}` |" in page, row["name"]


def test_the_page_lists_all_that_a_policy_in_python_can_ask() -> None:
    """Hooks of `Policy`, and every method of the world that the engine lends to them."""
    page = (PAGES / "writing.md").read_text()
    stub = ast.parse((PAGES.parents[1] / "src/schedscope/_native.pyi").read_text())
    classes = {one.name: one for one in stub.body if isinstance(one, ast.ClassDef)}
    asked = [one.name for one in classes["SimWorld"].body if isinstance(one, ast.FunctionDef)]
    assert len(asked) > 20
    assert [name for name in asked if f"`w.{name}`" not in page and f"w.{name}(" not in page] == []
