"""Where scenes are recorded: on this host, or in a machine of the laboratory."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from findings.cases import HERE, Case, Scene
from research.lab.__main__ import default_cache, matrix
from research.lab.boots import Cell, boot

ROOT = HERE.parents[2]
CAPTURE = ROOT / "collectors" / "capture"
APPEND = {"plain": "", "isolated": "isolcpus=1"}
"""Machines of the laboratory, and what their kernels are told."""

_BOOTS = 3
"""Machines that are tried for what is to be recorded in one."""

Done = Callable[[str], None]


@dataclass(frozen=True)
class Recorded:
    """One recording that was asked for: round `n` of a case's fault, or of its counterpart without
    it.
    """

    case: Case
    kind: str
    n: int

    @property
    def scene(self) -> Scene:
        """What is recorded."""
        return self.case.fault if self.kind == "fault" else self.case.alike

    @property
    def name(self) -> str:
        """The folder's name."""
        return f"{self.case.slug}-{self.kind}-{self.n}.capture"


def compiled(work: Path) -> Path:
    """The program of the loads."""
    made = work / "load"
    words = ["gcc", "-O2", "-Wall", "-static", "-pthread", "-o", str(made), str(HERE / "load.c")]
    subprocess.run(words, check=True)
    return made


def on_host(asked: Sequence[Recorded], work: Path, done: Done) -> None:
    """Record here, one after another, as root."""
    load = compiled(work)
    for one in asked:
        shutil.rmtree(work / one.name, ignore_errors=True)
        words = ["sh", str(HERE / "scene.sh"), str(CAPTURE), str(work / one.name)]
        environment = {"PATH": f"{load.parent}:/usr/sbin:/usr/bin:/sbin:/bin"}
        ran = subprocess.run(
            [*words, *one.scene.words()],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        done(one.name if ran.returncode == 0 else f"{one.name}: {ran.stderr.strip()[-200:]}")


def in_machine(
    place: str,
    asked: Sequence[Recorded],
    work: Path,
    kernel: str,
    done: Done,
    *,
    counted: bool = False,
) -> None:
    """Record all in one boot of an otherwise idle machine with two CPUs.

    If its time is `counted` in instructions, it does not matter how busy the host is, but it takes
    ten times as long. An emulated machine crashes now and then: what is missing is recorded in
    another one.
    """
    for one in asked:
        shutil.rmtree(work / one.name, ignore_errors=True)
    missing = list(asked)
    for _ in range(_BOOTS):
        if not missing:
            return
        _boot(place, missing, work, kernel, counted=counted)
        for one in missing:
            if (work / one.name).exists():
                done(one.name)
        missing = [one for one in missing if not (work / one.name).exists()]
    if missing:
        done("not recorded: " + ", ".join(one.name for one in missing))


def _boot(place: str, asked: Sequence[Recorded], work: Path, kernel: str, *, counted: bool) -> None:
    lines = []
    for one in asked:
        words = ["sh", "/bin/scene.sh", "/collectors/capture", f"/out/{one.name}"]
        lines.append(f"{shlex.join([*words, *one.scene.words()])} || rm -rf /out/{one.name}")
        lines.append(f"echo {one.name} >/dev/console")
    kernels = matrix()[0]
    cell = Cell(
        name=f"findings-{place}", kernel=kernel, work="", counted=counted, append=APPEND[place],
        before="\n".join([*lines, "exit 0"]),
    )  # fmt: skip
    run = boot(
        default_cache(), cell, kernels[kernel], timeout=120 + 60 * len(asked),
        programs=[compiled(work), HERE / "scene.sh"], newest=True,
    )  # fmt: skip
    for one in asked:
        if (run.folder / one.name / "capture.json").exists():
            shutil.move(run.folder / one.name, work / one.name)
