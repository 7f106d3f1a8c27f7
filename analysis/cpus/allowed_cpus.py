"""Which CPUs may each thread run on? The recorded mask, as sets that can be compared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from schedscope.analysis.asking.memo import once
from schedscope.analysis.cpus.run_sums import run_sums
from schedscope.analysis.cpus.topology import cpu_list

if TYPE_CHECKING:
    from schedscope.store.trace import Trace

PINNED = -1
"""Class of threads that may use only the CPU on whose queue they wait, as far as is known."""


def changed_masks(trace: Trace) -> frozenset[int]:
    """Threads, by utid, that ran on a CPU outside their recorded mask.

    The kernel does not allow that, so their mask was changed after it was recorded, and it is not
    known where they might have run.

    Raises `FormatError` for a mask that is not a list of CPUs.
    """
    return once(_changed, trace)


def _changed(trace: Trace) -> frozenset[int]:
    masks = trace.threads.select(pl.col("utid").cast(pl.UInt32), "affinity").drop_nulls().collect()
    if masks.is_empty():
        return frozenset()
    ran = run_sums(trace).filter(pl.col("utid") >= trace.ncpu).join(masks, on="utid")
    allowed = {mask: frozenset(cpu_list(mask)) for mask in ran["affinity"].unique()}
    rows = ran.select("utid", "cpu", "affinity").drop_nulls().iter_rows()
    return frozenset(utid for utid, cpu, mask in rows if cpu not in allowed[mask])


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
    changed = changed_masks(trace)
    for utid, mask in allowed.items():
        # Where another CPU may not have been free for a thread, its waiting is not avoidable.
        kind[utid] = PINNED if len(mask) == 1 or utid in changed else number[mask]
    atoms = tuple(tuple(sorted({atom[cpu] for cpu in mask})) for mask in classes)
    return Masks(tuple(classes), atoms, atom, kind)
