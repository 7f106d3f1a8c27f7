"""No name of a folder or file is read as a pattern, an address or a partition."""

from __future__ import annotations

import ast
import os
import shutil
from pathlib import Path

import polars as pl
import pytest

import schedscope as ss
from schedscope import cli
from schedscope.store import cache

ROOT = Path(ss.__file__).parent
FIXTURES = Path(__file__).parents[2] / "fixtures"

NAMES = [
    "run[12]", "run1", "q?x", "qax", "c[", "a*b", "axb", "~x", "~", "a=b", "cpu=0", "a b%20c",
    "file:x", "s3:x", "{a,b}", "new\nline", "back\\slash", "ü-ß", "#frag", "$HOME", "-o",
    "'quote\"",
]  # fmt: skip


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A folder of each name, all beside one another, each with another trace."""
    place = tmp_path_factory.mktemp("names")
    found = {}
    for i, name in enumerate(NAMES):
        trace = ss.simulate(ss.workload.hogs(2 + i, time="2ms"), policy="rr", cpus=1)
        found[name] = place / name / "web.sched"
        found[name].parent.mkdir()
        trace.to_sched(found[name])
    return found


@pytest.mark.parametrize("name", NAMES)
def test_folder_name_with_wildcards_matches_only_itself(
    name: str, answers: dict[str, Path]
) -> None:
    """Two threads and one more for each name before it: exactly those of this folder."""
    trace = ss.open(answers[name])
    expected = 2 + NAMES.index(name)
    assert trace.threads.collect().height == expected + 1
    assert len(ss.latency(trace, by="tid")) == expected
    assert trace.states.filter(pl.col("utid") > 0).collect()["utid"].n_unique() == expected


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
@pytest.mark.parametrize("name", NAMES)
def test_table_folder_name_with_wildcards_matches_only_itself(
    name: str, suffix: str, answers: dict[str, Path], tmp_path: Path
) -> None:
    for other in ("run1", name):
        ss.export(ss.open(answers[other]), tmp_path / other, suffix, force=True)
    trace = ss.open(tmp_path / name)
    assert trace.threads.collect().height == 3 + NAMES.index(name)


def test_relative_name_with_wildcards_matches_only_itself(
    answers: dict[str, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`~` is not the home folder, `s3:` not an address, and `*` matches no other folder."""
    monkeypatch.chdir(answers["~"].parent.parent)
    for name in ("~", "s3:x", "a*b", "a=b"):
        assert cli.main(["latency", f"{name}/web.sched", "--by", "tid", "--format", "csv"]) == 0
        assert capsys.readouterr().out.count("\n") == 3 + NAMES.index(name)


def test_name_that_is_not_utf_8_is_opened(answers: dict[str, Path], tmp_path: Path) -> None:
    """Bytes that are not UTF-8, as in old archives."""
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.sched"))
    shutil.copytree(answers["c["], folder)
    trace = ss.open(folder)
    assert len(ss.latency(trace, by="tid")) == 2 + NAMES.index("c[")
    assert ss.fairness(trace).height


def test_capture_name_is_not_a_pattern_when_leftovers_are_removed(tmp_path: Path) -> None:
    """`c[ab]` removes the leftovers of its own conversions and of no other."""
    kept = tmp_path / ".ca.11111111.sched.partial"
    kept.mkdir()
    gone = tmp_path / ".c[ab].22222222.sched.partial"
    gone.mkdir()
    source = tmp_path / "c[ab]"
    shutil.copy(FIXTURES / "linux-trace-cmd-yield.dat", source)
    ss.open(source)
    assert (kept.exists(), gone.exists()) == (True, False)


def test_polars_opens_files_in_one_place_only() -> None:
    """That module turns off Polars' patterns: everywhere else a name would be taken for one."""
    readers = {name for name in dir(pl) if name.startswith(("read_", "scan_"))}
    allowed = ROOT / "parsers" / "files.py"
    for path in sorted(ROOT.rglob("*.py")):
        calls = [
            node
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.Attribute)
        ]
        found = {
            node.attr
            for node in calls
            if node.attr in readers and isinstance(node.value, ast.Name) and node.value.id == "pl"
        }
        if path == ROOT / "timelines" / "sql.py":
            found.discard("read_ipc")  # bytes that the query's process returns
        assert not found or path == allowed, f"{path.relative_to(ROOT)} calls {found}"
    tree = ast.parse(allowed.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") in (
            "scan_parquet",
            "read_csv",
        ):
            assert ("glob", False) in [
                (word.arg, getattr(word.value, "value", None)) for word in node.keywords
            ], ast.unparse(node)


def test_the_cache_finds_a_capture_of_any_name(tmp_path: Path) -> None:
    for name in ("x[1].dat", "x*.dat", "x?.dat"):
        source = tmp_path / name
        shutil.copy(FIXTURES / "linux-trace-cmd-yield.dat", source)
        trace = ss.open(source)
        assert trace.path == tmp_path / cache.sched_name(source)
        assert len(ss.latency(trace)) == 1
