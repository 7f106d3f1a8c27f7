"""Scheduling policies: the built-in ones by name, and your own in Python."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import polars as pl

from schedscope.analysis.asking.policies import declaration, declared, resolve
from schedscope.errors import UsageError

if TYPE_CHECKING:
    from schedscope._native import SimWorld


_UNDEFINED = "a policy defines enqueue, dequeue and pick_next"


def policies() -> pl.DataFrame:
    """One row per built-in policy: `name, family, role, summary, models, preset`.

    `name` is what `simulate` takes; `role` is `kernel`, `reference` (an ideal) or `baseline`
    (it knows nothing about threads); `models` says which release and source the model
    follows and what it leaves out.
    """
    columns = ("name", "family", "role", "summary", "models", "preset")
    return pl.DataFrame([{c: row[c] for c in columns} for row in declared().values()])


def tunables(policy: str) -> pl.DataFrame:
    """One row per tunable of `policy`: `name, default, unit, kind, choices, doc`.

    The name of a family means its newest policy, as in `simulate`.

    >>> tunables("rr").select("name", "default").rows()
    [('quantum', '10ms')]
    """
    schema = dict.fromkeys(("name", "default", "unit", "kind"), pl.String())
    return pl.DataFrame(
        declaration(resolve(policy))["tunables"],
        schema={**schema, "choices": pl.List(pl.String), "doc": pl.String()},
    )


def series(policy: str) -> pl.DataFrame:
    """One row per internal quantity that `policy` can record: `name, unit, doc`."""
    schema = dict.fromkeys(("name", "unit", "doc"), pl.String())
    return pl.DataFrame(declaration(resolve(policy))["series"], schema=schema)


def moves_priorities(policy: str) -> bool:
    """Whether `policy` computes the priorities in traces simulated under it."""
    return bool(declaration(policy)["priorities"] != "linux")


def check_policy(policy: object) -> None:
    """Raises `UsageError` for anything but a policy's name or an object of a policy class."""
    if isinstance(policy, type):
        raise UsageError(
            f"the class {policy.__name__}", "an instance of it", "write its name with ()"
        )
    if not isinstance(policy, (str, Policy)):
        raise UsageError(
            f"policy {policy!r:.80}", "a name of ss.policies(), or an instance of a Policy class"
        )


def called(policy: str | Policy) -> str:
    """The name of a policy; one of your own gives its own name."""
    return policy if isinstance(policy, str) else policy.name


def anew(policy: str | Policy) -> str | Policy:
    """The policy for one more run: your own object is copied as it is before any."""
    return policy if isinstance(policy, str) else copy.deepcopy(policy)


class Policy:
    """Base of policies written in Python: subclass it, fill in the hooks, simulate.

    A subclass must define `enqueue`, `dequeue` and `pick_next`; `put_prev`
    queues a thread again that is still runnable. `w` is the world
    (docs/policies/writing.md lists all of it): `w.now`, `w.nice(t)`, `w.idle_for(t)`,
    `w.resched(cpu)`, `w.take_run(cpu)`, `w.arm_timer(id, at)` and so on; it
    can be used only while a hook runs. Threads and CPUs are numbers. The hooks mean
    the same as in the native policies.

    Calls into Python cost about a microsecond each: fine for teaching and for
    trying ideas, slow for a million events.
    """

    name = "python"
    """How the policy is called in the output."""
    hz = 0
    """Calls of `tick` per second and busy CPU."""
    stathz = 0
    """Calls of `stat_tick` per second and busy CPU."""
    idle_ticks = False
    """Whether idle CPUs tick, too."""
    series: tuple[str, ...] = ()
    """Names of the internal series that the policy records."""

    def init(self, w: SimWorld) -> None:
        """The simulation begins: set up queues, arm timers."""

    def on_fork(self, w: SimWorld, parent: int | None, child: int) -> None:
        """A thread is new."""

    def select_cpu(self, w: SimWorld, t: int, waker_cpu: int | None) -> int:
        """The CPU to queue `t` on: its last one if idle, else an idle one, else its last."""
        cpu = w.cpu_of(t)
        allowed = w.allowed(t, cpu)
        if allowed and w.is_idle(cpu):
            return cpu
        idle = w.idle_for(t)
        if idle is not None:
            return idle
        return cpu if allowed else w.cpus_for(t)[0]

    def enqueue(self, w: SimWorld, cpu: int, t: int, how: str) -> None:
        """Queue `t` on `cpu`; `how` is wakeup, new or moved."""
        raise NotImplementedError(_UNDEFINED)

    def dequeue(self, w: SimWorld, cpu: int, t: int) -> None:
        """Take the queued `t` out."""
        raise NotImplementedError(_UNDEFINED)

    def check_preempt(self, w: SimWorld, cpu: int, t: int) -> None:
        """`t` was queued on the busy `cpu`: call `w.resched(...)` if it should run now."""

    def pick_next(self, w: SimWorld, cpu: int) -> int | None:
        """Take the thread that `cpu` runs next out of the queues; None to idle."""
        raise NotImplementedError(_UNDEFINED)

    def put_prev(self, w: SimWorld, cpu: int, t: int, why: str) -> None:
        """`t` leaves `cpu`; queued again for slice_end, preempted and yielded.

        `why` may also be blocked, exited or moved: then it must not be queued.
        """
        if why in ("slice_end", "preempted", "yielded"):
            self.enqueue(w, cpu, t, why)

    def on_idle(self, w: SimWorld, cpu: int) -> int | None:
        """Nothing to pick: steal a thread, or return None."""
        return None

    def tick(self, w: SimWorld, cpu: int) -> None:
        """The clock of `cpu` ticks."""

    def stat_tick(self, w: SimWorld, cpu: int) -> None:
        """The statistics clock of `cpu` ticks."""

    def timer(self, w: SimWorld, id: int) -> None:
        """A timer set by `w.arm_timer(id, at)` fires."""

    def set_priority(self, w: SimWorld, t: int) -> None:
        """Class or nice of `t` have changed."""
