"""The machine a simulation runs on: CPUs, what they share, what things cost."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from schedscope.analysis.asking.arguments import by_name
from schedscope.errors import UsageError
from schedscope.simulator.workloads.outages import recorded_outages
from schedscope.units import nanoseconds

if TYPE_CHECKING:
    from schedscope.store.trace import Trace

MOST_CPUS = 4096

FULL_CAPACITY = 1024
"""Capacity of a full-speed CPU."""


@dataclass(frozen=True)
class Cpu:
    """One hardware thread and the groups it belongs to, by number."""

    core: int
    llc: int
    package: int
    numa_node: int
    capacity: int = FULL_CAPACITY


@dataclass(frozen=True)
class Costs:
    """What the machine charges beside the programs' own time; all 0 by default.

    Times are ns. `switch` is added to the incoming thread at each switch,
    `migration_*` when a thread runs on another CPU than the last time, by
    distance (the refill of its cache), `ipi` before another CPU hears that it
    should reschedule (its thread gets no further than its next call through a pipe, lock or
    queue), `idle_exit` before an idle CPU does so, `preempt` before a
    busy one gives up its thread for another, of which `enqueue` passes before the woken thread is
    queued (see `skip_clock_update` of the policy cfs), `tick` at each clock tick of a busy
    CPU. `smt_speed` is the speed of a hardware thread
    whose sibling is busy: 1 means that siblings do not disturb each other, 0.6
    is a usual figure.
    """

    switch: int = 0
    migration_smt: int = 0
    migration_llc: int = 0
    migration_package: int = 0
    migration_numa: int = 0
    ipi: int = 0
    idle_exit: int = 0
    preempt: int = 0
    enqueue: int = 0
    tick: int = 0
    smt_speed: float = 1.0

    @classmethod
    def of(cls, given: Costs | Mapping[str, Any] | None) -> Costs:
        """Costs from names and values; times may be texts such as "2us".

        >>> Costs.of({"switch": "2us"}).switch
        2000
        """
        if isinstance(given, Costs):
            return given
        by_name("costs", given, '{"switch": "2us"}')
        names = {f.name for f in fields(cls)}
        values: dict[str, Any] = {}
        for name, value in (given or {}).items():
            if name not in names:
                raise UsageError(f"cost {name!r}", f"one of {', '.join(sorted(names))}")
            values[name] = _factor(value) if name == "smt_speed" else nanoseconds(value)
        return cls(**values)


def _factor(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError) as error:
        raise UsageError(f"smt_speed = {value!r}", "a factor from 0.001 to 1") from error


@dataclass(frozen=True)
class Outage:
    """CPU `cpu` is offline from `since` on, until `until` or for good: ns after the beginning."""

    cpu: int
    since: int = 0
    until: int | None = None


@dataclass(frozen=True)
class Machine:
    """CPUs numbered by their place in `cpus`, and costs.

    `tick_phase`: when a clock tick falls, ns after the beginning; others follow
    at the policy's own rate. `outages`: when CPUs are offline, so that no thread may use them.
    """

    cpus: tuple[Cpu, ...]
    costs: Costs = field(default_factory=Costs)
    tick_phase: int = 0
    outages: tuple[Outage, ...] = ()

    @property
    def ncpu(self) -> int:
        """Number of CPUs."""
        return len(self.cpus)

    @property
    def offline(self) -> tuple[int, ...]:
        """CPUs that are offline all along."""
        return tuple(one.cpu for one in self.outages if one.since <= 0 and one.until is None)

    def with_costs(self, costs: Costs | Mapping[str, Any]) -> Machine:
        """The same CPUs with other costs."""
        return replace(self, costs=Costs.of(costs))

    def to_dict(self) -> dict[str, Any]:
        """The form stored in a workload file."""
        return {
            "cpus": [asdict(cpu) for cpu in self.cpus],
            "costs": asdict(self.costs),
            "tick_phase": self.tick_phase,
            **({"outages": [asdict(one) for one in self.outages]} if self.outages else {}),
        }

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> Machine:
        """The inverse of `to_dict`."""
        try:
            cpus = tuple(Cpu(**cpu) for cpu in given["cpus"])
            phase = int(given.get("tick_phase") or 0)
            costs = Costs.of(given.get("costs") or {})
            outages = tuple(Outage(**one) for one in given.get("outages") or ())
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise UsageError(
                f"an invalid machine ({error})",
                "cpus with core, llc, package, numa_node and capacity, and costs",
            ) from error
        for i, cpu in enumerate(cpus):
            for name, value in asdict(cpu).items():
                if type(value) is not int or not 0 <= value < 2**16:
                    raise UsageError(f"CPU {i}: {name} {value!r}", "a number from 0 to 65535")
        for one in outages:
            values = (one.cpu, one.since, 0 if one.until is None else one.until)
            if not all(type(value) is int and 0 <= value < 2**63 for value in values):
                raise UsageError(f"{one}", "a CPU, and times in ns from 0 on")
            if one.cpu >= len(cpus):
                raise UsageError(f"CPU {one.cpu} offline", f"one of {len(cpus)} CPUs")
        return cls(cpus, costs, phase, outages)

    def __str__(self) -> str:
        """Shape in words."""
        count = {
            "packages": len({c.package for c in self.cpus}),
            "cores": len({c.core for c in self.cpus}),
            "cpus": self.ncpu,
        }
        return ", ".join(f"{n} {word if n != 1 else word[:-1]}" for word, n in count.items())


def grid(packages: int, cores: int, threads: int) -> Machine:
    """`packages` x `cores` each x hardware `threads` each; a package is an LLC and a node.

    >>> str(grid(2, 8, 2))
    '2 packages, 16 cores, 32 cpus'
    """
    if (cpus := packages * cores * threads) > MOST_CPUS:
        raise UsageError(f"a machine of {cpus:,} CPUs", f"1 to {MOST_CPUS} CPUs")
    every = tuple(
        Cpu(package * cores + core, package, package, package)
        for package in range(packages)
        for core in range(cores)
        for _ in range(threads)
    )
    return Machine(every)


def machine(shape: Machine | int | str) -> Machine:
    """A machine from a number of CPUs, or from PACKAGESxCORESxTHREADS.

    >>> machine(4).ncpu, machine("2x8x2").ncpu, machine("4x2").ncpu
    (4, 32, 8)
    """
    if isinstance(shape, Machine):
        return shape
    text = str(shape).strip().lower()
    if re.fullmatch(r"[0-9]{1,5}(x[0-9]{1,5}){0,2}", text):
        sizes = [int(n) for n in text.split("x")]
        if all(sizes):
            match sizes:
                case [cpus]:
                    return grid(1, cpus, 1)
                case [packages, cores]:
                    return grid(packages, cores, 1)
                case [packages, cores, threads]:
                    return grid(packages, cores, threads)
    raise UsageError(
        f"machine {shape!r}",
        "a number of CPUs, or PACKAGESxCORES, or PACKAGESxCORESxTHREADS",
        "as in 4, 2x8 or 2x8x2",
    )


def machine_of(trace: Trace) -> Machine:
    """The machine a trace was recorded on, from its `cpus` table.

    What the table does not say is taken as shared by all: one thread a core, one cache, one
    package, one node, full speed. For offline CPUs Linux reports only their node: they have a core
    of their own, and the cache and package that all others share, if they share one.
    """
    rows = trace.cpus.collect().to_dicts() or [{} for _ in range(trace.ncpu)]
    silent = [row.get("online") is False for row in rows]

    def values(column: str) -> list[Any]:
        """One value per CPU; None where it is unknown."""
        found = [row.get(column) for row in rows]
        known = {value for value, off in zip(found, silent, strict=True) if not off}
        shared = known if len(known) == 1 and column in ("llc", "package", "numa_node") else {None}
        alone = next(iter(shared))
        return [
            (alone if alone is not None else f"offline {i}") if off and value is None else value
            for i, (value, off) in enumerate(zip(found, silent, strict=True))
        ]

    def number(column: str, otherwise: Sequence[int]) -> list[int]:
        """Dense numbers from 0: hosts number cores with holes and per package."""
        found = values(column)
        if any(value is None for value in found):
            return list(otherwise)
        order = {value: i for i, value in enumerate(dict.fromkeys(found))}
        return [order[value] for value in found]

    one = [0] * len(rows)
    packages = number("package", one)
    nodes = number("numa_node", packages)
    llcs = number("llc", packages)
    siblings = values("smt_siblings")
    if all(siblings):
        order = {text: i for i, text in enumerate(dict.fromkeys(siblings))}
        cores = [order[text] for text in siblings]
    else:
        # Core numbers repeat from package to package.
        pairs = list(zip(packages, values("core"), strict=True))
        known = all(core is not None for _, core in pairs)
        order_of = {pair: i for i, pair in enumerate(dict.fromkeys(pairs))}
        cores = [order_of[pair] for pair in pairs] if known else list(range(len(rows)))
    capacities = [row.get("capacity") or FULL_CAPACITY for row in rows]
    number_of = {row["cpu"]: i for i, row in enumerate(rows) if row}
    return Machine(
        tuple(Cpu(*each) for each in zip(cores, llcs, packages, nodes, capacities, strict=True)),
        outages=tuple(
            Outage(number_of[cpu], since, until)
            for cpu, since, until in recorded_outages(trace).iter_rows()
            if cpu in number_of
        ),
    )
