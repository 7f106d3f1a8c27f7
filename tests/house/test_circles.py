"""No circles among files, by imports at the head of a file or inside a function."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from sources import ROOT, sources

from schedscope.cli._commands import entries


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def modules() -> dict[str, Path]:
    return {name_of(path): path for path in sources()}


def imports(path: Path, known: dict[str, Path], *, types: bool = False) -> set[str]:
    """What a file imports of ours when it runs; with `types` also what only type checkers read."""
    found: set[str] = set()

    class Visitor(ast.NodeVisitor):
        def visit_If(self, node: ast.If) -> None:
            if types or not (isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"):
                self.generic_visit(node)

        def visit_Import(self, node: ast.Import) -> None:
            found.update(name.name for name in node.names)

        def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
            for name in node.names:
                inner = f"{node.module}.{name.name}"
                found.add(inner if inner in known else str(node.module))

    Visitor().visit(ast.parse(path.read_text()))
    return found & set(known) - {name_of(path)}


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Sets of names that reach one another (Tarjan's strongly connected components)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for other in sorted(graph[name]):
            if other not in index:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], index[other])
        if low[name] == index[name]:
            at = stack.index(name)
            if len(stack) - at > 1:
                found.append(sorted(stack[at:]))
            del stack[at:]

    for name in sorted(graph):
        if name not in index:
            visit(name)
    return found


def test_no_files_import_one_another() -> None:
    known = modules()
    graph = {name: imports(path, known) for name, path in known.items()}
    assert circles(graph) == []


def test_no_folders_import_one_another() -> None:
    """cli, report, exports, timelines, plot, simulator, analysis, parsers, collectors."""
    known = modules()
    folders = {p.name for p in ROOT.iterdir() if p.is_dir() and (p / "__init__.py").exists()}
    graph: dict[str, set[str]] = {name: set() for name in folders}
    for name, path in known.items():
        here = name.split(".")[1] if "." in name else ""
        if here in folders:
            there = {other.split(".")[1] for other in imports(path, known) if "." in other}
            graph[here] |= (there & folders) - {here}
    assert circles(graph) == []


def test_the_store_has_no_circle_even_of_types() -> None:
    known = modules()
    graph = {
        name: imports(path, known, types=True)
        for name, path in known.items()
        if name.startswith("schedscope.store.")
    }
    assert circles({name: found & set(graph) for name, found in graph.items()}) == []


def test_no_file_uses_a_private_part_of_a_trace() -> None:
    """`Trace._x` is for `store/trace.py` alone."""
    private = re.compile(r"\b(?:trace|whole|cut|part)\._[a-z]")
    for path in sources():
        if path != ROOT / "store" / "trace.py":
            assert not private.search(path.read_text()), path


# What several questions share, each with the rooms that it may need.
ROOMS = {
    "asking": set(),
    "sums": set(),
    "recording": {"asking"},
    "threads": {"asking"},
    "causes": {"asking", "recording", "threads"},
    "cpus": {"asking", "recording", "threads"},
    "waits": {"asking", "recording", "threads", "cpus"},
    "shares": {"asking", "recording", "threads", "causes", "cpus"},
}


@pytest.mark.parametrize("room", ROOMS)
def test_shared_modules_import_no_question(room: str) -> None:
    """Files in a room import nothing of `analysis` but one another, and rooms below."""
    known = modules()
    home = f"schedscope.analysis.{room}"
    found = {
        other.split(".")[2]
        for name, path in known.items()
        if name.startswith(f"{home}.")
        for other in imports(path, known)
        if other.startswith("schedscope.analysis.")
    }
    assert found - {room} <= ROOMS[room]


def test_every_folder_of_analysis_is_a_room_or_a_question() -> None:
    """A question of several files has one of its folder's name, or declares its command there."""
    folders = {path.name for path in (ROOT / "analysis").iterdir() if path.is_dir()}
    questions = {one.question.parent.name for one in entries().values() if one.question}
    folders -= {"__pycache__", *ROOMS, *questions}
    assert {
        name for name in folders if not (ROOT / "analysis" / name / f"{name}.py").exists()
    } == set()
