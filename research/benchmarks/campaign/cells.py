"""Which workloads the campaign of `whatif` records, and what it changes of each.

Workloads of `work` (`research/lab/guest/work.c`) burn CPU time, not loops, so that they do the same
on a machine whose cores are shared with others.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Workload:
    """Its command, and the names of its two services."""

    command: str
    services: tuple[str, str]
    extras: str = ""
    by: str = "name"


WORKLOADS = {
    "hogs": Workload("work hogs 100 0,0,0,5,10", ("hog[0-2]", "hog[34]"), by="comm"),
    "periodic": Workload("work sleepers 4 10000 800 24 2", ("hog*", "sleeper*")),
    "server": Workload("work server 8 150 1500 2000", ("worker*", "dispatcher*"), "locks"),
    "build": Workload("work forks 4 16 20000", ("job*", "part*")),
    "pipes": Workload("work pipes 5 700", ("writer*", "reader*")),
    "sockets": Workload("hackbench -g 1 -f 8 -l 150", ("hackbench", "hackbench"), "syscalls"),
    "locks": Workload("work mutex 6 100 200 600", ("long*", "short*"), "locks"),
}


@dataclass(frozen=True)
class Intervention:
    """What is set, for threads of `who`: 0 and 1 are the services, None all of them."""

    nice: int | None = None
    cpus: tuple[tuple[int | None, str], ...] = ()
    quota: str | None = None
    slice: str | None = None
    sched: str | None = None
    load: int | None = None
    who: int | None = None


INTERVENTIONS = {
    **{
        f"nice {n:+d} of {w + 1}": Intervention(nice=n, who=w) for w in (0, 1) for n in (-10, 5, 19)
    },
    "one CPU": Intervention(cpus=((None, "0"),)),
    "1 on CPU 0": Intervention(cpus=((0, "0"),)),
    "2 on CPU 0": Intervention(cpus=((1, "0"),)),
    "a CPU each": Intervention(cpus=((0, "0"), (1, "1"))),
    **{f"quota {q}": Intervention(quota=q) for q in ("30%", "60%", "100%")},
    **{f"quota 25% of {w + 1}": Intervention(quota="25%", who=w) for w in (0, 1)},
    **{f"slice {s}": Intervention(slice=s) for s in ("500us", "6ms", "12ms")},
    **{f"{c} of {w + 1}": Intervention(sched=c, who=w) for c in ("batch", "idle") for w in (0, 1)},
    **{f"{n} more": Intervention(load=n) for n in (1, 3)},
}
CLASSES = {"batch": os.SCHED_BATCH, "idle": os.SCHED_IDLE}


@dataclass(frozen=True)
class Cell:
    """A workload and an intervention; `aside` if it is for validation and must not be tuned on."""

    workload: str
    intervention: str
    aside: bool


def cells() -> Iterator[Cell]:
    """All cells that can be predicted.

    No intervention on the second of two services of one name, and no quota where the names of a
    service are a set, which `whatif` does not accept as a group.
    """
    for k, (label, asked) in enumerate(INTERVENTIONS.items()):
        for i, (name, workload) in enumerate(WORKLOADS.items()):
            both = workload.services[0] == workload.services[1]
            if both and (asked.who == 1 or any(who == 1 for who, _ in asked.cpus)):
                continue
            if asked.quota is not None and any("[" in one for one in workload.services):
                continue
            yield Cell(name, label, (i + k) % 2 == 1)
