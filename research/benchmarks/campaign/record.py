"""Recordings of the campaign of `whatif`: a workload as it is, or with something set.

Threads are found by their names while they run, and set as asked. The rest of the host is kept away
meanwhile (`quiet`).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path

from quiet import Quiet

from campaign.cells import CLASSES, Intervention, Workload
from schedscope.units import nanoseconds

CAPTURE = Path(__file__).resolve().parents[3] / "collectors" / "capture"


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
        """Runs until it is stopped."""
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
                    comm = (task / "comm").read_text(errors="replace").rstrip("\n")
                    found.append((int(task.name), comm))
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


def record(
    folder: Path, name: str, workload: Workload, asked: Intervention | None, quiet: Quiet
) -> Path:
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
    environment = {**os.environ, "CPUTIME": "1"}
    with quiet.while_recording(), added_load(asked), quota_groups(workload, asked) as groups:
        recorder = subprocess.Popen(
            ["sh", str(CAPTURE), "-q", *extras, "-o", str(half_made), "--", *command],
            stdout=subprocess.DEVNULL,
            env=environment,
        )
        setter = Setter(workload, asked or Intervention(), recorder.pid, groups)
        beside = threading.Thread(target=setter.run)
        # It takes CPU time itself, so it looks for threads also where nothing is to be set.
        beside.start()
        status = recorder.wait()
        setter.end.set()
        beside.join()
    if status:
        raise SystemExit(f"recording {name} failed with status {status}")
    half_made.rename(path)
    return path
