"""Which threads exist only because of the recording?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    from schedscope.store.trace import Trace


def of_recorder(trace: Trace) -> pl.DataFrame:
    """`utid` of the recorder's own threads, and of the programs that they start.

    The recorded command is started by the recorder, too, but does not count as the recorder's.
    """
    if "parent_utid" not in trace.threads.collect_schema():  # tables made by hand
        return pl.DataFrame({"utid": []}, {"utid": pl.UInt32})
    threads = trace.threads.select("utid", "parent_utid", "pid", "recorder").collect()
    command = trace.metadata("workload", "pid")
    of_command: set[int] = set()
    if command is not None:
        of_command = set(threads.filter(pl.col("pid") == command)["utid"])
    children: dict[int, list[int]] = {}
    for utid, parent in threads.select("utid", "parent_utid").iter_rows():
        if parent is not None and utid not in of_command:
            children.setdefault(parent, []).append(utid)
    found = set(threads.filter("recorder")["utid"]) - of_command
    pending = list(found)
    while pending:
        for child in children.get(pending.pop(), ()):
            if child not in found:
                found.add(child)
                pending.append(child)
    return pl.DataFrame({"utid": sorted(found)}, {"utid": pl.UInt32})
