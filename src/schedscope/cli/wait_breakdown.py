"""`schedscope wait-breakdown`: the options and words that its question does not declare."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from schedscope import units
from schedscope.cli import _options
from schedscope.cli._asking import Words
from schedscope.present import bounds

if TYPE_CHECKING:
    import polars as pl

    from schedscope.store.trace import Trace


def words(
    args: argparse.Namespace, trace: Trace, frame: pl.DataFrame, shown: pl.DataFrame
) -> Words:
    """Notes that explain the parts; none for a part that is always empty."""
    from schedscope.analysis.wait_breakdown import PARTS

    notes = []
    if "idle CPU" in frame["evidence"]:
        notes.append(
            "throttled: time in which CPUs idled although threads of a group that the kernel"
            " counted as throttled were runnable; a lower bound, as no event says when"
        )
    notes += _gone(trace, _options.where_threads(args, trace))
    notes += _limited(trace, _options.where(args, trace))
    covered = bounds.coverage_of(frame["wait"], frame["wait_high"])
    notes += [covered] if covered else []
    seen = [part for part in PARTS if frame[part].sum()]
    # On a narrow terminal the parts that took least go first; the largest stays.
    least = sorted(seen, key=lambda part: int(frame[part].sum()))[:-1]
    keys = frame.columns[: frame.columns.index("wait")]
    keys = [key for key in keys if not (args.by == "wait" and key == "utid")]
    return Words(
        notes=notes,
        columns=" ".join([*keys, "wait", *seen]),
        narrow=" ".join(["utid pid n cpu", *least]),
    )


def _gone(trace: Trace, where: pl.Expr | None) -> list[str]:
    """Control groups of these threads whose quotas could no longer be read."""
    from schedscope.analysis.asking.memo import once
    from schedscope.analysis.causes.throttling import throttling
    from schedscope.analysis.findings.finding import listed
    from schedscope.analysis.threads.of_threads import chosen_threads

    gone = once(throttling, trace).gone
    if where is not None:
        keep = set(chosen_threads(trace, where))
        gone = {path: utids for path, utids in gone.items() if keep.intersection(utids)}
    if not gone:
        return []
    names = listed([units.printable(path) for path in gone])
    was = "was" if len(gone) == 1 else "were"
    return [
        f"{names} {was} gone when the recording ended: whether a CPU quota held their threads back"
        " is unknown, and such time would be in the other columns"
    ]


def _limited(trace: Trace, where: pl.Expr | None) -> list[str]:
    """Why a real-time or deadline thread waits for one that the kernel would run after it."""
    import polars as pl

    from schedscope.analysis.threads.levels import linux_priorities
    from schedscope.analysis.wait_breakdown import wait_breakdown

    kind = pl.col("sched_class").cast(pl.String)
    first = trace.threads.filter(kind.is_in(list(_LIMITS))).select("utid").collect()["utid"]
    if first.is_empty() or not linux_priorities(trace):
        return []
    these = pl.col("utid").is_in(first.implode())
    # Nearly always their whole waiting is shorter than that, and no sweep is needed.
    waited = trace.states.filter(pl.col("state") == "runnable", these).select(pl.col("dur").sum())
    if waited.collect(engine="streaming").item() < _WORTH * trace.duration:
        return []
    chosen = these if where is None else these & where
    rows = wait_breakdown(trace, by=["comm", "tid", "sched_class"], where=chosen)
    rows = rows.filter(pl.col("behind_worse") >= _WORTH * trace.duration)
    if rows.is_empty():
        return []
    worst = rows.sort("behind_worse", descending=True).row(0, named=True)
    name = f"{units.printable(worst['comm'] or '?')} ({worst['tid']})"
    return [
        f"{name} is a {worst['sched_class'].replace('time', '-time')} thread, and waited"
        f" {units.duration(worst['behind_worse'])} while threads of worse priority ran:"
        f" {_LIMITS[worst['sched_class']]}"
    ]


_LIMITS = {
    "deadline": "the runtime of its reservation was used up",
    "realtime": (
        "real-time threads had used up what they may (sched_rt_runtime_us, cpu.rt_runtime_us of a"
        " control group), or the kernel gave fair threads their part"
    ),
}
_WORTH = 0.01
