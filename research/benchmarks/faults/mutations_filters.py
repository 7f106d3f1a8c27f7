"""Recordings whose recorder filtered out events: nothing counts what is missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from faults.mutations import Draw, Mutant, kind, recount
from faults.recording import Record, Recording

_SWITCH = "sched_switch"
_WAKES = ("sched_waking", "sched_wakeup", "sched_wakeup_new")
_KERNEL = (b"kworker/", b"ksoftirqd/", b"rcu_", b"migration/", b"kcompactd", b"kswapd", b"jbd2/")

Keep = Callable[[Recording, Record, frozenset[int]], bool]


def _programs(whole: Recording) -> list[int]:
    """Tids of programs' threads that leave a CPU eight times or more, the busiest first."""
    left: Counter[int] = Counter()
    for _, record in whole.merged():
        if whole.name(record) == _SWITCH:
            layout = whole.formats[record.event_id]
            offset, size = layout.fields["prev_comm"]
            if not record.data[offset : offset + size].startswith(_KERNEL):
                left[layout.get(record.data, "prev_pid")] += 1
    return [tid for tid, n in left.most_common() if tid and n >= 8]


def _filter(name: str, threads: int, keep: Keep) -> None:
    @kind(name)
    def filtered(whole: Recording, rng: Draw) -> Mutant:
        tids = _programs(whole)
        if not tids:
            return Mutant(whole.copy(), "no thread switches often enough: nothing done")
        first = rng.spread(len(tids))
        chosen = frozenset((tids[first:] + tids)[:threads])
        made = whole.copy()
        for cpu, records in made.cpus.items():
            made.cpus[cpu] = [record for record in records if keep(made, record, chosen)]
        recount(made)
        return Mutant(made, f"threads {sorted(chosen)}")


def _value(recording: Recording, record: Record, *names: str) -> set[int]:
    return {recording.value(record, name) for name in names}


def _pid_filter(recording: Recording, record: Record, chosen: frozenset[int]) -> bool:
    """As the kernel's set_event_pid: a switch by either side, a wakeup by waker or woken."""
    names = ["common_pid"]
    if recording.name(record) == _SWITCH:
        names = ["prev_pid", "next_pid"]
    elif recording.name(record) in _WAKES:
        names = ["common_pid", "pid"]
    return bool(_value(recording, record, *names) & chosen)


def _of_switches(*names: str) -> Keep:
    """A filter of `sched_switch` alone, by these fields."""

    def keep(recording: Recording, record: Record, chosen: frozenset[int]) -> bool:
        switch = recording.name(record) == _SWITCH
        return not switch or bool(_value(recording, record, *names) & chosen)

    return keep


def _not_raised_by(recording: Recording, record: Record, chosen: frozenset[int]) -> bool:
    return recording.value(record, "common_pid") not in chosen


def _raised_by(recording: Recording, record: Record, chosen: frozenset[int]) -> bool:
    return recording.value(record, "common_pid") in chosen


def _waking_of(recording: Recording, record: Record, chosen: frozenset[int]) -> bool:
    return recording.name(record) not in _WAKES or recording.value(record, "pid") in chosen


def _without_idle(recording: Recording, record: Record, _: frozenset[int]) -> bool:
    switch = recording.name(record) == _SWITCH
    return not switch or 0 not in _value(recording, record, "prev_pid", "next_pid")


def _sleeps(recording: Recording, record: Record, _: frozenset[int]) -> bool:
    return recording.name(record) != _SWITCH or recording.value(record, "prev_state") == 1


def _preemptions(recording: Recording, record: Record, _: frozenset[int]) -> bool:
    return recording.name(record) != _SWITCH or recording.value(record, "prev_state") not in (1, 2)


_filter("filter: one thread", 1, _pid_filter)
_filter("filter: four threads", 4, _pid_filter)
_filter("filter: switches of one thread", 1, _of_switches("prev_pid", "next_pid"))
_filter("filter: switches away from one thread", 1, _of_switches("prev_pid"))
_filter("filter: switches to one thread", 1, _of_switches("next_pid"))
_filter("filter: events that one thread raises", 1, _raised_by)
_filter("filter: none that one thread raises", 1, _not_raised_by)
_filter("filter: wakeups of one thread", 1, _waking_of)
_filter("filter: no switches of idle threads", 1, _without_idle)
_filter("filter: switches of those that sleep", 1, _sleeps)
_filter("filter: switches of those that do not sleep", 1, _preemptions)
