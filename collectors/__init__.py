"""What runs on the traced host: POSIX sh, D and bpftrace; this module locates and bundles it."""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ["bundle", "path"]

_SLOT = "bundled=\n"
# Read as text at run time: scripts of the tools, and what the watchdog is made of.
_ASSETS = (
    "*/*.bt",
    "*/*.d",
    "watchdog.sh",
    "self-test-load.sh",
    "*/clock.sh",
    "*/ftrace-reader.sh",
    "*/ring-watch.sh",
)


def path() -> Path:
    """Path of the ``capture`` program; copy its whole folder, or use :func:`bundle`.

    >>> path().name
    'capture'
    """
    return Path(__file__).resolve().parent / "capture"


def bundle() -> str:
    """Text of one sh file that holds ``capture`` and everything it needs on a host.

    The files of each operating system become a function, the scripts of the tools (``.bt``,
    ``.d``) here-documents; written to a file anywhere, it does what the folder does.

    >>> bundle().startswith("#!/bin/sh")
    True
    """
    program = path().read_text(encoding="utf-8")
    if program.count(_SLOT) != 1:
        raise RuntimeError(
            f"{path()} has no single line 'bundled=' to put the files at; "
            "reinstall schedscope, or restore that line"
        )
    root = path().parent
    parts = ["bundled=1\n"]
    shared = [f"{name}.sh" for name in _listed(program, "files_shared")]
    for system in ("linux", "freebsd"):
        own = _listed(program, f"files_{system}") + _listed(program, f"recorders_{system}")
        files = shared + [f"{system}/{name}.sh" for name in own]
        body = "".join((root / file).read_text(encoding="utf-8") for file in files)
        parts.append(f"bundle_{system}() {{\n{body}}}\n")
    parts.append("bundle_asset() {\ncase $1 in\n")
    for asset in sorted(file for kind in _ASSETS for file in root.glob(kind)):
        text = asset.read_text(encoding="utf-8")
        end = _terminator(text)
        name = asset.relative_to(root).as_posix()
        parts.append(f"{name})\ncat <<'{end}'\n{text.rstrip(chr(10))}\n{end}\n;;\n")
    parts.append("esac\n}\n")
    return program.replace(_SLOT, "".join(parts))


def _listed(program: str, name: str) -> list[str]:
    """The words of one of the lists of files at the head of ``capture``."""
    found = re.search(rf"^{name}='([^']*)'$", program, re.MULTILINE)
    if found is None:
        raise RuntimeError(f"{path()} has no list {name}; reinstall schedscope")
    return found[1].split()


def _terminator(text: str) -> str:
    """A here-document's last line that is no line of the text."""
    word = "END_OF_ASSET"
    while re.search(rf"^{word}$", text, re.MULTILINE):
        word += "_"
    return word
