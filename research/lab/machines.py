"""What QEMU needs to know of each architecture."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from research.lab.packages import Absent, archive

# Self-tests and mitigations burn CPU time during the recording.
_QUIET = "quiet loglevel=4 panic=-1 rdinit=/init"
_X86 = "tsc=reliable no_timer_check nokaslr norandmaps cryptomgr.notests mitigations=off nowatchdog"


@dataclass(frozen=True)
class Architecture:
    """One of Debian's architectures as QEMU emulates it."""

    qemu: str
    machine: str
    cpu: str
    console: str
    disk: str
    modules: tuple[str, ...]
    compiler: str
    """Prefix of the C compiler that builds for it."""
    package: str
    """Debian's package of the emulator, in the newest suite."""
    append: str = ""


ARCHITECTURES = {
    "amd64": Architecture(
        "x86_64", "q35,hpet=on", "max,rdrand=off,rdseed=off", "ttyS0", "virtio-blk-pci",
        ("virtio_pci", "virtio_blk"), "x86_64-linux-gnu", "qemu-system-x86", _X86,
    ),
    "arm64": Architecture(
        "aarch64", "virt", "cortex-a72", "ttyAMA0", "virtio-blk-pci", ("virtio_pci", "virtio_blk"),
        "aarch64-linux-gnu", "qemu-system-arm",
    ),
    "armhf": Architecture(
        "arm", "virt", "cortex-a15", "ttyAMA0", "virtio-blk-device",
        ("virtio_mmio", "virtio_blk"), "arm-linux-gnueabihf", "qemu-system-arm",
    ),
    "s390x": Architecture(
        "s390x", "s390-ccw-virtio", "max", "ttysclp0", "virtio-blk-ccw", ("virtio_blk",),
        "s390x-linux-gnu", "qemu-system-s390x",
    ),
    "ppc64el": Architecture(
        "ppc64", "pseries", "power9", "hvc0", "virtio-blk-pci", ("virtio_pci", "virtio_blk"),
        "powerpc64le-linux-gnu", "qemu-system-ppc",
    ),
    "riscv64": Architecture(
        "riscv64", "virt", "rv64", "ttyS0", "virtio-blk-pci", ("virtio_pci", "virtio_blk"),
        "riscv64-linux-gnu", "qemu-system-riscv",
    ),
}  # fmt: skip


# QEMU runs several CPUs of counted time in turns, and a turn ends only when a timer of the machine
# is due. So timer 1 of the emulated HPET (IA-PC HPET specification 1.0a, section 2.3) fires every
# 20 us of virtual time and sends its message to an unused address: the guest does not use it
# (`nohpet`), and no turn is longer.
_TURNS_US = 20
_TICKS_PER_US = 100
TURNS = f"""\
devmem 0xfed00134 32 0xfed90000
devmem 0xfed00130 32 0
devmem 0xfed00120 32 0x404c
devmem 0xfed00128 32 {_TURNS_US * _TICKS_PER_US}
devmem 0xfed0012c 32 0
devmem 0xfed00010 32 1
"""
"""A shell script that a machine of counted time runs first: amd64 with several CPUs."""
_TURNS_APPEND = "nohpet iomem=relaxed"
_TURNS_QEMU = ["-global", "hpet.msi=on"]


# The end of a turn costs the emulator some time for every CPU, idle or not.
_MOST_IN_TURNS = 16


def takes_turns(arch: str, smp: str, *, counted: bool) -> bool:
    """Whether `TURNS` has something to do, and is worth its cost."""
    cpus = int(smp.partition(",")[0])
    return counted and arch == "amd64" and 1 < cpus <= _MOST_IN_TURNS


def emulator(cache: Path, arch: str, *, newest: bool) -> tuple[list[str], dict[str, str]]:
    """How to call QEMU, and its environment.

    Several CPUs whose time is counted in instructions need a QEMU of 2026, and those of 2022 crash
    when several CPUs run at once for long; the suite that this machine runs may be older, so the
    `newest` one comes from the newest suite and runs from a folder.
    """
    known = ARCHITECTURES[arch]
    program = f"qemu-system-{known.qemu}"
    if not newest:
        if found := shutil.which(program):
            return [found], dict(os.environ)
        raise Absent(f"{program} is not installed: apt install {known.package}")
    tree = cache / "qemu" / known.package
    packages = [known.package, *(["seabios"] if arch == "amd64" else [])]
    archive(cache, "sid", "amd64").unpack(packages, tree, dependencies=True)
    libraries = tree / "usr/lib/x86_64-linux-gnu"
    loader = next(tree.glob("**/ld-linux-x86-64.so.2"))
    # Modules of QEMU of the machine's own release do not fit.
    environment = {**os.environ, "QEMU_MODULE_DIR": str(libraries / "qemu")}
    firmware = []
    for place in ("usr/share/qemu", "usr/share/seabios"):
        firmware += ["-L", str(tree / place)]
    paths = f"{libraries}:{libraries / 'qemu'}"
    program_there = str(tree / "usr/bin" / program)
    return [str(loader), "--library-path", paths, program_there, *firmware], environment


def second_disk(arch: str, image: Path) -> list[str]:
    """A disk that is only read."""
    drive = f"if=none,id=tools,file={image},format=raw,readonly=on"
    return ["-drive", drive, "-device", f"{ARCHITECTURES[arch].disk},drive=tools"]


def kernel_line(arch: str, *, smp: str, counted: bool, append: str, console: str = "") -> str:
    """The command line of a kernel; `console` names another one than the architecture's."""
    known = ARCHITECTURES[arch]
    words = [console or f"console={known.console}", _QUIET, known.append, append]
    if counted:
        words.append("tsc_early_khz=1000000" if arch == "amd64" else "")
        words.append(_TURNS_APPEND if takes_turns(arch, smp, counted=counted) else "")
    return " ".join(word for word in words if word)


def command(
    called: list[str],
    arch: str,
    *,
    start: list[str],
    disk: Path,
    console: Path,
    smp: str,
    counted: bool,
    more: list[str],
    machine: str = "",
) -> list[str]:
    """The command line of one machine; time `counted` in instructions is 4 ns for each.

    `start` are the words for what it boots, and `machine` is another one than the architecture's.
    """
    known = ARCHITECTURES[arch]
    words = [*called, "-M", machine or known.machine, "-cpu", known.cpu, "-smp", smp, "-m", "1024"]
    if counted:
        words += ["-accel", "tcg", "-icount", "shift=2,sleep=off", "-seed", "1"]
        words += ["-rtc", "base=2024-01-01T00:00:00,clock=vm"]
        words += _TURNS_QEMU if takes_turns(arch, smp, counted=counted) else []
    else:
        words += ["-accel", "tcg,thread=multi"]
    words += [*start, "-nodefaults", "-no-user-config", "-display", "none", "-monitor", "none"]
    words += ["-no-reboot", "-drive", f"if=none,id=d,file={disk},format=raw,cache=unsafe"]
    words += ["-device", f"{known.disk},drive=d"]
    if arch in ("s390x", "ppc64el"):
        device = "sclpconsole" if arch == "s390x" else "spapr-vty"
        words += ["-chardev", f"file,id=c,path={console}", "-device", f"{device},chardev=c"]
    else:
        words += ["-serial", f"file:{console}"]
    return words + more
