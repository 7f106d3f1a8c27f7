"""Layers point one way, and nothing heavy is loaded before it is needed."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from sources import ROOT, sources

import schedscope

FIXTURES = Path(__file__).parents[2] / "fixtures"

# What each layer may import of ours. `units`, `errors` and the tables' schema are ground floor.
GROUND = {"schedscope.errors", "schedscope.units", "schedscope.extras"}
ALLOWED = {
    "collectors": set(),
    "parsers": GROUND | {"schedscope.parsers", "schedscope._native"},
    "analysis": GROUND
    | {
        "schedscope.analysis",
        "schedscope.parsers.schema",
        "schedscope.parsers.files",
        "schedscope.parsers.trace_json",
        "schedscope.cache",
        "schedscope.outputs",
        "schedscope.plot",
        "schedscope.trace",
        "schedscope._native",
    },
    "simulator": GROUND
    | {
        "schedscope.simulator",
        "schedscope.analysis",
        "schedscope.parsers.schema",
        "schedscope.parsers.files",
        "schedscope.parsers.trace_json",
        "schedscope.cache",
        "schedscope.outputs",
        "schedscope.plot",
        "schedscope.processes",
        "schedscope.trace",
        "schedscope._native",
    },
    "plot": GROUND
    | {"schedscope.plot", "schedscope.analysis._base.policies", "schedscope.present.bounds"},
}


def imports(path: Path) -> set[str]:
    """Modules of ours that a file imports when it runs, not only for type checkers."""
    found: set[str] = set()

    class Visitor(ast.NodeVisitor):
        def visit_If(self, node: ast.If) -> None:
            if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
                return
            self.generic_visit(node)

        def visit_Import(self, node: ast.Import) -> None:
            found.update(name.name for name in node.names)

        def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
            assert node.level == 0, f"{path}: relative import"
            if node.module == "schedscope":
                found.update(f"schedscope.{name.name}" for name in node.names)
            elif node.module:
                found.add(node.module)

    Visitor().visit(ast.parse(path.read_text()))
    return {name for name in found if name.partition(".")[0] == "schedscope"}


@pytest.mark.parametrize("layer", ALLOWED)
def test_a_layer_imports_only_what_lies_below(layer: str) -> None:
    """Collectors know nothing; parsers, analyses and the simulator know the schema."""
    for path in sorted((ROOT / layer).rglob("*.py")):
        for name in imports(path):
            below = any(name == ok or name.startswith(ok + ".") for ok in ALLOWED[layer])
            assert below, f"{path.relative_to(ROOT)} imports {name}"


@pytest.mark.parametrize("layer", ALLOWED)
def test_each_layer_loads_alone(layer: str) -> None:
    """In a fresh interpreter, every module of it."""
    modules = [
        ".".join(["schedscope", *path.relative_to(ROOT).with_suffix("").parts]).removesuffix(
            ".__init__"
        )
        for path in sorted((ROOT / layer).rglob("*.py"))
    ]
    code = f"from importlib import import_module\nfor name in {modules!r}: import_module(name)"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    "code",
    [
        "import schedscope",
        "import schedscope.collectors",
        "from schedscope.cli import main; main(['--help'])",
        "from schedscope.cli import main; main(['latency', '--help'])",
    ],
)
def test_nothing_heavy_is_loaded_early(code: str) -> None:
    """No Polars, NumPy, matplotlib or engine for help, and none for capturing."""
    check = f"""
import sys
{code}
heavy = {{"polars", "numpy", "matplotlib", "schedscope._native"}} & set(sys.modules)
assert not heavy, heavy
"""
    subprocess.run([sys.executable, "-c", check], check=True, stdout=subprocess.DEVNULL)


@pytest.mark.parametrize("question", ["latency", "findings", "check", "starvation"])
def test_a_short_trace_is_answered_without_numpy(question: str, tmp_path: Path) -> None:
    """It takes a tenth of a second to load."""
    trace = tmp_path / "short.capture"
    shutil.copytree(FIXTURES / "linux-ftrace-mixed.capture", trace)
    check = f"""
import sys
from schedscope.cli import main
assert main([{question!r}, {str(trace)!r}]) == 0
assert "polars" in sys.modules and "numpy" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", check], check=True, stdout=subprocess.DEVNULL)


def test_every_public_name_resolves_and_is_listed_once() -> None:
    """The stub is the one list; nothing else is shown."""
    tree = ast.parse((ROOT / "__init__.pyi").read_text())
    listed = [
        name.asname for node in tree.body if isinstance(node, ast.ImportFrom) for name in node.names
    ]
    assert schedscope.__all__ == sorted(listed) == dir(schedscope)
    assert len(set(listed)) == len(listed)
    for name in schedscope.__all__:
        assert getattr(schedscope, name) is not None
    assert dir(schedscope) == sorted(listed), "loading a name shows no others"
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = schedscope.nothing


def test_no_module_is_called_utils() -> None:
    """A file answers one question, and its name says which."""
    vague = {"utils", "util", "helpers", "helper", "common", "misc", "manager", "base"}
    assert [str(p) for p in sources() if p.stem.strip("_") in vague] == []


def test_the_product_imports_nothing_of_the_experiments() -> None:
    """`research/` may import all of schedscope; nothing goes the other way."""
    for path in sources():
        for node in ast.walk(ast.parse(path.read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not [name for name in names if name.partition(".")[0] == "research"], path
