"""Which CPUs may each thread run on? The recorded mask, as sets that can be compared."""

from __future__ import annotations

from typing import TYPE_CHECKING

from schedscope.analysis.topology import cpu_list

if TYPE_CHECKING:
    from schedscope.trace import Trace


def allowed_cpus(trace: Trace, cpus: frozenset[int]) -> dict[int, frozenset[int]]:
    """The mask of every thread, by utid, that may not run on all of `cpus`.

    The mask is `threads.affinity`, as the recorder read it: once, so a thread
    that changed it meanwhile has another one for part of the time. A thread
    whose mask was not recorded, or has none of `cpus`, may run everywhere and is not listed.

    Raises `FormatError` for a mask that is no list of CPUs.
    """
    listed: dict[int, frozenset[int]] = {}
    parsed: dict[str, frozenset[int]] = {}
    threads = trace.threads.select("utid", "affinity").drop_nulls().collect()
    for utid, text in threads.iter_rows():
        if text not in parsed:
            parsed[text] = cpus.intersection(cpu_list(text))
        if parsed[text] and parsed[text] != cpus:
            listed[utid] = parsed[text]
    return listed
