"""Which policy models the scheduler that a trace was recorded under, and what a family's name means
in a replay of it."""

from __future__ import annotations

import re

from schedscope.analysis.asking.policies import (
    declaration,
    declared,
    names,
    numbers_of,
    resolve,
    version_of,
)
from schedscope.errors import UsageError
from schedscope.simulator.policies.file import policy_in_file
from schedscope.simulator.policies.policy import Policy, check_policy
from schedscope.simulator.policies.scx_object import scx_in_file
from schedscope.store.trace import Trace
from schedscope.units import printable

_DEFAULTS = {
    "Linux": (("eevdf", (6, 6)), ("cfs", (2, 6, 23)), ("o1", (2, 5, 2))),
    "FreeBSD": (("ule", (7, 1)), ("4bsd", (2,))),
}
"""By system: the scheduler of a kernel that names none, and its first release with it."""

_SCHED_EXT = "sched-ext:"
"""Before the name that a BPF scheduler has given itself."""


def recorded_policy(trace: Trace) -> str:
    """The policy that models the scheduler `trace` was recorded under, by its release.

    Of the presets of that scheduler the newest that is not newer than the recorded kernel; of a
    simulated trace its own. Where the trace names no scheduler its kernel's release does, and
    without one it is taken as the newest Linux.

    Raises `UsageError` for a scheduler, or a kernel, of which there is no model.
    """
    named = str(trace.metadata("scheduler", "name") or "")
    name = named.lower().replace("_", "-")
    if name.startswith(_SCHED_EXT):
        name = "scx-" + name.removeprefix(_SCHED_EXT)
    release = numbers_of(str(trace.info.get("release") or ""))
    system = str(trace.info.get("os") or "Linux")
    # FreeBSD calls its scheduler "4BSD" in every release, which is also the name of one preset.
    if name in declared() and (system != "FreeBSD" or version_of(name)):
        return name
    if not name:
        family = _of_release(system, release)
        lacks = " ".join(filter(None, (system, str(trace.info.get("release") or ""))))
    else:
        # A preset that this version lacks still belongs to its family.
        family, _, version = name.partition("-")
        if re.fullmatch(r"[0-9.]*", version) is None or family not in _families():
            family = None
        release = release or numbers_of(version)
        lacks = named
    if family is None:
        raise UsageError(
            f"{trace.name} was recorded under {printable(lacks)!r}, of which there is no model",
            f"a scheduler that is modelled: {', '.join(sorted(_families('kernel')))}",
            "`simulate --policy NAME` replays it under another one, and `fidelity --policy"
            " NAME,NAME` shows how close each of them comes",
        )
    return _preset(family, release, oldest=True)


def policy_asked(trace: Trace | None, name: str | Policy) -> str | Policy:
    """The policy that a name stands for, in a replay of `trace` if there is one; a policy object
    stands for itself.

    That of a family means the recorded kernel's own, and its newest if that kernel is older than
    all of them. `path/to/file.py:Class` is a policy of your own in that file, and `file.bpf.o` a
    compiled scheduler of sched_ext.
    """
    check_policy(name)
    if isinstance(name, Policy):
        return name
    if own := policy_in_file(name) or scx_in_file(name):
        return own
    if name in declared():
        return name
    newest = resolve(name)
    if trace is None:
        return newest
    release = numbers_of(str(trace.info.get("release") or ""))
    try:
        recorded = recorded_policy(trace)
    except UsageError:
        recorded = None
    if recorded and declaration(recorded)["family"] == name:
        return recorded
    return _preset(name, release) if version_of(newest) else newest


def _families(role: str | None = None) -> set[str]:
    return {str(row["family"]) for row in declared().values() if role in (None, row["role"])}


def _of_release(system: str, release: tuple[int, ...]) -> str | None:
    defaults = _DEFAULTS.get(system, ())
    if not release and defaults:
        return defaults[0][0]
    return next((family for family, first in defaults if release >= first), None)


def _preset(family: str, release: tuple[int, ...], *, oldest: bool = False) -> str:
    """The newest preset of this family that is not newer than the kernel; where all are newer, or
    the kernel is unknown, the `oldest` of them or the newest.
    """
    presets = names(lambda row: row["family"] == family)
    known = [one for one in presets if version_of(one)]
    if not known:
        return presets[0]
    newest = max(map(version_of, known))
    if not version_of(presets[0]) and (not release or release[: len(newest)] > newest):
        return presets[0]  # without a version: the family's newest release
    older = [one for one in known if version_of(one) <= release] if release else []
    if older:
        return max(older, key=version_of)
    return (min if oldest and release else max)(known, key=version_of)
