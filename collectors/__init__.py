"""What runs on the traced host: POSIX sh, D and bpftrace; this module locates and bundles it."""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ["bundle", "path"]

_SLOT = "bundled=\n"


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
    shared = "".join(file.read_text(encoding="utf-8") for file in sorted(root.glob("*.sh")))
    for folder in sorted(entry for entry in root.iterdir() if (entry / "host.sh").is_file()):
        scripts = sorted(folder.glob("*.sh"), key=lambda file: (file.name != "host.sh", file.name))
        names = " ".join(file.stem for file in scripts if file.name != "host.sh")
        body = "".join(file.read_text(encoding="utf-8") for file in scripts)
        parts.append(f"bundle_{folder.name}() {{\n{shared}{body}recorders='{names}'\n}}\n")
    parts.append("bundle_asset() {\ncase $1 in\n")
    for asset in sorted(file for kind in ("*.bt", "*.d") for file in root.glob(f"*/{kind}")):
        text = asset.read_text(encoding="utf-8")
        end = _terminator(text)
        name = asset.relative_to(root).as_posix()
        parts.append(f"{name})\ncat <<'{end}'\n{text.rstrip(chr(10))}\n{end}\n;;\n")
    parts.append("esac\n}\n")
    return program.replace(_SLOT, "".join(parts))


def _terminator(text: str) -> str:
    """A here-document's last line that is no line of the text."""
    word = "END_OF_ASSET"
    while re.search(rf"^{word}$", text, re.MULTILINE):
        word += "_"
    return word
