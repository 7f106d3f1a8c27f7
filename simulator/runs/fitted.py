"""A workload's masks on a machine with another number of CPUs."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace
from typing import TYPE_CHECKING

import polars as pl

from schedscope.analysis.cpus import topology
from schedscope.errors import UsageError
from schedscope.units import several

if TYPE_CHECKING:
    from schedscope.simulator.runs.replay import Replay
    from schedscope.simulator.workloads.workload import Workload


def cpus_of(text: str) -> list[int]:
    """The CPUs of a mask as text, in order; none if it is not one."""
    if not re.fullmatch(r"[0-9]{1,5}(-[0-9]{1,5})?(,[0-9]{1,5}(-[0-9]{1,5})?)*", text):
        return []
    return sorted(topology.cpu_list(text))


def fitted(workload: Workload, way: Replay, ncpu: int) -> Workload:
    """Masks for `ncpu` CPUs: the existing CPUs, and all of them for a CPU's kernel threads.

    A host without a CPU lacks that CPU's kernel threads; others would do their work.
    """
    known = way.trace.threads.select("utid", kernel=pl.col("kernel").fill_null(False)).collect()
    kernel = dict(known.iter_rows())
    masks: list[str | None] = []
    # A mask without an existing CPU is refused (EINVAL of sched_setaffinity).
    asked = {mask: _left(mask, ncpu) for mask in workload.steps["cpus"].drop_nulls().unique()}
    steps = workload.steps.with_columns(
        pl.col("cpus").replace_strict(asked, return_dtype=pl.String) if asked else pl.col("cpus")
    )
    own = workload.steps.drop_nulls("cpus").select("program", "cpus").unique()
    refused = own.filter(pl.col("cpus").is_in([mask for mask, left in asked.items() if not left]))
    by_itself = set(refused.iter_rows())
    added = workload.threads.height - len(way.origins)
    for utid, name, mask, program in zip(
        [*way.origins, *[None] * added],
        workload.threads["name"],
        workload.threads["cpus"],
        workload.threads["program"],
        strict=True,
    ):
        if mask is None or (program, mask) in by_itself:
            masks.append(None)
            continue
        left = [cpu for cpu in cpus_of(mask) if cpu < ncpu]
        if not left and utid is None:
            raise UsageError(
                f"{several(ncpu, 'CPU')} with only some threads replayed",
                "all threads",
                "the others ran on CPUs that would not be there: --others replay",
            )
        if not left and not kernel.get(utid, False):
            raise UsageError(
                f"{name!r} may run only on CPUs {mask}",
                f"one of {several(ncpu, 'CPU')}",
                f"`whatif --pin {shlex.quote(name)}=0` pins it elsewhere",
            )
        masks.append(",".join(map(str, left)) or None)
    return replace(
        workload,
        threads=workload.threads.with_columns(cpus=pl.Series(masks, dtype=pl.String)),
        steps=steps,
    )


def _left(mask: str, ncpu: int) -> str | None:
    """The part of a mask that exists on `ncpu` CPUs."""
    return topology.cpu_text([cpu for cpu in cpus_of(mask) if cpu < ncpu]) or None
