"""The reconstruction of docs/trace-model.md, once more, in plain Python.

Written from that page alone: slow, short, one branch per rule. The native engine
must agree with it row for row. Nothing here is used by schedscope itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from schedscope.parsers import schema

Row = dict[str, Any]
AT_REST = {"sleeping", "blocked", "stopped", "parked"}
# Facts at one time are ordered so; within a table they keep its order. A loss of this length may
# hide that a CPU pulled a waiting thread, ran it, and gave it back.
EXCURSION = 50_000
OFTEN = 8
# So many threads with unreported switch-outs must have been woken next, to conclude the same for
# the others.
HABIT = 3
# So long after one step of a wakeup the other must have come.
HALF_A_WAKE = 20_000_000
UNSEEN_FIRST = ("late_start", "absent", "unrecorded")
ORDER = ["switches", "wakeups", "migrations", "yields", "losses"]


@dataclass
class Thread:
    utid: int
    since: int
    state: str = "unknown"
    cpu: int | None = None
    last_cpu: int | None = None
    prio: int | None = None
    waker: int | None = None
    wait: Row | None = None
    pending: Row | None = None
    last_event: int = 0
    yielded: bool = False
    unwoken: bool = False  # the last of its sleeps that ended did so without a wakeup
    may_be_awake: bool = False  # in doubt since it left with R+: it may not have slept since
    known: bool = False  # since it was first seen, what it did has been known at some time
    left_unseen: int | None = None  # by then it had left its CPU; no event since
    left_cpu: int | None = None  # that CPU, in whose queue it may be
    rested: int | None = None  # from then on it was not in that queue
    cut: Row | None = None  # a wait whose end was not seen, until the thread is seen again


@dataclass
class Story:
    """State of a thread under rule One clock, across reused tids."""

    # The clock of its last event, and its time.
    clock: int | None = None
    stamped: int = 0
    # Its last event on another clock than that.
    other: int | None = None
    # A wait that nothing contradicts yet.
    held: Row | None = None


@dataclass
class Cpu:
    current: int | None = None
    since: int = 0
    confirmed: int = 0
    silent: int | None = None
    idled: int | None = None  # when it was last switched to its idle thread


@dataclass
class Oracle:
    ncpu: int
    threads: dict[int, Thread] = field(default_factory=dict)
    cpus: dict[int, Cpu] = field(default_factory=dict)
    states: list[Row] = field(default_factory=list)
    waits: list[Row] = field(default_factory=list)
    losses: list[Row] = field(default_factory=list)
    counters: Counter[str] = field(default_factory=Counter)
    # CPUs a thread may use, where not all.
    masks: dict[int, set[int]] = field(default_factory=dict)
    # (cpu, begin, end): any event, or only switches, may be missing there.
    lost: list[tuple[int, int, int]] = field(default_factory=list)
    broken: list[tuple[int, int, int]] = field(default_factory=list)
    # Those of `lost` with an actual loss, and CPUs that were not recorded.
    reported: list[tuple[int, int, int]] = field(default_factory=list)
    unrecorded: set[int] = field(default_factory=set)
    # Threads whose switch-out the kernel does not report.
    habits: set[int] = field(default_factory=set)
    # Threads that take CPUs offline.
    stoppers: set[int] = field(default_factory=set)
    has_waking: bool = False
    has_enqueued: bool = False
    any_wake: bool = False
    moves_recorded: bool = False
    # Losses are not counted: where a switch is missing, migrations may be, too.
    uncounted: bool = False
    # Threads that a filter kept, where the events of others are missing.
    chosen: set[int] | None = None
    # Where the CPUs' clocks differ: the clock of each CPU, by how much two may be off, and by how
    # much timestamps of one were moved against those of another.
    clocks: tuple[list[int], int | None, int] | None = None
    stories: dict[int, Story] = field(default_factory=dict)
    # How often each thread's switch-out was recorded; and for unreported ones where, when and which
    # thread.
    left: Counter[int] = field(default_factory=Counter)
    left_unseen: list[tuple[int, int, int]] = field(default_factory=list)

    # -- what the rules are made of ------------------------------------------------

    def idle(self, utid: int) -> bool:
        return utid < self.ncpu

    def to_wake(self, utid: int) -> bool:
        """Whether the thread must, as far as is known, be woken before its next switch-in."""
        if self.idle(utid) or utid not in self.threads:
            return not self.idle(utid)
        thread = self.threads[utid]
        return thread.state not in ("running", "runnable") and thread.pending is None

    def cpu(self, number: int) -> Cpu:
        return self.cpus.setdefault(number, Cpu())

    def seen(self, utid: int, t: int, prio: int | None = None) -> Thread:
        """The thread: its life starts at its first event, as `unknown`."""
        thread = self.threads.setdefault(utid, Thread(utid, since=t))
        if prio is not None:
            thread.prio = prio
        return thread

    def close(self, thread: Thread, t: int, end: str) -> None:
        """Write the thread's interval; zero-length ones are not written."""
        if thread.state == "unknown":
            self.end_cut_wait(thread, t)
        if t > thread.since:
            self.states.append(
                {
                    "ts": thread.since,
                    "dur": t - thread.since,
                    "utid": thread.utid,
                    "state": thread.state,
                    "cpu": self.place(thread),
                    "prio": thread.prio,
                    "waker_utid": thread.waker if thread.state == "runnable" else None,
                    "end": end,
                }
            )
            if thread.state == "running" and not self.idle(thread.utid):
                self.counters["thread_running"] += t - thread.since
        thread.since = t

    def place(self, thread: Thread) -> int | None:
        """Where it runs, or the queue that it is known to be on."""
        if thread.state == "runnable" and thread.wait is not None:
            return thread.wait["queue_cpu"]
        return thread.cpu if thread.state == "running" else None

    def confirm_queue(self, thread: Thread, c: int) -> None:
        """It is switched in where it was thought to be: then its queue was there."""
        if thread.wait is not None and thread.wait["queue_cpu"] is None and thread.cpu == c:
            thread.wait["queue_cpu"] = c

    def become(self, thread: Thread, state: str, cpu: int | None) -> None:
        thread.state, thread.cpu = state, cpu
        if state == "unknown":
            thread.pending, thread.yielded = None, False

    def open_wait(self, thread: Thread, cause: str, ready: int, **facts: Any) -> None:
        thread.wait = {
            "utid": thread.utid,
            "cause": cause,
            "ts_waking": None,
            "ts_ready": ready,
            "ts_enqueued": None,
            "waker_utid": None,
            "waker_cpu": None,
            "prev_cpu": thread.last_cpu,
            "queue_cpu": None,
            "begun_before": False,
            "before_sight": False,
            "may_be_woken": False,
        } | facts
        thread.known = True
        thread.waker = thread.wait["waker_utid"]
        self.become(thread, "runnable", thread.wait["queue_cpu"])

    def end_wait(
        self,
        thread: Thread,
        *,
        run: int | None,
        cpu: int | None,
        until: int,
        censored: str,
        cut: bool = False,
    ) -> None:
        wait, thread.wait = thread.wait, None
        if wait is None:
            return
        self.counters["waits"] += 1
        self.counters["right_censored"] += censored == "right"
        ready, enqueued = wait["ts_ready"], wait["ts_enqueued"]
        seen = not wait.pop("begun_before")
        since = None if wait.pop("before_sight") else ready
        length = until - ready
        high = None if run is None or since is None else length
        if high is not None and self.clocks is not None and not seen:
            high = self.most(high)
        if run is None and self.clocks is not None:
            length = self.least(length)
        wait.pop("may_be_woken")
        row = wait | {
            "ts_ready": ready if seen else None,
            "ts_run": run,
            "cpu": cpu,
            "prio": thread.prio,
            "placement": enqueued - ready if seen and enqueued is not None else None,
            "queue": None if enqueued is None or run is None else run - enqueued,
            "wait": length if seen else None,
            "wait_high": high,
            "censored": censored if seen else {"none": "left", "right": "both"}[censored],
        }
        if cut:
            if thread.cut is not None:
                self.waits.append(thread.cut["row"])
            thread.cut = {"row": row, "since": since}
        else:
            self.enter(row)

    def end_cut_wait(self, thread: Thread, by: int | None) -> None:
        """The end of the cut wait at the latest; None if unknown."""
        if thread.cut is None:
            return
        row, since = thread.cut["row"], thread.cut["since"]
        thread.cut = None
        if by is not None and since is not None:
            row["wait_high"] = by - since if self.clocks is None else self.most(by - since)
        self.waits.append(row)

    def enter(self, row: Row) -> None:
        """Adds the row; a wait is measured only if one clock timed it."""
        if row["censored"] != "none" or self.clocks is None:
            self.waits.append(row)
            return
        story, width = self.story(row["utid"]), self.clocks[1]
        if width is None or (story.other is not None and row["ts_ready"] - story.other <= width):
            self.part(row)
        else:
            story.held = row

    def story(self, utid: int) -> Story:
        return self.stories.setdefault(utid, Story())

    def stamp(self, utid: int, c: int, t: int) -> None:
        """An event of the thread, raised on `c`: does it contradict its last wait?"""
        if self.clocks is None or self.idle(utid) or c >= self.ncpu:
            return
        story, clock = self.story(utid), self.clocks[0][c]
        changed = story.clock not in (None, clock)
        if changed:
            story.other = story.stamped
        story.clock, story.stamped = clock, t
        held, story.held = story.held, None
        if held and changed and t - held["ts_run"] <= self.clocks[1]:
            self.part(held)
        elif held:
            self.waits.append(held)

    def unsure(self, utid: int) -> bool:
        """Whether its last event may be earlier than the one that another clock stamped."""
        story = self.stories.get(utid)
        if self.clocks is None or story is None or story.other is None:
            return False
        width = self.clocks[1]
        return width is None or story.stamped - story.other <= width

    def least(self, wait: int) -> int:
        """The lower bound of a wait whose start and end two clocks may have stamped."""
        assert self.clocks is not None
        _, width, moved = self.clocks
        return 0 if width is None else max(0, wait - width - moved)

    def most(self, wait: int) -> int | None:
        assert self.clocks is not None
        _, width, moved = self.clocks
        return None if width is None else wait + width + moved

    def part(self, row: Row) -> None:
        """The bound and end that are certain of a wait timed by two clocks."""
        assert self.clocks is not None
        self.counters["waits"] += 1
        self.counters["right_censored"] += 1
        unrun = {"ts_run": None, "cpu": None, "queue": None}
        bounds = {"wait": self.least(row["wait"]), "wait_high": self.most(row["wait"])}
        self.waits.append(row | unrun | bounds | {"censored": "right"})
        kept = ("utid", "ts_run", "cpu", "prio", "prev_cpu")
        unknown = {name: value if name in kept else None for name, value in row.items()}
        self.waits.append(unknown | {"cause": "unknown", "censored": "left"})

    def unseen_wait(self, thread: Thread, t: int, cpu: int, since: int) -> None:
        """A switch-in of a thread whose wait has no recorded start, but not before `since`."""
        self.counters["waits"] += 1
        high = None
        if thread.known:
            high = t - since if self.clocks is None else self.most(t - since)
        self.open_wait(thread, "unknown", t)
        assert thread.wait is not None
        row = thread.wait | {"ts_run": t, "cpu": cpu, "prio": thread.prio, "censored": "left"}
        row["wait_high"] = high
        del row["begun_before"], row["may_be_woken"], row["before_sight"]
        self.waits.append(row | {"ts_ready": None, "placement": None, "queue": None, "wait": None})
        thread.wait = None

    def confirm_pending(self, thread: Thread) -> None:
        """The wake raised while the thread was leaving its CPU was a real one."""
        assert thread.pending is not None
        self.counters["wakes_before_switch_out"] += 1
        pending, thread.pending = thread.pending, None
        # ts_waking <= since: it was raised before the switch-out.
        self.open_wait(thread, "wake", thread.since, **(pending | {"queue_cpu": None}))
        thread.cpu = pending["queue_cpu"]

    def drop_pending(self, thread: Thread) -> None:
        self.counters["spurious_wakeups"] += thread.pending is not None
        thread.pending = None

    def found(self, thread: Thread, t: int) -> None:
        """Rule Found: the thread is on a CPU without a recorded switch-in."""
        if thread.state == "running":
            assert thread.cpu is not None
            c, cpu = thread.cpu, self.cpu(thread.cpu)
            if self.uncounted:
                self.broken.append((c, cpu.confirmed, t))
            self.out_of_sight(cpu, c)
            cpu.silent = cpu.confirmed
        elif thread.state != "unknown":
            self.counters["unseen_switch_ins"] += 1
            self.lose_sight(thread)

    def lose_sight(self, thread: Thread) -> None:
        """Its state since its last event becomes unknown."""
        until = max(thread.last_event, thread.wait["ts_ready"]) if thread.wait else 0
        self.end_wait(thread, run=None, cpu=None, until=until, censored="right", cut=True)
        self.become(thread, "unknown", thread.cpu)

    def settle(self, thread: Thread, t: int, stayed_on: int | None = None) -> None:
        """Rule Doubt: from the first instant at which it may have run unrecorded, it is unknown."""
        if thread.state in ("running", "unknown"):
            return
        cpus = self.masks.get(thread.utid, set(range(self.ncpu)))
        queued = thread.state == "runnable"
        if (
            queued
            and stayed_on is not None
            and stayed_on == thread.cpu
            and stayed_on not in self.unrecorded
            and (not thread.wait["begun_before"] or thread.wait["ts_enqueued"] is not None)
            and not self.idled_since(thread, stayed_on)
        ):
            if self.moves_recorded:
                far = self.reported + self.uncounted * self.broken
                far = [hole for hole in far if hole[2] - hole[1] >= EXCURSION]
                holes = self.in_holes(far, thread, cpus, t)
                holes += self.in_holes(self.lost + self.broken, thread, {stayed_on}, t)
            else:
                recorded = cpus - self.unrecorded
                holes = self.in_holes(self.lost + self.broken, thread, recorded, t)
        else:
            holes = self.in_doubt(thread, cpus, t)
        doubts = [begin for begin, _ in holes]
        if doubts:
            self.close(thread, min(doubts), "lost")
            until = max(min(doubts), thread.wait["ts_ready"]) if thread.wait else 0
            if thread.wait:
                thread.may_be_awake = thread.wait["may_be_woken"]
            self.end_wait(thread, run=None, cpu=None, until=until, censored="right", cut=True)
            self.become(thread, "unknown", thread.cpu)

    def idled_since(self, thread: Thread, queue: int) -> bool:
        """Whether the CPU was idle since the thread was put on its queue, which was then empty."""
        put = thread.wait["ts_enqueued"]
        idled = self.cpu(queue).idled
        return idled is not None and idled > (thread.since if put is None else put)

    def settle_found(self, thread: Thread, t: int) -> None:
        """The same before an event which shows that it ran unrecorded: if in a counted loss, then
        there. With only a prev/next mismatch, other switches may be missing anywhere.
        """
        cpus = self.masks.get(thread.utid, set(range(self.ncpu)))
        if self.in_holes(self.lost, thread, cpus, t):
            self.settle(thread, t)

    def in_doubt(self, thread: Thread, cpus: set[int], t: int) -> list[tuple[int, int]]:
        """The part of these CPUs' losses between the thread's last change and `t`."""
        holes = self.lost + (thread.state == "runnable") * self.broken
        return self.in_holes(holes, thread, cpus, t)

    def in_holes(
        self, holes: list[tuple[int, int, int]], thread: Thread, cpus: set[int], t: int
    ) -> list[tuple[int, int]]:
        return [
            (max(begin, thread.since), min(max(end, begin + 1), t))
            for c, begin, end in holes
            if c in cpus and max(end, begin + 1) > thread.since and max(begin, thread.since) < t
        ]

    def ran(self, utid: int, c: int | None) -> None:
        """A mask that excludes a CPU it ran on is out of date."""
        if c is not None and c not in self.masks.get(utid, {c}):
            del self.masks[utid]

    def out_of_sight(self, cpu: Cpu, c: int) -> None:
        """The CPU's current thread left it at an unknown time after it was confirmed there."""
        if cpu.current is not None and self.idle(cpu.current):
            self.close_idle(cpu, c, cpu.confirmed, "lost")
        elif cpu.current is not None:
            thread = self.threads[cpu.current]
            self.close(thread, cpu.confirmed, "lost")
            self.become(thread, "unknown", c)
        cpu.current = None

    def evidence(self, c: int, utid: int, t: int) -> None:
        """Rule Evidence: an event says that `utid` runs on `c`."""
        cpu = self.cpu(c)
        self.leave_behind(cpu, c, utid, t)
        if cpu.current is None and not self.left_out(utid):
            cpu.current, cpu.since = utid, t
            if not self.idle(utid):
                thread = self.seen(utid, t)
                self.found(thread, t)
                self.close(thread, t, "switched")
                self.get_on(thread, c, t)
        cpu.confirmed = t

    def get_on(self, thread: Thread, c: int, t: int) -> None:
        self.become(thread, "running", c)
        thread.pending = None
        thread.last_cpu, thread.last_event, thread.yielded = c, t, False
        thread.may_be_awake = False
        thread.known, thread.left_unseen = True, None
        self.ran(thread.utid, c)

    # -- the rules -------------------------------------------------------------------

    def switch(self, t: int, e: Row) -> None:
        c, cpu = e["cpu"], self.cpu(e["cpu"])
        self.stamp(e["prev_utid"], c, t)
        self.stamp(e["next_utid"], c, t)
        if not self.idle(e["prev_utid"]):
            self.seen(e["prev_utid"], t, e["prev_prio"])
        self.leave_behind(cpu, c, e["prev_utid"], t)
        if not self.idle(e["prev_utid"]):
            self.switch_out(self.seen(e["prev_utid"], t, e["prev_prio"]), c, t, e)
            self.forget_left_out(e["prev_utid"])
        elif cpu.current == e["prev_utid"]:
            self.close_idle(cpu, c, t, "switched")
        if not self.idle(e["next_utid"]):
            self.switch_in(self.seen(e["next_utid"], t, e["next_prio"]), c, t)
        self.forget_left_out(e["next_utid"])
        if self.idle(e["next_utid"]):
            cpu.idled = t
            self.queue_is_empty(c, t)
        unseen = self.left_out(e["next_utid"])
        cpu.current, cpu.since, cpu.confirmed = None if unseen else e["next_utid"], t, t

    def left_out(self, utid: int) -> bool:
        return self.chosen is not None and utid not in self.chosen

    def forget_left_out(self, utid: int) -> None:
        """Rule Filtered: what it does from now on is not recorded."""
        if self.left_out(utid) and utid in self.threads:
            thread = self.threads[utid]
            self.become(thread, "unknown", thread.cpu)
            thread.wait = None

    def leave_behind(self, cpu: Cpu, c: int, prev: int, t: int) -> None:
        """A prev/next mismatch: `c` runs another thread than expected."""
        self.counters["contradictions"] += cpu.silent is not None
        cpu.silent = None
        if cpu.current == prev:
            self.left[prev] += 1
            return
        since = cpu.confirmed
        habit = cpu.current is not None and self.break_chain(cpu, c, t, prev)
        if habit and not self.idle(prev):
            self.switched_in_within(self.seen(prev, t), since, t, c)
        elif not self.idle(prev):
            self.settle_found(self.seen(prev, t), t)

    def queue_is_empty(self, c: int, t: int) -> None:
        """The CPU is idle: a thread with an unrecorded switch-out is not in its queue."""
        for thread in self.threads.values():
            if thread.left_unseen is not None and thread.left_cpu == c and thread.rested is None:
                thread.rested = t

    def one_switch_explains(self, utid: int, c: int, t: int) -> bool:
        """Rule Habit: whether the thread waited on `c`, or is unknown."""
        if self.idle(utid):
            return True
        thread = self.seen(utid, t)
        if thread.state == "runnable":
            return thread.cpu in (None, c)
        return thread.state == "unknown" or (thread.state in AT_REST and bool(thread.pending))

    def switched_in_within(self, thread: Thread, begin: int, end: int, c: int) -> None:
        """Rule Habit: it was switched in at an unknown time within `[begin, end)`."""
        self.settle(thread, end, c)
        if thread.state in AT_REST and thread.pending:
            self.confirm_pending(thread)
        thread.pending = None
        if thread.state == "runnable":
            since = min(max(begin, thread.since), end)
            self.close(thread, since, "lost")
            until = max(since, thread.wait["ts_ready"])
            self.end_wait(thread, run=None, cpu=None, until=until, censored="right", cut=True)
            self.become(thread, "unknown", thread.cpu)

    def break_chain(self, cpu: Cpu, c: int, t: int, found: int) -> bool:
        """Returns whether it is one missing switch that the kernel never reports."""
        left, explained = cpu.current, self.one_switch_explains(found, c, t)
        habit = left in self.habits and explained and self.chosen is None
        if not habit:
            self.broken.append((c, cpu.confirmed, t))
        self.left_unseen.append((c, t, cpu.current))
        self.out_of_sight(cpu, c)
        if habit and left is not None and not self.idle(left):
            leaver = self.threads[left]
            leaver.left_unseen, leaver.left_cpu, leaver.rested = t, c, None
            if self.idle(found):
                self.queue_is_empty(c, t)
        self.counters["chain_breaks"] += 1
        self.counters["unreported_leavings"] += habit
        self.losses.append(
            {
                "cpu": c,
                "ts_begin": cpu.confirmed,
                "ts_end": t,
                "count": None,
                "reason": "chain_break",
            }
        )
        return habit

    def switch_out(self, thread: Thread, c: int, t: int, e: Row) -> None:
        if (thread.state, thread.cpu) != ("running", c):
            self.found(thread, t)
        state = e["prev_state"]
        ends = {"dead": "exited", "runnable": "preempted"}
        self.close(thread, t, ends.get(state, "switched"))
        thread.last_cpu, thread.known = c, True
        if state == "dead":
            del self.threads[thread.utid]
        elif state == "runnable":
            self.drop_pending(thread)
            voluntary = e["preempted"] is False or thread.yielded
            cause = "yield" if voluntary else "preempt"
            inside = e["preempted"] is True
            self.open_wait(thread, cause, t, ts_enqueued=t, queue_cpu=c, may_be_woken=inside)
        else:
            self.become(thread, "unknown" if state == "running" else state, c)
        thread.last_event, thread.yielded = t, False

    def switch_in(self, thread: Thread, c: int, t: int) -> None:
        self.counters["switch_ins"] += 1
        self.counters["run_next"] += thread.left_unseen is not None
        self.ran(thread.utid, c)
        self.settle(thread, t, c)
        if thread.state == "running":
            self.found(thread, t)
        if thread.state in AT_REST and thread.pending:
            self.confirm_pending(thread)
        if thread.state == "runnable":
            self.found_queued(thread, c)
        if thread.state == "runnable":
            self.confirm_queue(thread, c)
            self.close(thread, t, "switched")
            if thread.wait is not None and thread.wait["cause"] == "wake":
                thread.unwoken = False
            self.end_wait(thread, run=t, cpu=c, until=t, censored="none")
        else:
            unseen = "missing_wakeups" if thread.state in AT_REST else "first_sights"
            self.counters[unseen] += 1
            thread.unwoken |= unseen == "missing_wakeups"
            self.become(thread, "unknown", thread.cpu)  # when it was woken is unknown
            since = thread.since
            self.close(thread, t, "switched")
            self.unseen_wait(thread, t, c, since)
        self.get_on(thread, c, t)

    def wakeup(self, t: int, e: Row) -> None:
        self.any_wake = True
        if e["current_utid"] is not None:
            self.evidence(e["cpu"], e["current_utid"], t)
        if self.idle(e["utid"]):
            return
        self.stamp(e["utid"], e["cpu"], t)
        thread = self.seen(e["utid"], t, e["prio"])
        if self.left_out(thread.utid):
            return
        self.rested_since(thread, e["kind"], t)
        self.ran(thread.utid, e["target_cpu"])
        if self.ran_unseen(thread, e):
            self.settle_found(thread, t)
        else:
            self.settle(thread, t, self.still_queued(thread, e))
        facts = {"waker_utid": e["waker_utid"], "waker_cpu": e["cpu"], "queue_cpu": e["target_cpu"]}
        awake, thread.may_be_awake = thread.may_be_awake, False
        if e["kind"] == "waking":
            self.waking(thread, t, facts, awake)
        else:
            self.enqueued(thread, t, facts, "new" if e["kind"] == "new" else "wake", awake)
        thread.last_event = t

    def rested_since(self, thread: Thread, kind: str, t: int) -> None:
        """Rule Habit: it is woken after an unreported switch-out, so it has slept since."""
        left, thread.left_unseen = thread.left_unseen, None
        if kind == ("waking" if self.has_waking else "enqueued"):
            self.rest_from(thread, left, t)

    def rest_from(self, thread: Thread, left: int | None, t: int) -> None:
        """It slept since its unreported switch-out, unless it may have run in a loss."""
        if left is None or thread.state != "unknown":
            return
        cpus = self.masks.get(thread.utid, set(range(self.ncpu)))
        lost = [(c, begin, end) for c, begin, end in self.lost if c in cpus]
        if any(max(end, begin + 1) > left and begin < t for _, begin, end in lost):
            return
        self.counters["woken_next"] += 1
        self.close(thread, left, "lost")
        self.become(thread, "sleeping", thread.cpu)

    def still_queued(self, thread: Thread, e: Row) -> int | None:
        """The queue that a wake shows the thread to be waiting on, as before."""
        on_its_way = thread.wait is not None and thread.wait["ts_enqueued"] is None
        return e["target_cpu"] if on_its_way and e["kind"] == "enqueued" else None

    def ran_unseen(self, thread: Thread, e: Row) -> bool:
        """Whether it (possibly) ran since its last event: woken again, or woken elsewhere."""
        if e["kind"] == "waking" and self.has_waking:
            return thread.wait is not None or self.elsewhere(thread, e["target_cpu"])
        queued = thread.wait is not None and thread.wait["ts_enqueued"] is not None
        return e["kind"] == "enqueued" and not self.has_waking and queued

    def elsewhere(self, thread: Thread, target: int | None) -> bool:
        known = self.moves_recorded and None not in (thread.cpu, target)
        return known and thread.cpu != target

    def was_enqueued(self, thread: Thread) -> bool:
        """Whether it waits in a queue since it was woken or created."""
        wait = thread.wait
        return bool(wait) and wait["cause"] in ("wake", "new") and wait["ts_enqueued"] is not None

    def waking(self, thread: Thread, t: int, facts: Row, awake: bool) -> None:
        if self.has_waking and self.elsewhere(thread, facts["queue_cpu"]):
            self.found(thread, t)  # rule Woken elsewhere
        unqueued = {"queue_cpu": None}  # a waking names the CPU where the thread was
        if thread.state == "running":
            self.drop_pending(thread)
            thread.pending = facts | {"ts_waking": t}
        elif thread.state == "runnable" and not self.has_waking:
            self.counters["spurious_wakeups"] += 1
        elif thread.state == "runnable" and thread.wait["may_be_woken"]:  # rule Woken again
            self.lose_sight(thread)
            self.open_begun_before(thread, "wake", t, facts | unqueued)
            thread.cpu = facts["queue_cpu"]
        else:
            if thread.state == "runnable":  # rule Woken again
                self.broken_since(thread, t)
                self.found(thread, t)
            self.drop_pending(thread)
            if awake:
                self.open_begun_before(thread, "wake", t, facts | unqueued)
            else:
                self.close(thread, t, "woken")
                self.open_wait(thread, "wake", t, ts_waking=t, **(facts | unqueued))
            thread.cpu = facts["queue_cpu"]

    def open_begun_before(
        self, thread: Thread, cause: str, t: int, facts: Row, *, within: int | None = None
    ) -> None:
        """A wait that started before `t`, but within `within`, or since its last event."""
        earliest = thread.since if within is None else max(thread.since, t - within)
        before_sight = not thread.known and (within is None or t - thread.since < within)
        self.close(thread, t, "woken")
        self.open_wait(
            thread, cause, earliest, begun_before=True, before_sight=before_sight, **facts
        )

    def broken_since(self, thread: Thread, t: int) -> None:
        """Where losses are not counted: it ran, unrecorded, on a CPU that it may use."""
        if self.uncounted and not self.explained(thread.cpu, thread.since, t):
            cpus = self.masks.get(thread.utid, set(range(self.ncpu)))
            self.broken += [(cpu, thread.since, t) for cpu in sorted(cpus)]

    def explained(self, queue: int | None, since: int, t: int) -> bool:
        """Whether a thread whose switch-out is usually reported left that CPU unreported since."""
        unseen = Counter(utid for _, _, utid in self.left_unseen)
        return any(
            c == queue and since < end <= t and self.left[utid] >= OFTEN * unseen[utid]
            for c, end, utid in self.left_unseen
        )

    def enqueued(self, thread: Thread, t: int, facts: Row, cause: str, awake: bool) -> None:
        if thread.state in AT_REST and thread.pending and cause == "wake":
            self.confirm_pending(thread)
        if thread.state == "running":
            self.counters["spurious_wakeups"] += 1
            thread.pending = None
        elif thread.state != "runnable":
            self.drop_pending(thread)
            begun_before = self.has_waking and cause == "wake"
            if begun_before:
                self.become(thread, "unknown", thread.cpu)  # awake since an unrecorded `waking`
            if begun_before or awake:
                within = None if awake else HALF_A_WAKE
                self.open_begun_before(thread, cause, t, facts | {"ts_enqueued": t}, within=within)
            else:
                self.close(thread, t, "woken")
                self.open_wait(thread, cause, t, ts_enqueued=t, **facts)
        elif thread.wait["ts_enqueued"] is None:
            thread.wait["ts_enqueued"] = t
            thread.cpu = thread.wait["queue_cpu"] = facts["queue_cpu"]
        elif cause == "wake" and not self.has_waking and self.was_enqueued(thread):
            self.broken_since(thread, t)  # rule Woken again
            self.found(thread, t)
            self.close(thread, t, "woken")
            self.open_wait(thread, cause, t, ts_enqueued=t, **facts)
        elif cause == "wake" and not self.has_waking:  # rule Woken again: it was preempted
            self.lose_sight(thread)
            self.open_begun_before(thread, cause, t, facts | {"ts_enqueued": t})
        else:
            self.counters["spurious_wakeups"] += 1

    def found_queued(self, thread: Thread, queue: int | None) -> None:
        """Rule Moved unseen: it is on another queue than the one it was put on."""
        if (
            self.has_waking
            and thread.wait["ts_enqueued"] is not None
            and None not in (queue, thread.cpu)
            and queue != thread.cpu
        ):
            self.counters["unseen_moves"] += 1
            thread.cpu = thread.wait["queue_cpu"] = None
            if self.moves_recorded and self.uncounted:
                self.lose_sight(thread)

    def migration(self, t: int, e: Row) -> None:
        self.moves_recorded |= self.chosen is None
        if self.idle(e["utid"]) or self.left_out(e["utid"]):
            return
        self.stamp(e["utid"], e["cpu"], t)
        thread = self.seen(e["utid"], t)
        self.ran(thread.utid, e["from_cpu"])
        self.ran(thread.utid, e["to_cpu"])
        self.settle(thread, t, e["from_cpu"])
        if thread.state == "runnable":
            self.found_queued(thread, e["from_cpu"])
        if thread.state == "runnable":
            taken = thread.wait["waker_cpu"] not in (None, e["cpu"])
            if thread.wait["ts_enqueued"] is None and taken:
                thread.wait["queue_cpu"] = e["from_cpu"]
            if thread.wait["ts_enqueued"] is not None or taken:
                self.close(thread, t, "switched")
            thread.cpu = thread.wait["queue_cpu"] = e["to_cpu"]
        elif thread.state != "running":
            thread.cpu = e["to_cpu"]
        thread.last_event = t

    def sched_yield(self, t: int, e: Row) -> None:
        if not self.idle(e["utid"]):
            thread = self.seen(e["utid"], t)
            thread.yielded, thread.last_event = True, t

    def loss(self, t: int, e: Row) -> None:
        if e["reason"] == "chain_break":
            return  # from an earlier reconstruction: found again
        self.losses.append(e)
        if e["reason"] == "unrecorded":
            self.unrecorded |= set(range(self.ncpu)) if e["cpu"] is None else {e["cpu"]}
        for c in range(self.ncpu) if e["cpu"] is None else [e["cpu"]]:
            self.lost.append((c, t, e["ts_end"]))
            if e["reason"] != "unrecorded":
                self.reported.append((c, t, e["ts_end"]))
            cpu = self.cpu(c)
            if cpu.current is not None and self.idle(cpu.current):
                self.close_idle(cpu, c, t, "lost")
            elif cpu.current is not None:
                self.close(self.threads[cpu.current], t, "lost")
                self.become(self.threads[cpu.current], "unknown", c)
            cpu.current = None

    def end_of_window(self, w: int) -> None:
        for c, cpu in self.cpus.items():
            if cpu.silent is not None:
                early = {"cpu": c, "ts_begin": cpu.silent, "ts_end": w, "count": None}
                self.loss(cpu.silent, early | {"reason": "early_end"})
        # Rule Habit: all with unreported switch-outs were woken next, so the others would have
        # been.
        woken, run = self.counters.pop("woken_next", 0), self.counters.pop("run_next", 0)
        for thread in self.threads.values():
            if thread.left_unseen is None:
                continue
            moved = thread.last_event > thread.left_unseen
            rested = thread.rested if self.moves_recorded and not moved else None
            everyone = woken >= HABIT and not run
            if everyone or rested is not None:
                self.rest_from(thread, thread.left_unseen, w)
                self.rest_from(thread, rested, w)
        self.counters.pop("woken_next", 0)
        for c, cpu in self.cpus.items():
            if cpu.current in self.stoppers:
                stopper = self.threads[cpu.current]
                self.close(stopper, cpu.confirmed, "lost")
                self.become(stopper, "unknown", c)
                cpu.current = None
            if cpu.current is not None and self.idle(cpu.current):
                self.close_idle(cpu, c, w, "window")
        for thread in self.threads.values():
            self.settle(thread, w + 1)
            doubtful = self.unsure(thread.utid) or self.half_woken(thread, w)
            doubtful |= self.perhaps_woken(thread)
            if thread.state != "running" and thread.since < w and doubtful:
                self.lose_sight(thread)
            self.end_cut_wait(thread, None)
            self.close(thread, w, "window")
            self.end_wait(thread, run=None, cpu=None, until=w, censored="right")
        self.waits += [story.held for story in self.stories.values() if story.held]

    def perhaps_woken(self, thread: Thread) -> bool:
        """Rule Sleep without an end: it sleeps as far as is recorded, but its wakeups are not."""
        nobody_is = not self.any_wake and self.counters["missing_wakeups"] > 0
        return thread.state in AT_REST and (thread.unwoken or nobody_is)

    def half_woken(self, thread: Thread, w: int) -> bool:
        """Rule Half a wake: one step of the wakeup that started its wait never comes."""
        wait = thread.wait
        return (
            self.has_waking
            and self.has_enqueued
            and w - thread.since > HALF_A_WAKE
            and wait is not None
            and wait["cause"] == "wake"
            and (wait["begun_before"] or wait["ts_enqueued"] is None)
            and thread.last_event == thread.since
        )

    def close_idle(self, cpu: Cpu, c: int, t: int, end: str) -> None:
        idle = Thread(cpu.current or 0, since=cpu.since, state="running", cpu=c)
        self.close(idle, t, end)


def facts_in_order(
    tables: dict[str, pl.DataFrame], oracle: Oracle
) -> Iterator[tuple[str, int, Row]]:
    """Every fact as (table, time, row), by time, then by table, then in the table's order.

    At equal times, a late start goes first, the next thread of a switch was woken and moved there
    before, and a waker still runs.
    """
    queues = {name: tables[name].to_dicts() for name in ORDER if name in tables}
    while waiting := {name: rows[0] for name, rows in queues.items() if rows}:
        times = {name: row.get("ts", row.get("ts_begin")) for name, row in waiting.items()}
        t = min(times.values())
        now = {name: waiting[name] for name in ORDER if times.get(name) == t}
        table = next(iter(now))
        if "losses" in now and now["losses"]["reason"] in UNSEEN_FIRST:
            table = "losses"
        elif table == "switches":
            switch, following = now["switches"], now["switches"]["next_utid"]
            to_wake = oracle.to_wake(following)
            if "wakeups" in now and (
                to_wake or now["wakeups"]["utid"] == following or _by_leaver(now["wakeups"], switch)
            ):
                table = "wakeups"
            elif "migrations" in now and now["migrations"]["utid"] == following:
                table = "migrations"
        yield table, t, queues[table].pop(0)


def _by_leaver(wakeup: Row, switch: Row) -> bool:
    """Raised by the thread that is prev of the switch on that CPU."""
    there = wakeup["cpu"] == switch["cpu"] and wakeup["current_utid"] == switch["prev_utid"]
    return there and wakeup["utid"] != switch["prev_utid"]


def reconstruct(
    tables: dict[str, pl.DataFrame],
    ncpu: int,
    window: tuple[int, int] | None = None,
    clocks: tuple[list[int], int | None, int] | None = None,
    *,
    uncounted: bool = False,
    chosen: set[int] | None = None,
    habits: set[int] | None = None,
) -> dict[str, Any]:
    """The same result as `_native.reconstruct`, with frames for tables."""
    oracle = Oracle(ncpu, clocks=clocks, uncounted=uncounted, chosen=chosen)
    oracle.habits = habits or set()
    kinds = tables["wakeups"]["kind"] if "wakeups" in tables else []
    oracle.has_waking = "waking" in list(kinds)
    oracle.has_enqueued = "enqueued" in list(kinds)
    if "threads" in tables:
        oracle.masks = _masks(tables["threads"], ncpu)
        classes = tables["threads"].to_dicts()
        oracle.stoppers = {row["utid"] for row in classes if row.get("sched_class") == "stop"}
    rules = {
        "switches": oracle.switch,
        "wakeups": oracle.wakeup,
        "migrations": oracle.migration,
        "yields": oracle.sched_yield,
        "losses": oracle.loss,
    }
    ends = [window[1]] if window else []
    for name, t, row in facts_in_order(tables, oracle):
        rules[name](t, row)
        ends.append(row.get("ts_end", t))
    oracle.end_of_window(max(ends, default=0))
    rows = {"states": oracle.states, "waits": oracle.waits, "losses": oracle.losses}
    return {name: _frame(name, rows[name]) for name in rows} | {"counters": oracle.counters}


def _masks(threads: pl.DataFrame, ncpu: int) -> dict[int, set[int]]:
    masks = {}
    for utid, affinity in threads.select("utid", "affinity").iter_rows():
        allowed = set()
        for part in (affinity or f"0-{ncpu}").split(","):
            first, _, last = part.partition("-")
            allowed |= set(range(int(first), int(last or first) + 1))
        if allowed & set(range(ncpu)) and not allowed >= set(range(ncpu)):
            masks[utid] = allowed
    return masks


def _frame(name: str, rows: list[Row]) -> pl.DataFrame:
    columns = schema.TABLES[name].columns
    return pl.DataFrame(
        {column.name: [row[column.name] for row in rows] for column in columns},
        schema=schema.TABLES[name].schema,
    )
