"""Without extras every command works, or says in one sentence which extra it needs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from parsers_of_commands import required

import schedscope as ss
from schedscope.cli import commands
from schedscope.extras import EXTRAS
from schedscope.simulator.generators import web

ABSENT = ("matplotlib", "scipy", "anywidget", "traitlets", "perfetto", "IPython", "starlette",
          "uvicorn", "dask", "distributed", "ddsketch", "fsspec")  # fmt: skip
# What cannot do without, and the extra that it names.
NEEDS = {"report IN -o OUT.html": "plot", "simulate IN --figure OUT.png": "plot",
         "compare IN IN": "compare", "view IN": "view", "fleet IN -o OUT": "fleet"}  # fmt: skip
# Commands that need more than a trace; each of the others is asked about one.
WITH_ARGUMENTS = [
    "convert FILE -o OUT.sched", "critical-path IN --tid TID", "doctor",
    "export IN --to perfetto -o OUT.pftrace", "fidelity IN --policy rr", "ministat NUMBERS",
    "simulate hogs:2,time=5ms", "timeline IN -o OUT.html", "wake-chain IN --tid TID",
    "whatif IN --policy rr",
]  # fmt: skip
# Tried by tests of their own: they record, write one shell script, and read a folder of tables.
ELSEWHERE = {"capture", "collectors", "top", "validate"}


def plain() -> list[str]:
    """The command lines that need no extra."""
    named = {line.split()[0] for line in [*NEEDS, *WITH_ARGUMENTS]}
    return WITH_ARGUMENTS + [f"{name} IN" for name in commands() if name not in named | ELSEWHERE]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("plain")
    ss.simulate(web(2, requests=40), policy="rr", cpus=2).to_sched(place / "in.sched")
    (place / "numbers.txt").write_text("1\n2\n3\n4\n")
    return place


def run(folder: Path, line: str) -> subprocess.CompletedProcess[str]:
    """One command in a fresh interpreter that does not find the packages of any extra."""
    tid = ss.Trace.read(folder / "in.sched").threads.collect()["tid"][-1]
    text = Path(__file__).parents[2] / "fixtures" / "text-report.txt"
    names = {"FILE": str(text), "IN": str(folder / "in.sched"), "TID": str(tid),
             "NUMBERS": str(folder / "numbers.txt")}  # fmt: skip
    words = [names.get(word, word.replace("OUT", str(folder / "out"))) for word in line.split()]
    code = (
        "import sys\n"
        f"sys.modules.update(dict.fromkeys({ABSENT!r}))\n"
        "from schedscope.cli import main\n"
        f"sys.exit(main({words!r}))"
    )
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "SCHEDSCOPE_DEBUG": ""},
        check=False,
    )


@pytest.mark.parametrize("line", NEEDS)
def test_what_needs_an_extra_names_it(line: str, folder: Path) -> None:
    done = run(folder, line)
    assert done.returncode == 1, done
    assert f"pip install 'schedscope[{NEEDS[line]}]'" in done.stderr
    assert "internal" not in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not list(folder.glob("out*.html"))


@pytest.mark.parametrize("line", plain())
def test_the_others_do_without(line: str, folder: Path) -> None:
    done = run(folder, line)
    # No simulated trace has system calls.
    codes = {"doctor": (0, 1), "requests IN": (1,)}
    assert done.returncode in codes.get(line, (0,)), done
    assert "internal" not in done.stderr


def test_a_command_asked_about_a_trace_alone_needs_no_more() -> None:
    for line in plain():
        if line not in WITH_ARGUMENTS:
            assert required(line.split()[0]) == ["input"], f"{line}: add a line above"


def test_the_extras_are_those_of_the_package() -> None:
    import tomllib

    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    declared = project["optional-dependencies"]
    for package, (extra, _) in EXTRAS.items():
        assert any(line.startswith(package) for line in declared[extra]), package
