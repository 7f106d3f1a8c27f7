"""Layers point one way, and nothing heavy is loaded before it is needed."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest
from sources import ROOT, sources

import schedscope

NATIVE = Path(__file__).parents[2] / "native" / "src"
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
        "schedscope.trace",
        "schedscope._native",
    },
    "plot": GROUND | {"schedscope.plot", "schedscope.analysis._base.policies"},
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


def rust_files(folder: str = ".") -> list[Path]:
    return sorted((NATIVE / folder).rglob("*.rs"))


def test_only_the_boundary_of_the_engine_knows_python() -> None:
    """All else is a plain Rust library, which `cargo test --no-default-features` builds."""
    boundary = NATIVE / "python"
    naming = {path for path in rust_files() if "pyo3" in path.read_text().lower()}
    outside = [str(path.relative_to(NATIVE)) for path in naming if boundary not in path.parents]
    assert outside == []
    assert naming, "the boundary itself does"
    allowing = [path for path in rust_files() if "allow(unsafe_code)" in path.read_text()]
    assert allowing == [boundary / "arrow.rs"], "denied in Cargo.toml"


def rust_paths(tree: str) -> list[str]:
    """`a::{b, c::{d}}` as a::b and a::c::d."""
    head, brace, rest = tree.partition("{")
    if not brace:
        return [tree.partition(" as ")[0].strip()]
    paths, depth, part = [], 0, ""
    for char in rest.rstrip().removesuffix("}") + ",":
        depth += (char == "{") - (char == "}")
        if char == "," and depth == 0:
            paths += rust_paths(part.strip()) if part.strip() else []
            part = ""
        else:
            part += char
    return [head.strip() + path for path in paths]


def rust_uses() -> dict[tuple[str, ...], set[tuple[str, ...]]]:
    """Of each module of the engine those it names, tests left out."""
    files = {}
    for path in rust_files():
        parts = path.relative_to(NATIVE).with_suffix("").parts
        files[tuple(part for part in parts if part not in ("mod", "lib"))] = path
    uses = {}
    for module, path in files.items():
        text = re.sub(r"//.*", "", path.read_text().partition("#[cfg(test)]\nmod tests")[0])
        trees = re.findall(r"\buse ((?:crate|super|self)::[^;]*);", text)
        trees += re.findall(r"(?<![\w:])crate::[\w:]+", text)
        uses[module] = set()
        for named in (path for tree in trees for path in rust_paths(tree)):
            where, rest = list(module), named.split("::")
            where = [] if rest[0] == "crate" else where
            while rest and rest[0] in ("crate", "self", "super"):
                where = where[:-1] if rest.pop(0) == "super" else where
            target = tuple(where + rest)
            while target not in files:
                target = target[:-1]
            uses[module].add(target)
    return uses


def test_modules_of_the_engine_form_no_circle() -> None:
    """Neither rooms (the first level) nor files; a folder's `mod.rs` and its files are one."""
    uses = rust_uses()
    rooms: dict[tuple[str, ...], set[tuple[str, ...]]] = {}
    files = {}
    for module, named in uses.items():
        files[module] = {
            other
            for other in named
            if other[: len(module)] != module != other and module[: len(other)] != other
        }
        if module:
            others = {other[:1] for other in named if other}
            rooms.setdefault(module[:1], set()).update(others - {module[:1]})
    assert sum(len(named) for named in uses.values()) > 500, "the edges are found"
    for graph in (rooms, files):
        TopologicalSorter(graph).prepare()  # raises CycleError, which names the circle


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


def test_it_is_imported_in_a_quarter_of_a_second() -> None:
    """CPU time of this process, so that a busy host does not count; the least of three."""
    code = (
        "import resource, sys; before = resource.getrusage(resource.RUSAGE_SELF).ru_utime\n"
        "import schedscope\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_utime - before)"
    )
    taken = [
        float(subprocess.check_output([sys.executable, "-c", code], text=True)) for _ in range(3)
    ]
    assert min(taken) < 0.25


def test_no_module_is_called_utils() -> None:
    """A file answers one question, and its name says which."""
    vague = {"utils", "util", "helpers", "helper", "common", "misc", "manager", "base"}
    assert [str(p) for p in sources() if p.stem.strip("_") in vague] == []
