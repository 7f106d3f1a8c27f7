"""Does the time that the hypervisor took, as a recording gives it, agree with how long work took?

The work is a fixed number of instructions, and where time is counted in instructions, it takes
equally long in every run, unless the CPU is taken away meanwhile. Where it is, threads seem to run
for longer by just that time. The kernel's count of stolen time has no part in this.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import schedscope as ss

_OWN = "work"
"""The thread that starts the workload and waits for its end."""


@dataclass(frozen=True)
class Steal:
    """Shares of the CPU time of one run."""

    told: float
    """What the finding says of the recording."""
    worked: float
    """By how much longer the threads of the workload ran than in the run with an idle neighbour,
    of all the time that they ran."""

    def __str__(self) -> str:
        """For people."""
        return f"stolen {self.told:.1%}, by the time that the work took {self.worked:.1%}"


def steal(trace: ss.Trace, folder: Path, alone: Path) -> Steal:
    """Compare the result from one run's recording with that run and the one without a neighbour."""
    found = ss.findings(trace)
    told = int(found.filter(topic="steal")["cost"].sum())
    return Steal(told / (trace.duration * trace.ncpu), 1 - _ran(alone) / _ran(folder))


def _ran(folder: Path) -> int:
    """How long the workload's threads seemed to run, ns."""
    rows = [line.split("\t") for line in (folder / "truth.tsv").read_text().splitlines()]
    return sum(int(ran) for _, _, comm, _, ran, *_ in rows if comm != _OWN)
