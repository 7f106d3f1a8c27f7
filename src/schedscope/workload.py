"""Workloads: generate, extract from a trace, write by hand, read and save.

import schedscope as ss
ss.simulate(ss.workload.hogs(17), policy="rr", cpus=16)
"""

from schedscope.simulator.builder import Builder, Program
from schedscope.simulator.extract import extract
from schedscope.simulator.generators import (
    cascade,
    generate,
    hackbench,
    hogs,
    locks,
    make,
    nice_hogs,
    periodic,
    ping_pong,
    pool,
    requests,
    spinners,
    web,
)
from schedscope.simulator.rtapp import from_rtapp, to_rtapp
from schedscope.simulator.workload import Workload, is_workload, read_workload

__all__ = [
    "Builder",
    "Program",
    "Workload",
    "cascade",
    "extract",
    "from_rtapp",
    "generate",
    "hackbench",
    "hogs",
    "is_workload",
    "locks",
    "make",
    "nice_hogs",
    "periodic",
    "ping_pong",
    "pool",
    "read_workload",
    "requests",
    "spinners",
    "to_rtapp",
    "web",
]
