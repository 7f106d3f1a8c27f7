"""The campaign of `whatif`: every workload under every intervention, predicted and then recorded.

Each workload is recorded `--runs` times as it is (side A) and as often under each intervention
(side B): other nice values, classes, masks, quotas and slices, of all its threads or those of one
name, and more load beside it.
From the recordings of side A together `whatif` predicts each cell, and those of side B say what
came. What is recorded or predicted already is not done again, so it can be stopped at any time.

    python benchmarks/campaign.py FOLDER [--only WORKLOAD,...] [--changes 'quota*'] [--seconds 600]
    python benchmarks/campaign.py FOLDER --page docs/whatif-campaign.md

FOLDER keeps the recordings and `cells.csv`, a row for each cell, service and figure, with date and
kernel. Half of the cells are set aside, as on a chessboard: no rule may be tuned on them, and they
are only predicted with `--prove`. Needs root, for ftrace, nice values and control groups, a C
compiler, and for the workload `sockets` hackbench.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import ctypes
import math
import os
import platform
import shutil
import signal
import statistics
import subprocess
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import polars as pl

import schedscope as ss
from schedscope.errors import SchedscopeError
from schedscope.simulator.services import figures, services
from schedscope.simulator.whatif_ranges import RANGES
from schedscope.trace import Trace
from schedscope.units import nanoseconds

HERE = Path(__file__).resolve().parent
CAPTURE = HERE.parent / "collectors" / "capture"

SCALE = 19
"""The microseconds of `work` are those of an emulated machine; a real one does so many times the
loops in one."""


@dataclass(frozen=True)
class Workload:
    """Its command (`work` stands for `lab/guest/work.c`), and the names of its two services."""

    command: str
    services: tuple[str, str]
    extras: str = ""
    by: str = "name"


WORKLOADS = {
    "hogs": Workload(f"work hogs {150 * SCALE} 0,0,0,5,10", ("hog[0-2]", "hog[34]"), by="comm"),
    "periodic": Workload(f"work sleepers 4 10000 {800 * SCALE} 100 2", ("hog*", "sleeper*")),
    "server": Workload(f"work server 8 400 1500 {2000 * SCALE}", ("worker*", "dispatcher*")),
    "build": Workload(f"work forks 4 30 {30000 * SCALE}", ("job*", "part*")),
    "pipes": Workload("work pipes 5 6000", ("writer*", "reader*")),
    "sockets": Workload("hackbench -g 1 -f 8 -l 150", ("hackbench", "hackbench"), "syscalls"),
}


@dataclass(frozen=True)
class Intervention:
    """What is set, for threads of `who`: 0 and 1 are the services, None all of them."""

    nice: int | None = None
    cpus: tuple[tuple[int | None, str], ...] = ()
    quota: str | None = None
    slice: str | None = None
    sched: str | None = None
    load: int | None = None
    who: int | None = None


NICES = (-10, 5, 10, 19)
INTERVENTIONS = {
    **{
        f"nice {n:+d} of {w + 1}": Intervention(nice=n, who=w)
        for w in (0, 1)
        for n in (-10, 5, 10, 19)
    },
    "one CPU": Intervention(cpus=((None, "0"),)),
    "1 on CPU 0": Intervention(cpus=((0, "0"),)),
    "2 on CPU 0": Intervention(cpus=((1, "0"),)),
    "a CPU each": Intervention(cpus=((0, "0"), (1, "1"))),
    **{f"quota {q}": Intervention(quota=q) for q in ("30%", "60%", "100%", "150%")},
    **{f"quota 25% of {w + 1}": Intervention(quota="25%", who=w) for w in (0, 1)},
    **{f"slice {s}": Intervention(slice=s) for s in ("500us", "1ms", "6ms", "12ms")},
    **{f"{c} of {w + 1}": Intervention(sched=c, who=w) for c in ("batch", "idle") for w in (0, 1)},
    **{f"{n} more": Intervention(load=n) for n in (1, 3)},
}
CLASSES = {"batch": os.SCHED_BATCH, "idle": os.SCHED_IDLE}


@dataclass(frozen=True)
class Cell:
    """A workload and an intervention; `aside` if it proves and must not be tuned on."""

    workload: str
    intervention: str
    aside: bool


def cells() -> Iterator[Cell]:
    """All of them that can be asked.

    Not an intervention on the second of two services of one name, and no quota where the names of
    a service are a set, which `whatif` does not take for a group.
    """
    for k, (label, asked) in enumerate(INTERVENTIONS.items()):
        for i, (name, workload) in enumerate(WORKLOADS.items()):
            both = workload.services[0] == workload.services[1]
            if both and (asked.who == 1 or any(who == 1 for who, _ in asked.cpus)):
                continue
            if asked.quota is not None and any("[" in one for one in workload.services):
                continue
            yield Cell(name, label, (i + k) % 2 == 1)


# --- Recording: threads are found by their names while they run, and set as asked. ---


def matching(workload: Workload, who: int | None) -> tuple[str, ...]:
    """Names of the threads of a service, or of both."""
    return workload.services if who is None else (workload.services[who],)


@dataclass
class Setter:
    """Sets what an intervention asks for on each thread as it appears, every few ms."""

    workload: Workload
    asked: Intervention
    root: int
    groups: Mapping[str, Path]
    done: set[int] = field(default_factory=set)
    end: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Until told to end."""
        while not self.end.is_set():
            for tid, comm in threads_below(self.root):
                if tid not in self.done:
                    self.set(tid, comm)
            self.end.wait(0.003)

    def set(self, tid: int, comm: str) -> None:
        """All that is asked for of this thread; one that has ended meanwhile is left."""
        known = any(fnmatch(comm, one) for one in matching(self.workload, None))
        if not known:
            return
        mine = any(fnmatch(comm, one) for one in matching(self.workload, self.asked.who))
        with contextlib.suppress(ProcessLookupError):
            if mine and self.asked.nice is not None:
                os.setpriority(os.PRIO_PROCESS, tid, self.asked.nice)
            for who, where in self.asked.cpus:
                if any(fnmatch(comm, one) for one in matching(self.workload, who)):
                    os.sched_setaffinity(tid, {int(where)})
            if mine and self.asked.sched is not None:
                os.sched_setscheduler(tid, CLASSES[self.asked.sched], os.sched_param(0))
            if mine and self.asked.slice is not None:
                set_slice(tid, nanoseconds(self.asked.slice))
            for pattern, group in self.groups.items():
                if fnmatch(comm, pattern):
                    (group / "tasks").write_text(str(tid))
            self.done.add(tid)


def threads_below(root: int) -> list[tuple[int, str]]:
    """Thread ids and names of a process and its descendants."""
    found, todo = [], [root]
    while todo:
        pid = todo.pop()
        with contextlib.suppress(OSError):
            for task in Path(f"/proc/{pid}/task").iterdir():
                with contextlib.suppress(OSError):
                    found.append((int(task.name), (task / "comm").read_text().rstrip("\n")))
                    todo += map(int, (task / "children").read_text().split())
    return found


class _Attributes(ctypes.Structure):
    """struct sched_attr of the kernel, version 0."""

    _fields_ = (
        *((name, ctypes.c_uint32) for name in ("size", "policy")),
        ("flags", ctypes.c_uint64),
        ("nice", ctypes.c_int32),
        ("priority", ctypes.c_uint32),
        *((name, ctypes.c_uint64) for name in ("runtime", "deadline", "period")),
    )


_SETATTR = {"x86_64": 314, "aarch64": 274}


def set_slice(tid: int, ns: int) -> None:
    """A slice of its own for a thread of the fair class (sched_setattr of Linux 6.12)."""
    nice = os.getpriority(os.PRIO_PROCESS, tid)
    asked = _Attributes(ctypes.sizeof(_Attributes), 0, 0, nice, 0, ns, 0, 0)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(_SETATTR[platform.machine()], tid, ctypes.byref(asked), 0):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


GROUPS = Path("/sys/fs/cgroup/cpu")
"""The cpu controller of cgroup 1, whose groups may hold single threads of a process."""


@contextlib.contextmanager
def quota_groups(workload: Workload, asked: Intervention | None) -> Iterator[dict[str, Path]]:
    """A control group with the quota for each service that it is asked for, while needed."""
    if asked is None or asked.quota is None:
        yield {}
        return
    if not (GROUPS / "cpu.shares").exists():
        raise SystemExit("quotas of single threads need the cpu controller of cgroup 1")
    made = {}
    for i, pattern in enumerate(dict.fromkeys(matching(workload, asked.who))):
        folder = GROUPS / f"schedscope-campaign-{i}"
        folder.mkdir(exist_ok=True)
        (folder / "cpu.cfs_period_us").write_text("100000")
        us = round(float(asked.quota.rstrip("%")) * 1000)
        (folder / "cpu.cfs_quota_us").write_text(str(us))
        made[pattern] = folder
    try:
        yield made
    finally:
        for folder in made.values():
            for _ in range(100):
                with contextlib.suppress(OSError):
                    folder.rmdir()
                    break
                time.sleep(0.05)


@contextlib.contextmanager
def added_load(asked: Intervention | None) -> Iterator[None]:
    """As many loops as are asked for, in a session of their own."""
    if asked is None or asked.load is None:
        yield
        return
    loops = f"for i in $(seq {asked.load}); do (while :; do :; done) & done; wait"
    running = subprocess.Popen(["sh", "-c", loops], start_new_session=True)
    try:
        yield
    finally:
        os.killpg(running.pid, signal.SIGKILL)
        running.wait()


def record(folder: Path, name: str, workload: Workload, asked: Intervention | None) -> Path:
    """The capture of this name, made if it is not there."""
    path = folder / f"{name}.capture"
    if path.exists():
        return path
    command = workload.command.split()
    if command[0] == "work":
        command = [str(folder.resolve() / "work"), "/dev/null", *command[1:]]
    extras = ["--with", workload.extras] if workload.extras else []
    half_made = path.with_name("half-made.capture")
    shutil.rmtree(half_made, ignore_errors=True)
    with added_load(asked), quota_groups(workload, asked) as groups:
        recorder = subprocess.Popen(
            ["sh", str(CAPTURE), "-q", *extras, "-o", str(half_made), "--", *command],
            stdout=subprocess.DEVNULL,
        )
        setter = Setter(workload, asked or Intervention(), recorder.pid, groups)
        beside = threading.Thread(target=setter.run)
        if asked:
            beside.start()
        status = recorder.wait()
        if asked:
            setter.end.set()
            beside.join()
    if status:
        raise SystemExit(f"recording {name} failed with status {status}")
    half_made.rename(path)
    return path


# --- Predicting. ---


def names_in(traces: Iterable[Trace], patterns: Iterable[str]) -> list[str]:
    """The names of threads that match, in any of the traces."""
    known = {
        name
        for trace in traces
        for name in trace.threads.select("comm").unique().collect()["comm"].drop_nulls()
    }
    return sorted(n for n in known if any(fnmatch(n, one) for one in patterns))


def question(workload: Workload, asked: Intervention, traces: list[Trace]) -> dict[str, Any]:
    """What `whatif` is asked for an intervention."""
    mine = names_in(traces, matching(workload, asked.who))
    found: dict[str, Any] = {}
    if asked.nice is not None:
        found["set_nice"] = dict.fromkeys(mine, asked.nice)
    if asked.cpus:
        found["pin"] = {
            name: where
            for who, where in asked.cpus
            for name in names_in(traces, matching(workload, who))
        }
    if asked.quota is not None:
        found["quota"] = dict.fromkeys(matching(workload, asked.who), asked.quota)
    if asked.slice is not None:
        found["slice"] = asked.slice
    if asked.sched is not None:
        found["set_class"] = dict.fromkeys(mine, asked.sched)
    if asked.load is not None:
        found["add_load"] = asked.load
    return found


def measured(trace: Trace, workload: Workload) -> dict[str, dict[str, Any]]:
    """The figures of each service of the workload, as `whatif` tells them."""
    mine = trace.threads.filter(pl.col("comm").is_in(names_in([trace], workload.services)))
    named = services(trace, workload.by).join(mine.select("utid").collect(), on="utid")
    return figures(trace, named)


COLUMNS = (
    *("workload", "intervention", "half", "service", "figure", "verdict", "date", "kernel"),
    *("before", "before_low", "before_high", "after", "after_low", "after_high"),
    *("predicted", "low", "high", "inside", "runs"),
)


def predict(cell: Cell, before: list[Path], after: list[Path]) -> list[dict[str, Any]]:
    """The rows of a cell."""
    workload, asked = WORKLOADS[cell.workload], INTERVENTIONS[cell.intervention]
    was, then = ([ss.open(path) for path in paths] for paths in (before, after))
    common = {
        "workload": cell.workload,
        "intervention": cell.intervention,
        "half": "aside" if cell.aside else "open",
        "date": datetime.now(UTC).date().isoformat(),
        "kernel": was[0].info.get("release"),
        "runs": len(after),
    }
    comm = names_in(was, workload.services)
    try:
        frame = ss.whatif(was, by=workload.by, comm=comm, **question(workload, asked, was))
    except SchedscopeError as error:
        return [{**common, "service": "", "figure": "", "verdict": f"error: {error}"}]
    real_before, real_after = ([measured(t, workload) for t in traces] for traces in (was, then))
    rows = []
    for row in frame.filter(configuration="changed").iter_rows(named=True):
        service = row[workload.by]
        if not all(service in one for one in (*real_before, *real_after)):
            continue
        for figure in RANGES:
            old = sorted(one[service][figure] or 0 for one in real_before)
            new = sorted(one[service][figure] or 0 for one in real_after)
            low, high = row[f"{figure}_low"], row[f"{figure}_high"]
            rows.append(
                {
                    **common,
                    "service": service,
                    "figure": figure,
                    "verdict": row["verdict"],
                    **_spread("before", old),
                    **_spread("after", new),
                    "predicted": row[figure],
                    "low": low,
                    "high": high,
                    "inside": None if low is None else sum(low <= x <= high for x in new),
                }
            )
    return rows


def _spread(name: str, values: list[int]) -> dict[str, int]:
    return {name: values[len(values) // 2], f"{name}_low": values[0], f"{name}_high": values[-1]}


# --- The table, and what it comes to. ---


def read(table: Path) -> list[dict[str, Any]]:
    """The rows that are there."""
    if not table.exists():
        return []
    with table.open(newline="") as file:
        return [
            {k: _number(v) if k in COLUMNS[8:] else v for k, v in row.items()}
            for row in csv.DictReader(file)
        ]


def _number(text: str) -> int | None:
    return int(text) if text else None


def write(table: Path, rows: list[dict[str, Any]]) -> None:
    """All rows, in order of the cells."""
    with table.with_suffix(".new").open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    table.with_suffix(".new").replace(table)


def factor(a: float, b: float, floor: float = 1e6) -> float:
    """By how many times two times differ; below a millisecond they do not."""
    a, b = max(a, floor), max(b, floor)
    return max(a / b, b / a)


def summary(rows: list[dict[str, Any]]) -> list[str]:
    """Lines of a Markdown table: what the cells come to, for each figure and verdict."""
    lines = [
        "| half | figure | verdict | rows | direction right | factor off, median | two real runs"
        " | no change | runs inside the range (stated: 90 %) |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    keys = sorted({(r["half"], r["figure"], r["verdict"]) for r in rows if r["figure"]})
    for key in keys:
        mine = [r for r in rows if (r["half"], r["figure"], r["verdict"]) == key]
        told = [r for r in mine if r["predicted"] is not None]
        if not told:
            lines.append(f"| {' | '.join(key)} | {len(mine)} | - | - | - | - | - |")
            continue
        apart = [
            r
            for r in told
            if r["before_high"] < r["after_low"] or r["after_high"] < r["before_low"]
        ]
        right = sum((r["predicted"] > r["before"]) == (r["after"] > r["before"]) for r in apart)
        off = statistics.median(factor(r["predicted"], r["after"]) for r in told)
        noise = statistics.median(math.sqrt(factor(r["after_low"], r["after_high"])) for r in told)
        still = statistics.median(factor(r["before"], r["after"]) for r in told)
        inside, runs = sum(r["inside"] for r in told), sum(r["runs"] for r in told)
        lines.append(
            f"| {' | '.join(key)} | {len(mine)} | {right} of {len(apart)} | {off:.2f} |"
            f" {noise:.2f} | {still:.2f} | {inside} of {runs} ({inside / runs:.0%}) |"
        )
    return lines


def _apart(row: Mapping[str, Any]) -> bool:
    return bool(row["before_high"] < row["after_low"] or row["after_high"] < row["before_low"])


def every_cell(rows: list[Mapping[str, Any]]) -> list[str]:
    """Lines of a Markdown table with each row, in ms."""
    lines = [
        "| workload | change | half | service | figure | before | predicted | after | verdict |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for r in rows:
        head = f"| {r['workload']} | {r['intervention']} | {r['half']} | {r['service']} |"
        if not r["figure"]:
            lines.append(f"{head} - | - | - | - | {r['verdict']} |")
            continue
        ms = {k: _ms(r[k]) for k in COLUMNS[8:-2]}
        said = "-" if r["predicted"] is None else f"{ms['predicted']} [{ms['low']}, {ms['high']}]"
        real = f"{ms['after']} ({ms['after_low']} to {ms['after_high']})"
        lines.append(
            f"{head} {r['figure']} | {ms['before']} ({ms['before_low']} to {ms['before_high']}) |"
            f" {said} | {real} | {r['verdict']} |"
        )
    return lines


def _ms(ns: int | None) -> str:
    if ns is None:
        return "-"
    return f"{ns / 1e6:,.0f}" if ns >= 1e8 else f"{ns / 1e6:.3g}"


BEGIN, END = "<!-- the tables of benchmarks/campaign.py -->", "<!-- end of the tables -->"


def put_into(page: Path, rows: list[dict[str, Any]]) -> None:
    """The tables, between their marks on the page."""
    head, _, rest = page.read_text().partition(BEGIN)
    _, _, tail = rest.partition(END)
    page.write_text(
        "\n".join([head + BEGIN, "", *summary(rows), "", *every_cell(rows), "", END]) + tail
    )


def main() -> None:
    """Record, predict, and say what it comes to."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--runs", type=int, default=5, metavar="N")
    parser.add_argument("--only", metavar="NAME,...", help=f"of {', '.join(WORKLOADS)}")
    parser.add_argument("--changes", metavar="PATTERN", help="such interventions alone: 'quota*'")
    parser.add_argument("--seconds", type=float, metavar="S", help="begin no cell after S seconds")
    parser.add_argument("--prove", action="store_true", help="the cells set aside, too")
    parser.add_argument("--page", type=Path, metavar="FILE.md", help="put the tables into a page")
    args = parser.parse_args()
    args.folder.mkdir(exist_ok=True)
    table = args.folder / "cells.csv"
    rows = read(table)
    if args.page:
        put_into(args.page, rows)
        return
    source = HERE.parent / "lab" / "guest" / "work.c"
    work = args.folder / "work"
    subprocess.run(["cc", "-O2", "-pthread", "-o", str(work), str(source)], check=True)
    begun = time.monotonic()
    only = args.only.split(",") if args.only else list(WORKLOADS)
    order = {(c.workload, c.intervention): i for i, c in enumerate(cells())}
    for cell in cells():
        key = (cell.workload, cell.intervention)
        known = {(r["workload"], r["intervention"]) for r in rows}
        if cell.workload not in only or key in known or (cell.aside and not args.prove):
            continue
        if args.changes and not fnmatch(cell.intervention, args.changes):
            continue
        if args.seconds is not None and time.monotonic() - begun > args.seconds:
            break
        workload, asked = WORKLOADS[cell.workload], INTERVENTIONS[cell.intervention]
        label = f"{cell.workload}.{cell.intervention.replace(' ', '-').replace('%', '')}"
        before, after = [], []
        for i in range(args.runs):
            before.append(record(args.folder, f"{cell.workload}.{i}", workload, None))
            after.append(record(args.folder, f"{label}.{i}", workload, asked))
        rows += predict(cell, before, after)
        rows.sort(key=lambda r: order.get((r["workload"], r["intervention"]), len(order)))
        write(table, rows)
        print(f"{' '.join(key)}: done after {time.monotonic() - begun:.0f} s", flush=True)
    print("\n".join(summary(rows)))


if __name__ == "__main__":
    main()
