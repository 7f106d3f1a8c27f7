"""Whose weight decides between two threads that want one CPU, if they are in control groups?

Linux shares a CPU's time level by level (kernel/sched/fair.c, `struct sched_entity`): a group is
one entity in its parent's queue, with the group's weight, whatever runs inside. Two threads of
different groups compete as the two entities in which their paths first differ; only within one
group do their nice levels decide. Where autogroup is on, each session is such a group for threads
outside of all others (kernel/sched/autogroup.c), with the weight of its own nice level.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import polars as pl

from schedscope.analysis.threads.levels import LINUX_WEIGHTS, linux_priorities
from schedscope.analysis.threads.memberships import gone, guessed, unsettled

if TYPE_CHECKING:
    from schedscope.store.trace import Trace

AUTOGROUP = "/proc/sys/kernel/sched_autogroup_enabled"

_SCALE = 10.24
"""What one of `cpu.weight` is in the kernel's own weights: 100 is 1024."""
_FEW = 0.01
"""Of the CPU time wanted: threads of unknown groups that are less change nothing."""


def group_weights(trace: Trace) -> dict[str, Any] | None:
    """The control groups and sessions that share a CPU's time first; None where they are unknown,
    there are none, or the scheduler knows no weights, as ULE does."""
    return GroupWeights(trace).to_native() if linux_priorities(trace) else None


class Deciding(NamedTuple):
    """Two weights that compete, and the groups or sessions that have them; None: the threads."""

    one: int
    other: int
    group: str | None = None
    other_group: str | None = None


class GroupWeights:
    """The weights of a trace's control groups and sessions."""

    def __init__(self, trace: Trace) -> None:
        """Read what the recorder found."""
        self.trace = trace
        groups = trace.info.get("groups") or []
        found = {
            str(group["cgroup"]): int(group["weight"]) for group in groups if group.get("weight")
        }
        tunables = trace.metadata("scheduler", "tunables") or {}
        self.known = bool(groups)
        self.gone, self.guessed = gone(trace), guessed(trace) if self.known else set()
        self.autogroup = tunables.get(AUTOGROUP) == "1"
        # Only version 1 has a weight of the root, as which no thread competes, and the kernel's
        # scale.
        self.version_1 = bool(found.pop("/", None))
        self.scale = 1.0 if self.version_1 else _SCALE
        self.weight = found
        self.sessions: dict[int, str] = {}
        """The session of each thread, by utid; empty: of none. Threads that are not there are
        unknown."""
        rows = trace.info.get("autogroups") or []
        if self.autogroup and rows:
            self._read_sessions({row["pid"]: row for row in rows})

    def _read_sessions(self, rows: dict[int, dict[str, int]]) -> None:
        weight = {}
        for row in rows.values():
            kernel = LINUX_WEIGHTS[min(max(row["nice"], -20), 19) + 20]
            weight[f"session {row['session']}"] = round(kernel / self.scale)
        self.weight |= weight
        threads = self.trace.threads.select(
            "utid", "pid", "kernel", "start_ts", "parent_utid"
        ).sort("start_ts", nulls_last=False)
        for utid, pid, kernel, start, parent in threads.collect().iter_rows():
            if pid in rows:
                self.sessions[utid] = f"session {rows[pid]['session']}"
            elif kernel or start is None:
                self.sessions[utid] = ""
            elif parent in self.sessions:
                # A child is of its parent's session, until it makes one of its own.
                self.sessions[utid] = self.sessions[parent]

    def path(self, cgroup: str | None, utid: int | None = None) -> tuple[str, ...] | None:
        """The groups with a weight of their own that a thread's control group lies in, outermost
        first; None if it is not known where CPU time is shared first, as of a group that was gone
        when recording ended, or if the thread may have entered another one unseen.

        Where autogroup is on, threads outside of all groups share by session.
        """
        if cgroup is None or not self.known:
            return None
        parts = cgroup.strip("/").split("/")
        above = ["/" + "/".join(parts[: n + 1]) for n in range(len(parts))]
        if cgroup in self.gone or utid in self.guessed:
            return None
        found = tuple(path for path in above if path in self.weight)
        if found or not self.autogroup:
            return found
        session = self.sessions.get(utid) if utid is not None else None
        return None if session is None else (session,) if session else ()

    def compare(
        self,
        one: str | None,
        other: str | None,
        weights: tuple[int, int],
        utids: tuple[int | None, int | None] = (None, None),
    ) -> Deciding | None:
        """The two weights that decide between threads in groups `one` and `other`, and whose.

        `weights` are the threads' own. None where they are not known, or a thread competes with
        a group, whose weights have another scale.
        """
        left, right = self.path(one, utids[0]), self.path(other, utids[1])
        if left is None or right is None:
            return None
        same = 0
        while same < min(len(left), len(right)) and left[same] == right[same]:
            same += 1
        if same == len(left) == len(right):
            return Deciding(*weights)
        if same == len(left) or same == len(right):
            return None
        own, others = left[same], right[same]
        return Deciding(self.weight[own], self.weight[others], own, others)

    def to_native(self) -> dict[str, Any] | None:
        """The groups for `CpuHistory.due`; None where nothing is known of them, or there are none.

        A thread that moved counts in its last group, and one of an unknown group in none; only
        where both together want little CPU time.
        """
        paths = self._paths()
        return None if self._doubtful(paths) else self._shares(paths)

    def sharing(self) -> Literal["groups", "one", "doubtful", "unknown"]:
        """Do threads share a CPU as `groups`, or as `one` set? `doubtful`: too many threads have an
        unknown group; `unknown`: the trace does not say which groups there are.
        """
        paths = self._paths()
        if paths:
            return "doubtful" if self._doubtful(paths) else "groups"
        return "one" if self.known and (self.sessions or not self.autogroup) else "unknown"

    def undecided(self) -> bool:
        """Do threads compete as groups, while too many threads have an unknown group?

        Then what was due to a thread is unknown.
        """
        paths = self._paths()
        return any(path for path in paths.values()) and self._doubtful(paths)

    def _paths(self) -> dict[int, tuple[str, ...] | None]:
        """The groups of each thread but the idle ones; empty where all threads share as one."""
        if not self.known or not self.weight:
            return {}
        threads = self.trace.threads.select(pl.col("utid").cast(pl.UInt32), "cgroup").collect()
        paths = {
            utid: self.path(cgroup, utid)
            for utid, cgroup in threads.iter_rows()
            if utid >= self.trace.ncpu
        }
        return paths if len(set(paths.values())) > 1 else {}

    def _doubtful(self, paths: dict[int, tuple[str, ...] | None]) -> bool:
        """Do threads of an unknown group, or that moved, want more than a little CPU time?"""
        moved = set(unsettled(self.trace).to_list())
        doubtful = [utid for utid, path in paths.items() if path is None or utid in moved]
        if not doubtful:
            return False
        every, part = (
            self.trace.states.filter(
                pl.col("state").is_in(["running", "runnable"]), pl.col("utid") >= self.trace.ncpu
            )
            .select(
                every=pl.col("dur").sum(),
                doubtful=pl.col("dur").filter(pl.col("utid").is_in(doubtful)).sum(),
            )
            .collect()
            .row(0)
        )
        return bool(part > _FEW * every)

    def _shares(self, paths: dict[int, tuple[str, ...] | None]) -> dict[str, Any] | None:
        if not paths:
            return None
        numbers: dict[tuple[str, ...], int] = {}
        for path in paths.values():
            for depth in range(1, len(path or ()) + 1):
                numbers.setdefault((path or ())[:depth], len(numbers))
        of: list[int | None] = [None] * (max(paths, default=0) + 1)
        for utid, path in paths.items():
            of[utid] = numbers.get(path or ())
        return {
            "of": of,
            "parent": [numbers.get(path[:-1]) for path in numbers],
            "weight": [self.weight[path[-1]] * self.scale for path in numbers],
        }
