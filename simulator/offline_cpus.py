"""Which CPUs may threads use on a machine of which some are offline?"""

from __future__ import annotations

from dataclasses import replace

import polars as pl

from schedscope.analysis._base.topology import cpu_list, cpu_text
from schedscope.simulator.machine import Machine
from schedscope.simulator.workload import Workload


def without_offline(workload: Workload, machine: Machine) -> Workload:
    """The workload with masks that leave out the machine's offline CPUs.

    A mask of offline CPUs alone becomes that of all others, as the kernel lets such threads run.

    >>> from schedscope.simulator.builder import Builder
    >>> from schedscope.simulator.machine import machine
    >>> load = Builder()
    >>> for cpus in (None, "1-2", "1"):
    ...     _ = load.thread("a", cpus=cpus).run("1ms")
    >>> three = replace(machine(3), offline=(1,))
    >>> without_offline(load.workload(), three).threads["cpus"].to_list()
    ['0,2', '2', '0,2']
    """
    if not machine.offline:
        return workload
    online = [cpu for cpu in range(machine.ncpu) if cpu not in machine.offline]
    everywhere = cpu_text(online)
    masks = pl.concat([workload.threads["cpus"], workload.steps["cpus"]]).drop_nulls().unique()
    left = {
        mask: cpu_text(set(cpu_list(mask)) - set(machine.offline)) or everywhere for mask in masks
    }
    kept = pl.col("cpus").replace_strict(left, default=None, return_dtype=pl.String)
    sets = pl.col("op") == "set_affinity"
    return replace(
        workload,
        threads=workload.threads.with_columns(cpus=kept.fill_null(everywhere)),
        steps=workload.steps.with_columns(cpus=pl.when(sets).then(kept.fill_null(everywhere))),
    )
