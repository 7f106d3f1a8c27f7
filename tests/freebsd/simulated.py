"""Replays the simulator's runs on the writer, decision by decision.

A simulated trace has its decisions in tables, each in order of time; many share an instant, with no
order across the tables. `replay` finds an order in which every decision is possible (the waker runs
there, the picked thread is on that queue), and lets a `Machine` print each as FreeBSD's probes
would, at its exact time.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any

import polars as pl
from freebsd.writer import Machine

from schedscope.store.trace import Trace

BEGIN = 1_000_000
Row = dict[str, Any]

# How a thread leaves its CPU, by its next state; `runnable` has two ways.
WAYS = {"sleeping": "sleep", "blocked": "sleep hard"}


class Impossible(Exception):
    """The tables of a run contradict each other."""


def replay(trace: Trace, scheduler: str) -> Machine:
    """The machine after the whole run; its lines are what sched.d would have printed."""
    machine = Machine(trace.ncpu, scheduler, begin=BEGIN, step=0)
    threads = trace.threads.filter(pl.col("utid") >= trace.ncpu).collect()
    tids = {}
    for row in threads.iter_rows(named=True):
        tids[row["utid"]] = row["tid"]
        machine.thread(row["tid"], row["comm"], pid=row["pid"])
    world = _World(trace.ncpu)
    waking: dict[int, Row] = {}
    for kind, row in _in_order(trace, world):
        ts, cpu = BEGIN + row["ts"], row["cpu"]
        if kind == "migration":
            # A woken thread goes to its CPU at once, with its enqueue. Under 4BSD there is one
            # queue, with nothing to move between.
            if row["utid"] not in waking and scheduler == "ULE":
                machine.steal(ts, cpu, tids[row["utid"]], row["to_cpu"])
        elif kind == "wakeup" and row["kind"] == "waking":
            waking[row["utid"]] = row
        elif kind == "wakeup":
            first = waking.pop(row["utid"], row)
            machine.threads[tids[row["utid"]]].prio = first["prio"]
            machine.wake(
                ts, cpu, tids[row["utid"]], row["target_cpu"],
                new=row["kind"] == "new", interrupts=int(row["waker_utid"] is None),
            )  # fmt: skip
        else:
            prev, new = tids.get(row["prev_utid"]), tids.get(row["next_utid"])
            for tid, prio in ((prev, row["prev_prio"]), (new, row["next_prio"])):
                if tid is not None:
                    machine.threads[tid].prio = prio
            if row["prev_state"] == "dead":
                machine.exit(ts, cpu, new)
                continue
            way = WAYS.get(row["prev_state"], "yield" if row["preempted"] is False else "preempt")
            machine.switch(ts, cpu, new, way)
    return machine


class _World:
    """The running threads and the queues: they decide whether a decision is possible."""

    def __init__(self, ncpu: int) -> None:
        self.current = list(range(ncpu))
        self.queue: dict[int, int | str] = {}

    def take(self, kind: str, row: Row) -> list[tuple[Any, Any, Any]] | None:
        """Applies a decision and returns how to undo it; None if it is not possible."""
        cpu = row["cpu"]
        if kind == "switch":
            prev, new = row["prev_utid"], row["next_utid"]
            idle = new < len(self.current)
            if self.current[cpu] != prev or not (idle or self.queue.get(new) == cpu):
                return None
            changes: list[tuple[Any, Any, Any]] = [(self.current, cpu, new)]
            if prev >= len(self.current):
                changes.append((self.queue, prev, cpu if row["prev_state"] == "runnable" else ""))
            if not idle:
                changes.append((self.queue, new, "running"))
            return self._change(changes)
        utid = row["utid"]
        at = self.queue.get(utid, "")
        if kind == "migration":
            if at == "waking":
                return self._change([(self.queue, utid, f"to {row['to_cpu']}")])
            if at != row["from_cpu"]:
                return None
            return self._change([(self.queue, utid, row["to_cpu"])])
        if self.current[cpu] != row["current_utid"]:
            return None
        if row["kind"] == "enqueued":
            if at not in ("waking", f"to {row['target_cpu']}"):
                return None
        elif at != "":
            return None
        return self._change(
            [(self.queue, utid, "waking" if row["kind"] == "waking" else row["target_cpu"])]
        )

    def _change(self, changes: list[tuple[Any, Any, Any]]) -> list[tuple[Any, Any, Any]]:
        undo = []
        for where, key, value in changes:
            undo.append((where, key, where.get(key, "") if isinstance(where, dict) else where[key]))
            where[key] = value
        return undo[::-1]

    def undo(self, changes: list[tuple[Any, Any, Any]]) -> None:
        for where, key, value in changes:
            where[key] = value


def _in_order(trace: Trace, world: _World) -> Iterator[tuple[str, Row]]:
    tables = [
        ("migration", trace.migrations), ("wakeup", trace.wakeups), ("switch", trace.switches)
    ]  # fmt: skip
    rows = [(kind, row) for kind, table in tables for row in table.collect().rows(named=True)]
    rows.sort(key=lambda item: item[1]["ts"])
    for ts, group in groupby(rows, key=lambda item: item[1]["ts"]):
        instant = list(group)
        lists = [[item for item in instant if item[0] == kind] for kind, _ in tables]
        order = _order(lists, world)
        if order is None:
            raise Impossible(f"no order at {ts} ns: {instant}")
        yield from order


def _order(lists: list[list[tuple[str, Row]]], world: _World) -> list[tuple[str, Row]] | None:
    """The lists merged so that each decision is possible; the world is updated along."""
    at = [0] * len(lists)
    # A decision taken, its list, and how to undo it; then the next list to try.
    done: list[tuple[int, list[tuple[Any, Any, Any]]]] = []
    first = 0
    while any(n < len(items) for n, items in zip(at, lists, strict=True)):
        for which in range(first, len(lists)):
            if at[which] < len(lists[which]):
                undo = world.take(*lists[which][at[which]])
                if undo is not None:
                    at[which] += 1
                    done.append((which, undo))
                    first = 0
                    break
        else:
            if not done:
                return None
            which, undo = done.pop()
            world.undo(undo)
            at[which] -= 1
            first = which + 1
    counts = [0] * len(lists)
    order = []
    for which, _ in done:
        order.append(lists[which][counts[which]])
        counts[which] += 1
    return order
