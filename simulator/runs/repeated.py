"""Replays of one recording with clock ticks at other instants, since their true phase is
uncertain.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from schedscope.analysis.asking.needs import require_also
from schedscope.errors import UsageError
from schedscope.simulator.policies.policy import Policy, anew
from schedscope.simulator.recorded.tick_phase import rate, shifted
from schedscope.simulator.runs.replay import Replay
from schedscope.simulator.runs.run import Progress, simulate
from schedscope.simulator.workloads.machine import Machine
from schedscope.simulator.workloads.workload import Workload
from schedscope.store.trace import Trace

REPLAYS = 5
"""How often a configuration is replayed, if nobody says."""


def check_repeated(ways: Sequence[Replay], replays: int, question: str) -> None:
    """Raises unless `question` can be asked about these captures with this many replays of each."""
    for way in ways:
        require_also(way.trace, "wakeup_events", question)
    sizes = sorted({way.trace.ncpu for way in ways})
    if len(sizes) > 1:
        raise UsageError(
            f"captures of machines of {' and '.join(map(str, sizes))} CPUs",
            "captures of one workload on one machine",
        )
    if isinstance(replays, bool) or not isinstance(replays, int) or not 1 <= replays <= 100:
        raise UsageError(f"replays={replays!r}", "a number from 1 to 100")


def repeated(
    way: Replay,
    *,
    policy: str | Policy,
    set: Mapping[str, Any],
    replays: int = REPLAYS,
    until: str | None = None,
    workload: Workload | None = None,
    machine: Machine | None = None,
    seed: int = 1,
    progress: Progress | None = None,
) -> Iterator[Trace]:
    """This many replays, the first with its ticks as recorded, each with its own seed.

    `policy`: a name, or one of your own, which is copied for each; `set`: its tunables. `until`,
    `workload` and `machine` are those of `way` if none is given.
    """
    shape = machine or (workload or way.workload).machine
    assert shape is not None  # a workload from a trace has one
    for i, ticking in enumerate(shifted(shape, rate(set, way.workload), replays)):
        yield simulate(
            workload or way.workload,
            policy=anew(policy),
            machine=ticking,
            set=set,
            costs=way.costs,
            seed=seed + i,
            until=until or way.until,
            progress=progress,
        )
