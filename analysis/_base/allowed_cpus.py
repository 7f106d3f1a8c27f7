"""Which CPUs may each thread run on? The recorded mask, as sets that can be compared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from schedscope.analysis._base.topology import cpu_list

if TYPE_CHECKING:
    from schedscope.trace import Trace

PINNED = -1
"""Class of threads with one allowed CPU only."""


def allowed_cpus(trace: Trace, cpus: frozenset[int]) -> dict[int, frozenset[int]]:
    """The mask of every thread, by utid, that may not run on all of `cpus`.

    The mask is `threads.affinity`, as the recorder read it: once, so a thread
    that changed it meanwhile has another one for part of the time. A thread
    whose mask was not recorded, or has none of `cpus`, may run everywhere and is not listed.

    Raises `FormatError` for a mask that is not a list of CPUs.
    """
    listed: dict[int, frozenset[int]] = {}
    parsed: dict[str, frozenset[int]] = {}
    threads = trace.threads.select("utid", "affinity").drop_nulls().collect()
    for utid, text in threads.iter_rows():
        if text not in parsed:
            parsed[text] = cpus.intersection(cpu_list(text))
        if parsed[text] and parsed[text] != cpus:
            listed[utid] = parsed[text]
    return listed


@dataclass(frozen=True)
class Masks:
    """Threads by their allowed CPUs, and CPUs by the classes that may use them."""

    classes: tuple[frozenset[int], ...]
    """The distinct masks; the first is that of all CPUs."""
    atoms: tuple[tuple[int, ...], ...]
    """For each class, the groups of CPUs that it may use: CPUs of a group are alike to all."""
    atom: dict[int, int]
    """The group of each CPU."""
    kind: list[int]
    """By utid: a number of `classes`, or PINNED; threads beyond its end are of the first."""

    def to_native(self) -> dict[str, Any]:
        """As a native sweep takes them."""
        return {"atoms": self.atoms, "atom": self.atom, "kind": self.kind}


def masks(trace: Trace, cpus: frozenset[int]) -> Masks:
    """The masks of all threads over `cpus`, and the groups of CPUs that no mask divides."""
    allowed = allowed_cpus(trace, cpus)
    classes = [cpus, *sorted({m for m in allowed.values() if len(m) > 1}, key=sorted)]
    alike: dict[tuple[bool, ...], int] = {}
    atom = {
        cpu: alike.setdefault(tuple(cpu in mask for mask in classes), len(alike))
        for cpu in sorted(cpus)
    }
    kind = [0] * (max(allowed, default=-1) + 1)
    number = {mask: number for number, mask in enumerate(classes)}
    for utid, mask in allowed.items():
        kind[utid] = PINNED if len(mask) == 1 else number[mask]
    atoms = tuple(tuple(sorted({atom[cpu] for cpu in mask})) for mask in classes)
    return Masks(tuple(classes), atoms, atom, kind)
