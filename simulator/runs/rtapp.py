"""rt-app's JSON: out, for what it can express, and in.

rt-app (github.com/scheduler-tools/rt-app) runs synthetic threads on a real
Linux host from a JSON file; its times are microseconds. What is translated:

| schedscope | rt-app |
|---|---|
| run | `runtime` (wall time spent computing), read also from `run` |
| sleep | `sleep` |
| signal, wait_for | `resume` and `suspend`, one name for each pair |
| wait_for any thread | `suspend` under the waiter's own name |
| cost of a signal, wait_for | `runtime` after it |
| lock, unlock | `lock` and `unlock` of `mutex0`, ... |
| cond_wait | `wait` with `ref` and `mutex` |
| cond_signal, cond_broadcast | `signal`, `broad`; read also from `sync`, with the wait that it is |
| barrier | `barrier`: as many threads as name it |
| yield | `sched_yield` (written as a phase of its own) |
| repeat over the whole program | `loop` |
| class, nice, rt_prio | `policy`, `priority` |
| dl_runtime, dl_deadline, dl_period | `dl-runtime`, `dl-deadline`, `dl-period` |
| cpus | `cpus` |
| start | `delay` |
| fork | `fork`; of a recording a `delay` instead (`exported`) |

Not expressed: wait_until, read_clock, set_affinity, set_priority, absolute signal counts
(rt-app's `resume` of a thread that does not wait is lost), repeats inside a
program, disk sleeps (become plain ones). `to_rtapp` names what it left out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import polars as pl

from schedscope.errors import FormatError, UsageError
from schedscope.parsers.trace_json import shown
from schedscope.simulator.recorded.extract import extract_with_utids
from schedscope.simulator.workloads.builder import Builder, Program
from schedscope.simulator.workloads.workload import Workload, cpu_list

if TYPE_CHECKING:
    from schedscope.simulator.runs.replay import Replay

_REALTIME = ("fifo", "rr", "deadline")
_HIGHEST = 99
MOST_INSTANCES = 20_000
"""Threads of one task; more are a slip of the pen."""

_SHORT = 11
"""Of 15 characters that a thread's name may have."""

_POLICIES = {"fifo": "SCHED_FIFO", "rr": "SCHED_RR", "fair": "SCHED_OTHER", "idle": "SCHED_IDLE"}
_RESERVATION = {"dl-runtime": "dl_runtime", "dl-deadline": "dl_deadline", "dl-period": "dl_period"}
"""rt-app's names of what SCHED_DEADLINE gives, in us, and ours, in ns."""
_CLASSES = {
    **{v: k for k, v in _POLICIES.items()},
    "SCHED_BATCH": "batch",
    "SCHED_DEADLINE": "deadline",
}


def to_rtapp(workload: Workload, *, duration: int = -1) -> tuple[dict[str, Any], dict[str, int]]:
    """The workload as an rt-app document, and how many steps of each kind it cannot express.

    `duration`, in seconds, ends the run there; with -1 it ends when the threads do.
    """
    ncpu = workload.machine.ncpu if workload.machine else None
    lost: dict[str, int] = {}
    tasks: dict[str, Any] = {}
    programs = {
        key[0]: frame.to_dicts()
        for key, frame in workload.steps.partition_by(
            "program", as_dict=True, maintain_order=True
        ).items()
    }
    names = _names(workload)
    starts = workload.threads["start"].to_list()
    waits = workload.steps.filter((pl.col("op") == "wait_for") & pl.col("thread").is_null())
    open_programs = set(waits["program"].to_list())
    # Threads that wait for any thread: a signal resumes them under their own name.
    hear_anyone = {
        i for i, p in enumerate(workload.threads["program"].to_list()) if p in open_programs
    }
    for i, thread in enumerate(workload.threads.to_dicts()):
        task: dict[str, Any] = {
            "policy": _POLICIES.get(thread["class"], "SCHED_OTHER"),
            "priority": thread["rt_prio"] if thread["class"] in _REALTIME else thread["nice"],
            "loop": 1,
        }
        if thread["class"] == "deadline":
            # rt-app's deadline class needs a runtime: without one the thread at least outranks all
            # others.
            task["policy"] = "SCHED_FIFO"
            if thread["dl_runtime"] is not None:
                given = {key: thread[name] // 1000 for key, name in _RESERVATION.items()}
                task.update(policy="SCHED_DEADLINE", priority=0, **given)
        if thread["cpus"] is not None:
            task["cpus"] = cpu_list(thread["cpus"], ncpu or 4096)
        if thread["start"]:
            task["delay"] = thread["start"] // 1000
        phases: dict[str, Any] = {}
        steps = programs.get(thread["program"], [])
        for n, step in enumerate(steps):
            if step["op"] == "fork" and starts[step["thread"]] is not None:
                continue  # it begins by itself
            phase = _phase(step, i, names, hear_anyone)
            if step["op"] == "repeat" and step["step"] == 0 and n == len(steps) - 1:
                task["loop"] = -1 if step["count"] is None else step["count"] + 1
            elif phase is None:
                if step["op"] not in ("exit", "park"):
                    lost[step["op"]] = lost.get(step["op"], 0) + 1
            else:
                # A cost is plain running time there, in a phase of its own.
                for part in (phase, _cost(step)):
                    if part:
                        phases[f"p{len(phases)}"] = {"loop": 1, **part}
        if phases:
            task["phases"] = phases
        if thread["start"] is None:
            task["instance"] = 0
        tasks[names[i]] = task
    document = {
        "global": {"duration": duration, "calibration": "CPU0", "default_policy": "SCHED_OTHER"},
        "tasks": tasks,
    }
    return document, lost


def _names(workload: Workload) -> list[str]:
    """A name of its own for each thread: rt-app's tasks are the keys of an object.

    rt-app also names a log file after each, so that a name may have no `/`, and a thread, which has
    room for `_SHORT` characters and its own number.
    """
    seen: set[str] = set()
    names = []
    for given in workload.threads["name"].to_list():
        plain = re.sub(r"[^A-Za-z0-9_.+-]", "_", given) or "_"
        name, n = plain[:_SHORT], 0
        while name in seen:
            n += 1
            name = f"{plain[: _SHORT - 1 - len(str(n))]}.{n}"
        seen.add(name)
        names.append(name)
    return names


def exported(way: Replay) -> Workload:
    """The part of a recording that a program can repeat: the replayed threads except kernel
    threads.

    Wakes by threads that are left out become sleeps. Threads that others started begin when they
    did in the recording, by a `delay`: rt-app 1.0 crashes on documents with many forks.
    """
    trace = way.trace
    known = trace.threads.select("utid", kernel=pl.col("kernel").fill_null(False)).collect()
    mine = way.utids.drop_nulls()
    users = known.filter(~pl.col("kernel"), pl.col("utid").is_in(mine.implode()))["utid"]
    if users.is_empty():
        raise UsageError(
            "an export of threads of the kernel",
            "threads of processes",
            "rt-app can start no others",
        )
    where = pl.col("utid").is_in(users.implode())
    workload, utids = extract_with_utids(
        trace, external=way.workload.info["external"], cut="park", where=where
    )
    began = trace.threads.select("utid", at=pl.col("start_ts") - trace.window[0]).collect()
    began = utids.to_frame("utid").join(began, on="utid", how="left", maintain_order="left")
    threads = workload.threads.with_columns(start=pl.coalesce("start", began["at"].clip(0)))
    return replace(workload, threads=threads)


def _phase(
    step: Mapping[str, Any], me: int, names: list[str], hear_anyone: set[int]
) -> dict[str, Any] | None:
    match step["op"]:
        case "run":
            return {"runtime": max(1, round(step["ns"] / 1000))}
        case "sleep" | "sleep_ticks":
            return {"sleep": max(1, round(step["ns"] / 1000))}
        case "signal" if step["thread"] in hear_anyone:
            return {"resume": names[step["thread"]]}
        case "signal":
            return {"resume": f"{names[me]}->{names[step['thread']]}"}
        case "wait_for" if step["thread"] is None:
            return {"suspend": names[me]}
        case "wait_for" if me not in hear_anyone:
            return {"suspend": f"{names[step['thread']]}->{names[me]}"}
        case "lock" | "unlock":
            return {step["op"]: f"mutex{step['mutex']}"}
        case "cond_wait":
            mutex = f"mutex{step['mutex']}"
            return {"wait": {"ref": f"condition{step['condition']}", "mutex": mutex}}
        case "cond_signal" | "cond_broadcast":
            event = "signal" if step["op"] == "cond_signal" else "broad"
            return {event: f"condition{step['condition']}"}
        case "barrier":
            return {"barrier": f"barrier{step['barrier']}"}
        case "yield":
            return {"yield": ""}
        case "fork":
            return {"fork": names[step["thread"]]}
    return None


def _cost(step: Mapping[str, Any]) -> dict[str, int]:
    """The extra cost of a wake or a wait, which rt-app can only charge always."""
    times = ("run", "sleep", "sleep_ticks", "wait_until", "read_clock", "put", "take")
    if step["op"] in times or not step["ns"]:
        return {}
    return {"runtime": max(1, round(step["ns"] / 1000))}


def from_rtapp(document: Mapping[str, Any] | str) -> Workload:
    """A workload from an rt-app document (or its text).

    Understood: tasks with `instance`, `loop`, `policy`, `priority`, `cpus`, `delay` and the events
    `run`, `runtime`, `sleep`, `timer` (the rest of its period is slept, counted from the last
    release if all runs fit), `suspend`/`resume`, `lock`/`unlock`, `wait`, `signal`, `broad`,
    `sync`, `barrier`, `yield`, `fork`, alone or in `phases` with `loop`. Memory and I/O events
    raise `UsageError`, naming the task, as do
    values that are not numbers; `FormatError` if it is not an rt-app document at all.

    >>> from_rtapp('{"tasks": {"t": {"loop": 3, "run": 1000, "sleep": 4000}}}').cpu_time
    1000000
    """
    if isinstance(document, str):
        try:
            document = json.loads(document)
        except RecursionError as error:
            raise FormatError("rt-app file: nested too deeply", "rt-app's JSON") from error
        except ValueError as error:
            raise FormatError(
                f"rt-app file: {str(error)[:200]}",
                "JSON",
                "rt-app's own comments are not JSON: remove them",
            ) from error
    tasks = document.get("tasks") if isinstance(document, Mapping) else None
    if not isinstance(tasks, Mapping) or not tasks:
        raise FormatError("an rt-app file without tasks", "an object `tasks`")
    b = Builder()
    made: dict[str, list[Program]] = {}
    channels: dict[str, list[Program]] = {}
    for name, task in tasks.items():
        _check_shape(name, task)
        sched = _CLASSES.get(task.get("policy", "SCHED_OTHER"))
        if sched is None:
            known = ", ".join(_CLASSES)
            raise UsageError(f"task {name}: policy {task['policy']}", f"one of {known}")
        realtime = sched in _REALTIME
        number = _number(name, "priority", task.get("priority", 10 if realtime else 0))
        given = {}
        if sched == "deadline":
            number = _HIGHEST
            period = task.get("dl-period", task.get("dl-deadline"))
            wanted = {"dl-deadline": period, "dl-period": period, **task}
            given = {
                ours: _number(name, theirs, wanted.get(theirs)) * 1000
                for theirs, ours in _RESERVATION.items()
            }
        cpus = task.get("cpus")
        instances = _number(name, "instance", task.get("instance", 1))
        if not 0 <= instances <= MOST_INSTANCES:
            raise UsageError(
                f"task {name}: instance {instances}", f"a number from 0 to {MOST_INSTANCES}"
            )
        forked = instances == 0
        made[name] = [
            b.thread(
                name if instances < 2 else f"{name}-{i}",
                sched=sched,
                nice=0 if realtime else number,
                rt_prio=number if realtime else 0,
                cpus=None if cpus is None else ",".join(str(c) for c in cpus),
                start=None if forked else _number(name, "delay", task.get("delay", 0)) * 1000,
                **given,
            )
            for i in range(max(1, instances))
        ]
        for program in made[name]:
            for suspend in dict.fromkeys(_events(task, "suspend")):
                channels.setdefault(suspend or name, []).append(program)
    locks = _Locks(b, _at_barriers(tasks, made))
    resumers: dict[str, list[Program]] = {}
    for name, task in tasks.items():
        for resumed in dict.fromkeys(_events(task, "resume")):
            resumers.setdefault(resumed, []).extend(made[name])
    for name, task in tasks.items():
        for program in made[name]:
            _fill(program, name, task, made, channels, resumers, locks)
    return b.workload(source="rt-app")


class _Locks:
    """Mutexes, conditions and barriers by the names that a file gives them."""

    def __init__(self, builder: Builder, at_barriers: Mapping[str, int]) -> None:
        self._make = {
            "mutex": builder.mutex,
            "condition": builder.condition,
            "barrier": builder.barrier,
        }
        self._known: dict[tuple[str, str], int] = {}
        self._at_barriers = at_barriers

    def number(self, kind: str, name: str) -> int:
        key = (kind, name)
        if key not in self._known:
            self._known[key] = self._make[kind]()
        return self._known[key]

    def add(self, program: Program, task: str, key: str, value: Any) -> None:
        """The steps of an event, such as `"lock": "m"` or `"wait": {"ref": "c", "mutex": "m"}`."""
        event = _kind(key)
        if event in ("wait", "sync"):
            if not isinstance(value, Mapping) or not {"ref", "mutex"} <= value.keys():
                raise UsageError(
                    f"task {task}: {key} {shown(value)}",
                    "an object with `ref`, a condition, and `mutex`",
                )
            condition = self.number("condition", str(value["ref"]))
            if event == "sync":
                program.cond_signal(condition)
            program.cond_wait(condition, self.number("mutex", str(value["mutex"])))
            return
        if not isinstance(value, str):
            raise UsageError(f"task {task}: {key} {shown(value)}", "a name")
        match event:
            case "lock":
                program.lock(self.number("mutex", value))
            case "unlock":
                program.unlock(self.number("mutex", value))
            case "signal":
                program.cond_signal(self.number("condition", value))
            case "broad":
                program.cond_broadcast(self.number("condition", value))
            case _:
                program.barrier(self.number("barrier", value), self._at_barriers[value])


def _at_barriers(tasks: Mapping[str, Any], made: Mapping[str, list[Program]]) -> dict[str, int]:
    """How many threads come to each barrier: those whose tasks name it."""
    found: dict[str, int] = {}
    for name, task in tasks.items():
        for barrier in dict.fromkeys(_events(task, "barrier")):
            found[barrier] = found.get(barrier, 0) + len(made[name])
    return found


def _check_shape(name: str, task: Any) -> None:
    if not isinstance(task, Mapping):
        raise FormatError(
            f"task {name}: {shown(task)}", "an object with the task's settings and events"
        )
    if not isinstance(task.get("policy", ""), str):
        raise FormatError(f"task {name}: policy {shown(task['policy'])}", "a name")
    phases = task.get("phases")
    if phases is not None and not (
        isinstance(phases, Mapping) and all(isinstance(p, Mapping) for p in phases.values())
    ):
        raise FormatError(f"task {name}: phases {shown(phases)}", "an object of objects")
    cpus = task.get("cpus")
    if cpus is not None and not (isinstance(cpus, list) and all(type(c) is int for c in cpus)):
        raise FormatError(f"task {name}: cpus {shown(cpus)}", "a list of numbers", "as in [0, 1]")


def _number(name: str, key: str, value: Any) -> int:
    # Compared first: an integer may be too large for a float.
    if isinstance(value, (int, float)) and -(2**50) < value < 2**50:
        return int(value)
    raise UsageError(
        f"task {name}: {key} {shown(value)}", "a number below 2^50", "times are microseconds"
    )


def _events(task: Mapping[str, Any], kind: str) -> list[str]:
    found = []
    for phase in (task.get("phases") or {"": task}).values():
        found += [str(v) for k, v in phase.items() if _kind(k) == kind]
    return found


def _kind(key: str) -> str:
    # An object has each key once: rt-app takes run0, run1, ... as run.
    return key.rstrip("0123456789")


_SETTINGS = {
    "loop",
    "policy",
    "priority",
    "cpus",
    "delay",
    "instance",
    "phases",
    "dl-runtime",
    "dl-period",
    "dl-deadline",
    "util_min",
    "util_max",
}


def _fill(
    program: Program,
    name: str,
    task: Mapping[str, Any],
    made: Mapping[str, list[Program]],
    channels: Mapping[str, list[Program]],
    resumers: Mapping[str, list[Program]],
    locks: _Locks,
) -> None:
    phases = task.get("phases")
    loop = _number(name, "loop", task.get("loop", -1 if phases is None else 1))
    for phase in (phases or {"": {**task, "loop": 1}}).values():
        begin = len(program.steps)
        used = 0
        for key, value in phase.items():
            kind = _kind(key)
            if key in _SETTINGS:
                continue
            match kind:
                case "run" | "runtime":
                    us = _number(name, key, value)
                    program.run(us * 1000)
                    used += us * 1000
                case "sleep":
                    program.sleep(_number(name, key, value) * 1000)
                case "timer":
                    given = value.get("period", 0) if isinstance(value, Mapping) else value
                    period = _number(name, key, given) * 1000
                    program.sleep(max(0, period - used))
                    used = 0
                case "suspend":
                    # If only one thread resumes a name, the wait is for that thread.
                    senders = resumers.get(str(value) or name, [])
                    alone = str(value) not in ("", name) and len(senders) == 1
                    program.wait_for(senders[0] if alone else None)
                case "resume":
                    waiting = channels.get(str(value)) or made.get(str(value))
                    if not waiting:
                        raise UsageError(
                            f"task {name}: {key} {shown(value)}",
                            "a name on which a task suspends",
                        )
                    for other in waiting:
                        program.signal(other)
                case "lock" | "unlock" | "wait" | "signal" | "broad" | "sync" | "barrier":
                    locks.add(program, name, key, value)
                case "yield":
                    program.yield_()
                case "fork":
                    for child in made.get(str(value), []):
                        program.fork(child)
                case _:
                    raise UsageError(
                        f"task {name}: event {key!r}",
                        "run, runtime, sleep, timer, suspend, resume, lock, unlock, wait, signal, "
                        "broad, sync, barrier, yield or fork",
                        "leave the event out, or write the workload with schedscope.workload",
                    )
        _repeat(program, _number(name, "loop", phase.get("loop", 1)), begin)
    _repeat(program, loop, 0)


def _repeat(program: Program, loop: int, to: int) -> None:
    if loop == -1:
        program.repeat(to=to)
    elif loop > 1 and len(program.steps) > to:
        program.repeat(loop, to=to)
