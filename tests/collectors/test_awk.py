"""Every awk program of the collectors is parsed by every awk that a host may have.

One-true-awk is the base system's on FreeBSD. Those of 2021 and 2022 refuse `print a != b ? c : d`,
which the others and its later releases accept.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

COLLECTORS = Path(__file__).parents[2] / "collectors"
AWKS = [["original-awk"], ["mawk"], ["gawk", "--posix"], ["busybox", "awk"]]
AWK = re.compile(r"^(?!\s*#).*?(?:^|[\s(|`])awk(?= )", re.MULTILINE)


def end_of_word(text: str, at: int) -> int:
    """The position after the shell word at `at`, including quotes and $(...)."""
    closing = {"'": "'", '"': '"', "$(": ")"}
    inside: list[str] = []
    while at < len(text):
        here = text[at]
        if inside and here == inside[-1]:
            inside.pop()
        elif inside[-1:] == ["'"]:
            pass
        elif here == "\\":
            at += 1
        elif text[at : at + 2] == "$(":
            inside.append(")")
            at += 1
        elif here in closing and not (here == "'" and inside[-1:] == ['"']):
            inside.append(closing[here])
        elif here.isspace() and not inside:
            break
        at += 1
    return at


def variable(name: str) -> str:
    """The value in single quotes that a collector file assigns to a variable."""
    for path in COLLECTORS.rglob("*.sh"):
        if given := re.search(rf"^{name}='([^']*)'", path.read_text(), re.MULTILINE):
            return given[1]
    raise AssertionError(name)


def programs() -> list[tuple[str, str]]:
    """(file and line, text) of each program: the first word after `awk` that is not an option."""
    found = []
    for path in sorted([COLLECTORS / "capture", *COLLECTORS.rglob("*.sh")]):
        text = path.read_text()
        for match in AWK.finditer(text):
            at = match.end()
            while True:
                while text[at].isspace() or text[at : at + 2] == "\\\n":
                    at += 1
                end = end_of_word(text, at)
                word = text[at:end]
                if not word.startswith("-"):
                    break
                at = end_of_word(text, end + 1) if word in ("-v", "-F") else end
            line = text.count("\n", 0, match.end()) + 1
            place = f"{path.relative_to(COLLECTORS)}:{line}"
            shared = re.match(r'"\$(\w+)"', word)
            if shared:  # functions that several programs begin with
                word = word[shared.end() :]
            assert word[0] == "'", (place, word)
            found.append((place, (variable(shared[1]) if shared else "") + word.split("'")[1]))
    return found


@pytest.mark.parametrize("awk", AWKS, ids=lambda awk: awk[0])
def test_every_awk_parses_every_program(awk: list[str], tmp_path: Path) -> None:
    if shutil.which(awk[0]) is None:
        pytest.skip(f"needs {awk[0]}")
    refused = {}
    assert len(programs()) > 50
    for place, text in programs():
        # Parsed but not run: BEGIN exits at once, and so does END.
        (tmp_path / "program").write_text(f"BEGIN {{ exit }}\nEND {{ exit }}\n{text}\n")
        done = subprocess.run(
            [*awk, "-f", "program"],
            cwd=tmp_path, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60,
            env={"PATH": os.environ["PATH"], "LC_ALL": "C"},
        )  # fmt: skip
        if done.returncode or "error" in done.stderr:
            refused[place] = done.stderr
    assert not refused
