"""Policies of schedulers that exist only in this laboratory: models of those in guest/."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import schedscope as ss

if TYPE_CHECKING:
    from schedscope._native import SimWorld

_MS = 1_000_000


class ScxLocal(ss.Policy):
    """guest/scx_local.bpf.c: each CPU runs its own threads in the order of arrival.

    Slices end at clock ticks, and waking threads preempt none. A thread that is alone at the end of
    its slice goes on with one of the kernel's own length (kernel/sched/ext.c,
    `refill_task_slice_dfl`). Left out: real-time threads.
    """

    name = "scx-local"
    hz = 250
    slice = 5 * _MS
    refill = 20 * _MS

    def init(self, w: SimWorld) -> None:
        """No thread waits anywhere."""
        self.queues: list[deque[int]] = [deque() for _ in range(w.ncpu)]
        self.where: dict[int, int] = {}
        self.left: dict[int, int] = {}

    def enqueue(self, w: SimWorld, cpu: int, t: int, how: str) -> None:
        """Queue it last on its CPU, with a new slice."""
        self.left[t] = self.slice
        self.where[t] = cpu
        self.queues[cpu].append(t)

    def dequeue(self, w: SimWorld, cpu: int, t: int) -> None:
        """Remove it from its queue."""
        self.queues[self.where.pop(t)].remove(t)

    def pick_next(self, w: SimWorld, cpu: int) -> int | None:
        """The first thread in the queue."""
        if not self.queues[cpu]:
            return None
        t = self.queues[cpu].popleft()
        del self.where[t]
        return t

    def tick(self, w: SimWorld, cpu: int) -> None:
        """Whether the slice is over."""
        t = w.running(cpu)
        if t is None:
            return
        self.left[t] -= w.take_run(cpu)
        if self.left[t] > 0:
            return
        if self.queues[cpu]:
            w.resched(cpu, "slice_end")
        else:
            self.left[t] = self.refill


OWN: dict[str, type[ss.Policy]] = {ScxLocal.name: ScxLocal}
