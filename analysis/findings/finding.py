"""One thing that is wrong with a trace, and what to try."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
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
    cost_high: int = field(default=0, kw_only=True)
    """What it costs at most, where that is more than `cost`."""
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


MACHINE = frozenset(
    {
        "sums",
        "trigger",
        "scheduler exit",
        "recorder",
        "data quality",
        "steal",
        "interrupts",
        "overload",
    }
)
"""Topics about the machine or the recording, whichever threads are asked about."""

ADVICE = {
    "trigger": "Look at who had the CPU meanwhile: the findings below say what is known of it.",
    "sums": "Convert the trace again (--refresh). If that does not help, please report it.",
    "scheduler exit": (
        "Read the scheduler's own output and the kernel's log (dmesg), and record again while it"
        " runs: figures of this recording mix two schedulers."
    ),
    "watchdog": (
        "Look at where these waits passed: the scheduler must dispatch each thread in time, from"
        " every queue; a larger timeout_ms (30 s at most) only puts the end off."
    ),
    "late dispatch": (
        "In the scheduler, wake an idle CPU for a thread that is put into a queue of its own"
        " (scx_bpf_kick_cpu with SCX_KICK_IDLE), or insert it into the local queue of an idle CPU"
        " at once (scx_bpf_select_cpu_dfl)."
    ),
    "starvation": (
        "Give the thread a larger weight (nice, cpu.weight), or a smaller one to the thread that it"
        " waited behind; if that one is real-time, let it do less at that priority."
    ),
    "avoidable idle time": (
        "Let the kernel balance load between these CPUs (isolcpus, cpuset partitions and"
        " sched_load_balance=0 prevent it), or pin the threads to CPUs of their own."
    ),
    "mask": "Widen the masks (taskset, cpuset), or give each of these threads a CPU of its own.",
    "crowding": "Keep the other threads off that CPU (cpuset, taskset), or widen the mask.",
    "weight": (
        "If these threads are meant to wait less, change their nice levels or the cpu.weight of"
        " their groups."
    ),
    "real-time": (
        "Let the real-time thread do less at its priority, make it a fair thread (chrt -o 0), or"
        " keep it off the CPUs of threads that must not wait (taskset, cpuset); weights do not"
        " help."
    ),
    "fairness": (
        "Compare the weights of the threads' control groups and sessions, then their nice levels."
    ),
    "migration": "Pin the threads that wait most (taskset, cpuset).",
    "ping-pong": "Pin the thread to one of the two CPUs, or move the other threads off them.",
    "wakeup migration": "Pin the thread and those that wake it to CPUs that share a cache.",
    "affinity": (
        "If the mask was not meant to change, find out what calls sched_setaffinity or changes"
        " cpusets."
    ),
    "isolation": "Take the isolated CPUs out of the masks of these threads (taskset, cpuset).",
    "lock convoy": (
        "Hold the lock for less time, or use several locks for what it protects; if its holder"
        " waited for a CPU, give it a larger weight."
    ),
    "disk": (
        "Read ahead or read more at a time (posix_fadvise, readahead, larger reads), cache what is"
        " read repeatedly, or use a faster disk; if requests queue, issue fewer at a time."
    ),
    "quota": "Raise cpu.max, or run fewer threads at a time.",
    "steal": (
        "The physical host is overcommitted, or this machine has a CPU limit: ask for another host"
        " or a higher limit; fewer busy virtual CPUs may lose less."
    ),
    "interrupts": (
        "Spread them: /proc/irq/N/smp_affinity or irqbalance for device interrupts, receive packet"
        " steering (rps_cpus) for the network; or keep threads that must not wait off that CPU."
    ),
    "priority inversion": (
        "Use priority inheritance (PTHREAD_PRIO_INHERIT), or raise the priority of the thread that"
        " was kept off its CPU."
    ),
    "recorder": "Record with ftrace, for a shorter time, or without --with.",
    "data quality": "Record again with a larger buffer (-b), or fewer events (without --with).",
    "overload": "Add CPUs, or do less work at a time.",
}
"""What to try, by topic."""

VERSION_1 = {"cpu.max": "cpu.cfs_quota_us", "cpu.weight": "cpu.shares"}
"""What these files of a control group are called in version 1."""
