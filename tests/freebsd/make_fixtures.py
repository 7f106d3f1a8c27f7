"""Writes the synthetic FreeBSD fixtures (run me with PYTHONPATH=tests:src).

A quarter of a second of four CPUs: two hogs and a niced one, three pipe pairs, a disk
interrupt thread and short-lived children, under ULE and under 4BSD. The queueing is a
plain round robin; only the lines are FreeBSD's.
"""

from __future__ import annotations

import json
import random
from pathlib import Path

from freebsd.writer import IDLE, WALL, Machine, Thread

FIXTURES = Path(__file__).parents[2] / "fixtures"
BEGIN, END = 8_213_400_112, 8_463_400_112
SLICE = 10_000_000


def play(scheduler: str) -> Machine:
    """Runs the load to its end; every decision goes through the machine."""
    dice = random.Random(20_261_121)
    machine = Machine(4, scheduler, begin=BEGIN)
    for n, name in enumerate(["hog", "hog", "hog nice10"]):
        machine.thread(100500 + n, name, pid=1500 + n, prio=200 + 10 * (n == 2))
    for n in range(3):
        machine.thread(100510 + 2 * n, f"ping-{n}", process="pingpong", pid=1600)
        machine.thread(100511 + 2 * n, f"pong-{n}", process="pingpong", pid=1600)
    machine.thread(100010, "irq28: nvme0", process="intr", pid=12, prio=16, pri_class=1, kind=2)
    queues: list[list[Thread]] = [[] for _ in range(4)]
    runs_until = [0] * 4
    ts, births = BEGIN + 50_000, 0

    def queue_of(cpu: int) -> list[Thread]:
        return queues[cpu if scheduler == "ULE" else 0]

    while ts < END - 100_000:
        cpu = dice.randrange(4)
        running = machine.current[cpu]
        ready = queue_of(cpu)
        asleep = [
            t
            for t in machine.threads.values()
            if t.state in ("asleep", "sleeping", "parked", "blocked") and not t.kind & IDLE
        ]
        if running.kind & IDLE and ready:
            runs_until[cpu] = ts + SLICE
            machine.switch(ts, cpu, ready.pop(0).tid, "preempt")
        elif not running.kind & IDLE and ts >= runs_until[cpu] and ready:
            new = ready.pop(0)
            machine.switch(ts, cpu, new.tid, "preempt")
            ready.append(running)
            runs_until[cpu] = ts + SLICE
        elif running.name.startswith(("p", "irq", "sh")) and dice.random() < 0.6:
            to = ready.pop(0) if ready else None
            runs_until[cpu] = ts + SLICE
            if running.name == "sh":
                machine.exit(ts, cpu, to.tid if to else None)
            else:
                how = "iwait" if running.kind else dice.choice(["sleep", "sleep", "lock"])
                why = {"iwait": "-", "sleep": "piperd", "lock": "vm page free"}[how]
                machine.switch(ts, cpu, to.tid if to else None, how, why)
        elif asleep and dice.random() < 0.7:
            thread = dice.choice(asleep)
            target = thread.last_cpu if dice.random() < 0.8 else dice.randrange(4)
            interrupts = int(bool(thread.kind))
            machine.wake(ts, cpu, thread.tid, target, probe=not interrupts, interrupts=interrupts)
            queue_of(target).append(thread)
        elif not running.kind & IDLE and births < 40 and dice.random() < 0.1:
            births += 1
            child = machine.thread(100600 + births, "sh", pid=2000 + births)
            machine.wake(ts, cpu, child.tid, cpu, new=True)
            queue_of(cpu).append(child)
        elif running.kind & IDLE and scheduler == "ULE":
            longest = max(range(4), key=lambda c: len(queues[c]))
            if len(queues[longest]) > 1:
                thread = queues[longest].pop()
                machine.steal(ts, cpu, thread.tid, cpu)
                queues[cpu].append(thread)
        ts += dice.randrange(2_000, 90_000)
    return machine


def write(scheduler: str) -> None:
    machine = play(scheduler)
    folder = FIXTURES / f"freebsd-{scheduler.lower()}-synthetic.capture"
    folder.mkdir(exist_ok=True)
    (folder / "events.txt").write_text(machine.text(END))
    (folder / "stderr.txt").write_text("")
    header = "tid\tpid\tppid\tpolicy\tprio\tnice\taffinity\tkernel\tcomm\n"
    classes = {1: "interrupt", 3: "timeshare", 4: "idle"}
    existing = [t for t in machine.threads.values() if t.name != "sh"]
    (folder / "threads.tsv").write_text(
        header
        + "".join(
            f"{t.tid}\t{t.pid}\t1\t{classes[t.pri_class]}\t{t.prio}\t0\t\t"
            f"{int(bool(t.kind & 2))}\t{t.name}\n"
            for t in existing
        )
    )
    (folder / "cpus.tsv").write_text(
        "cpu\tonline\tcore\tllc\tpackage\tnuma_node\tsmt_siblings\tcapacity\n"
        + "".join(
            f"{c}\t1\t{c // 2 * 2}\t0\t0\t0\t{c // 2 * 2}-{c // 2 * 2 + 1}\t\n" for c in range(4)
        )
    )
    about = {
        "format": "schedscope-capture",
        "version": 1,
        "complete": True,
        "interrupted": None,
        "os": "FreeBSD",
        "release": "14.2-RELEASE",
        "os_version": "synthetic: made by tests/freebsd/make_fixtures.py, no kernel involved",
        "machine": "amd64",
        "hostname": None,
        "ncpu": 4,
        "endian": "little",
        "long_bits": 64,
        "page_size": 4096,
        "recorder": {"name": "dtrace", "version": "synthetic", "command": None, "why": None},
        "scheduler": {"name": scheduler, "tunables": {"kern.osreldate": "1402000"}},
        "hz": 1000,
        "stathz": 127,
        "preempt": "on, threshold 80",
        "clock": {
            "name": "tsc",
            "resolution_ns": 1,
            "pairs": [[BEGIN, WALL], [END, WALL + END - BEGIN]],
            "pair_error_ns": None,
        },
        "window": {"begin": BEGIN, "end": END},
        "workload": {"command": None, "pid": None, "exit_status": None, "user": None},
        "buffer_kb": None,
        "recorder_tids": [],
        "lost": [],
        "notes": ["synthetic: no FreeBSD kernel ran for this capture"],
    }
    (folder / "capture.json").write_text(json.dumps(about, indent=2) + "\n")


if __name__ == "__main__":
    for name in ("ULE", "4BSD"):
        write(name)
