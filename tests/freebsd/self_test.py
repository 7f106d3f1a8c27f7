"""A made-up FreeBSD self-test: a recording of the known load, and the kernel's account.

Written from what `collectors/self-test-load.sh` prints and `sched.d` records, so that the judge can
be tested without FreeBSD.
"""

from __future__ import annotations

import json
from pathlib import Path

from freebsd.compact import Translator
from freebsd.writer import Machine

MS = 1_000_000
BEGIN, END = 6_000 * MS, 9_000 * MS
ROLES = {"hog": 100500, "nice": 100501, "ping": 100502, "pong": 100503}
STATHZ = 127


def write(folder: Path, scheduler: str = "ULE") -> Path:
    """Writes `folder` as `capture --self-test -o folder` would leave it."""
    world = Machine(2, scheduler, begin=5_000 * MS)
    for name, tid in ROLES.items():
        world.thread(tid, "sh", pid=tid - 99000, last_cpu=1 if name in ("hog", "nice") else 0)
    markers = [world.thread(100600 + n, "sysctl") for n in range(2)]
    sleeper = world.thread(100700, "sleep", pid=1700)
    before = {name: (world.threads[tid].nvcsw, 0) for name, tid in ROLES.items()}
    ran = dict.fromkeys(ROLES, 0)

    # CPU 0: the exit of a process marks the start.
    world.wake(5_990 * MS, 0, markers[0].tid, 0, new=True)
    world.switch(5_991 * MS, 0, markers[0].tid, "preempt")
    world.exit(BEGIN, 0, None)

    # The sleeper sleeps for two seconds.
    world.wake(6_010 * MS, 0, sleeper.tid, 0, new=True)
    world.switch(6_011 * MS, 0, sleeper.tid, "preempt")
    world.switch(6_012 * MS, 0, None, "sleep", "nanslp")

    # CPU 1: the hog for 20 ms, the nice one for 5 ms, and so on; both are woken first.
    world.wake(6_020 * MS, 0, ROLES["hog"], 1)
    world.switch(6_020 * MS + 10, 1, ROLES["hog"], "preempt")
    world.wake(6_021 * MS, 0, ROLES["nice"], 1)
    at, running = 6_020 * MS + 13, "hog"
    for turn in range(100):
        to = "nice" if turn % 2 == 0 else "hog"
        then = at + (20 if running == "hog" else 5) * MS
        if turn % 10 == 5:
            world.remain(then - 2 * MS, 1)
        world.switch(then - 3, 1, ROLES[to], "preempt")
        ran[running] += then - at
        at, running = then, to
    # The running one sleeps 7 ms later, the other 4 ms after that.
    other = "nice" if running == "hog" else "hog"
    world.switch(at + 7 * MS - 3, 1, ROLES[other], "sleep", "fifo")
    ran[running] += 7 * MS
    at, running = at + 7 * MS, other
    world.switch(at + 4 * MS - 3, 1, None, "sleep", "fifo")
    ran[running] += 4 * MS

    # CPU 0: ping and pong wake each other.
    world.wake(7_000 * MS, 0, ROLES["ping"], 0)
    world.switch(7_000 * MS + 10, 0, ROLES["ping"], "preempt")
    at, running = 7_000 * MS + 13, "ping"
    for _ in range(50):
        to = "pong" if running == "ping" else "ping"
        world.wake(at + 20_000, 0, ROLES[to], 0)
        world.switch(at + 49_997, 0, ROLES[to], "sleep", "piperd")
        ran[running] += 50_000
        at, running = at + 50_000, to
    world.switch(at + 49_997, 0, None, "sleep", "piperd")
    ran[running] += 50_000

    world.wake(8_012 * MS, 0, sleeper.tid, 0, interrupts=1)
    world.switch(8_013 * MS, 0, sleeper.tid, "preempt")
    world.exit(8_014 * MS, 0, None)
    world.wake(8_990 * MS, 0, markers[1].tid, 0, new=True)
    world.switch(8_991 * MS, 0, markers[1].tid, "preempt")
    world.exit(END, 0, None)

    lines = [text.split("\t") for _, _, text in sorted(world.lines, key=lambda line: line[0])]
    inside = [line for line in lines if BEGIN <= int(line[1]) <= END]
    switches = sum(line[0] in "SX" or (line[0], line[3].strip()) == ("P", "0") for line in inside)
    account = ["os FreeBSD", f"ticks {STATHZ}", "cpus 0 1", "window 3", "bound 1"]
    account += [f"process {name} {tid - 99000}" for name, tid in ROLES.items()]
    account += [f"begin {name} {v} {i} 0" for name, (v, i) in before.items()]
    account += [f"mark begin {markers[0].pid}", f"process sleeper {sleeper.pid}", "sleeps 2"]
    account += [f"mark end {markers[1].pid}", "moves 0", "turns 50", "naps 3", "whole"]
    for name, tid in ROLES.items():
        thread = world.threads[tid]
        account.append(f"end {name} {thread.nvcsw} {thread.nivcsw} {ran[name]}")
    busy = [(ran["ping"] + ran["pong"] + 20 * MS) / 3e9, (ran["hog"] + ran["nice"]) / 3e9]
    for cpu, part in enumerate(busy):
        total, used = 3 * STATHZ, round(3 * STATHZ * part)
        account.append(f"stat begin cpu {cpu} 1000 0 100 5000 0 0")
        account.append(f"stat end cpu {cpu} {1000 + used} 0 100 {5000 + total - used} 0 0")
    account += ["stat begin switches 70000", f"stat end switches {70000 + switches}"]

    capture = folder / "dtrace.capture"
    capture.mkdir(parents=True)
    (capture / "events.txt").write_text(Translator(world.text(10_000 * MS)).text())
    about = {
        "complete": True, "os": "FreeBSD", "release": "14.2-RELEASE", "machine": "amd64",
        "ncpu": 2, "scheduler": {"name": scheduler}, "lost": [],
    }  # fmt: skip
    (capture / "capture.json").write_text(json.dumps(about, indent=2) + "\n")
    (folder / "dtrace.account").write_text("\n".join(account) + "\n")
    (folder / "dtrace.status").write_text("0\n")
    (folder / "dtrace.said").write_text("")
    return folder
