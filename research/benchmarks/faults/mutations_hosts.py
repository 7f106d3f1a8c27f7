"""A host that differs from the capture's description: reused tids, CPUs that come and go, false
counts.
"""

from __future__ import annotations

from dataclasses import replace

from faults.mutations import Draw, Mutant, cut, kind, of_several_cpus, recount
from faults.recording import STAMPS, Record, Recording, stamp, unstamp

_TIDS = ("common_pid", "prev_pid", "next_pid", "pid", "child_pid", "parent_pid", "old_pid")
_DEAD = 0x30
_BIRTHS = ("sched_process_fork", "task_newtask")


def _lives(whole: Recording) -> tuple[dict[int, int], dict[int, int]]:
    """When each tid was born (first runnable) and when it left its CPU for good."""
    born: dict[int, int] = {}
    died: dict[int, int] = {}
    for _, record in whole.merged():
        match whole.name(record):
            case "sched_wakeup_new":
                born[whole.value(record, "pid")] = record.ts
            case "sched_switch" if whole.value(record, "prev_state") & _DEAD:
                died[whole.value(record, "prev_pid")] = record.ts
    return born, died


def renamed(whole: Recording, old: int, new: int) -> Recording:
    """The recording with one tid in place of another, in every event."""
    made = whole.copy()

    def with_new(record: Record) -> Record:
        layout, data = made.formats[record.event_id], record.data
        for name in _TIDS:
            if name in layout.fields and layout.get(data, name) == old:
                data = layout.put(data, name, new)
        return record if data is record.data else replace(record, data=data)

    for cpu, records in made.cpus.items():
        made.cpus[cpu] = [with_new(record) for record in records]
    return made


def _reused(name: str, last_switch_too: bool) -> None:
    @kind(name)
    def reuse(whole: Recording, rng: Draw) -> Mutant:
        born, died = _lives(whole)
        pairs = [
            (first, second)
            for first, end in died.items()
            for second, begin in born.items()
            if end < begin
        ]
        if not pairs:
            return Mutant(whole.copy(), "no thread ends before another begins: nothing done")
        first, second = rng.choice(pairs)
        made = renamed(whole, second, first)
        truth = made.copy()
        names = ("sched_process_exit", *_BIRTHS)

        def gone(record: Record) -> bool:
            what = made.name(record)
            if what in names:
                field = "child_pid" if what == "sched_process_fork" else "pid"
                return made.value(record, field) == first
            dead = last_switch_too and what == "sched_switch" and record.ts == died[first]
            return dead and made.value(record, "prev_pid") == first

        for cpu, records in made.cpus.items():
            made.cpus[cpu] = [record for record in records if not gone(record)]
        recount(made)
        what = f"tid {second} is {first} again; exits and forks of it missing"
        return Mutant(made, what, truth_of=[truth])


_reused("tid reused, exit and fork missing", False)
_reused("tid reused, exit, fork and last switch missing", True)


@kind("CPU taken offline", of=of_several_cpus)
def taken_off(whole: Recording, rng: Draw) -> Mutant:
    """The CPU's records end, and the host no longer counts it."""
    return _unplugged(whole, rng, first=False)


@kind("CPU brought online", of=of_several_cpus)
def brought_on(whole: Recording, rng: Draw) -> Mutant:
    """The CPU's records begin late, and the host did not count it at the start."""
    return _unplugged(whole, rng, first=True)


def _unplugged(whole: Recording, rng: Draw, first: bool) -> Mutant:
    made = whole.copy()
    begin, end = whole.window
    cpu, at = rng.choice(sorted(made.cpus)), rng.randint(begin, end)
    hole = (cpu, begin, at) if first else (cpu, at, end)
    cut(made, *hole)
    recount(made)
    if first:
        made.about["ncpu"] = len(made.cpus) - 1
    return Mutant(made, f"CPU {cpu} {'from' if first else 'until'} {at} only", [hole])


@kind("stats that lie")
def lying(whole: Recording, rng: Draw) -> Mutant:
    """Nothing is missing, but the counts claim otherwise or make no sense."""
    made, said = whole.copy(), []
    for cpu, lines in made.stats.items():
        for name in rng.sample(["overrun", "read events", "dropped events", "entries"], 2):
            old = int(lines.get(name, "0"))
            new = rng.choice([0, old + 1, old + rng.randint(1, 10**6), max(0, old - 7), 2**63])
            lines[name] = str(new)
            said.append(f"CPU {cpu} {name} {new}")
    return Mutant(made, "; ".join(said))


@kind("losses in capture.json that did not happen")
def not_lost(whole: Recording, rng: Draw) -> Mutant:
    made = whole.copy()
    cpu, count = rng.choice(sorted(made.cpus)), rng.randint(1, 10**5)
    made.about["lost"].append(
        {"cpu": cpu, "count": count, "reason": "overrun", "ts_begin": None, "ts_end": None}
    )
    return Mutant(made, f"CPU {cpu} lost {count}, says capture.json alone")


@kind("two captures mixed")
def mixed(whole: Recording, rng: Draw) -> Mutant:
    """One CPU's file comes from another run on the same host."""
    like = [
        other
        for other in whole.others
        if other.formats == whole.formats and set(other.cpus) == set(whole.cpus)
    ]
    if not like:
        return Mutant(whole.copy(), "no other capture of this kernel: nothing done")
    made, other = whole.copy(), rng.choice(like)
    cpu = rng.choice(sorted(made.cpus))
    # As if both had begun at once: else the time stamps alone would reveal it.
    shift = whole.window[0] - other.window[0]
    made.cpus[cpu] = [replace(record, ts=record.ts + shift) for record in other.cpus[cpu]]
    made.stats[cpu] = dict(other.stats[cpu])
    for name in STAMPS:
        if name in made.stats[cpu]:
            made.stats[cpu][name] = stamp(unstamp(made.stats[cpu][name]) + shift)
    shifted = other.copy()
    shifted.cpus = {
        number: [replace(record, ts=record.ts + shift) for record in records]
        for number, records in other.cpus.items()
    }
    what = f"CPU {cpu} from {other.folder.name}, {shift} ns later"
    return Mutant(made, what, truth_of=[whole, shifted], states_judged=False)
