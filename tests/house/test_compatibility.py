"""What a release promised still holds: its names, and that its captures and copies are read.

`python tests/house/test_compatibility.py 1.0` writes what is compared here, once, at a release.
"""

from __future__ import annotations

import argparse
import inspect
import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import schedscope as ss
from schedscope import cli
from schedscope.errors import FormatError
from schedscope.parsers.schema import SCHEMA_VERSION, TABLES, empty
from schedscope.present.registry import meanings
from schedscope.store.stored import ADDED

ROOT = Path(__file__).resolve().parents[2]
RELEASED = ROOT / "fixtures" / "released"
RELEASES = sorted(path.name for path in RELEASED.iterdir() if path.is_dir())
CAPTURE = "linux-ftrace-starved.capture"
COPY = "starved.sched"


def public() -> Iterator[str]:
    """All that docs/compatibility.md calls public, a line each."""
    for home, module in (("ss", ss), ("ss.plot", ss.plot), ("ss.workload", ss.workload)):
        for name in getattr(module, "__all__", dir(module)):
            value = getattr(module, name)
            yield f"{home}.{name}"
            if inspect.isfunction(value):
                yield from (f"{home}.{name}({one}=)" for one in inspect.signature(value).parameters)
    [commands] = [
        action for action in cli.manual()._actions if isinstance(action, argparse._SubParsersAction)
    ]
    for command, parser in commands.choices.items():
        for action in parser._actions:
            if action.help != argparse.SUPPRESS:
                yield from (f"{command} {option}" for option in action.option_strings)
    for name, table in TABLES.items():
        for column in table.columns:
            yield f"table {name}.{column.name}: {column.dtype.base_type()}"
    for one in meanings().values():
        yield f"column {one.question or '*'}.{one.name} [{one.unit}]"


def answers(path: Path) -> dict[str, object]:
    """Numbers of one trace, as a release gave them."""
    trace = ss.open(path)
    waits = ss.latency(trace, by="all").row(0, named=True)
    parts = ss.wait_breakdown(trace, by="all").row(0, named=True)
    return {
        "events": trace.events,
        "cpus": trace.ncpu,
        "rows": {name: getattr(trace, name).collect().height for name in ("states", "waits")},
        "latency": {name: waits[name] for name in ("n", "n_censored", "total", "p99", "max")},
        "parts": {name: parts[name] for name in ("wait", "behind_same", "cpu_idle", "unknown")},
    }


@pytest.mark.parametrize("release", RELEASES)
def test_public_names_of_releases_still_exist(release: str) -> None:
    """Options may be unlisted, but work: they are in the parser under their older name."""
    promised = (RELEASED / release / "public.txt").read_text().splitlines()
    assert len(promised) > 800
    assert sorted(set(promised) - set(public())) == []


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("kind", ["capture", "sched"])
def test_files_of_a_release_are_read_unchanged(release: str, kind: str, tmp_path: Path) -> None:
    wanted = json.loads((RELEASED / release / "answers.json").read_text())
    path = ROOT / "fixtures" / CAPTURE if kind == "capture" else RELEASED / release / COPY
    shutil.copytree(path, tmp_path / path.name)
    found = answers(tmp_path / path.name)
    assert found == wanted


@pytest.mark.parametrize("release", RELEASES)
def test_a_table_that_is_younger_than_a_copy_is_empty(release: str, tmp_path: Path) -> None:
    shutil.copytree(RELEASED / release / COPY, tmp_path / COPY)
    trace = ss.open(tmp_path / COPY)
    for name in ADDED:
        assert getattr(trace, name).collect().equals(empty(name))
        assert getattr(trace.between(0), name).collect().is_empty()


def test_each_released_schema_has_its_files() -> None:
    versions = {
        json.loads((RELEASED / release / COPY / "trace.json").read_text())["schema_version"]
        for release in RELEASES
    }
    assert SCHEMA_VERSION in versions, "keep files of this schema: see this test's docstring"


@pytest.mark.parametrize("version", [SCHEMA_VERSION + 1, 12, None, "13"])
def test_a_copy_of_another_schema_is_refused_in_one_sentence(
    version: object, tmp_path: Path
) -> None:
    folder = tmp_path / COPY
    shutil.copytree(RELEASED / RELEASES[-1] / COPY, folder)
    about = json.loads((folder / "trace.json").read_text())
    (folder / "trace.json").write_text(json.dumps({**about, "schema_version": version}))
    with pytest.raises(FormatError, match=r"has schema version .*; expected version") as error:
        ss.open(folder)
    assert "convert the capture again" in str(error.value)


def write(release: str) -> None:
    folder = RELEASED / release
    folder.mkdir(parents=True)
    ss.convert(ROOT / "fixtures" / CAPTURE, folder / COPY)
    (folder / "answers.json").write_text(json.dumps(answers(folder / COPY), indent=1) + "\n")
    (folder / "public.txt").write_text("\n".join(sorted(set(public()))) + "\n")


if __name__ == "__main__":
    write(sys.argv[1])
