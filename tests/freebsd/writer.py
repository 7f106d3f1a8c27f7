"""Prints what collectors/freebsd/sched.d would print for a list of scheduling decisions.

A `Machine` is given decisions ("cpu 1 wakes 100402 onto cpu 3", "cpu 3 switches to it") and prints
each as the probes of ULE or 4BSD would fire, with their peculiarities: no off-cpu at exit, enqueue
before a CPU is picked, 4BSD's requeues through itself, loads per queue or for all, wakeups of
threads that did not sleep. It keeps its own account of what each thread did (`lives`, `waits`),
which a reader must reproduce.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

RUNQ, CAN_RUN, INHIBITED = 3, 2, 1
SUSPENDED, SLEEPING, SWAPPED, LOCK, IWAIT = 0x1, 0x2, 0x4, 0x8, 0x10
IDLE, KERNEL, INTERRUPTIBLE = 1, 2, 4
FIRST_IDLE_TID = 100003
WALL = 1_795_254_517_000_000_000

# How a thread may leave its CPU: (td_state, td_inhibitors, interruptible, state, kind).
LEAVINGS = {
    "sleep": (INHIBITED, SLEEPING, True, "sleeping", "sleep"),
    "sleep hard": (INHIBITED, SLEEPING, False, "blocked", "sleep"),
    "lock": (INHIBITED, LOCK, False, "blocked", "lock"),
    "suspend": (INHIBITED, SUSPENDED, False, "stopped", "suspended"),
    "iwait": (INHIBITED, IWAIT, False, "parked", "interrupt"),
    "swapped": (INHIBITED, SWAPPED, False, "blocked", None),
    "preempt": (RUNQ, 0, False, "runnable", None),
    "yield": (RUNQ, 0, False, "runnable", None),
}


@dataclass
class Thread:
    tid: int
    pid: int
    name: str
    process: str
    prio: int = 152
    pri_class: int = 3
    kind: int = 0
    last_cpu: int = 0
    nvcsw: int = 0
    nivcsw: int = 0
    state: str = "asleep"
    cpu: int = -1
    # Its account: the start of the present state, and the unfinished wait.
    since: int | None = None
    wait: dict[str, object] | None = None


@dataclass
class Machine:
    ncpu: int
    scheduler: str = "ULE"
    osreldate: int = 1_402_000
    begin: int = 1_000_000
    noload: bool = False
    # ns between the probes of one decision; with 0 only their order remains.
    step: int = 1
    lines: list[tuple[int, int, str]] = field(default_factory=list)
    threads: dict[int, Thread] = field(default_factory=dict)
    lives: list[tuple[object, ...]] = field(default_factory=list)
    waits: list[dict[str, object]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.now = self.begin
        self.load = [0] * self.ncpu
        self.idle = [
            Thread(FIRST_IDLE_TID + cpu, 11, f"idle: cpu{cpu}", "idle", 255, 4, IDLE | KERNEL, cpu)
            for cpu in range(self.ncpu)
        ]
        self.current = list(self.idle)
        for thread in self.idle:
            thread.state, thread.cpu = "running", thread.last_cpu
            self.threads[thread.tid] = thread

    # -- threads ---------------------------------------------------------------

    def thread(self, tid: int, name: str, *, process: str = "", **more: int) -> Thread:
        """A thread that existed, asleep, before the trace began."""
        thread = Thread(tid, more.pop("pid", tid - 99000), name, process or name, **more)
        self.threads[tid] = thread
        return thread

    def _became(self, thread: Thread, ts: int, state: str | None) -> None:
        """Ends the thread's state at `ts`; the account starts at its first line."""
        if thread.since is not None and thread.state != "asleep" and ts > thread.since:
            placed = thread.state in ("running", "runnable")
            cpu = thread.cpu if placed and thread.cpu >= 0 else None
            self.lives.append((thread.tid, thread.state, thread.since, ts - thread.since, cpu))
        thread.since = ts
        thread.state = state or "dead"

    # -- lines -----------------------------------------------------------------

    def _line(self, ts: int, cpu: int, letter: str, *columns: object) -> None:
        text = "\t".join(str(column) for column in (letter, ts, cpu, *columns))
        self.lines.append((ts, cpu, text + "\n"))

    def _load(self, ts: int, cpu: int, queue: int, step: int) -> None:
        """tdq_load_add and _rem, or their 4BSD counterparts with one counter for all."""
        self.load[queue] += step
        if not self.noload:
            if self.scheduler == "ULE":
                self._line(ts, cpu, "L", queue, self.load[queue])
            else:
                self._line(ts, cpu, "L", -1, sum(self.load))

    def _agent(self, cpu: int) -> int:
        """The running thread of `cpu`, as W, E and D name it: 0 is the idle thread."""
        return 0 if self.current[cpu].kind & IDLE else self.current[cpu].tid

    def _enqueue(self, ts: int, cpu: int, thread: Thread, *, interrupts: int = 0) -> None:
        self._line(
            ts, cpu, "E", self._agent(cpu), interrupts, thread.tid, thread.pid, thread.prio,
            0, thread.last_cpu, -1, thread.pri_class, thread.kind & KERNEL,
            len(thread.name.encode()), thread.name,
        )  # fmt: skip

    # -- decisions -------------------------------------------------------------

    def wake(
        self,
        ts: int,
        cpu: int,
        tid: int,
        target: int,
        *,
        probe: bool = True,
        new: bool = False,
        interrupts: int = 0,
    ) -> None:
        """The thread running on `cpu` wakes `tid`, which goes to the queue of `target`.

        `probe`: through a sleep queue or turnstile, whose wakeup probe fires first.
        Takes 3 steps: wakeup at ts, enqueue one later, load two later.
        """
        thread = self.threads[tid]
        waker = self.current[cpu]
        if new:
            thread.last_cpu = -1
        elif probe:
            self._line(
                ts, cpu, "W", self._agent(cpu), interrupts, tid, thread.prio, thread.last_cpu
            )
        self._enqueue(ts + self.step, cpu, thread, interrupts=interrupts)
        self._load(ts + 2 * self.step, cpu, target, +1)
        ready = ts if probe and not new else ts + self.step
        known = self.scheduler == "ULE" and not self.noload
        self._became(thread, ready, "runnable")
        thread.cpu = target if known else -1
        thread.wait = {
            "tid": tid,
            "cause": "new" if new else "wake",
            "ts_waking": ts if probe and not new else None,
            "ts_ready": ready,
            "ts_enqueued": ts + self.step,
            "waker": None if interrupts else waker.tid,
            "waker_cpu": cpu,
            "queue_cpu": target if known else None,
        }

    def wake_in_vain(self, ts: int, cpu: int, tid: int) -> None:
        """A wakeup of a thread on its way to sleep that has not slept yet: no enqueue."""
        thread = self.threads[tid]
        self._line(ts, cpu, "W", self._agent(cpu), 0, tid, thread.prio, thread.last_cpu)

    def switch(
        self, ts: int, cpu: int, to: int | None, how: str, why: str = "-", move: int | None = None
    ) -> None:
        """`cpu` switches from its thread to `to` (None: the idle thread).

        Takes 4 steps, the switch itself being the last line. `move`: ULE puts the leaving thread
        onto that CPU's queue.
        """
        old = self.current[cpu]
        new = self.idle[cpu] if to is None else self.threads[to]
        state, inhibitors, interruptible, becomes, _ = LEAVINGS[how]
        idle = old.kind & IDLE
        if idle:
            state = CAN_RUN
        if how == "preempt":
            if not idle:
                self._line(ts, cpu, "P", old.tid)
            old.nivcsw += 1
        else:
            old.nvcsw += 1
        if not idle:
            if becomes != "runnable":
                self._load(ts + self.step, cpu, cpu, -1)
            elif self.scheduler == "4BSD":
                # sched_add on itself: the script omits its enqueue.
                self._load(ts + self.step, cpu, cpu, -1)
                self._load(ts + 2 * self.step, cpu, cpu, +1)
            elif move is not None:
                self._load(ts + self.step, cpu, cpu, -1)
                self._load(ts + 2 * self.step, cpu, move, +1)
        kind = old.kind | (INTERRUPTIBLE if interruptible and not idle else 0)
        self._line(
            ts + 3 * self.step, cpu, "S", -1, old.tid, old.pid, old.prio, f"{state:x}",
            f"{0 if idle else inhibitors:x}", kind, old.nvcsw, old.nivcsw,
            new.tid, new.pid, new.prio, new.pri_class, new.kind, new.last_cpu,
            len(old.name.encode()), len(new.process.encode()), len(new.name.encode()),
            why, old.name, new.process, new.name,
        )  # fmt: skip
        self._arrive(ts + 3 * self.step, cpu, new)
        if idle:
            return
        old.last_cpu = cpu
        self._became(old, ts + 3 * self.step, becomes)
        old.cpu = cpu
        if becomes == "runnable":
            # 4BSD's one queue: the model still names the CPU that it left.
            old.wait = {
                "tid": old.tid,
                "cause": how,
                "ts_waking": None,
                "ts_ready": ts + 3 * self.step,
                "ts_enqueued": ts + 3 * self.step,
                "waker": None,
                "waker_cpu": None,
                "queue_cpu": cpu,
            }
            if move is not None and not self.noload:
                old.wait["queue_cpu"] = old.cpu = move

    def remain(self, ts: int, cpu: int) -> None:
        """Preempted, but the chooser picks the same thread: preempt, remain-cpu, no off-cpu."""
        self.current[cpu].nivcsw += 1
        self._line(ts, cpu, "P", self.current[cpu].tid)
        self._line(ts + self.step, cpu, "P", 0)

    def exit(self, ts: int, cpu: int, to: int | None) -> None:
        """The thread on `cpu` exits; there is no off-cpu. Takes 4 steps, ending with on-cpu."""
        old = self.current[cpu]
        new = self.idle[cpu] if to is None else self.threads[to]
        self._line(ts, cpu, "X", old.tid, old.pid, len(old.name.encode()), old.name)
        self._load(ts + self.step, cpu, cpu, -1)
        self._line(
            ts + 3 * self.step, cpu, "R", new.tid, new.pid, new.prio, new.pri_class, new.kind,
            new.last_cpu, len(new.process.encode()), len(new.name.encode()), new.process, new.name,
        )  # fmt: skip
        self._arrive(ts + 3 * self.step, cpu, new)
        self._became(old, ts + 3 * self.step, None)
        old.wait = None

    def steal(self, ts: int, cpu: int, tid: int, to: int) -> None:
        """`cpu` moves a queued thread to the queue of `to`: dequeue, load from, load to."""
        thread = self.threads[tid]
        source = thread.cpu
        self._line(ts, cpu, "D", self._agent(cpu), tid)
        self._load(ts + self.step, cpu, source, -1)
        self._load(ts + 2 * self.step, cpu, to, +1)
        self._moved(ts, thread, to)

    def requeue(self, ts: int, cpu: int, tid: int, prio: int, to: int | None = None) -> None:
        """A queued thread's priority (or CPU set) changes: dequeue, enqueue, no wakeup."""
        thread = self.threads[tid]
        source = thread.cpu if thread.cpu >= 0 else 0
        self._line(ts, cpu, "D", self._agent(cpu), tid)
        self._load(ts + self.step, cpu, source, -1)
        thread.prio = prio
        self._enqueue(ts + 2 * self.step, cpu, thread)
        self._load(ts + 3 * self.step, cpu, source if to is None else to, +1)
        if to is not None and to != source:
            self._moved(ts, thread, to)

    def _moved(self, ts: int, thread: Thread, to: int) -> None:
        if not self.noload:
            self._became(thread, ts, "runnable")
            thread.cpu = to
            if thread.wait is not None:
                thread.wait["queue_cpu"] = to

    def _arrive(self, ts: int, cpu: int, new: Thread) -> None:
        self.current[cpu] = new
        if new.kind & IDLE:
            return
        self._became(new, ts, "running")
        new.cpu = cpu
        if new.wait is not None:
            wait = int(ts) - int(str(new.wait["ts_ready"]))
            self.waits.append({**new.wait, "ts_run": ts, "cpu": cpu, "wait": wait})
        new.wait = None

    # -- the file --------------------------------------------------------------

    def finish(self, end: int) -> None:
        """Ends the account at the end of the window."""
        for thread in self.threads.values():
            if not thread.kind & IDLE and thread.state not in ("dead", "asleep"):
                self._became(thread, end, thread.state)

    def text(self, end: int, *, per_cpu: int | None = None) -> str:
        """The file: merged by time, or in chunks of `per_cpu` ns, CPU after CPU."""
        lines: Iterable[tuple[int, int, str]] = sorted(self.lines, key=lambda line: line[0])
        if per_cpu:
            lines = sorted(lines, key=lambda line: ((line[0] - self.begin) // per_cpu, line[1]))
        body = [text for _, _, text in lines]
        letters = sorted({text[0] for text in body})
        counts = [
            f"#count\t{letter}\t{sum(text[0] == letter for text in body)}\n" for letter in letters
        ]
        header = f"#sched\t1\tfreebsd\t{self.begin}\t{WALL}\t{self.osreldate}\t{self.ncpu}\n"
        last = f"#end\t{end}\t{WALL + end - self.begin}\n"
        return "".join([header, *body, *counts, last, "\n"])


def ring(text: str, starts: list[int], end: int) -> str:
    """The part of a recording that `-x bufpolicy=ring` and RING=1 keep, in the order of sched.d.

    Of each CPU the lines from `starts` on; the first line of all is the one printed at the end.
    """
    head, *lines = text.splitlines(True)
    fields = head.split("\t")
    fields[3] = str(end - 1)
    kept = [
        x for x in lines if x[0] in "#\n" or int(x.split("\t")[1]) >= starts[int(x.split("\t")[2])]
    ]
    return "\t".join(fields) + "".join(kept)
