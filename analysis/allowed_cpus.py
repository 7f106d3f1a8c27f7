"""Which CPUs may each thread run on? The recorded mask, as sets that can be compared."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from schedscope.errors import FormatError

if TYPE_CHECKING:
    from schedscope.trace import Trace


def cpu_set(text: str) -> frozenset[int]:
    """The CPUs of a list such as "0-3,8".

    Raises `FormatError` for anything else.

    >>> sorted(cpu_set("0-2,5"))
    [0, 1, 2, 5]
    """
    found: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdigit() or (dash and not last.isdigit()) or len(first + last) > 12:
            raise FormatError(
                f"a thread may run on the CPUs {text!r}", "numbers and ranges", "as in 0-3,8"
            )
        found.update(range(int(first), int(last if dash else first) + 1))
    return frozenset(found)


def cpu_text(cpus: Iterable[int]) -> str:
    """A set of CPUs as the kernels print it.

    >>> cpu_text([8, 0, 1, 2]), cpu_text([])
    ('0-2,8', '')
    """
    runs: list[list[int]] = []
    for cpu in sorted(cpus):
        if runs and cpu == runs[-1][1] + 1:
            runs[-1][1] = cpu
        else:
            runs.append([cpu, cpu])
    return ",".join(f"{a}" if a == b else f"{a}-{b}" for a, b in runs)


def allowed_cpus(trace: Trace, cpus: frozenset[int]) -> dict[int, frozenset[int]]:
    """The mask of every thread, by utid, that may not run on all of `cpus`.

    The mask is `threads.affinity`, as the recorder read it: once, so a thread
    that changed it meanwhile has another one for part of the time. A thread
    whose mask was not recorded, or has none of `cpus`, may run everywhere and is not listed.
    """
    listed: dict[int, frozenset[int]] = {}
    parsed: dict[str, frozenset[int]] = {}
    threads = trace.threads.select("utid", "affinity").drop_nulls().collect()
    for utid, text in threads.iter_rows():
        if text not in parsed:
            parsed[text] = cpu_set(text) & cpus
        if parsed[text] and parsed[text] != cpus:
            listed[utid] = parsed[text]
    return listed
