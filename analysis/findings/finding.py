"""One thing that is wrong with a trace, and what to try."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Literal

WORTH = 0.01
"""What costs less than this share of the machine's time is left out, if nothing else is said."""


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong; `ts`, `dur`, `utid`, `cpu`: where it is worst, as far as known."""

    topic: str
    cost: int
    text: str
    command: str
    ts: int | None = None
    dur: int | None = None
    utid: int | None = None
    cpu: int | None = None
    level: Literal["violated", "note"] | None = None
    """Set where it does not follow from the cost."""
    worth: float = WORTH
    """From this part of the machine's time on it is worth a row."""
    always: bool = False
    """Worth a row, whatever it costs."""
    context: bool = False
    """Explains others, and is no fault of the scheduler's."""
    whatif: str | None = None
    """Options of `schedscope whatif` that test what `ADVICE` says, for this trace."""
    advice: str | None = None
    """What to try where it is not that of the topic in `ADVICE`."""


def option(name: str, thread: str | None, value: object) -> str | None:
    """An option of `whatif` for threads of a name; None if the name is not known.

    >>> option("pin", "web server", "0-3")
    "--pin 'web server=0-3'"
    """
    return f"--{name} {shlex.quote(f'{thread}={value}')}" if thread else None


def listed(names: list[str]) -> str:
    """At most three names, as in a sentence."""
    shown = names[:3]
    if len(names) > 3:
        return ", ".join(shown) + f" and {len(names) - 3} more"
    return shown[0] if len(shown) == 1 else ", ".join(shown[:-1]) + " and " + shown[-1]


MACHINE = frozenset({"sums", "recorder", "data quality", "steal", "interrupts", "overload"})
"""Topics about the machine or the recording, whichever threads are asked about."""

ADVICE = {
    "sums": "Convert the trace again (--refresh). If that does not help, please report it.",
    "starvation": (
        "Give the thread a larger weight (nice, cpu.weight) or the one before it a smaller one;"
        " if that one is real-time, give it less to do at that priority."
    ),
    "avoidable idle time": (
        "Let the kernel balance these CPUs (isolcpus, cpuset partitions and sched_load_balance"
        " prevent it), or pin the threads to CPUs of their own."
    ),
    "mask": "Widen the masks (taskset, cpuset), or give each of these threads a CPU of its own.",
    "crowding": "Keep the other threads off that CPU (cpuset, taskset), or widen the mask.",
    "weight": "If they are meant to wait less, change their nice or their group's cpu.weight.",
    "real-time": (
        "Let that thread compute less at its priority, make it fair (chrt -o 0), or keep it and"
        " what must not wait on different CPUs (taskset, cpuset); weights do not help."
    ),
    "fairness": "Compare the weights of their control groups and sessions, then the nice levels.",
    "migration": "Pin the threads that wait most (taskset, cpuset).",
    "ping-pong": "Pin the thread to one of the two CPUs, or move what else runs there.",
    "wakeup migration": "Pin the thread and those that wake it to CPUs that share a cache.",
    "affinity": "If nobody was to change the mask, look for who calls sched_setaffinity or cpuset.",
    "isolation": "Take the isolated CPUs out of the masks of these threads (taskset, cpuset).",
    "lock convoy": (
        "Hold the lock for less time, or divide what it protects; if its holder waited for a CPU,"
        " give it a larger weight."
    ),
    "disk": (
        "Read ahead or more at a time (posix_fadvise, readahead, larger reads), keep what is read"
        " again in memory, or use a faster disk; if requests queue, make fewer at a time."
    ),
    "quota": "Raise cpu.max, or run fewer threads at a time.",
    "steal": (
        "The physical host is oversold, or this machine is limited: ask for another host or a"
        " larger limit; fewer busy virtual CPUs may lose less."
    ),
    "interrupts": (
        "Spread them: /proc/irq/N/smp_affinity or irqbalance for those of devices, receive packet"
        " steering (rps_cpus) for the network; or keep threads that must not wait off that CPU."
    ),
    "priority inversion": (
        "Lend the holder the priority of who waits (PTHREAD_PRIO_INHERIT), or raise its own."
    ),
    "recorder": "Record with ftrace, for a shorter time, or without --with.",
    "data quality": "Record again with a larger buffer (-b), or with fewer events (--with).",
    "overload": "More CPUs, or less work at a time.",
}
"""What to try, by topic."""

VERSION_1 = {"cpu.max": "cpu.cfs_quota_us", "cpu.weight": "cpu.shares"}
"""What these files of a control group are called in version 1."""
