"""Which threads' control groups had used up their CPU quota, when, and how is that known?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    from schedscope.trace import Trace

_DISPATCH = 1_000_000
"""A CPU that idles beside a runnable thread for longer (ns) could not run it: waking up from idle
takes some 100 us at most."""


@dataclass(frozen=True)
class Throttling:
    """What is known, with lists by utid as native code wants them."""

    stretches: pl.DataFrame
    """`ts`, `dur`, `cpu`, `group`: when which group was throttled on which CPU."""
    group: list[int | None]
    """The number of each thread's group in `stretches`."""
    held: list[bool]
    """Threads whose group the kernel counted as throttled; no event tells when."""
    evidence: str | None
    """"recorded" or "idle CPU"; None where nothing is known of quotas."""
    dispatch: int = _DISPATCH


def throttling(trace: Trace) -> Throttling:
    """Of each thread whether its group, or one above it, was throttled."""
    threads = trace.threads.select("utid", "cgroup").collect()
    size = int(threads["utid"].max() or 0) + 1  # type: ignore[arg-type]
    empty = pl.DataFrame(
        schema={"ts": pl.Int64, "dur": pl.Int64, "cpu": pl.UInt16, "group": pl.UInt32}
    )
    groups = trace.info.get("groups")
    if groups is None:
        return Throttling(empty, [None] * size, [False] * size, None)
    throttled = [str(group["cgroup"]) for group in groups if group.get("n_throttled")]
    held = [False] * size
    for utid, path in threads.iter_rows():
        held[utid] = path is not None and any(_within(path, one) for one in throttled)
    return Throttling(empty, [None] * size, held, "idle CPU")


def _within(path: str, group: str) -> bool:
    """Whether a control group is another one or lies in it.

    >>> _within("/a/b", "/a"), _within("/ab", "/a"), _within("/a", "/")
    (True, False, True)
    """
    return path == group or path.startswith(group.rstrip("/") + "/")
