"""The root of a laboratory machine: busybox, the project's collectors, one workload."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from research.lab.machines import ARCHITECTURES
from research.lab.packages import Absent, archive

HERE = Path(__file__).parent
COLLECTORS = HERE.parents[1] / "collectors"


@dataclass(frozen=True)
class Kernel:
    """A distribution's kernel: `[[kernel]]` in matrix.toml."""

    name: str
    arch: str
    suite: str
    packages: tuple[str, ...]
    """Regular expressions for the names of its packages."""


_FILESYSTEM = ("crc32c_generic", "ext4")
"""Modules for the disk of `tools`, where they are not built in; ext4 asks for the first by name."""


def unpacked(cache: Path, kernel: Kernel) -> Path:
    """The folder with a kernel's files, fetched if need be."""
    tree = cache / "kernels" / f"{kernel.arch}-{kernel.name}"
    if not tree.exists():
        source = archive(cache, kernel.suite, kernel.arch)
        source.unpack([source.newest(pattern) for pattern in kernel.packages], tree)
    return tree


def image(tree: Path) -> Path:
    """What QEMU boots."""
    for pattern in ("boot/vmlinu[xz]-*", "usr/lib/modules/*/vmlinu[xz]", "**/vmlinu[xz]*"):
        if found := sorted(tree.glob(pattern)):
            return found[0]
    raise Absent(f"no kernel image in {tree}")


def tools(cache: Path, kernel: Kernel, packages: list[str]) -> Path:
    """A disk with packages of the kernel's suite and all that they need: their scripts are not run.

    Its files belong to root, whichever user makes it.
    """
    made = cache / "tools" / f"{kernel.arch}-{kernel.suite}-{'+'.join(packages)}"
    disk = made.with_name(made.name + ".ext4")
    if disk.exists():
        return disk
    archive(cache, kernel.suite, kernel.arch).unpack(packages, made, dependencies=True)
    for heavy in ("usr/share/doc", "usr/share/locale", "usr/share/man", "usr/share/i18n"):
        shutil.rmtree(made / heavy, ignore_errors=True)
    # Newer suites keep these below usr, and a package that is always there links to them.
    for name in ("lib", "lib64"):
        if not (made / name).exists():
            (made / name).symlink_to(f"usr/{name}")
    used = sum(path.lstat().st_size + 4096 for path in made.rglob("*") if not path.is_dir())
    partial = disk.with_suffix(".partial")
    partial.unlink(missing_ok=True)
    words = ["mkfs.ext4", "-q", "-F", "-O", "^has_journal", "-E", "root_owner=0:0"]
    words += ["-d", str(made), str(partial), f"{(used >> 20) * 5 // 4 + 64}M"]
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    try:
        subprocess.run(words, check=True, capture_output=True, env={**os.environ, "PATH": path})
    except FileNotFoundError:
        raise Absent("no mkfs.ext4: apt install e2fsprogs") from None
    partial.rename(disk)
    return disk


def initrd(
    cache: Path,
    kernel: Kernel,
    job: str,
    out: Path,
    *,
    tools: bool = False,
    programs: Sequence[Path] = (),
) -> Path:
    """The root of one machine as a compressed archive in `out`; `job` is a shell script.

    `programs` are copied to where the machine finds its commands.
    """
    root = out / "root"
    places = ["bin", "proc", "sys", "dev", "tmp", "out", "modules", *(["tools"] if tools else [])]
    for folder in places:
        (root / folder).mkdir(parents=True)
    shutil.copy(_busybox(cache, kernel.arch), root / "bin/busybox")
    shutil.copy(_work(cache, kernel.arch), root / "bin/work")
    for program in programs:
        shutil.copy(program, root / "bin")
    shutil.copytree(COLLECTORS, root / "collectors", symlinks=True)
    shutil.copy(HERE / "guest/init", root / "init")
    (root / "init").chmod(0o755)
    (root / "job.sh").write_text(job)
    drivers = ARCHITECTURES[kernel.arch].modules + (_FILESYSTEM if tools else ())
    _modules(unpacked(cache, kernel), drivers, root / "modules")
    return _packed(root, out / "initrd")


def neighbour(cache: Path, kernel: Kernel, script: str, out: Path) -> Path:
    """The root of a machine that only runs this shell script, as an archive in `out`."""
    root = out / "neighbour-root"
    for folder in ("bin", "proc", "dev"):
        (root / folder).mkdir(parents=True)
    shutil.copy(_busybox(cache, kernel.arch), root / "bin/busybox")
    head = "#!/bin/busybox sh\n/bin/busybox --install -s /bin\nexport PATH=/bin\n"
    (root / "init").write_text(f"{head}{script}\n")
    (root / "init").chmod(0o755)
    return _packed(root, out / "neighbour")


def _packed(root: Path, packed: Path) -> Path:
    """The folder as a compressed archive; the folder is gone then."""
    with packed.open("wb") as file:
        names = subprocess.Popen(["find", ".", "-mindepth", "1"], cwd=root, stdout=subprocess.PIPE)
        archived = subprocess.Popen(
            ["cpio", "-o", "-H", "newc", "--quiet", "-R", "0:0"],
            cwd=root, stdin=names.stdout, stdout=subprocess.PIPE,
        )  # fmt: skip
        subprocess.run(["gzip", "-1n"], stdin=archived.stdout, stdout=file, check=True)
        if names.wait() or archived.wait():
            raise Absent("find or cpio failed; apt install cpio")
    shutil.rmtree(root)
    return packed


def _busybox(cache: Path, arch: str) -> Path:
    tree = cache / "busybox" / arch
    if not tree.exists():
        # s390x and others that the machine's own suite may lack are in this one.
        archive(cache, "trixie", arch).unpack(["busybox-static"], tree)
    return next(tree.glob("**/bin/busybox"))


def _work(cache: Path, arch: str) -> Path:
    source, made = HERE / "guest/work.c", cache / "work" / arch
    if made.exists() and made.stat().st_mtime > source.stat().st_mtime:
        return made
    made.parent.mkdir(parents=True, exist_ok=True)
    compiler = shutil.which(f"{ARCHITECTURES[arch].compiler}-gcc")
    if compiler is None:
        raise Absent(
            f"no {ARCHITECTURES[arch].compiler}-gcc: apt install crossbuild-essential-{arch}"
        )
    words = [compiler, "-O2", "-static", "-pthread", "-o", str(made), str(source)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Absent(
            f"{compiler}: {done.stderr.strip()[-200:]}; apt install libc6-dev-{arch}-cross"
        )
    return made


def _modules(tree: Path, wanted: tuple[str, ...], into: Path) -> None:
    """Copy modules and what they depend on; `order` says in which order to load them."""
    place = next((p for p in tree.glob("**/modules/*") if (p / "kernel").is_dir()), None)
    if place is None:
        raise Absent(f"no modules in {tree}")
    files = {path.name.split(".ko")[0].replace("-", "_"): path for path in place.rglob("*.ko*")}
    order: list[str] = []

    def load(name: str) -> None:
        path = files.get(name)
        if path is None or name in order:  # built into the kernel
            return
        plain = _decompressed(path, into)
        for needed in _needs(plain):
            load(needed)
        if name not in order:
            order.append(name)

    for name in wanted:
        load(name)
    lines = [f"{name}.ko\n" for name in order]
    (into / "order").write_text("".join(lines))


def _decompressed(path: Path, into: Path) -> Path:
    plain = into / f"{path.name.split('.ko')[0].replace('-', '_')}.ko"
    programs = {".xz": ["xz", "-dc"], ".zst": ["zstd", "-dcq"], ".gz": ["gzip", "-dc"]}
    if program := programs.get(path.suffix):
        with plain.open("wb") as file:
            subprocess.run([*program, str(path)], stdout=file, check=True)
    else:
        shutil.copy(path, plain)
    return plain


def _needs(module: Path) -> list[str]:
    """The modules that must be loaded before: `depends=` of its .modinfo section."""
    data = module.read_bytes()
    begin = data.find(b"\0depends=") + len(b"\0depends=")
    if begin < len(b"\0depends="):
        return []
    names = data[begin : data.index(b"\0", begin)].decode()
    return [name.replace("-", "_") for name in names.split(",") if name]
