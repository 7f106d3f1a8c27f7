#!/usr/bin/env python3
"""README's start and the first tutorial, as a newcomer follows them on a clean system.

    make first-day      Debian 12, and Debian sid with its newer Python, made by debootstrap

Each system is made anew, with pipx. Then each command of README's
start and of docs/tutorials/p99.md runs there, with its seconds. The table goes into
research/data/first-day.csv. Needs root, debootstrap, the network and the wheel of `make release`.
"""

from __future__ import annotations

import csv
import datetime
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from release import ROOT
from try_release import debootstrap, wheel

TABLE = ROOT / "research" / "data" / "first-day.csv"
SYSTEMS = ("bookworm", "sid")
# xz is on every Debian except a minimal one.
BESIDES = "--include=pipx,xz-utils,ca-certificates"
LIMIT = 600
"""Seconds to the tutorial's answer."""


def start() -> list[str]:
    """The commands of README's first block."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    block = text.partition("\n## Start\n")[2].partition("```console\n")[2].partition("```")[0]
    lines = re.findall(r"^\$ (.*?)(?:\s+#.*)?$", block, re.M)
    return [line.removeprefix("sudo ") for line in lines]


def tutorial() -> list[str]:
    """The commands of the first tutorial that print something."""
    text = (ROOT / "docs/tutorials/p99.md").read_text(encoding="utf-8")
    return re.findall(r"^(?:\$ )?(tar xf .*|(?<=\$ )schedscope .*)$", text, re.M)


def make(suite: str, root: Path) -> None:
    """A minimal Debian, with the fixtures and the wheel in its root's home."""
    debootstrap(BESIDES, suite, root)
    for name in ("PIP_CERT", "SSL_CERT_FILE"):  # a registry behind an authority of one's own
        if path := os.environ.get(name):
            shutil.copy(path, root / "root/authorities.crt")
    shutil.copy("/etc/resolv.conf", root / "etc/resolv.conf")
    shutil.copytree(ROOT / "fixtures", root / "root/fixtures")
    shutil.copy(wheel("manylinux_2_17_x86_64"), root / "root")


def run(root: Path, command: str) -> tuple[float, int, str]:
    """The command in that system, with mounts that end with it."""
    mounts = "".join(f"mount --rbind {path} {root}{path} && " for path in ("/proc", "/sys", "/dev"))
    environment = {
        "PATH": "/root/.local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": "/root",
        "LC_ALL": "C.UTF-8",
        "DEBIAN_FRONTEND": "noninteractive",
    }
    if (root / "root/authorities.crt").exists():
        environment["PIP_CERT"] = "/root/authorities.crt"
    begin = time.monotonic()
    inside = f"{mounts}exec chroot {root} sh -c {shlex.quote(f'cd && {command}')}"
    done = subprocess.run(
        ["unshare", "--mount", "--propagation", "private", "sh", "-c", inside],
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    return time.monotonic() - begin, done.returncode, done.stdout


def main() -> int:
    """Time each step; fails if one fails, or if the answer takes longer than ten minutes."""
    rows: list[tuple[object, ...]] = []
    failed = False
    today = datetime.date.today()
    with tempfile.TemporaryDirectory(prefix="first-day.") as folder:
        for suite in SYSTEMS:
            root = Path(folder, suite)
            make(suite, root)
            name = run(root, "python3 --version")[2].strip()
            passed = 0.0
            for command in [*start(), *tutorial()]:
                seconds, status, said = run(root, command)
                passed += seconds
                failed |= bool(status)
                rows.append((today, suite, name, command, f"{seconds:.1f}", status))
                print(f"{suite:<9} {passed:6.0f} s  status {status}  {command[:90]}", flush=True)
                if status:
                    print(said)
            failed |= passed > LIMIT
    with TABLE.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(("date", "system", "python", "command", "seconds", "status"))
        table.writerows(rows)
    return failed


if __name__ == "__main__":
    sys.exit(main())
