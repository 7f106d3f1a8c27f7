"""Schedulers of sched_ext, compiled for the machines that load them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from research.lab.guests import HERE, Kernel
from research.lab.packages import Absent, archive

SUITE = "sid"
"""Where the compiler comes from: sched_ext needs one of 2024 or later."""
COMPILER = ["clang", "libbpf-dev"]
HEADERS = r"linux-bpf-dev"
"""The kernel's types as C, of the suite of the kernel that loads the scheduler."""
OBJECTS = HERE.parents[1] / "native" / "scx" / "objects"


def source_of(name: str) -> Path:
    """The file of a scheduler of guest/, or of an object that the repository keeps."""
    return OBJECTS / name if name.endswith(".o") else HERE / "guest" / name


def compiled(cache: Path, kernel: Kernel, source: str) -> Path:
    """The object of a scheduler of guest/, for `bpftool struct_ops register`.

    One of native/scx/objects is loaded as it is.
    """
    code = source_of(source)
    if code.suffix == ".o":
        return code
    made = cache / "bpf" / f"{kernel.arch}-{kernel.name}" / f"{Path(source).stem}.o"
    if made.exists() and made.stat().st_mtime > code.stat().st_mtime:
        return made
    tree, types = cache / "clang", cache / "bpf-headers" / kernel.suite
    archive(cache, SUITE, "amd64").unpack(COMPILER, tree, dependencies=True)
    archive(cache, kernel.suite, kernel.arch).unpack([HEADERS], types)
    headers = next(types.glob("**/vmlinux.h"), None)
    clang = next(iter(sorted(tree.glob("usr/lib/llvm-*/bin/clang"))), None)
    loader = next(tree.glob("**/ld-linux-x86-64.so.2"), None)
    if headers is None or clang is None or loader is None:
        raise Absent(f"no vmlinux.h, clang or dynamic loader in {SUITE}'s packages")
    made.parent.mkdir(parents=True, exist_ok=True)
    libraries = ":".join(
        str(path) for path in (tree / "usr/lib/x86_64-linux-gnu", clang.parents[1] / "lib")
    )
    words = [
        str(loader), "--library-path", libraries, str(clang), "-O2", "-g", "-w", "-fms-extensions",
        "-target", "bpf", "-nostdinc", "-I", str(headers.parent), "-I", str(tree / "usr/include"),
        "-c", str(code), "-o", str(made),
    ]  # fmt: skip
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=dict(os.environ))
    if done.returncode:
        raise Absent(f"clang cannot compile {source}: {done.stderr.strip()[-300:]}")
    return made
