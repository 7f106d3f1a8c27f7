"""Random event streams for property tests.

`plausible` plays a small scheduler: what it tells is true, but the recorder may lose
events (with or without saying so), record only one of the two wake steps, and
see wakeups raised before the wakee has left its CPU. `faulty` is such a stream with
faults in it: facts that are missing, doubled, late or on another CPU. `wild` tells
nonsense: any thread anywhere, the input of a broken decoder.

All are drawn as lists of small numbers, so that a failure shrinks to a few events.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st
from worlds import World, facts

Row = dict[str, Any]

AT_REST = ["sleeping", "blocked", "stopped", "parked"]
LEFT_STATES = [*AT_REST, "runnable", "dead", "unknown", "running"]


@dataclass
class _Play:
    """The true events, and those that were recorded."""

    ncpu: int
    steps: str
    # Whether every event names the thread that ran on its CPU.
    tells_current: bool
    # Least time between the facts of one action; 0: ties.
    step: int = 0
    now: int = 0
    # Threads by true condition: a queue's CPU, the CPU they run on, or asleep.
    queued: dict[int, int] = field(default_factory=dict)
    running: dict[int, int] = field(default_factory=dict)
    resting: list[int] = field(default_factory=list)
    # Woken with a decided CPU, but not yet on a queue: (waker, target).
    placing: dict[int, tuple[int, int]] = field(default_factory=dict)
    # Where each is or last was: what a `waking` names.
    home: dict[int, int] = field(default_factory=dict)
    born: int = 0
    lossy: dict[int, tuple[int, bool, int]] = field(default_factory=dict)
    rows: dict[str, list[Row]] = field(default_factory=dict)

    def thread(self) -> int:
        self.born += 1
        return self.ncpu + self.born - 1

    def current(self, cpu: int) -> int:
        return next((who for who, where in self.running.items() if where == cpu), cpu)

    def tell(self, table: str, cpu: int, **row: Any) -> None:
        """Records a fact, unless the recorder of that CPU is losing events."""
        if cpu not in self.lossy:
            self.rows.setdefault(table, []).append({"ts": self.now, "cpu": cpu, **row})

    def wakeup(self, kind: str, cpu: int, who: int, target: int | None) -> None:
        if self.steps in ("both", kind) or kind == "new":
            waker = self.current(cpu)
            facts = {"utid": who, "kind": kind, "target_cpu": target, "waker_utid": waker}
            current = waker if self.tells_current else None
            self.tell("wakeups", cpu, prio=100 + who, current_utid=current, **facts)

    def switch(self, cpu: int, state: str, preempted: bool | None, following: int) -> None:
        prev = self.current(cpu)
        self.tell(
            "switches",
            cpu,
            prev_utid=prev,
            prev_state=state,
            prev_prio=None if prev < self.ncpu else 100 + prev,
            preempted=preempted,
            next_utid=following,
            next_prio=None if following < self.ncpu else 100 + following,
        )
        self.running.pop(prev, None)
        self.home |= {prev: cpu, following: cpu}
        if following >= self.ncpu:
            self.queued.pop(following)
            self.running[following] = cpu

    # -- actions; `a` and `b` choose among what is possible now ------------------------

    def start(self, cpu: int, a: int, b: int) -> None:
        """A thread is created and queued, or existed, asleep, before the recording."""
        who = self.thread()
        if a % 2:
            self.wakeup("new", cpu, who, b % self.ncpu)
            self.queued[who] = self.home[who] = b % self.ncpu
        else:
            self.resting.append(who)

    def wake(self, cpu: int, a: int, b: int) -> None:
        if not self.resting:
            self.leave(cpu, a, b)
            return
        who = self.resting.pop(a % len(self.resting))
        self.wakeup("waking", cpu, who, self.home.setdefault(who, b % self.ncpu))
        self.placing[who] = (cpu, b % self.ncpu)
        if b % 3:
            self.now += b % 2 + self.step
            self.place(cpu, len(self.placing) - 1, b)

    def place(self, cpu: int, a: int, b: int) -> None:
        if not self.placing:
            self.wake(cpu, a, b)
            return
        who = list(self.placing)[a % len(self.placing)]
        waker, target = self.placing.pop(who)
        # The scheduler may change its decision between the two steps.
        target = target if b % 4 else cpu
        self.wakeup("enqueued", waker if b % 2 else target, who, target)
        self.queued[who] = self.home[who] = target

    def next_on(self, cpu: int, a: int) -> int:
        here = [who for who, where in self.queued.items() if where == cpu]
        return here[a // 4 % len(here)] if here and a % 4 else cpu

    def leave(self, cpu: int, a: int, b: int) -> None:
        """The CPU switches; a thread leaves it to sleep, preempted or by sched_yield."""
        who, following = self.current(cpu), self.next_on(cpu, a)
        if who == following == cpu:
            return
        if who < self.ncpu:
            self.switch(cpu, "runnable", None, following)
        elif b % 3:
            self.switch(cpu, AT_REST[b % 4], False, following)
            self.resting.append(who)
        else:
            how = b // 3 % 4
            if how == 0:
                self.tell_yield(cpu, who)
            self.switch(cpu, "runnable", [None, True, False, None][how], following)
            self.queued[who] = cpu

    def tell_yield(self, cpu: int, who: int) -> None:
        if cpu not in self.lossy:
            self.rows.setdefault("yields", []).append({"ts": self.now, "utid": who})
            self.now += 1

    def race(self, cpu: int, a: int, b: int) -> None:
        """A thread is woken while it is leaving its CPU."""
        who = self.current(cpu)
        if who < self.ncpu:
            self.leave(cpu, a, b)
            return
        waker = a % self.ncpu
        self.wakeup("waking", waker, who, cpu)
        self.now += b % 3 + self.step
        self.switch(cpu, AT_REST[b % 4], False, self.next_on(cpu, a))
        self.placing[who] = (waker, b % self.ncpu)

    def spurious(self, cpu: int, a: int, b: int) -> None:
        """A wake of a running thread; a waiting one is awake, and no kernel wakes it."""
        if self.running:
            who = list(self.running)[a % len(self.running)]
            self.wakeup("waking", cpu, who, self.running[who])
            self.now += b % 2 + self.step
            self.wakeup("enqueued", cpu, who, self.running[who])

    def migrate(self, cpu: int, a: int, b: int) -> None:
        movable = [*self.queued, *self.resting]
        if movable:
            who, target = movable[a % len(movable)], b % self.ncpu
            source = self.queued.get(who)
            self.tell("migrations", cpu, utid=who, from_cpu=source, to_cpu=target)
            self.home[who] = target
            if who in self.queued:
                self.queued[who] = target

    def die(self, cpu: int, a: int, b: int) -> None:
        who = self.current(cpu)
        if who < self.ncpu:
            self.start(cpu, a, b)
            return
        self.switch(cpu, "dead", None, self.next_on(cpu, a))

    def lose(self, cpu: int, a: int, b: int) -> None:
        """The recorder of a CPU loses events from now on, for `b` actions."""
        self.lossy.setdefault(cpu, (self.now, bool(a % 3), b))

    def recover(self, *, now: bool = False) -> None:
        """Recorders that have lost enough record again; most report the loss."""
        for cpu, (begin, reported, left) in list(self.lossy.items()):
            if left > 0 and not now:
                self.lossy[cpu] = (begin, reported, left - 1)
                continue
            del self.lossy[cpu]
            if reported:
                where = cpu if begin % 4 else None
                loss = {"cpu": where, "ts_begin": begin, "ts_end": self.now, "reason": "overrun"}
                self.rows.setdefault("losses", []).append(loss)


_TRUE = [
    _Play.start,
    _Play.wake,
    _Play.wake,
    _Play.place,
    _Play.place,
    _Play.leave,
    _Play.leave,
    _Play.leave,
    _Play.race,
    _Play.spurious,
    _Play.migrate,
    _Play.die,
]
_LOSSY = [*_TRUE, _Play.lose]
_SMALL = st.integers(0, 11)


def _lists(element: st.SearchStrategy[Any], most: int) -> st.SearchStrategy[list[Any]]:
    """Lists of every length: by default Hypothesis prefers short ones."""
    return st.integers(0, most).flatmap(lambda n: st.lists(element, min_size=n, max_size=n))


@st.composite
def _play(draw: st.DrawFn, *, losses: bool, ties: bool, unseen: bool, most: int) -> _Play:
    steps = draw(st.sampled_from(["both", "waking", "enqueued"]))
    play = _Play(draw(st.integers(1, 3)), steps, tells_current=draw(st.booleans()))
    play.step = 0 if ties else 1
    # Threads from before: asleep or running.
    play.resting = [play.thread() for _ in range(draw(st.integers(1, 4)))]
    for cpu in draw(st.sets(st.integers(0, play.ncpu - 1))) if unseen else ():
        play.running[play.thread()] = cpu
    action = st.sampled_from(_LOSSY if losses else _TRUE)
    step = st.tuples(action, st.integers(0, play.ncpu - 1), _SMALL, _SMALL, st.integers(0, 4))
    for act, cpu, a, b, pause in draw(_lists(step, most)):
        play.now += pause if ties else 1 + pause
        act(play, cpu, a, b)
        play.recover()
    play.recover(now=True)
    return play


@st.composite
def plausible(
    draw: st.DrawFn, *, losses: bool = True, ties: bool = True, unseen: bool = True, most: int = 60
) -> World:
    """A stream that a real scheduler and a fallible recorder could have made.

    `losses`: some events are missing; `ties`: several events have one time; `unseen`: some
    threads ran already when the recording began.
    """
    play = draw(_play(losses=losses, ties=ties, unseen=unseen, most=most))
    end = play.now + draw(st.integers(0, 5))
    return _world(play.rows, play.ncpu, play.born, (0, end))


@st.composite
def faulty(draw: st.DrawFn, *, most: int = 60) -> World:
    """A plausible stream with some facts deleted, doubled, delayed or moved to another CPU."""
    play = draw(_play(losses=True, ties=True, unseen=True, most=most))
    fault = st.tuples(
        st.sampled_from(["delete", "double", "delay", "move"]), _SMALL, _SMALL, _SMALL
    )
    facts = [(name, row) for name, rows in play.rows.items() for row in rows if name != "losses"]
    for kind, a, b, delay in draw(st.lists(fault, min_size=1, max_size=8)):
        if not facts:
            break
        at = (12 * a + b) % len(facts)
        name, row = facts.pop(at)
        if kind in ("double", "delay"):
            facts.append((name, row | {"ts": row["ts"] + delay}))
        if kind == "double":
            facts.append((name, row))
        if kind == "move":
            cpu = delay % play.ncpu
            on_cpu = ("prev_utid", "next_utid", "current_utid")
            known = [who for who in on_cpu if row.get(who) is not None]
            moved = {who: cpu for who in known if row[who] < play.ncpu}
            facts.append((name, row | moved | ({"cpu": cpu} if "cpu" in row else {})))
    rows = {"losses": play.rows.get("losses", [])}
    for name, row in facts:
        rows.setdefault(name, []).append(row)
    end = max([play.now, *(row["ts"] for _, row in facts)])
    return _world(rows, play.ncpu, play.born, (0, end))


@st.composite
def wild(draw: st.DrawFn, *, most: int = 40) -> World:
    """Any facts in any order: threads in two places, breaks everywhere, life after death."""
    ncpu = draw(st.integers(1, 3))
    nthreads = draw(st.integers(1, 4))
    cpu = st.integers(0, ncpu - 1)
    maybe_cpu = st.none() | cpu
    thread = st.integers(ncpu, ncpu + nthreads - 1)
    on_cpu = st.integers(0, ncpu + nthreads - 1)
    maybe_prio = st.none() | st.integers(1, 3)
    fact = st.one_of(
        st.fixed_dictionaries(
            {
                "cpu": cpu,
                "prev_utid": on_cpu,
                "prev_state": st.sampled_from(LEFT_STATES),
                "prev_prio": maybe_prio,
                "preempted": st.sampled_from([None, True, False]),
                "next_utid": on_cpu,
                "next_prio": maybe_prio,
            }
        ),
        st.fixed_dictionaries(
            {
                "cpu": cpu,
                "waker_utid": st.none() | on_cpu,
                "current_utid": st.none() | on_cpu,
                "utid": on_cpu,
                "kind": st.sampled_from(["waking", "enqueued", "new"]),
                "target_cpu": maybe_cpu,
                "prio": maybe_prio,
            }
        ),
        st.fixed_dictionaries(
            {"cpu": cpu, "utid": on_cpu, "from_cpu": maybe_cpu, "to_cpu": maybe_cpu}
        ),
        st.fixed_dictionaries({"utid": thread}),
        st.fixed_dictionaries(
            {
                "cpu": maybe_cpu,
                "length": st.integers(0, 9),
                "reason": st.sampled_from(["overrun", "late_start", "chain_break"]),
            }
        ),
    )
    rows: dict[str, list[Row]] = {}
    now = 0
    for pause, row in draw(_lists(st.tuples(st.integers(0, 3), fact), most)):
        now += pause
        table = _table_of(row)
        if not _own_idle(row, ncpu):
            continue
        if table == "losses":
            row = {
                "cpu": row["cpu"],
                "ts_begin": now,
                "ts_end": now + row["length"],
                "reason": row["reason"],
            }
        else:
            row = {"ts": now, **row}
        rows.setdefault(table, []).append(row)
    end = max([now, *(loss["ts_end"] for loss in rows.get("losses", []))])
    return _world(rows, ncpu, nthreads, (0, end + draw(st.integers(0, 5))))


ANY_STREAM = plausible() | faulty() | wild()


def _table_of(row: Row) -> str:
    for column, table in [
        ("prev_state", "switches"),
        ("kind", "wakeups"),
        ("to_cpu", "migrations"),
        ("reason", "losses"),
    ]:
        if column in row:
            return table
    return "yields"


def _own_idle(row: Row, ncpu: int) -> bool:
    """No decoder names another CPU's idle thread: it numbers them by CPU."""
    on_cpu = [row.get(column) for column in ("prev_utid", "next_utid", "current_utid")]
    return all(who is None or who >= ncpu or who == row["cpu"] for who in on_cpu)


def _world(
    rows: dict[str, list[Row]],
    ncpu: int,
    nthreads: int,
    window: tuple[int, int],
) -> World:
    names = tuple(chr(ord("A") + i % 26) + "'" * (i // 26) for i in range(nthreads))
    ordered = {
        table: sorted(each, key=lambda row: row["ts_begin" if table == "losses" else "ts"])
        for table, each in rows.items()
    }
    return World(facts(ordered), ncpu, names, window)
