"""Without extras every command works, or names the extra that it needs in one sentence."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from parsers_of_commands import required

import schedscope as ss
from schedscope import doctor, extras
from schedscope.cli import commands
from schedscope.extras import PURPOSES, declared, installing, missing
from schedscope.simulator.workloads.generators import web

PACKAGES = sorted(
    {
        re.split(r"[<>=~!\[ ]", one)[0].replace("-", "_")
        for extra in PURPOSES
        for one in declared()[extra]
    }
)
ABSENT = (*PACKAGES, "scipy", "traitlets", "IPython")
# Command lines that need an extra, and its name.
NEEDS = {"report IN -o OUT.html": "plot", "simulate IN --figure OUT.png": "plot",
         "fleet IN -o OUT": "fleet"}  # fmt: skip
# Commands that need more than a trace; each of the others is tested with one.
WITH_ARGUMENTS = [
    "compare IN IN", "convert FILE -o OUT.sched", "critical-path IN --tid TID", "doctor",
    "export IN --to perfetto -o OUT.pftrace", "fidelity IN --policy rr", "ministat NUMBERS",
    "simulate hogs:2,time=5ms", "timeline IN -o OUT.html", "wake-chain IN --tid TID",
    "whatif IN --policy rr",
]  # fmt: skip
# Tested elsewhere: they record, write a shell script, read a folder of tables, or serve until they
# are ended.
ELSEWHERE = {"capture", "collectors", "top", "validate", "view"}


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


def program(*commands: list[str]) -> str:
    """Commands in an interpreter that cannot import the packages of any extra.

    After each there is a line on stderr with its exit code; the last one's is the interpreter's.
    """
    return (
        "import sys\n"
        f"sys.modules.update(dict.fromkeys({ABSENT!r}))\n"
        "from schedscope.cli import main\n"
        f"for words in {commands!r}:\n"
        "    code = main(words)\n"
        "    print(f'@@{code}', file=sys.stderr)\n"
        "sys.exit(code)"
    )


def run(folder: Path, *lines: str) -> subprocess.CompletedProcess[str]:
    tid = ss.Trace.read(folder / "in.sched").threads.collect()["tid"][-1]
    text = Path(__file__).parents[2] / "fixtures" / "text-report.txt"
    names = {"FILE": str(text), "IN": str(folder / "in.sched"), "TID": str(tid),
             "NUMBERS": str(folder / "numbers.txt")}  # fmt: skip
    commands = [
        [names.get(word, word.replace("OUT", str(folder / "out"))) for word in line.split()]
        for line in lines
    ]
    return subprocess.run(
        [sys.executable, "-c", program(*commands)],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "SCHEDSCOPE_DEBUG": ""},
        check=False,
    )


@pytest.mark.parametrize("line", NEEDS)
def test_command_needing_an_extra_names_it(line: str, folder: Path) -> None:
    done = run(folder, line)
    assert done.returncode == 1, done
    lacking = [one for one in declared()[NEEDS[line]] if one.split(">")[0] in ABSENT]
    assert f"the extra `{NEEDS[line]}`" in done.stderr
    assert f"Hint: {installing(lacking)}" in done.stderr
    assert "schedscope[" not in done.stderr
    assert "internal" not in done.stderr
    assert len(done.stderr.splitlines()) == 2
    assert not list(folder.glob("out*.html"))


def test_other_commands_run_without_extras(folder: Path) -> None:
    done = run(folder, *plain())
    assert "internal" not in done.stderr
    found = [int(code) for code in re.findall(r"^@@(\d+)$", done.stderr, re.MULTILINE)]
    # No simulated trace has system calls or dispatch queues.
    codes = {"doctor": (0, 1), "requests IN": (1,), "dispatch-queues IN": (1,)}
    for line, code in zip(plain(), found, strict=True):
        assert code in codes.get(line, (0,)), (line, done.stderr)


def test_viewer_runs_without_extras(folder: Path) -> None:
    words = ["view", str(folder / "in.sched"), "--no-browser"]
    with subprocess.Popen(
        [sys.executable, "-c", program(words)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        address = process.stdout.readline()
        process.terminate()
    assert address.startswith("http://127.0.0.1:")


def test_tested_commands_require_only_a_trace() -> None:
    for line in plain():
        if line not in WITH_ARGUMENTS:
            assert required(line.split()[0]) == ["input"], f"{line}: add a line above"


def test_an_extra_has_a_purpose_and_a_line_in_doctor() -> None:
    assert set(declared()) == {"", *PURPOSES}
    lines = {found.subject: found for found in doctor.findings() if found.area == "analyse"}
    assert {"packages", "engine", *PURPOSES} == set(lines)
    for extra, purpose in PURPOSES.items():
        assert purpose in lines[extra].text


def test_declared_requirements_are_read_from_installed_metadata(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    lines = ["polars>=1.39", 'matplotlib>=3.9 ; extra == "plot"', "x ; extra == 'all'"]
    monkeypatch.setattr(extras, "__file__", str(tmp_path / "a" / "b" / "extras.py"))
    monkeypatch.setattr("importlib.metadata.requires", lambda name: lines)
    declared.cache_clear()
    try:
        assert declared() == {"": ["polars>=1.39"], "plot": ["matplotlib>=3.9"]}
    finally:
        declared.cache_clear()


def test_hint_is_a_command_for_the_running_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras.sys, "executable", "/opt/a b/python")
    monkeypatch.setattr(extras, "_belongs_to_the_system", lambda: False)
    monkeypatch.setattr(extras, "_installed", lambda name: name == "pip")
    assert missing("matplotlib").hint == "'/opt/a b/python' -m pip install 'matplotlib>=3.9'"
    monkeypatch.setattr(extras, "_installed", lambda name: False)
    hint = "uv pip install --python '/opt/a b/python' 'matplotlib>=3.9'"
    assert missing("matplotlib").hint == hint
    monkeypatch.setattr(extras, "_belongs_to_the_system", lambda: True)
    assert missing("matplotlib").hint == "apt-get install python3-matplotlib"


ROOT = Path(__file__).parents[2]


def test_no_text_suggests_installing_schedscope_from_a_registry() -> None:
    """The name on the registry is not ours."""
    folders = ("src/schedscope", "analysis", "parsers", "simulator", "collectors", "docs")
    files = [ROOT / "README.md", *(path for name in folders for path in (ROOT / name).rglob("*.*"))]
    texts = [path for path in files if path.suffix in (".py", ".md", ".sh", ".js")]
    assert len(texts) > 200
    suggested = re.compile(r"pip(x)? install [^\n`]*\bschedscope(?![\w/.-]*\.whl)(\[|['\" `,]|$)")
    assert [path.name for path in texts if suggested.search(path.read_text(encoding="utf-8"))] == []
