"""Hand-made worlds: a trace in a dozen lines, in round numbers, and its answer likewise.

Facts, one a line, time first; `#` begins a comment:

    0   cpu0: idle -> A            switch; idle threads have no state
    10  cpu0: A S -> idle          states: S D T P X, R (plain), R+ (preempted), RY (yielded), ?
    20  cpu1: waking A on 0 by B   also `enqueued`, `new`; `on` and `by` may be left out
    20  cpu1: waking A during idle   names who ran on cpu1 then, which is evidence
    30  cpu0: migrate A 0 -> 1     either CPU may be `?`
    40  yield A
    60  loss cpu0 until 80 overrun   without `cpu0`: of any CPU; reason may be left out

Threads get utids from ncpu on in order of appearance.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import polars as pl

from schedscope.parsers import schema

Row = dict[str, Any]

_STATES = {
    "S": ("sleeping", None),
    "D": ("blocked", None),
    "T": ("stopped", None),
    "P": ("parked", None),
    "X": ("dead", None),
    "R": ("runnable", None),
    "R+": ("runnable", True),
    "RY": ("runnable", False),
    "?": ("unknown", None),
}
_SWITCH = re.compile(r"cpu(\d+): (\w+)(?: (\S+))? -> (\w+)")
_WAKEUP = re.compile(
    r"cpu(\d+): (waking|enqueued|new) (\w+)(?: on (\d+))?(?: by (\w+))?(?: during (\w+))?"
)
_MIGRATE = re.compile(r"cpu(\d+): migrate (\w+) (\d+|\?) -> (\d+|\?)")
_YIELD = re.compile(r"yield (\w+)")
_LOSS = re.compile(r"loss(?: cpu(\d+))? until (\d+)(?: (\w+))?")


@dataclass(frozen=True, repr=False)
class World:
    """Fact tables as the engine takes them, with the names from the test."""

    tables: dict[str, pl.DataFrame]
    ncpu: int
    names: tuple[str, ...]
    window: tuple[int, int] | None = None
    uncounted: bool = False
    """Nothing counts the events that were lost."""
    chosen: frozenset[int] | None = None
    """Utids of the threads that were recorded, where a filter left out those of others."""
    habits: frozenset[int] = frozenset()
    """Utids of the threads whose leaving the kernel does not report."""

    def name(self, utid: int) -> str:
        return f"idle{utid}" if utid < self.ncpu else self.names[utid - self.ncpu]

    def __repr__(self) -> str:
        """The notation, so that a failing property prints a world to paste into a test."""
        facts = "\n".join(_fact_lines(self))
        return f'world("""\n{facts}\n""", ncpu={self.ncpu}, window={self.window})'

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        # Hypothesis would print every frame instead.
        printer.text(repr(self))


def facts(rows: dict[str, list[Row]]) -> dict[str, pl.DataFrame]:
    """The fact tables that reconstruction reads, from rows; absent ones are empty."""
    names = ["switches", "wakeups", "migrations", "yields", "losses"]
    return {
        name: schema.conform(
            name, pl.DataFrame(rows[name], schema=_given(name, rows[name]), orient="row")
        )
        if rows.get(name)
        else schema.empty(name)
        for name in names
    }


def _given(name: str, rows: list[Row]) -> dict[str, Any]:
    types = schema.TABLES[name].schema
    return {column: types[column] for column in rows[0]}


def world(text: str, *, ncpu: int = 2, window: tuple[int, int] | None = None) -> World:
    """Read the notation above."""
    reader = _Reader(ncpu)
    for line in text.splitlines():
        fact = line.partition("#")[0].split(maxsplit=1)
        if fact:
            reader.read(int(fact[0]), " ".join(fact[1].split()))
    return World(facts(reader.rows), ncpu, tuple(reader.utids), window)


class _Reader:
    def __init__(self, ncpu: int) -> None:
        self.ncpu = ncpu
        self.utids: dict[str, int] = {}
        self.rows: dict[str, list[Row]] = {}

    def utid(self, name: str, cpu: str = "") -> int:
        if name.startswith("idle"):
            return int(name.removeprefix("idle") or cpu)
        return self.utids.setdefault(name, self.ncpu + len(self.utids))

    def add(self, table: str, **row: Any) -> None:
        self.rows.setdefault(table, []).append(row)

    def read(self, ts: int, fact: str) -> None:
        if match := _WAKEUP.fullmatch(fact):
            cpu, kind, who, target, waker, current = match.groups()
            self.add(
                "wakeups",
                ts=ts,
                cpu=int(cpu),
                utid=self.utid(who),
                kind=kind,
                target_cpu=_number(target),
                waker_utid=self.utid(waker, cpu) if waker else None,
                current_utid=self.utid(current, cpu) if current else None,
            )
        elif match := _MIGRATE.fullmatch(fact):
            cpu, who, source, target = match.groups()
            self.add(
                "migrations",
                ts=ts,
                cpu=int(cpu),
                utid=self.utid(who),
                from_cpu=_number(source),
                to_cpu=_number(target),
            )
        elif match := _SWITCH.fullmatch(fact):
            cpu, prev, state, following = match.groups()
            name, preempted = _STATES[state or "R"]
            self.add(
                "switches",
                ts=ts,
                cpu=int(cpu),
                prev_utid=self.utid(prev, cpu),
                prev_state=name,
                preempted=preempted,
                next_utid=self.utid(following, cpu),
            )
        elif match := _YIELD.fullmatch(fact):
            self.add("yields", ts=ts, utid=self.utid(match[1]))
        elif match := _LOSS.fullmatch(fact):
            cpu, until, reason = match.groups()
            self.add(
                "losses",
                cpu=_number(cpu),
                ts_begin=ts,
                ts_end=int(until),
                reason=reason or "overrun",
            )
        else:
            raise ValueError(f"not a fact of a world: {fact!r}")


def _fact_lines(world: World) -> list[str]:
    rows = [
        (row["ts_begin" if table == "losses" else "ts"], order, _fact(world, table, row))
        for order, table in enumerate(("switches", "wakeups", "migrations", "yields", "losses"))
        for row in world.tables[table].iter_rows(named=True)
    ]
    return [f"{ts:>4} {fact}" for ts, _, fact in sorted(rows, key=lambda row: row[:2])]


def _fact(world: World, table: str, row: Row) -> str:
    where = "?" if row.get("cpu") is None else row["cpu"]
    match table:
        case "switches":
            known = (row["prev_state"], row["preempted"])
            letters = [letter for letter, state in _STATES.items() if state == known]
            letter = (
                letters or [letter for letter, state in _STATES.items() if state[0] == known[0]]
            )[0]
            prev = row["prev_utid"]
            left = world.name(prev) if prev < world.ncpu else f"{world.name(prev)} {letter}"
            return f"cpu{where}: {left} -> {world.name(row['next_utid'])}"
        case "wakeups":
            on = "" if row["target_cpu"] is None else f" on {row['target_cpu']}"
            by = "" if row["waker_utid"] is None else f" by {world.name(row['waker_utid'])}"
            current = row["current_utid"]
            during = "" if current is None else f" during {world.name(current)}"
            return f"cpu{where}: {row['kind']} {world.name(row['utid'])}{on}{by}{during}"
        case "migrations":
            cpus = ["?" if row[end] is None else row[end] for end in ("from_cpu", "to_cpu")]
            return f"cpu{where}: migrate {world.name(row['utid'])} {cpus[0]} -> {cpus[1]}"
        case "yields":
            return f"yield {world.name(row['utid'])}"
        case _:
            cpu = "" if row["cpu"] is None else f" cpu{row['cpu']}"
            return f"loss{cpu} until {row['ts_end']} {row['reason']}"


def _number(text: str | None) -> int | None:
    return None if text in (None, "?") else int(text)


def state_lines(world: World, states: pl.DataFrame) -> list[str]:
    """`A runnable@0 20..30 switched by B`: thread, state, CPU, interval, end, waker."""
    lines = []
    for row in states.iter_rows(named=True):
        cpu = "" if row["cpu"] is None else f"@{row['cpu']}"
        waker = "" if row["waker_utid"] is None else f" by {world.name(row['waker_utid'])}"
        interval = f"{row['ts']}..{row['ts'] + row['dur']}"
        lines.append(
            f"{world.name(row['utid'])} {row['state']}{cpu} {interval} {row['end']}{waker}"
        )
    return lines


_TIMES = {"ts_waking": "waking", "ts_ready": "ready", "ts_enqueued": "enqueued", "ts_run": "run"}


def wait_lines(world: World, waits: pl.DataFrame, *, bounds: bool = False) -> list[str]:
    """`A wake waking=20 ready=20 enqueued=25 run=30 by B@1 cpu 0/0/0: 5+5=10`.

    Absent times are left out; CPUs are previous/queue/got; the sum is placement + queue = wait;
    then which side is censored, unless none is, and with `bounds` how long it was at most.
    """
    lines = []
    for row in waits.iter_rows(named=True):
        times = [f"{name}={row[at]}" for at, name in _TIMES.items() if row[at] is not None]
        waker = []
        if row["waker_cpu"] is not None:
            by = "?" if row["waker_utid"] is None else world.name(row["waker_utid"])
            waker = [f"by {by}@{row['waker_cpu']}"]
        cpus = "/".join(_or_dash(row[cpu]) for cpu in ("prev_cpu", "queue_cpu", "cpu"))
        total = "{}+{}={}".format(*(_or_dash(row[part]) for part in ("placement", "queue", "wait")))
        words = [world.name(row["utid"]), row["cause"], *times, *waker, f"cpu {cpus}: {total}"]
        if row["censored"] != "none":
            words.append(row["censored"])
            if bounds and row["wait_high"] is not None:
                words.append(f"<={row['wait_high']}")
        lines.append(" ".join(words))
    return lines


def _or_dash(value: int | None) -> str:
    return "-" if value is None else str(value)


def loss_lines(losses: pl.DataFrame) -> list[str]:
    """`cpu0 60..80 overrun`."""
    return [
        f"cpu{'?' if row['cpu'] is None else row['cpu']} "
        f"{row['ts_begin']}..{row['ts_end']} {row['reason']}"
        for row in losses.iter_rows(named=True)
    ]
