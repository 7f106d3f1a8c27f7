"""Where the real tools are that tests run beside ours.

SCHEDSCOPE_TOOLS may name a Debian tree with newer releases of them than the
host has (`.ci/tools` builds one; /proc, /sys, /dev and /tmp are mounted in
it). Such a tool runs by chroot, so pass it only paths below /tmp.
"""

from __future__ import annotations

import os
import shutil
from functools import cache
from pathlib import Path

_FOLDERS = ("usr/sbin", "usr/bin", "usr/local/bin", "sbin", "bin")


@cache
def tool(name: str) -> tuple[str, ...] | None:
    """The words that start a command of `name`, newest release first; None if absent."""
    tree = os.environ.get("SCHEDSCOPE_TOOLS")
    if tree and os.geteuid() == 0 and _in_tree(Path(tree), name):
        words = ["chroot", tree, name]
        if name == "dtrace" and (library := _dtrace_library(Path(tree))):
            words.append(f"-xsyslibdir={library}")
        return tuple(words)
    path = shutil.which(name)
    return (path,) if path else None


def _in_tree(tree: Path, name: str) -> bool:
    return any(os.access(tree / folder / name, os.X_OK) for folder in _FOLDERS)


def _dtrace_library(tree: Path) -> str | None:
    """The D libraries without io.d, of which DTrace picks those for this kernel.

    io.d wants a symbol that some kernels lack; then no script would compile.
    """
    return "/opt/dtrace/lib" if (tree / "opt/dtrace/lib").is_dir() else None
