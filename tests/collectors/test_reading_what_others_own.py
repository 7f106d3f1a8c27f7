"""What root reads of other users: names, command lines, environments, logs.

It reads no more than that. Each test runs under every installed shell and awk.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from collector_runs import ROOT

LINUX = ROOT / "collectors" / "linux"
SHELLS = [["dash"], ["bash"], ["busybox", "sh"], ["posh"], ["yash"], ["mksh"]]
AWKS = [["mawk"], ["gawk"], ["original-awk"], ["busybox", "awk"]]
pytestmark = pytest.mark.needs("linux")


@pytest.fixture(
    params=[*((words, AWKS[0]) for words in SHELLS), *((SHELLS[0], awk) for awk in AWKS[1:])],
    ids=lambda pair: f"{pair[0][0]}-{pair[1][0]}",
)
def shell(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[list[str], str]:
    """The words that run a script, and a PATH with another awk."""
    words, awk = request.param
    for name in (words[0], awk[0]):
        if shutil.which(name) is None:
            pytest.skip(f"no {name} here")
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "awk").write_text(f'#!/bin/sh\nexec {" ".join(awk)} "$@"\n')
    (folder / "awk").chmod(0o755)
    return words, f"{folder}:{os.environ['PATH']}"


def said(shell: tuple[list[str], str], code: str, folder: Path) -> str:
    """What the code prints after sourcing the files of collectors/linux."""
    words, path = shell
    head = f". {LINUX}/host.sh; . {LINUX}/processes.sh; . {LINUX}/clean.sh; anonymous=''\n"
    head = 'have() { command -v "$1" >/dev/null 2>&1; }\n' + head
    done = subprocess.run(
        [*words, "-uc", head + code],
        cwd=folder, env={"PATH": path, "LC_ALL": "C"}, capture_output=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.stderr == b""
    return done.stdout.decode(errors="surrogateescape")


NAMES = [
    "a b",
    "tab\t",
    "it's",
    'say "x"',
    "back\\t",
    "-n",
    "*",
    " end ",
    "\udcff",
    "$(id)",
    "x <==",
]


def test_control_group_of_any_name_is_read(shell: tuple[list[str], str], tmp_path: Path) -> None:
    """Also one that a tool would split into the path of a file of root's."""
    tree = tmp_path / "tree"
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "cpu.weight").write_text("TOPSECRET\n")
    (tree / f"x\t{secret}").mkdir(parents=True)
    for number, name in enumerate(NAMES):
        (tree / name).mkdir()
        (tree / name / "cpu.weight").write_text(f"{number}\n")
    code = f"""
        host_group_home() {{ echo {tree}; }}
        host_group_paths() {{ echo /../secret; }}
        host_groups start all"""
    rows = dict(
        line.split("\t")[1:3] for line in said(shell, code, tmp_path).removesuffix("\n").split("\n")
    )
    expected = {
        "/" + name.replace("\\", "\\\\").replace("\t", "\\t"): str(number)
        for number, name in enumerate(NAMES)
    }
    assert rows == expected


def test_links_and_pipes_are_not_read_as_control_groups(
    shell: tuple[list[str], str], tmp_path: Path
) -> None:
    """The same for a file behind a linked folder; and a pipe does not block."""
    tree = tmp_path / "tree"
    for name in ("link", "pipe", "plain"):
        (tree / name).mkdir(parents=True)
    (tmp_path / "cpu.weight").write_text("TOPSECRET\n")
    (tree / "link" / "cpu.weight").symlink_to(tmp_path / "cpu.weight")
    (tree / "astray").symlink_to(tmp_path)
    os.mkfifo(tree / "pipe" / "cpu.weight")
    (tree / "plain" / "cpu.weight").write_text("100\n")
    code = f"""
        host_group_home() {{ echo {tree}; }}
        host_group_paths() {{ printf '%s\\n' /link /pipe /plain /astray /astray/tree/plain; }}
        host_groups start all"""
    assert said(shell, code, tmp_path) == "start\t/plain\t100" + "\t" * 7 + "\n"


def test_escaped_names_in_the_process_table_resolve_to_the_same_group(
    shell: tuple[list[str], str], tmp_path: Path
) -> None:
    """At the end of a recording the groups come from processes.tsv, where names are escaped."""
    row = "start\t1\t0\t0\t/a\\tb\\\\t\t\t\n"
    (tmp_path / "processes.tsv").write_text("header\n" + row)
    assert said(shell, "host_group_paths", tmp_path) == "/a\tb\\t\n"


HUGE = """
import ctypes, mmap, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
size = int(sys.argv[1]) << 30
place = libc.mmap(None, size, 3, 0x4022, -1, 0)
assert place != ctypes.c_void_p(-1).value, "no room"
f = open("/proc/self/stat").read().rpartition(") ")[2].split()
f = [0, 0, 0] + [int(x) if x.lstrip("-").isdigit() else 0 for x in f]
libc.sbrk.restype = ctypes.c_void_p
ends = [f[i] for i in (26, 27, 45, 46, 47)] + [libc.sbrk(0), f[28]] + [place, place + size] * 2
given = struct.pack("11QQII", *ends, 0, 0, 0xFFFFFFFF)
if libc.prctl(35, 14, given, len(given), 0): sys.exit(7)
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def huge() -> Iterator[int]:
    """A process whose environment and command line are a TiB of zeros."""
    child = subprocess.Popen(
        [sys.executable, "-c", HUGE, "1024"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert child.stdout is not None
        if child.stdout.readline() != b"ready\n":
            pytest.skip("a process cannot move its environment here")
        yield child.pid
    finally:
        child.kill()
        child.communicate()


def test_huge_command_line_is_read_in_part(
    shell: tuple[list[str], str], huge: int, tmp_path: Path
) -> None:
    """Other processes are read completely."""
    forged = f"one\n==> /proc/{os.getpid()}/cmdline <==\nforged\nstart\t1\t1\t1\t1\t1\t1\t1"
    sleeper = subprocess.Popen(["sh", "-c", "read x; exit", forged], stdin=subprocess.PIPE)
    try:
        printed = said(shell, f"host_processes start; clean_marked {huge} || echo none", tmp_path)
    finally:
        sleeper.communicate()
    lines = printed.removesuffix("\n").split("\n")
    assert lines.pop() == "none"
    rows = [line.split("\t") for line in lines]
    assert {len(row) for row in rows} == {7}
    shown = {row[1]: row[6] for row in rows}
    assert shown[str(huge)] == ""
    assert shown[str(sleeper.pid)] == "sh -c read x; exit one"
    mine = Path("/proc/self/cmdline").read_bytes()[:4000].replace(b"\0", b" ").split(b"\n")[0]
    assert shown[str(os.getpid())].encode(errors="surrogateescape").startswith(mine[:40])


def test_only_environments_of_root_are_read(tmp_path: Path) -> None:
    """Of all processes whose session leader is gone: other users control their environment."""
    shell = (["sh"], os.environ["PATH"])
    orphan = "setsid sh -c 'sleep 60 >/dev/null 2>&1 & echo $!'"
    pid = subprocess.run(["sh", "-c", orphan], capture_output=True, text=True).stdout.strip()
    try:
        found = said(shell, "clean_orphans", tmp_path).split()
        assert (pid in found) == (os.geteuid() == 0)
        assert str(os.getpid()) not in found
    finally:
        os.kill(int(pid), 9)


@pytest.mark.parametrize("words", SHELLS, ids=lambda words: words[0])
def test_a_log_is_read_no_further_than_a_mebibyte(words: list[str], tmp_path: Path) -> None:
    """A text split over two writes is found, one written before is not."""
    if shutil.which(words[0]) is None:
        pytest.skip(f"no {words[0]} here")
    log = tmp_path / "log"
    log.write_bytes(b"BOOM\nBO")
    code = f"""
        . {LINUX}/ring-watch.sh
        watch_nap=1; mkdir .scratch; : >.scratch/reading; turn=0
        ring_post() {{ echo "$1 at turn $turn"; }}
        sleep() {{
            turn=$((turn + 1))
            case $turn in
            1) printf 'OM\\n' >>log ;;
            2) printf 'B' >>log ;;
            3) printf 'OOM' >>log ;;
            4) head -c 3000000 /dev/zero >>log ;;
            5) rm log; mkfifo log ;;
            6) rm log; printf 'BOOM and more than there was' >log ;;
            7) ln -s nowhere log2; mv log2 log ;;
            8) rm .scratch/reading ;;
            esac
        }}
        ring_watch_log log BOOM"""
    done = subprocess.run(
        [*words, "-uc", code], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stderr == ""
    assert done.stdout.splitlines() == ["log at turn 3", "log at turn 6"]


def test_no_name_is_passed_to_xargs_without_0() -> None:
    """`xargs` without -0 splits at blanks, tabs and quotes."""
    for path in (ROOT / "collectors").glob("**/*.sh"):
        for line in path.read_text().splitlines():
            code = line.partition("# ")[0]
            assert "xargs" not in code or "xargs -0" in code, f"{path}: {line}"
