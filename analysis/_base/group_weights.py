"""Whose weight decides between two threads that want one CPU, if they are in control groups?

Linux shares a CPU's time level by level (kernel/sched/fair.c, `struct sched_entity`): a group is
one entity in its parent's queue, with the group's weight, whatever runs inside. Two threads of
different groups compete as the two entities in which their paths first differ; only within one
group do their nice levels decide.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from schedscope.trace import Trace

AUTOGROUP = "/proc/sys/kernel/sched_autogroup_enabled"


class GroupWeights:
    """The weights of a trace's control groups."""

    def __init__(self, trace: Trace) -> None:
        """Read what the recorder found at the start."""
        groups = trace.info.get("groups") or []
        self.weight = {
            str(group["cgroup"]): int(group["weight"]) for group in groups if group.get("weight")
        }
        tunables = trace.metadata("scheduler", "tunables") or {}
        self.known = bool(groups)
        self.autogroup = tunables.get(AUTOGROUP) == "1"

    def path(self, cgroup: str | None) -> tuple[str, ...] | None:
        """The groups with a weight of their own that a thread's control group lies in, outermost
        first; None if it is not known where CPU time is shared first.

        Where autogroup is on, threads outside of all groups share by session, which is not
        recorded.
        """
        if cgroup is None or not self.known:
            return None
        parts = cgroup.strip("/").split("/")
        above = ["/" + "/".join(parts[: n + 1]) for n in range(len(parts))]
        found = tuple(path for path in above if path in self.weight)
        return None if not found and self.autogroup else found

    def compare(
        self, one: str | None, other: str | None, weights: tuple[int, int]
    ) -> tuple[int, int, str] | None:
        """The two weights that decide between threads in groups `one` and `other`, and whose.

        `weights` are the threads' own. None where they are not known, or a thread competes with
        a group, whose weights have another scale.
        """
        left, right = self.path(one), self.path(other)
        if left is None or right is None:
            return None
        same = 0
        while same < min(len(left), len(right)) and left[same] == right[same]:
            same += 1
        if same == len(left) == len(right):
            return *weights, "thread"
        if same == len(left) or same == len(right):
            return None
        return self.weight[left[same]], self.weight[right[same]], "group"
