#!/usr/bin/env python3
"""Everything that a release consists of, into dist/release/, from the last commit: `make release`.

    make release                        all parts, one after the other
    make release PARTS="wheels sums"    some of them

Nothing is uploaded. Needs the network, Rust's targets (`rustup target add`, done here) and
cargo-cyclonedx; the part `debian` needs debhelper.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import stat
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "dist" / "release"
TREE = ROOT / "build" / "release" / "tree"
BIN = Path(sys.executable).parent
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
# Rust's targets; the oldest C library that Rust itself supports; the tag of the wheel.
WHEELS = {
    "x86_64-unknown-linux-gnu": (".2.17", "manylinux_2_17_x86_64"),
    "aarch64-unknown-linux-gnu": (".2.17", "manylinux_2_17_aarch64"),
    "x86_64-unknown-linux-musl": ("", "musllinux_1_2_x86_64"),
    "aarch64-unknown-linux-musl": ("", "musllinux_1_2_aarch64"),
}
SHELLS = {"bash": "schedscope", "zsh": "_schedscope", "fish": "schedscope.fish",
          "tcsh": "schedscope.tcsh"}  # fmt: skip


def run(*words: object, cwd: Path = TREE, more: Mapping[str, str] = {}) -> str:
    """A program's output; its complaints are the user's to read."""
    done = subprocess.run(
        [str(word) for word in words],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(TREE / "src"), **more},
        stdout=subprocess.PIPE,
        text=True,
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, words))}: status {done.returncode}\n{done.stdout}")
    return done.stdout


def tree() -> None:
    """What the last commit holds, and nothing that an older build left."""
    TREE.parent.mkdir(parents=True, exist_ok=True)
    if changed := run("git", "status", "--porcelain", "--untracked-files=no", cwd=ROOT):
        print(f"not in the release, as not committed:\n{changed}", file=sys.stderr)
    # Files that did not change keep their times, so that cargo builds only what did.
    if not (TREE / ".git").exists():
        run("git", "clone", "-q", "--no-checkout", ROOT, TREE, cwd=ROOT)
    commit = run("git", "rev-parse", "HEAD", cwd=ROOT).strip()
    run("git", "fetch", "-q", "origin", commit)
    run("git", "checkout", "-qf", "--detach", commit)
    run("git", "clean", "-qfdx")
    made()


def made() -> None:
    """The manual page, the completions and the licences of crates, which the wheels contain."""
    place = TREE / "packaging" / "made"
    for shell, name in SHELLS.items():
        (place / shell).mkdir(parents=True)
        text = run(sys.executable, "-m", "schedscope", "--completion", shell)
        (place / shell / name).write_text(text)
    run("make", "man", f"VENV={BIN.parent}", "-o", "build")
    (place / "man").mkdir()
    (TREE / "dist" / "schedscope.1").rename(place / "man" / "schedscope.1")
    (TREE / "LICENSE-dependencies.txt").write_text(licences())


def licences() -> str:
    """The licence of each crate that the engine is linked with, with its text."""
    words = ("cargo", "metadata", "--locked", "--format-version", "1")
    found = json.loads(run(*words, "--filter-platform", next(iter(WHEELS)), cwd=TREE / "native"))
    packages = {one["id"]: one for one in found["packages"]}
    nodes = {one["id"]: one for one in found["resolve"]["nodes"]}
    reached: set[str] = set()
    waiting = [key for key, one in packages.items() if one["name"] == "schedscope-python"]
    while waiting:
        key = waiting.pop()
        if key not in reached:
            reached.add(key)
            kinds = ((dep["pkg"], dep["dep_kinds"]) for dep in nodes[key]["deps"])
            waiting += [pkg for pkg, how in kinds if any(k["kind"] is None for k in how)]
    known: dict[str, str] = {}
    parts = ["The engine of schedscope contains these crates, under these licences.\n"]
    for one in sorted((packages[key] for key in reached), key=lambda one: one["name"]):
        if one["source"] is None:
            continue
        parts.append(f"\n{'=' * 78}\n{one['name']} {one['version']}: {one['license']}\n")
        folder = Path(one["manifest_path"]).parent
        texts = [path for path in folder.iterdir() if path.stem.upper() in _NAMES]
        texts += [path for path in folder.iterdir() if path.name.upper().startswith("LICENSE-")]
        for path in sorted(set(texts)):
            if path.is_file():
                text = path.read_text(errors="replace").strip()
                first = known.setdefault(text, f"{one['name']} {one['version']}, {path.name}")
                same = first.startswith(f"{one['name']} ")
                parts.append(f"\n--- {path.name}\n{text if same else f'as of {first}'}\n")
    return "".join(parts)


_NAMES = ("LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE", "UNLICENSE")


def sdist() -> None:
    """The source archive."""
    build = (sys.executable, "-m", "build", "--no-isolation")
    run(*build, "--sdist", "-o", OUT, ".")


def wheels() -> None:
    """A wheel for each of `WHEELS`, linked by zig against the oldest C library."""
    run("rustup", "target", "add", *WHEELS)
    # setuptools-rust calls this as cargo; what it builds goes through zig.
    cargo = TREE.parent / "cargo"
    cargo.write_text(
        f'#!/bin/sh\ncase $1 in rustc) exec "{BIN}/cargo-zigbuild" "$@" ;; esac\nexec cargo "$@"\n'
    )
    cargo.chmod(cargo.stat().st_mode | stat.S_IXUSR)
    for target, (oldest, tag) in WHEELS.items():
        shutil.rmtree(TREE / "build", ignore_errors=True)
        settings = {
            "CARGO": str(cargo),
            "CARGO_BUILD_TARGET": target + oldest,
            "CARGO_TARGET_DIR": str(TREE.parent / "target"),
            "PATH": f"{BIN}:{os.environ['PATH']}",
            "PYO3_CROSS": "1",
            "PYO3_CROSS_PYTHON_VERSION": "3.11",
        }
        if "musl" in target:
            settings["RUSTFLAGS"] = "-C target-feature=-crt-static"
        build = (sys.executable, "-m", "build", "--no-isolation", "--wheel", "-o", OUT, ".")
        run(*build, f"-C--build-option=--plat-name={tag}", more=settings)
        [wheel] = OUT.glob(f"*-{tag}.whl")
        if "musl" in target:
            # auditwheel looks for musl's libc.so here, and finds a text of glibc's for linkers.
            libraries = needed(wheel)
            assert libraries <= {"libc.so", "libgcc_s.so.1"}, libraries
            print(f"{wheel.name} needs {', '.join(sorted(libraries))}")
        else:
            print(run(BIN / "auditwheel", "show", wheel))


def needed(wheel: Path) -> set[str]:
    """The shared libraries that the engine in a wheel is linked with."""
    from elftools.elf.elffile import ELFFile  # of auditwheel

    with zipfile.ZipFile(wheel) as packed:
        [engine] = (name for name in packed.namelist() if name.endswith(".so"))
        dynamic = ELFFile(io.BytesIO(packed.read(engine))).get_section_by_name(".dynamic")
    return {tag.needed for tag in dynamic.iter_tags("DT_NEEDED")}


def recorder() -> None:
    """The recorder as one file, for hosts without Python."""
    target = OUT / "capture.sh"
    run(sys.executable, "-m", "schedscope", "collectors", "--force", "--bundle", target)


def bills() -> None:
    """What the wheel needs (Python) and contains (crates), as CycloneDX."""
    clean = TREE.parent / "venv"
    run(BIN / "uv", "venv", "-q", "--clear", clean)
    wheel = next(OUT.glob("*-manylinux_2_17_x86_64.whl"))
    run(BIN / "uv", "pip", "install", "-q", "--python", clean / "bin/python", wheel)
    name = f"schedscope-{VERSION}"
    words = ("environment", "--output-reproducible", "--of", "JSON")
    python = OUT / f"{name}-python.cdx.json"
    run(BIN / "cyclonedx-py", *words, "-o", python, clean / "bin/python")
    python.write_text(python.read_text().replace(f"file://{OUT}/", ""))
    manifest = TREE / "native" / "Cargo.toml"
    words = ("cyclonedx", "-q", "-f", "json", "--override-filename", "made.cdx")
    path = {"PATH": f"{BIN}:{os.environ['PATH']}"}
    run("cargo", *words, "--manifest-path", manifest, more=path)
    text = (TREE / "native" / "python" / "made.cdx.json").read_text()
    (OUT / f"{name}-crates.cdx.json").write_text(text.replace(f"{TREE}/", ""))


def debian() -> None:
    """A Debian source package of the recorder, and the package that it builds."""
    place = TREE.parent / "debian" / f"schedscope-{VERSION}"
    shutil.rmtree(place.parent, ignore_errors=True)
    shutil.copytree(TREE / "packaging" / "debian", place / "debian")
    shutil.copy(TREE / "LICENSE", place)
    shutil.copy(OUT / "capture.sh", place / "capture")
    control = (place / "debian" / "control").read_text()
    maintainer = next(line[12:] for line in control.splitlines() if line.startswith("Maintainer: "))
    date = run("git", "log", "-1", "--format=%aD").strip()
    (place / "debian" / "changelog").write_text(
        f"schedscope ({VERSION}-1) unstable; urgency=medium\n\n  * Release {VERSION}.\n\n"
        f" -- {maintainer}  {date}\n"
    )
    archive = place.parent / f"schedscope_{VERSION}.orig.tar.gz"
    run("tar", "--exclude=debian", "-czf", archive, place.name, cwd=place.parent)
    run("dpkg-buildpackage", "-us", "-uc", cwd=place)
    for pattern in ("*.dsc", "*.tar.*", "*.deb"):
        for path in place.parent.glob(pattern):
            shutil.copy(path, OUT)


def port() -> None:
    """The entry for FreeBSD's ports tree, made for this source archive."""
    folder = TREE.parent / "py-schedscope"
    shutil.rmtree(folder, ignore_errors=True)
    archive = OUT / f"schedscope-{VERSION}.tar.gz"
    run(sys.executable, TREE / "packaging/freebsd/port.py", archive, folder)
    run("tar", "-czf", OUT / f"freebsd-port-{VERSION}.tar.gz", folder.name, cwd=folder.parent)


def sums() -> None:
    """SHA-256 of every file, as `sha256sum -c` reads it."""
    files = sorted(path for path in OUT.iterdir() if path.is_file() and path.name != "SHA256SUMS")
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files]
    (OUT / "SHA256SUMS").write_text("".join(lines))
    for path in files:
        print(f"{path.stat().st_size:>12,}  {path.name}")


PARTS = (tree, sdist, wheels, recorder, bills, debian, port, sums)

if __name__ == "__main__":
    if not sys.argv[1:]:
        shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True, exist_ok=True)
    wanted = sys.argv[1:] or [part.__name__ for part in PARTS]
    for part in PARTS:
        if part.__name__ in wanted:
            print(f"=== {part.__name__}: {part.__doc__}", flush=True)
            part()
