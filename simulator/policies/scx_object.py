"""A compiled scheduler of sched_ext as a policy."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from schedscope.errors import StorageError, UsageError
from schedscope.simulator.policies.policy import Policy


class SchedExt(Policy):
    """A scheduler in an object file for BPF, whose programs the simulator runs.

    `rodata` has values of the object's variables, which the scheduler's own user-space half would
    set before it loads the object, and of the simulation's: `hz`, the kernel's clock ticks a
    second, and `rr_timeslice`.

    With `record=True` the series `dsq`, `slice` and `vtime` have each insertion into a dispatch
    queue: its number (-1: a CPU's local one, -2: the global one), and what the thread got.
    """

    series = ("dsq", "slice", "vtime")

    def __init__(
        self, path: str | os.PathLike[str], rodata: Mapping[str, Any] | None = None
    ) -> None:
        """Reads the object; its content is checked when it runs."""
        self.path = Path(path)
        self.rodata = dict(rodata or {})
        try:
            self.object = self.path.read_bytes()
        except OSError as error:
            raise StorageError(
                f"cannot read {self.path}: {error.strerror}", hint="check the path"
            ) from error
        self.name = self.path.name.removesuffix(".o").removesuffix(".bpf")

    def settings(self) -> list[tuple[str, str]]:
        """The variables, as the engine takes them."""
        return [(name, _text(name, value)) for name, value in self.rodata.items()]


def scx(path: str | os.PathLike[str], *, rodata: Mapping[str, Any] | None = None) -> SchedExt:
    """The sched_ext scheduler in the object file `path`, as a policy for `simulate` and the like.

    `rodata` sets variables of the object, as its own user-space half would: numbers, booleans,
    lists of numbers, or times such as "5ms" for variables in ns. docs/policies/sched_ext-objects.md
    says what is simulated.
    """
    return SchedExt(path, rodata)


def scx_in_file(text: str) -> SchedExt | None:
    """The policy in the object file that `text` names; None if it names none."""
    if re.fullmatch(r".+\.o", text) is None:
        return None
    if not Path(text).is_file():
        raise UsageError(f"no file {text!r}", "an object file of a sched_ext scheduler")
    return SchedExt(text)


def _text(name: str, value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, (int, str)):
        return str(value)
    if isinstance(value, Sequence) and all(isinstance(one, int) for one in value):
        return ",".join(str(int(one)) for one in value)
    raise UsageError(
        f"rodata {name}={value!r:.80}", "a number, a boolean, a time or a list of numbers"
    )
