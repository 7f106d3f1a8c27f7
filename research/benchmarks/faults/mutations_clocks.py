"""Clocks of the CPUs that disagree: offsets, steps, drifts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from faults.mutations import Draw, Mutant, kind, of_several_cpus
from faults.recording import Recording
from faults.words import length


def _moved(whole: Recording, cpu: int, new: Callable[[int], int], what: str) -> Mutant:
    made = whole.copy()
    records, last = [], 0
    for record in made.cpus[cpu]:
        # One CPU's own clock never runs backwards: the ring buffer sees to that.
        last = max(last, new(record.ts))
        records.append(replace(record, ts=last))
    made.cpus[cpu] = records
    return Mutant(made, what, clock_off=lambda ts: new(ts) - ts)


def _offset(ns: int) -> None:
    @kind(f"clock of a CPU {length(ns)} off", of=of_several_cpus)
    def offset(whole: Recording, rng: Draw) -> Mutant:
        cpu, sign = rng.choice(sorted(whole.cpus)), rng.choice([-1, 1])
        return _moved(whole, cpu, lambda ts: ts + sign * ns, f"CPU {cpu} {sign * ns} ns off")


for _ns in (10_000, 100_000, 1_000_000, 10_000_000, 100_000_000, 1_000_000_000):
    _offset(_ns)


@kind("clock of a CPU steps", of=of_several_cpus)
def step(whole: Recording, rng: Draw) -> Mutant:
    begin, end = whole.window
    cpu, at = rng.choice(sorted(whole.cpus)), rng.randint(begin, end)
    ns = int(10_000 * 10 ** (4 * rng.random())) * rng.choice([-1, 1])
    what = f"CPU {cpu} steps by {ns} ns at {at}"
    return _moved(whole, cpu, lambda ts: ts + (ns if ts >= at else 0), what)


@kind("clock of a CPU drifts", of=of_several_cpus)
def drift(whole: Recording, rng: Draw) -> Mutant:
    begin, _ = whole.window
    cpu = rng.choice(sorted(whole.cpus))
    rate = rng.choice([-1, 1]) * 10 ** rng.uniform(-4.5, -2)
    what = f"CPU {cpu} drifts by {rate * 1e6:.0f} ppm"
    return _moved(whole, cpu, lambda ts: ts + int((ts - begin) * rate), what)
