"""Threads that a policy was given but never picked: by which hook, and when."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from schedscope.errors import UsageError
from schedscope.simulator.policies.policy import Policy
from schedscope.units import duration

if TYPE_CHECKING:
    from schedscope._native import SimWorld

_AGAIN = ("slice_end", "preempted", "yielded")
"""Why a thread leaves its CPU that `put_prev` must queue again."""

_LONG = 0.5
"""A thread that waits for this part of a run, although its CPU idled, is forgotten."""


class Watched:
    """Hands each hook on to a policy, and notes which threads it was given and has not picked."""

    def __init__(self, policy: Policy) -> None:
        """`policy` does the work."""
        self._policy = policy
        self._given: dict[int, tuple[str, int]] = {}
        self._passed_over: set[int] = set()

    def __getattr__(self, name: str) -> Any:
        """Everything else is passed through to the policy."""
        return getattr(self._policy, name)

    def enqueue(self, w: SimWorld, cpu: int, t: int, how: str) -> None:
        """`t` is given."""
        self._given[t] = (f"enqueue ({how})", w.now)
        self._policy.enqueue(w, cpu, t, how)

    def put_prev(self, w: SimWorld, cpu: int, t: int, why: str) -> None:
        """`t` is given if it is still runnable."""
        if why in _AGAIN:
            self._given[t] = (f"put_prev ({why})", w.now)
        self._policy.put_prev(w, cpu, t, why)

    def dequeue(self, w: SimWorld, cpu: int, t: int) -> None:
        """`t` is taken back."""
        self._picked(t)
        self._policy.dequeue(w, cpu, t)

    def pick_next(self, w: SimWorld, cpu: int) -> int | None:
        """A thread is picked, or none although some were given."""
        t = self._policy.pick_next(w, cpu)
        if t is not None:
            self._picked(t)
        return t

    def on_idle(self, w: SimWorld, cpu: int) -> int | None:
        """The same for stealing; without a thread the CPU idles."""
        t = self._policy.on_idle(w, cpu)
        if t is not None:
            self._picked(t)
        elif self._given:
            self._passed_over.update(t for t in self._given if w.cpu_of(t) == cpu)
        return t

    def _picked(self, t: int) -> None:
        self._given.pop(t, None)
        self._passed_over.discard(t)

    def check(self, names: Sequence[str], end: int) -> None:
        """Raises `UsageError` if a thread was never picked for most of a run that ended at
        `end`.
        """
        for t, (hook, since) in sorted(self._given.items(), key=lambda one: one[1][1]):
            if t in self._passed_over and end - since > _LONG * end:
                raise UsageError(
                    f"{self.forgotten(names)}, though its CPU idled",
                    "every thread that a policy is given to be picked in the end",
                    f"correct {hook.split()[0]} or pick_next of your policy",
                )

    def forgotten(self, names: Sequence[str]) -> str:
        """Which thread was given first and never picked, in a sentence; empty if none was."""
        if not self._given:
            return ""
        t, (hook, since) = min(self._given.items(), key=lambda one: one[1][1])
        return (
            f"{hook} of the policy {self._policy.name!r} was given thread {t} ({names[t]!r}) at"
            f" {duration(since)}, and pick_next has not returned it since"
        )
