"""A machine below Xen: its CPUs are shared with a second machine, as on an oversold host.

Xen boots first and starts two domains, as the device tree says (Xen's docs/misc/arm/device-tree/
booting.txt and docs/features/dom0less.pandoc): ours, which has the disk, and the neighbour, which
has one shell script. Both have as many virtual CPUs as there are real ones.
"""

from __future__ import annotations

import gzip
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from research.lab.packages import Absent, archive

MACHINE = "virt,virtualization=on,gic-version=3"
KERNEL_LINE = "console=hvc0 kpti=0 mitigations=off"
"""Where the kernel's pages are hidden from programs, Linux does not ask Xen for stolen time (6.12,
arch/arm64/xen: `xen_kernel_unmapped_at_usr`)."""
_SUITE = "bookworm"
_MIB = "2048"
"""Of the whole machine: what Xen gives to ours lies in one piece, beside all that is loaded."""
_OURS_MIB, _NEIGHBOURS_MIB = 640, 128
_KERNEL_AT, _INITRD_AT, _NEIGHBOUR_AT = 0x50000000, 0x58000000, 0x5C000000
_XEN_LINE = "console=dtuart dtuart=/pl011@9000000 bootscrub=0"


def start(
    called: Sequence[str],
    cache: Path,
    *,
    cpu: str,
    cpus: int,
    image: Path,
    initrd: Path,
    line: str,
    neighbour: Path,
) -> list[str]:
    """What QEMU starts in place of a kernel; its files lie beside `initrd`.

    `image` is the kernel of both, `line` its command line for ours, and `neighbour` the initrd of
    the other.
    """
    folder = initrd.parent
    kernel = folder / "kernel"
    packed = image.read_bytes()
    kernel.write_bytes(gzip.decompress(packed) if packed[:2] == b"\x1f\x8b" else packed)
    tree = folder / "devices.dtb"
    machine = ["-M", f"{MACHINE},dumpdtb={tree}", "-cpu", cpu, "-smp", str(cpus), "-m", _MIB]
    subprocess.run([*called, *machine, "-display", "none"], check=True, capture_output=True)
    files = [(kernel, _KERNEL_AT), (initrd, _INITRD_AT), (neighbour, _NEIGHBOUR_AT)]
    _add(tree, _domains(line, cpus, *(path.stat().st_size for path, _ in files)))
    loaders = [f"loader,file={path},addr={at:#x},force-raw=on" for path, at in files]
    words = ["-m", _MIB, "-kernel", str(_hypervisor(cache)), "-dtb", str(tree)]
    return words + [word for loader in loaders for word in ("-device", loader)]


def _hypervisor(cache: Path) -> Path:
    tree = cache / "xen"
    if not tree.exists():
        source = archive(cache, _SUITE, "arm64")
        source.unpack([source.newest(r"xen-hypervisor-[0-9.]+-arm64")], tree)
    return next(path for path in tree.glob("boot/xen-*-arm64") if path.is_file())


def _domains(line: str, cpus: int, kernel: int, initrd: int, neighbour: int) -> str:
    def module(kind: str, at: int, size: int, more: str = "") -> str:
        return (
            f'module@{at:x} {{ compatible = "multiboot,{kind}", "multiboot,module"; '
            f"reg = <0 {at:#x} 0 {size:#x}>; {more} }};"
        )

    def with_line(words: str) -> str:
        return f'bootargs = "{words}";'

    cells = "#address-cells = <2>; #size-cells = <2>;"
    return f"""
/ {{ chosen {{
    xen,xen-bootargs = "{_XEN_LINE} dom0_mem={_OURS_MIB}M dom0_max_vcpus={cpus}";
    {cells}
    {module("kernel", _KERNEL_AT, kernel, with_line(line))}
    {module("ramdisk", _INITRD_AT, initrd)}
    neighbour {{
        compatible = "xen,domain"; {cells}
        memory = <0 {_NEIGHBOURS_MIB << 10:#x}>; cpus = <{cpus}>; vpl011;
        {module("kernel", _KERNEL_AT, kernel, with_line("console=ttyAMA0 quiet rdinit=/init"))}
        {module("ramdisk", _NEIGHBOUR_AT, neighbour)}
    }};
}}; }};
"""


def _add(tree: Path, more: str) -> None:
    """Add nodes to a compiled device tree."""
    if shutil.which("dtc") is None:
        raise Absent("no dtc: apt install device-tree-compiler")
    read = ["dtc", "-q", "-I", "dtb", "-O", "dts", str(tree)]
    source = subprocess.run(read, check=True, capture_output=True, text=True).stdout
    written = ["dtc", "-q", "-I", "dts", "-O", "dtb", "-o", str(tree)]
    subprocess.run(written, input=source + more, check=True, text=True)
