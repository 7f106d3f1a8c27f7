"""Requests as the viewer lists them: by process, and the slowest of one, each at its instant."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from schedscope.analysis.requests.parts import PARTS
from schedscope.analysis.requests.requests import processes_and_slowest, requests
from schedscope.errors import UsageError
from schedscope.present.columns import choose
from schedscope.timelines.tables import table
from schedscope.units import printable

if TYPE_CHECKING:
    from schedscope.store.trace import Trace

MOST = 50


def has_calls(trace: Trace) -> bool:
    """Whether there can be requests."""
    return bool(trace.system_calls.head(1).collect().height)


def marks(trace: Trace) -> list[list[Any]]:
    """The slowest requests for the axis: begin (ns after the start), length, `utid`, and whose."""
    begin = trace.window[0]
    slow = requests(trace, by="request", top=MOST)
    return [
        [ts - begin, dur, utid, f"{printable(comm or 'thread')} {tid}"]
        for ts, dur, utid, comm, tid in slow.select("ts", "dur", "utid", "comm", "tid").iter_rows()
    ]


def listed(trace: Trace, process: Any = None, reply: Any = "same") -> dict[str, Any]:
    """A table of the processes that answered requests, and one of the slowest requests.

    `process` is the name of one of them; without it the slowest of all. Raises `UsageError` for
    another kind of name, and for a `reply` that `requests` does not know.
    """
    if not (process is None or (isinstance(process, str) and len(process) < 4096)):
        raise UsageError(f"process {process!r:.40}", "the name of a process")
    begin = trace.window[0]
    found, slow = processes_and_slowest(trace, process, reply=reply, top=MOST)
    seen = [part for part in PARTS if found[part].sum()]
    names = ["process_name", "which", "n", "p50", "p99", "max", *seen, "n_censored?", "n_excluded?"]
    told = "" if reply == "same" else f", reply={reply!r}"
    groups = table(
        found,
        choose(found, names, question="requests", origin=trace.origin),
        title="Requests by process, and the slowest 1 % of them",
        python=f"ss.requests(trace, by='process_name'{told})",
        begin=begin,
        most=2 * MOST,
    )
    chosen = "" if process is None else f", where=pl.col('process_name') == {process!r}"
    parts = [part for part in PARTS if slow[part].sum()]
    slowest = table(
        slow,
        choose(
            slow,
            ["ts", "comm", "tid", "by_comm", "dur", *parts, "at_least"],
            question="requests",
            origin=trace.origin,
        ),
        title="The slowest requests" + ("" if process is None else f" of {process}"),
        python=f"ss.requests(trace, by='request', top={MOST}{chosen}{told})",
        begin=begin,
        most=MOST,
    )
    processes = [each for each in found["process_name"].unique(maintain_order=True) if each]
    return {"tables": [slowest, groups], "processes": processes}
