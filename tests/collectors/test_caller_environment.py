"""Exported variables of the caller reach COMMAND unchanged and set nothing in the recorder."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from collector_runs import ROOT

COMMAND = ROOT / "collectors" / "command.sh"
PROGRAMS = [ROOT / "collectors" / "capture", *(ROOT / "collectors").glob("**/*.sh")]
ASSIGNED = re.compile(r"(?:^|[\s;({])([A-Za-z_][A-Za-z0-9_]*)=", re.MULTILINE)
# Variables that tools and the recorder's children read; each is set or unset before its use.
TAKEN = {
    "PATH", "LC_ALL", "IFS", "OFS", "FS", "RS", "CONVFMT", "OFMT", "RSTART", "RLENGTH", "NR", "NF",
    "SCHEDSCOPE_RECORDER", "SCHEDSCOPE_MARKER", "BPFTRACE_PERF_RB_PAGES", "BPFTRACE_MAP_KEYS_MAX",
    "BPFTRACE_MAX_MAP_KEYS",
}  # fmt: skip
AWKS = [["mawk"], ["gawk"], ["original-awk"], ["busybox", "awk"]]


@pytest.mark.needs("linux")
@pytest.mark.parametrize("awk", AWKS, ids=lambda words: words[0])
@pytest.mark.parametrize(
    "shell", [["dash"], ["bash"], ["busybox", "sh"], ["posh"]], ids=lambda words: words[0]
)
def test_command_gets_every_variable_unchanged(
    shell: list[str], awk: list[str], tmp_path: Path
) -> None:
    """Also names and bytes that a shell cannot hold; what `env` takes for an option is left out."""
    for name in (shell[0], awk[0]):
        if shutil.which(name) is None:
            pytest.skip(f"no {name} here")
    (tmp_path / "awk").write_text(f'#!/bin/sh\nexec {" ".join(awk)} "$@"\n')
    (tmp_path / "awk").chmod(0o755)
    given = {
        b"PATH": os.fsencode(f"{tmp_path}:{os.environ['PATH']}"),
        b"LC_ALL": b"C",
        b"empty": b"",
        b"quotes": b'it\'s "two" `id` $(id) \\n %s\n\n',
        b"bytes": b"caf\xc3\xa9\xff\x01",
        b"a.b": b"1",
        b"BASH_FUNC_x%%": b"() {  :\n}",
    }
    code = f'. {COMMAND}; words=$(environment_words); eval "set -- $words"; printf \'%s\\0\' "$@"'
    done = subprocess.run(
        [*shell, "-uc", code], env={**given, b"-i": b"1"}, capture_output=True, check=True
    )
    expected = b"".join(name + b"=" + value + b"\0" for name, value in given.items())
    assert done.stdout == expected
    assert done.stderr == b""


def test_recorder_variables_are_lower_case() -> None:
    """So exported lower-case names can be unset without a list of them."""
    for path in PROGRAMS:
        text = re.sub(r"(?m)^\s*#.*", "", path.read_text())
        names = {name for name in ASSIGNED.findall(text) if name.upper() == name}
        upper = {name for name in names if name.strip("_")} - TAKEN
        assert upper <= {"USER", "LOGNAME", "HOME"}, path
