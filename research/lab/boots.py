"""One boot: a kernel, a machine, a workload, and what comes home from it."""

from __future__ import annotations

import hashlib
import json
import os
import re
import resource
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import schedscope as ss
from research.lab import guests, machines, schedulers, xen
from research.lab.guests import Kernel

ENDS_WITH_US = ("setpriv", "--pdeathsig", "KILL")
"""Words before a command that is killed when this program is."""

_DISK = 512 << 20


@dataclass(frozen=True)
class Cell:
    """One machine and what it does: `[[cell]]` in matrix.toml."""

    name: str
    kernel: str
    work: str
    smp: str = "2"
    counted: bool = False
    """Time is the number of instructions: the host's load does not matter, all takes longer."""
    append: str = ""
    qemu: str = ""
    before: str = ""
    during: str = ""
    """A command that runs beside the workload, in the recording."""
    options: str = ""
    tools: str = ""
    """Packages of the kernel's suite with programs that the recorder needs."""
    ci: bool = False
    note: str = ""
    neighbour: str = ""
    """What another machine runs on the same CPUs, below a hypervisor: a shell script (arm64)."""
    alone: str = ""
    """The cell that does the same beside an idle neighbour."""
    settings: str = ""
    """How threads of the workload are configured: SETTINGS of guest/work.c."""
    bpf: str = ""
    """A scheduler of guest/, compiled for the kernel's suite, that `before` may load."""
    repeats: int = 0
    """Record the workload so often, each time with another seed, into 1.capture, 2.capture and so
    on, without the kernel's own text: for the prediction bench."""


@dataclass
class Run:
    """The result of a cell; `failed` gives the reason if there is none."""

    cell: str
    folder: Path
    wall: float = 0.0
    cpu: float = 0.0
    failed: str = ""
    hung: bool = False
    """The machine did not end: emulated CPUs sometimes lose their timer and wait for ever."""

    @property
    def capture(self) -> Path:
        """The recording, as the collector wrote it."""
        return self.folder / "lab.capture"


def boot(
    cache: Path,
    cell: Cell,
    kernel: Kernel,
    *,
    timeout: float,
    programs: Sequence[Path] = (),
    newest: bool = False,
) -> Run:
    """Boot the machine of a cell once; everything of it lies in `cache`/runs/NAME afterwards.

    `programs` are files that lie beside the machine's commands; the `newest` emulator is taken
    wherever time is counted, else the one that is installed.

    Raises `Absent` for what this host lacks.
    """
    folder = cache / "runs" / cell.name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    called, environment = machines.emulator(cache, kernel.arch, newest=newest or cell.counted)
    given = {"WORK": cell.work, "OPTIONS": cell.options, "BEFORE": cell.before}
    given |= {"DURING": cell.during, "SETTINGS": cell.settings}
    given |= {"REPEATS": str(cell.repeats)} if cell.repeats else {}
    job = "".join(f"{key}={shlex.quote(text)}\n" for key, text in given.items())
    job += "export SETTINGS\n"
    if machines.takes_turns(kernel.arch, cell.smp, counted=cell.counted):
        job += machines.TURNS
    job += (guests.HERE / "guest" / _script(cell)).read_text()
    programs = [*programs, *([schedulers.compiled(cache, kernel, cell.bpf)] if cell.bpf else [])]
    packed = guests.initrd(
        cache, kernel, job, folder, tools=bool(cell.tools), programs=programs
    )  # fmt: skip
    disk, console = folder / "disk", folder / "console.log"
    with disk.open("wb") as file:
        file.truncate(_DISK)
    more = shlex.split(cell.qemu)
    if cell.tools:
        more += machines.second_disk(kernel.arch, guests.tools(cache, kernel, cell.tools.split()))
    words = machines.command(
        called, kernel.arch, start=_start(called, cache, cell, kernel, packed), disk=disk,
        console=console, smp=cell.smp, counted=cell.counted, more=more,
        machine=xen.MACHINE if cell.neighbour else "",
    )  # fmt: skip
    run = Run(cell.name, folder)
    begin, used = time.monotonic(), _children()
    try:
        with (folder / "qemu.log").open("wb") as log:
            subprocess.run(
                [*ENDS_WITH_US, *words], env=environment, stdin=subprocess.DEVNULL, stdout=log,
                stderr=subprocess.STDOUT, timeout=timeout, check=True,
            )  # fmt: skip
    except subprocess.TimeoutExpired:
        run.failed, run.hung = f"no end within {timeout:.0f} s: {_last(console)}", True
    except subprocess.CalledProcessError as error:
        run.failed = f"QEMU ended with {error.returncode}: {_last(folder / 'qemu.log')}"
    run.wall, run.cpu = time.monotonic() - begin, _children() - used
    if not run.failed:
        run.failed = _unpacked(disk, folder) or _job(folder) or _snapshot(run.capture)
    for path in (disk, packed, *folder.glob("neighbour"), *folder.glob("kernel")):
        path.unlink()
    about = {**_asked(cell), "wall": run.wall, "cpu": run.cpu, "failed": run.failed}
    (folder / "run.json").write_text(json.dumps(about, indent=1) + "\n")
    return run


def earlier(cache: Path, cell: Cell) -> Run | None:
    """The run of an unchanged cell that did not fail, if there is one."""
    folder = cache / "runs" / cell.name
    try:
        about = json.loads((folder / "run.json").read_text())
    except (OSError, ValueError):
        return None
    # Older runs lack these settings, which were then not used.
    if about.get("failed") or any(
        about.get(k, _UNASKED.get(k)) != x for k, x in _asked(cell).items()
    ):
        return None
    return Run(cell.name, folder, about["wall"], about["cpu"])


def pack(run: Run, into: Path) -> Path:
    """Keep a run as an archive: the recording, the kernel's text and its accounts."""
    into.mkdir(parents=True, exist_ok=True)
    kept = into / f"{run.cell}.tar.xz"
    names = ["lab.capture", "truth.tsv", "run.json", "console.log"]
    names += [name for name in ("quota.txt", "decisions.txt") if (run.folder / name).exists()]
    with tempfile.TemporaryDirectory() as folder:
        _cut_text(run, Path(folder) / "trace.txt")
        words = ["tar", "cJf", str(kept), "--owner=0", "--group=0", "-C", str(run.folder), *names]
        subprocess.run([*words, "-C", folder, "trace.txt"], check=True)
    return kept


_AROUND = 0.01
"""Seconds of the kernel's text that are kept around the events of the recording."""


def _cut_text(run: Run, into: Path) -> None:
    """The kernel's text of about the recording: a recorder may take long to begin."""
    first, last = ss.open(run.capture, cache=run.folder / "cache").window
    begin, end = first / 1e9 - _AROUND, last / 1e9 + _AROUND
    with (run.folder / "trace.txt").open(errors="replace") as lines, into.open("w") as kept:
        for line in lines:
            stamp = re.search(r" (\d+\.\d+): ", line)
            if stamp is None or begin <= float(stamp[1]) <= end:
                kept.write(line)


def _asked(cell: Cell) -> dict[str, str | bool]:
    """What a run depends on: the cell, and what runs inside the machine beside the collectors."""
    digest = hashlib.sha256()
    files = [guests.HERE / "guest" / name for name in ("init", "work.c", _script(cell))]
    for path in [*files, *([schedulers.source_of(cell.bpf)] if cell.bpf else [])]:
        digest.update(path.read_bytes())
    return {**asdict(cell), "programs": digest.hexdigest()[:16]}


_UNASKED = {field.name: field.default for field in fields(Cell)}


def _start(called: list[str], cache: Path, cell: Cell, kernel: Kernel, initrd: Path) -> list[str]:
    """What QEMU boots: the kernel, or a hypervisor and two of it."""
    image = guests.image(guests.unpacked(cache, kernel))
    line = machines.kernel_line(
        kernel.arch, smp=cell.smp, counted=cell.counted, append=cell.append,
        console=xen.KERNEL_LINE if cell.neighbour else "",
    )  # fmt: skip
    if not cell.neighbour:
        return ["-kernel", str(image), "-initrd", str(initrd), "-append", line]
    return xen.start(
        called, cache, cpu=machines.ARCHITECTURES[kernel.arch].cpu,
        cpus=int(cell.smp), image=image, initrd=initrd, line=line,
        neighbour=guests.neighbour(cache, kernel, cell.neighbour, initrd.parent),
    )  # fmt: skip


def _script(cell: Cell) -> str:
    return "repeats.sh" if cell.repeats else "job.sh"


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _last(path: Path) -> str:
    lines = path.read_text(errors="replace").splitlines() if path.exists() else []
    return lines[-1][-200:] if lines else "it said nothing"


def _unpacked(disk: Path, folder: Path) -> str:
    words = ["tar", "xf", str(disk), "-C", str(folder), "--no-same-owner", "--warning=no-timestamp"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode or not (folder / "job.exit").exists():
        return f"the machine wrote nothing: {_last(folder / 'console.log')}"
    return ""


def _job(folder: Path) -> str:
    code = (folder / "job.exit").read_text().strip()
    return "" if code == "0" else f"the recorder ended with {code}: {_last(folder / 'job.log')}"


def _snapshot(capture: Path) -> str:
    """What a flight recorder wrote last is the run's recording; its others stay where they are."""
    ring = capture.with_name(f"{capture.name}.ring")
    if not ring.exists():
        return ""
    snapshots = sorted(ring.glob("*.capture"), key=_number)
    if not snapshots:
        return "the recorder took no snapshot"
    snapshots[-1].rename(capture)
    return ""


def _number(snapshot: Path) -> int:
    """The number in a snapshot's name, `DATE-TIME-NUMBER-TRIGGER.capture`."""
    return int(snapshot.name.split("-")[2])


def cores() -> int:
    """CPUs that this process may use."""
    return len(os.sched_getaffinity(0))
