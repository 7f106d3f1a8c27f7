"""Every policy has a page under docs/policies; its tunables are listed by the command."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from schedscope.cli import main
from schedscope.simulator.policies.policy import policies, series, tunables

PAGES = Path(__file__).parents[2] / "docs" / "policies"
REFERENCES = {"fifo", "rr", "srtf", "ps"}


@pytest.mark.parametrize(("name", "family"), policies().select("name", "family").rows())
def test_the_page_of_the_family_names_the_policy_and_what_it_records(
    name: str, family: str
) -> None:
    page = (PAGES / f"{'references' if family in REFERENCES else family}.md").read_text()
    assert f"`{name}`" in page or name == family
    for row in series(name).iter_rows(named=True):
        assert f"| `{row['name']}` |" in page, row["name"]


def test_the_command_lists_every_tunable_with_its_default(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["simulate", "--policies"]) == 0
    listed = re.split(r"^(?=\S)", capsys.readouterr().out, flags=re.MULTILINE)
    parts = {part.partition(":")[0]: part for part in listed if part}
    for name in policies()["name"]:
        for row in tunables(name).iter_rows(named=True):
            (line,) = re.findall(rf"^    --set {row['name']}=.*$", parts[name], re.MULTILINE)
            assert re.match(rf"    --set {row['name']}={re.escape(row['default'])} ", line)
            assert row["doc"] in line


def test_the_page_lists_all_that_a_policy_in_python_can_ask() -> None:
    """Hooks of `Policy`, and every method of the world that the engine offers them."""
    page = (PAGES / "writing.md").read_text()
    stub = ast.parse((PAGES.parents[1] / "src/schedscope/_native.pyi").read_text())
    classes = {one.name: one for one in stub.body if isinstance(one, ast.ClassDef)}
    asked = [one.name for one in classes["SimWorld"].body if isinstance(one, ast.FunctionDef)]
    assert len(asked) > 20
    assert [name for name in asked if f"`w.{name}`" not in page and f"w.{name}(" not in page] == []
