"""Debian packages of any suite and architecture, unpacked into folders: nothing is installed.

The mirror is the one that this machine itself uses.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
NOT_WHOLE = "the Debian mirror is not whole"
# A mirror keeps a package no longer than the index that lists it, by point releases and, in sid,
# by the hour.
INDEX_AGE_S = 3600
# apt's errors where a file differs from the one that the signed Release file lists, or is missing.
_NOT_AS_LISTED = ("Mirror sync in progress", "Hash Sum mismatch", "404  Not Found")


class Absent(Exception):
    """Something that a cell needs is unavailable here; says what."""


def mirror() -> str:
    """The address of a Debian archive: DEBIAN_MIRROR, or what this machine's apt uses."""
    if given := os.environ.get("DEBIAN_MIRROR"):
        return given
    files = [Path("/etc/apt/sources.list"), *sorted(Path("/etc/apt/sources.list.d").glob("*"))]
    text = "\n".join(path.read_text() for path in files if path.is_file())
    for address in re.findall(r"^(?:URIs: *|deb (?:\[.*?\] )?)(https?://\S+)", text, re.MULTILINE):
        if address.rstrip("/").endswith("/debian"):
            return str(address)
    raise Absent("no Debian mirror in this machine's apt sources; set DEBIAN_MIRROR to one")


class Archive:
    """One suite for one architecture, with an apt root of its own below `cache`."""

    def __init__(self, cache: Path, suite: str, arch: str) -> None:
        """Fetch the suite's index, if there is none that is new enough."""
        self._root = cache / "apt" / f"{suite}-{arch}"
        self._arch = arch
        self._lock = threading.Lock()
        for part in ("lists/partial", "cache/archives/partial"):
            (self._root / part).mkdir(parents=True, exist_ok=True)
        with self._alone():
            fetched = self._root / "complete"
            if fetched.exists() and time.time() - fetched.stat().st_mtime < INDEX_AGE_S:
                return
            signed = f"[signed-by={KEYRING}] " if Path(KEYRING).exists() else ""
            line = f"deb {signed}{mirror()} {suite} main\n"
            (self._root / "sources.list").write_text(line)
            self._apt("apt-get", "update")
            fetched.touch()

    def newest(self, pattern: str) -> str:
        """The package of the highest version whose whole name matches a regular expression."""
        with self._alone():
            listed = self._apt("apt-cache", "search", "--names-only", f"^{pattern}$")
        names = [line.split(" - ")[0] for line in listed.splitlines()]
        if not names:
            raise Absent(f"{self._root.name} has no package {pattern}")
        return max(names, key=lambda name: [int(part) for part in re.findall(r"\d+", name)])

    def unpack(self, names: list[str], into: Path, *, dependencies: bool = False) -> None:
        """Unpack packages (with all that they depend on, if asked for) into a folder, whole."""
        with self._alone():
            if into.exists():
                return
            archives = self._root / "cache" / "archives"
            shutil.rmtree(archives, ignore_errors=True)
            (archives / "partial").mkdir(parents=True)
            words = ["install", "--download-only", "--no-install-recommends", "-y"]
            self._apt("apt-get", *(words if dependencies else ["download"]), *names)
            partial = into.with_name(into.name + ".partial")
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(parents=True)
            for deb in sorted(archives.glob("*.deb")):
                subprocess.run(["dpkg-deb", "-x", deb, partial], check=True)
                deb.unlink()
            partial.rename(into)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """While no other thread, and no other process, uses this suite's apt root."""
        with self._lock, (self._root / "lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _apt(self, program: str, *words: str) -> str:
        root = self._root
        options = {
            "Dir::State::lists": root / "lists",
            "Dir::State::status": "/dev/null",
            "Dir::Etc::sourcelist": root / "sources.list",
            "Dir::Etc::sourceparts": "/dev/null",
            "Dir::Cache": root / "cache",
            "APT::Architecture": self._arch,
            "APT::Architectures": self._arch,
            "APT::Sandbox::User": "root" if os.geteuid() == 0 else "",
            "Acquire::Languages": "none",
            "Acquire::Check-Valid-Until": "false",
        }
        settings = [f"-o{key}={value}" for key, value in options.items()]
        done = subprocess.run(
            [program, "-q", *settings, *words],
            cwd=root / "cache" / "archives",
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode and any(sign in done.stderr for sign in _NOT_AS_LISTED):
            told = f"a package that {root.name} lists is missing there, or is another file"
            raise Absent(f"{NOT_WHOLE}: {told}; try again later")
        if done.returncode:
            raise Absent(f"{program} {words[0]}: {(done.stderr or done.stdout).strip()[-300:]}")
        return done.stdout


_opened: dict[tuple[Path, str, str], Archive] = {}
_opening = threading.Lock()


def archive(cache: Path, suite: str, arch: str) -> Archive:
    """The one archive of a suite and architecture: boots go on side by side."""
    with _opening:
        key = (cache, suite, arch)
        if key not in _opened:
            _opened[key] = Archive(*key)
        return _opened[key]
