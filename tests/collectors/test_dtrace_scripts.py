"""The FreeBSD scripts go through a real D compiler, against the structures they read."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from tools import tool

HERE = Path(__file__).parents[1]
FREEBSD = HERE.parent / "collectors" / "freebsd"
SCRIPTS = ["prio.d", "irq.d", "callout.d", "inter.d", "duration.d", "sched.d"]
RELEASES = [13, 14, 15, 16]

pytestmark = pytest.mark.needs("dtrace", "root", "linux")


@pytest.fixture
def folder() -> Iterator[Path]:
    """Below /tmp, which a dtrace in another root sees, too."""
    with TemporaryDirectory(dir="/tmp") as name:
        for file in [*FREEBSD.glob("*.d"), *(HERE / "freebsd").glob("*.d")]:
            shutil.copy(file, name)
        yield Path(name)


def declarations(release: int) -> str:
    """The structures of a kernel of this release: without the lines of later ones."""
    lines = (HERE / "freebsd" / "declarations.d").read_text().splitlines(keepends=True)
    since = [re.search(r"; *\t+/\* (\d+) \*/$", line) for line in lines]
    return "".join(
        line
        for line, found in zip(lines, since, strict=True)
        if not found or int(found[1]) <= release
    )


def compile_(folder: Path, release: int) -> subprocess.CompletedProcess[str]:
    """-e: compile, do not run. -Z: FreeBSD's probes do not exist here, and still compile."""
    words = tool("dtrace")
    assert words is not None
    (folder / "declarations.d").write_text(declarations(release))
    scripts = ["declarations.d", *SCRIPTS]
    arguments = [word for script in scripts for word in ("-s", str(folder / script))]
    return subprocess.run(
        [*words, "-Z", "-e", *arguments, f"{release}02000", "4", "0", "0", "1000000000"],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip


@pytest.mark.parametrize("release", RELEASES)
def test_all_scripts_compile_together(folder: Path, release: int) -> None:
    done = compile_(folder, release)
    assert done.returncode == 0, done.stderr


def members() -> list[tuple[str, str]]:
    """(script, member) of every structure member that a script names."""
    pattern = re.compile(r"->((?:td|ts|p|ie|c)_\w+|ru_\w+)|\.(ru_\w+)")
    return sorted(
        {
            (script, match[1] or match[2])
            for script in SCRIPTS
            for match in pattern.finditer((FREEBSD / script).read_text())
        }
    )


@pytest.mark.parametrize(
    ("script", "member"),
    [("sched.d", "td_lastcpu"), ("sched.d", "p_flag"), ("irq.d", "ie_irq"), ("prio.d", "td_tid")],
)
def test_a_wrong_member_name_is_refused(folder: Path, script: str, member: str) -> None:
    """Clauses of FreeBSD-only probes are compiled, too; those of sched.d come last."""
    assert (script, member) in members()
    path = folder / script
    path.write_text(re.sub(rf"\b{member}\b", f"{member}x", path.read_text()))
    done = compile_(folder, 14)
    assert done.returncode != 0
    assert f"{member}x is not a member" in done.stderr


def test_exited_thread_is_not_chosen_again() -> None:
    """off-cpu clears what preempt set: a later remain-cpu belongs to another thread."""
    text = (FREEBSD / "sched.d").read_text()
    clause = re.search(r'sched:::off-cpu\n\{\n(.*?printf\("S.*?)\n\}', text, re.DOTALL)
    assert clause is not None
    assert "preempting[cpu] = 2;" in clause[1]
    assert clause.start() < text.index("sched:::remain-cpu")


def test_the_declarations_of_every_release_name_all_members() -> None:
    texts = [declarations(release) for release in RELEASES]
    assert [("td_ast" in text, "td_wantedlock" in text) for text in texts] == [
        (False, False), (True, False), (True, False), (True, True),
    ]  # fmt: skip
    for text in texts:
        assert not [m for _, m in members() if not re.search(rf"\b{m}\b", text)]
