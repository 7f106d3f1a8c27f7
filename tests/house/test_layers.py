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

# What each layer, a folder or a file, may import of ours beside itself; the lowest first.
GROUND = {"errors", "units", "extras", "invoking_user", "outputs", "_native", "__version__"}
TABLES = {"parsers.schema", "parsers.files", "parsers.trace_json"}
QUESTIONS = GROUND | TABLES | {"store", "analysis"}
SHOWN = QUESTIONS | {"present", "parsers.csv_text"}
ALLOWED = {
    **dict.fromkeys(("errors", "units", "extras", "invoking_user", "outputs"), GROUND),
    "collectors": set(),
    "doctor": GROUND,
    "parsers": GROUND,
    "store": GROUND | {"parsers"},
    "analysis": GROUND | TABLES | {"store"},
    "processes": QUESTIONS,
    "present": QUESTIONS,
    "plot": GROUND | {"analysis.asking.policies", "present.bounds"},
    "simulator": QUESTIONS | {"plot", "processes"},
    "workload": {"simulator"},
    "exports": QUESTIONS | {"parsers"},
    "timelines": SHOWN,
    "notebook_frames": SHOWN | {"timelines"},
    "live": QUESTIONS | {"collectors", ""},  # the package itself: where it is installed
    "report": SHOWN | {"simulator", "plot", "timelines"},
    "fleets": SHOWN | {"plot", "processes", "report", "parsers"},
    "cli": SHOWN | {"parsers", "simulator", "collectors", "doctor", "exports", "fleets", "live",
                    "processes", "report", "timelines"},
    "__main__": {"cli"},
    "__init__": set(),
}  # fmt: skip
# The rooms of the simulator, each of which uses only those before it.
SIMULATOR = ("policies", "workloads", "recorded", "runs", "closeness", "changes")
# Each of these is loaded by itself, since others load them without what lies above.
ALONE = ("collectors", "parsers", "store", "analysis", "simulator", "plot")


def layer_of(path: Path) -> str:
    """The folder, or a file beside the folders."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return parts[0]


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


def test_every_file_is_in_a_layer() -> None:
    assert {layer_of(path) for path in sources()} == set(ALLOWED)


@pytest.mark.parametrize("layer", ALLOWED)
def test_a_layer_imports_only_what_lies_below(layer: str) -> None:
    """Collectors know nothing; store the schema; questions the store; what shows them, both."""
    for path in sources():
        if layer_of(path) != layer:
            continue
        for name in imports(path):
            inside = name.removeprefix("schedscope").removeprefix(".")
            below = any(f"{inside}.".startswith(f"{ok}.") for ok in (layer, *ALLOWED[layer]))
            assert below, f"{path.relative_to(ROOT)} imports {name}"


@pytest.mark.parametrize("room", SIMULATOR)
def test_a_room_of_the_simulator_imports_only_those_before_it(room: str) -> None:
    below = SIMULATOR[: SIMULATOR.index(room) + 1]
    paths = sorted((ROOT / "simulator" / room).rglob("*.py"))
    assert paths
    for path in paths:
        for name in imports(path):
            if name.startswith("schedscope.simulator."):
                assert name.split(".")[2] in below, f"{path.relative_to(ROOT)} imports {name}"


def test_every_file_of_the_simulator_is_in_a_room() -> None:
    inside = [path.relative_to(ROOT).parts for path in (ROOT / "simulator").rglob("*.py")]
    assert {parts[1] for parts in inside} == {*SIMULATOR, "__init__.py"}


@pytest.mark.parametrize("layer", ALONE)
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
