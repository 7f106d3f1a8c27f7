"""What the simulator's policies declare, looked up by name.

A policy's own file is the only place that describes it: its family and presets, the scale of its
priorities, which rule finds interactive threads or keeps virtual times. The answers here come from
there.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Any

from schedscope.errors import UsageError

Declared = dict[str, Any]


@cache
def declared() -> dict[str, Declared]:
    """Every policy's declaration by name, in the order in which they are shown."""
    from schedscope import _native

    return {row["name"]: row for row in _native.policies()}


def declaration(policy: str) -> Declared:
    """What `policy` declares; raises `UsageError` for an unknown name."""
    found = declared().get(policy)
    if found is None:
        raise UsageError(f"no policy is called {policy!r}", f"one of {', '.join(declared())}")
    return found


def rule(scheduler: str, has: str, expected: str) -> Declared:
    """The policy whose rule `scheduler` names: a policy, or a family for its default.

    `has` is the declaration that there is such a rule; `expected` says it in an error.
    """
    known = rules(has)
    if scheduler not in known:
        raise UsageError(f"scheduler {scheduler!r}", expected, "one of " + ", ".join(known))
    return known[scheduler]


def rules(has: str) -> dict[str, Declared]:
    """The policies that declare `has`, by each name that stands for one of them."""
    known: dict[str, Declared] = {}
    for name, row in declared().items():
        if row[has]:
            known.setdefault(row["family"], row)
            known[name] = row
    return known


def names(holds: Callable[[Declared], bool]) -> list[str]:
    """The names of the policies of which `holds` is true."""
    return [name for name, row in declared().items() if holds(row)]


def resolve(policy: str) -> str:
    """The policy that a name stands for: itself, or of a family its newest preset.

    >>> resolve("rr"), resolve("ule")
    ('rr', 'ule-14')
    """
    if policy in declared():
        return policy
    presets = names(lambda row: row["family"] == policy)
    if not presets:
        families = {row["family"] for row in declared().values()} - set(declared())
        raise UsageError(
            f"no policy is called {policy!r}",
            f"one of {', '.join([*declared(), *sorted(families)])}",
        )
    return max(presets, key=version_of) if version_of(presets[0]) else presets[0]


def version_of(policy: str) -> tuple[int, ...]:
    """The kernel release that a preset's name ends in; empty for one without, or with a year.

    >>> version_of("eevdf-6.12"), version_of("ule-14"), version_of("ule-2011")
    ((6, 12), (14,), ())
    """
    _, _, text = policy.partition("-")
    found = re.match(r"\d+(\.\d+)+|\d{1,2}$", text)
    return numbers_of(found[0]) if found else ()


def numbers_of(release: str) -> tuple[int, ...]:
    """The numbers that a release begins with."""
    found = re.match(r"\d+(\.\d+)*", release)
    return tuple(int(part) for part in found[0].split(".")) if found else ()
