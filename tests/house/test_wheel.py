"""The wheel holds every file of the package, and nothing else but the engine; the source archive
also holds what the engine is built from.

Some build tools follow links in a checkout and leave them out of a release without
a word. SCHEDSCOPE_WHEEL and SCHEDSCOPE_SDIST name the files to look into.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

from research.lab.commands import MORE, questions
from schedscope.parsers.schema import TABLES

ROOT = Path(__file__).parents[2]

LINKED = ("analysis", "collectors", "parsers", "simulator")


def known_to_git(*where: str) -> list[str]:
    try:
        listing = subprocess.run(
            ["git", "ls-files", "-z", *where], cwd=ROOT, check=True, capture_output=True, text=True
        ).stdout
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("needs a git checkout")
    return [name for name in listing.split("\0") if name]


def tracked() -> set[str]:
    """Files of the package in git, as paths inside the wheel."""
    inside = {
        name.removeprefix("src/") if name.startswith("src/") else f"schedscope/{name}"
        for name in known_to_git("src/schedscope", *LINKED)
    }
    return inside - {f"schedscope/{link}" for link in LINKED}


def test_every_linked_folder_is_a_link() -> None:
    """The code exists once: a copy in src/ would hide the folder that people edit."""
    for name in LINKED:
        assert (ROOT / "src/schedscope" / name).readlink() == Path("../..") / name


@pytest.mark.skipif("SCHEDSCOPE_WHEEL" not in os.environ, reason="needs SCHEDSCOPE_WHEEL")
def test_the_wheel_holds_the_tree() -> None:
    """File by file, and the capture program can be run."""
    with zipfile.ZipFile(os.environ["SCHEDSCOPE_WHEEL"]) as wheel:
        packed = {
            info.filename
            for info in wheel.infolist()
            if not re.search(r"\.dist-info/|\.data/data/share/", info.filename)
            and not info.is_dir()
        }
        engine = {
            name for name in packed if name.startswith("schedscope/_native.") and "so" in name
        }
        capture = wheel.getinfo("schedscope/collectors/capture")
    assert len(engine) == 1
    assert packed - engine == tracked()
    assert capture.external_attr >> 16 & 0o111, "the capture program lost its x bit"


@pytest.mark.skipif("SCHEDSCOPE_SDIST" not in os.environ, reason="needs SCHEDSCOPE_SDIST")
def test_source_archive_has_the_sources_of_the_wheel() -> None:
    """The package, and all of the engine's sources that are not examples."""
    with tarfile.open(os.environ["SCHEDSCOPE_SDIST"]) as archive:
        packed = {
            info.name.partition("/")[2]: archive.extractfile(info).read()  # type: ignore[union-attr]
            for info in archive
            if info.isfile()
        }
    engine = [
        name
        for name in known_to_git("native")
        if "/src/" in name or Path(name).name.startswith("Cargo.")
    ]
    wanted = {
        **{f"src/{name}": ROOT / "src" / name for name in tracked()},
        **{name: ROOT / name for name in (*engine, "pyproject.toml", "README.md", "LICENSE")},
    }
    assert engine
    assert sorted(wanted.keys() - packed.keys()) == []
    assert [name for name, path in wanted.items() if packed[name] != path.read_bytes()] == []
    # setuptools adds its own section.
    assert packed["setup.cfg"].startswith((ROOT / "setup.cfg").read_bytes().rstrip())


@pytest.mark.skipif("SCHEDSCOPE_WHEEL" not in os.environ, reason="needs SCHEDSCOPE_WHEEL")
def test_the_wheel_is_for_any_linux_of_the_last_years() -> None:
    """Its engine needs no newer C library than that of Debian 12 and RHEL 9."""
    name = Path(os.environ["SCHEDSCOPE_WHEEL"]).name
    found = re.search(r"-cp311-abi3-.*manylinux_2_(\d+)_", name)
    assert found, name
    assert int(found[1]) <= 36


@pytest.mark.needs("root", "debootstrap")
@pytest.mark.skipif("SCHEDSCOPE_WHEEL" not in os.environ, reason="needs SCHEDSCOPE_WHEEL")
def test_the_wheel_runs_in_another_system(tmp_path: Path) -> None:
    """In a Debian tree without compiler or pip, under its own Python."""
    tree = Path(os.environ.get("SCHEDSCOPE_TOOLS", "/nowhere"))
    inside = [shutil.which("chroot") or "/usr/sbin/chroot", str(tree), "python3"]
    if not (tree / "usr/bin/python3").exists():
        pytest.skip("no tree with newer tools (SCHEDSCOPE_TOOLS)")
    asked = subprocess.run(
        [*inside, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    site, trace = tmp_path / "site", tmp_path / "x.dat"
    wanted = [
        "--only-binary=:all:",
        "--python-version",
        asked.stdout.strip(),
        "--target",
        str(site),
    ]
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "-q", *wanted, os.environ["SCHEDSCOPE_WHEEL"]],
        check=True,
    )
    trace.write_bytes((ROOT / "fixtures" / "linux-trace-cmd-yield.dat").read_bytes())
    # The tree shares /tmp with the host.
    done = subprocess.run(
        [*inside, "-m", "schedscope", "latency", str(trace), "--top", "1"],
        env={"PYTHONPATH": str(site), "PATH": "/usr/bin:/bin", "HOME": "/tmp"},
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "waits, " in done.stdout


ASK_ALL = """
import contextlib, io, json, sys
from schedscope import cli
answers = {}
for words in json.load(sys.stdin):
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = cli.main(words)
    answers[" ".join(words)] = [code, said.getvalue()]
json.dump(answers, sys.stdout)
"""


@pytest.mark.skipif("SCHEDSCOPE_WHEEL" not in os.environ, reason="needs SCHEDSCOPE_WHEEL")
def test_oldest_declared_libraries_give_the_same_answers(tmp_path: Path) -> None:
    """Every command that takes a recording, with the lowest versions that pyproject.toml allows."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["plot"]]
    oldest = [name.replace(">=", "==") for name in wanted]
    assert all("==" in name for name in oldest)
    made = tmp_path / "oldest"
    subprocess.run([sys.executable, "-m", "venv", made], check=True)
    subprocess.run(
        [
            made / "bin/python",
            "-m",
            "pip",
            "install",
            "-q",
            os.environ["SCHEDSCOPE_WHEEL"],
            *oldest,
        ],
        check=True,
    )
    shutil.copytree(ROOT / "fixtures/linux-ftrace-placement.capture", tmp_path / "x.capture")
    asked = [
        [name, "../x.capture", *(word.format(out=".") for word in MORE.get(name, []))]
        for name in questions()
    ]

    def answers(python: str | Path, folder: str) -> dict[str, list[object]]:
        (tmp_path / folder).mkdir()
        done = subprocess.run(
            [python, "-c", ASK_ALL], input=json.dumps(asked), cwd=tmp_path / folder, text=True,
            env={**os.environ, "SCHEDSCOPE_CACHE": "cache"}, capture_output=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        said: dict[str, list[object]] = json.loads(done.stdout)
        return said

    now = answers(sys.executable, "now")
    assert len(now) > 25
    then = answers(made / "bin/python", "then")
    assert {name: then[name] for name in now if then[name] != now[name]} == {}


@pytest.mark.skipif("SCHEDSCOPE_WHEEL" not in os.environ, reason="needs SCHEDSCOPE_WHEEL")
def test_the_installed_wheel_runs(tmp_path: Path) -> None:
    """Outside the checkout, in an environment of its own that borrows only Polars and NumPy."""
    wheel = os.environ["SCHEDSCOPE_WHEEL"]
    target = tmp_path / "site"
    subprocess.run(
        [*(sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target"), target, wheel],
        check=True,
    )
    code = (
        "import schedscope, sys; assert schedscope.__file__.startswith(sys.argv[1]);"
        "from schedscope import _native; print(len(_native.declared_tables()));"
        "from schedscope.cli import main; sys.exit(main(['--version']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(target)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(target)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines()[0] == str(len(TABLES))
    assert done.stdout.splitlines()[1].startswith("schedscope ")
