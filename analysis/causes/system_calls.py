"""Names of Linux's system calls, by the numbers that `system_calls` has."""

from __future__ import annotations

import re

from schedscope.analysis.causes.system_call_tables import (
    ARM,
    GENERIC,
    I386,
    PPC64,
    S390X,
    SHARED,
    X86_64,
)

READS = ("read", "readv", "recv", "recvfrom", "recvmsg")
WRITES = ("write", "writev", "send", "sendto", "sendmsg")
"""Calls on a descriptor, their first argument, that return how many bytes they moved."""

_TABLES = {
    "x86_64": X86_64,
    "aarch64": GENERIC,
    "riscv64": GENERIC,
    "loongarch64": GENERIC,
    "s390x": S390X,
    "ppc64": PPC64,
    "ppc64le": PPC64,
}


def names(machine: str | None) -> dict[int, str]:
    """Names by number on a machine, as `uname -m` calls it; none for one that is not known.

    A 32-bit machine has two numbers for a call that takes a time, and both have its name.

    >>> names("x86_64")[202], names("aarch64")[98], names("m68k")
    ('futex', 'futex', {})
    >>> [number for number, name in names("armv7l").items() if name == "futex"]
    [240, 422]
    """
    table = _table(machine or "")
    if table is None:
        return {}
    found = _numbered(table) | _numbered(SHARED)
    return {number: name.removesuffix("_time64") for number, name in found.items()}


def _table(machine: str) -> str | None:
    if re.fullmatch(r"i[3-6]86", machine):
        return I386
    # armv8l is a 32-bit program's name of a 64-bit machine, as in a container.
    return ARM if re.fullmatch(r"arm(v[5-8].*)?", machine) else _TABLES.get(machine)


def _numbered(table: str) -> dict[int, str]:
    found = {}
    number = 0
    for word in table.split():
        if word.endswith(":"):
            number = int(word[:-1])
        else:
            found[number] = word
            number += 1
    return found
