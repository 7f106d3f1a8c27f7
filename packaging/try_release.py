#!/usr/bin/env python3
"""Is what `make release` made fit for use? Installed where neither Rust nor a checkout is.

    make try-release      every Python from 3.11 on that is here, and aarch64 in an emulator

For each: a clean environment, the wheel and what it needs from the registry, `--help` of every
command, and a first answer, the same everywhere. `SCHEDSCOPE_TOOLS=DIR` adds the Python of that
tree (`.ci/tools DIR`). The part for aarch64 needs debootstrap and qemu-user-static.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from release import BIN, OUT, ROOT, SHELLS, VERSION

PYTHONS = ("3.11", "3.12", "3.13", "3.14")
FIXTURE = ROOT / "fixtures" / "linux-ftrace-starved.capture"
# No cargo, no rustc, no checkout.
CLEAN = {"PATH": "/usr/bin:/bin", "HOME": tempfile.gettempdir(), "LANG": "C.UTF-8"}
# One process: an emulated one takes seconds to start.
EVERY_HELP = """
import contextlib, io
from schedscope import cli
for name in cli.commands():
    with contextlib.redirect_stdout(io.StringIO()) as said:
        assert cli.main([name, "--help"]) == 0, name
    assert said.getvalue().startswith("usage: schedscope " + name), name
print(len(cli.commands()), "commands answer --help")
"""


def run(*words: object, **more: str) -> str:
    """A program's output, in the clean environment."""
    done = subprocess.run(
        [str(word) for word in words], env={**CLEAN, **more}, capture_output=True, text=True
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, words))}: {done.stderr or done.stdout}")
    return done.stdout


def uv(*words: object) -> None:
    """uv, with the user's own settings."""
    subprocess.run([BIN / "uv", "-q", *map(str, words)], check=True)


def first_answers(*python: object, place: Path, **more: str) -> str:
    """What a first day asks, as a checksum; `python` runs the module."""
    print("  ", run(*python, "-c", EVERY_HELP, **more).strip())
    assert run(*python, "-m", "schedscope", "--version", **more) == f"schedscope {VERSION}\n"
    capture = place / "x.capture"
    if not capture.exists():
        shutil.copytree(FIXTURE, capture)
    said = ""
    for command in ("check", "latency", "findings", "wait-breakdown"):
        asked = (command, capture, "--format", "json", "--cache", place / "cache")
        said += run(*python, "-m", "schedscope", *asked, **more)
    return hashlib.sha256(said.encode()).hexdigest()[:12]


def wheel(tag: str) -> Path:
    """The wheel for this platform."""
    return next(OUT.glob(f"*-{tag}.whl"))


def on_python(version: str, place: Path) -> str | None:
    """The wheel in a new environment of that Python, if it is here."""
    # pyenv keeps each in a folder of its own, which is not on the path.
    kept = map(str, Path.home().glob(".pyenv/versions/*/bin"))
    path = {"PATH": ":".join([os.environ["PATH"], *kept])}
    words = [BIN / "uv", "python", "find", "--system", version]
    found = subprocess.run(words, env=os.environ | path, capture_output=True, text=True)
    if found.returncode:
        return None
    venv = place / "venv"
    uv("venv", "--python", found.stdout.strip(), venv)
    uv("pip", "install", "--python", venv / "bin/python", wheel("manylinux_2_17_x86_64"))
    run(venv / "bin/schedscope", "--help")
    share = {path.name for path in (venv / "share").rglob("*") if path.is_file()}
    assert {"schedscope.1", *SHELLS.values()} <= share, share
    return first_answers(venv / "bin/python", place=place)


def site_for(place: Path, tag: str, *platform: str) -> Path:
    """The wheel and what it needs, for a Python that is not one of this system."""
    site = place / "site"
    only = ("--only-binary", ":all:", "--target", site)
    uv("pip", "install", *only, *platform, wheel(tag))
    return site


def in_tree(tree: Path, place: Path) -> str:
    """Under the Python of another system, which shares /tmp with this one."""
    python = (shutil.which("chroot") or "/usr/sbin/chroot", tree, "python3")
    version = run(*python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])").strip()
    print(f"   Python {version} of {tree}")
    site = site_for(place, "manylinux_2_17_x86_64", "--python-version", version)
    return first_answers(*python, place=place, PYTHONPATH=str(site))


def debootstrap(*words: object) -> None:
    """A minimal Debian; what debootstrap says lies beside its folder, the last of the words."""
    mirror = os.environ.get("DEBIAN_MIRROR", "")
    *options, folder = map(str, words)
    with Path(f"{folder}.log").open("w") as log:
        command = [
            "debootstrap",
            "--variant=minbase",
            *options,
            folder,
            *([mirror] if mirror else []),
        ]
        subprocess.run(command, check=True, stdout=log, stderr=log)


def emulated(place: Path) -> str:
    """On aarch64: Debian's Python for it, unpacked, and run by qemu."""
    boot, root = place / "boot", place / "root"
    debootstrap("--foreign", "--arch=arm64", "--include=python3", "bookworm", boot)
    for package in (boot / "var/cache/apt/archives").glob("*.deb"):
        run("dpkg-deb", "-x", package, root)
    site = site_for(place, "manylinux_2_17_aarch64", "--python-version", "3.11",
                    "--python-platform", "aarch64-manylinux_2_28")  # fmt: skip
    python = ("qemu-aarch64-static", "-L", root, root / "usr/bin/python3.11")
    print("  ", run(*python, "-c", "import platform; print(platform.machine())").strip())
    return first_answers(*python, place=place, PYTHONPATH=str(site), POLARS_SKIP_CPU_CHECK="1")


def main() -> int:
    """Try each, and compare."""
    answers: dict[str, str | None] = {}
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        for version in PYTHONS:
            (place := Path(folder, version)).mkdir()
            answers[version] = on_python(version, place)
            print(f"Python {version}: {answers[version] or 'not here'}", flush=True)
        if tree := os.environ.get("SCHEDSCOPE_TOOLS"):
            (place := Path(folder, "tree")).mkdir()
            answers["tree"] = in_tree(Path(tree), place)
            print(f"that tree: {answers['tree']}", flush=True)
        if shutil.which("debootstrap") and shutil.which("qemu-aarch64-static"):
            (place := Path(folder, "aarch64")).mkdir()
            answers["aarch64"] = emulated(place)
            print(f"aarch64: {answers['aarch64']}", flush=True)
    given = {answer for answer in answers.values() if answer}
    missing = [name for name, answer in answers.items() if not answer]
    print(
        f"{len(answers) - len(missing)} tried, {len(given)} different answers; {missing} not here"
    )
    return len(given) != 1


if __name__ == "__main__":
    sys.exit(main())
