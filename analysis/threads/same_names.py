"""Which service programs of the same name belong to, where the name is ambiguous."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import polars as pl

from schedscope.analysis.threads.services import service_of
from schedscope.units import count, printable

if TYPE_CHECKING:
    from schedscope.store.trace import Trace


class SameNames:
    """The services of threads whose name those of other services have, too.

    In `python3`, a service, its client and a foreign job look alike; their control groups differ.
    """

    def __init__(self, trace: Trace) -> None:
        """Read the table of threads."""
        threads = trace.threads.select("utid", "comm", "cgroup").collect()
        known = threads.filter(pl.col("cgroup").is_not_null() & (pl.col("utid") >= trace.ncpu))
        path = {cgroup: service_of(cgroup) for cgroup in known["cgroup"].unique().to_list()}
        services: dict[str, set[str]] = {}
        for comm, cgroup in known.select("comm", "cgroup").unique().iter_rows():
            services.setdefault(comm, set()).add(path[cgroup])
        self.of = {
            int(utid): path[cgroup]
            for utid, comm, cgroup in known.iter_rows()
            if len(services[comm]) > 1
        }
        """By utid; only threads whose name alone is not enough."""

    def whose(self, utids: Iterable[int]) -> str:
        """The text after these threads' name, the most important services first: ` of web.service`.

        Empty where the name is unambiguous, or one of them has an unknown group.
        """
        every = list(dict.fromkeys(utids))
        found = list(dict.fromkeys(self.of[utid] for utid in every if utid in self.of))
        if not found or any(utid not in self.of for utid in every):
            return ""
        first = " outside of all groups" if found[0] == "/" else f" of {printable(found[0])}"
        return first if len(found) == 1 else f"{first} and {count(len(found) - 1)} more"
