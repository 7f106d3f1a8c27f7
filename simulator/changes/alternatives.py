"""Other extractions that may explain a recording as well: a change is answered under each of them.

A recording does not always show what a program did. Where two extractions replay it equally well,
the replay of the recorded configuration cannot tell them apart, but with a change they may differ.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from schedscope.simulator.changes.change import Changed, change
from schedscope.simulator.runs.replay import Replay, replay
from schedscope.simulator.workloads.workload import Workload

MANY = 8
"""So many signals from one thread to another show that the one feeds the other."""

SHARE = 0.05
"""Of all wakes: fewer sleeps that no thread ended change little."""


@dataclass(frozen=True)
class Alternative:
    """Another extraction, with the change; `unclear` says what the recording does not show, and
    `record` how it is recorded."""

    unclear: str
    record: str
    way: Replay
    wanted: Changed


_SYSCALLS = "`capture --with syscalls` shows it"


def alternatives(
    way: Replay, asked: Mapping[str, Any], others: str | None = None
) -> list[Alternative]:
    """The other ways to extract `way`, each with the change `asked`, as `change` takes it.

    `others`: what the threads that are left out should do, if that was given.
    """
    return [
        Alternative(unclear, record, other, change(other, **asked))
        for unclear, record, other in _ways(way, others)
    ]


def _ways(way: Replay, others: str | None) -> Iterator[tuple[str, str, Replay]]:
    workload = way.workload
    report = workload.info["extraction"]
    if not report["calls_recorded"]:
        met = _meeting(workload, meet=False)
        if met is not None:
            unclear = "whether a thread waits for the one that it wakes, or runs ahead of it"
            yield unclear, _SYSCALLS, replace(way, workload=met)
        met = _meeting(workload, meet=True)
        if met is not None:
            unclear = "how far a thread may run ahead of the one that it wakes, as in a pipe"
            yield unclear, _SYSCALLS, replace(way, workload=met)
    external = report["wakes_external"] - report["periodic_waits"] - report["ticking_sleeps"]
    wakes = report["wakes_by_threads"] + report["wakes_external"]
    if workload.info["external"] == "relative" and external > SHARE * wakes:
        unclear = "whether sleeps that no thread ended had a length or an instant at which they end"
        yield unclear, _SYSCALLS, _again(way, external="absolute")
    if others is None and workload.info["threads_left_out"]:
        other = {"occupy": "compete", "compete": "occupy"}.get(workload.info["others"])
        if other:
            unclear = "whether the threads left out would give way to the selected ones"
            yield unclear, "a replay of all threads shows it", _again(way, others=other)


def _again(way: Replay, **options: Any) -> Replay:
    """The recording extracted with another option."""
    info = way.workload.info
    mine = way.selected
    where = None if mine is None else pl.col("utid").is_in(mine.implode())
    same = {key: info[key] for key in ("external", "others", "cut")}
    return replay(way.trace, where=where, **{**same, **options})


def _meeting(workload: Workload, *, meet: bool) -> Workload | None:
    """The workload in which threads that feed one other thread wait for it, or none does; None if
    that makes no difference.

    One thread feeds another if the other waits for it by name, and it does not wait for the other.
    """
    steps = workload.steps
    signals = (pl.col("op") == "signal") & pl.col("thread").is_not_null()
    if not meet:
        changed = steps.with_columns(meet=pl.when(signals).then(False).otherwise("meet"))
        return None if changed.equals(steps) else replace(workload, steps=changed)
    number = dict(workload.threads.with_row_index("row").select("program", "row").iter_rows())
    pairs = steps.filter(pl.col("thread").is_not_null()).group_by("program", "op", "thread").len()
    counts = {(op, number.get(program), thread): n for program, op, thread, n in pairs.iter_rows()}
    feeding = {
        (sender, reader)
        for (op, sender, reader), n in counts.items()
        if op == "signal"
        and n >= MANY
        and counts.get(("wait_for", reader, sender), 0) >= MANY
        and counts.get(("wait_for", sender, reader), 0) < MANY
    }
    if not feeding:
        return None
    rows = steps.select(
        at=signals & ~pl.col("meet").fill_null(value=False),
        pair=pl.struct(pl.col("program").replace_strict(number, default=None), "thread"),
    )
    on = pl.Series(
        [at and (pair["program"], pair["thread"]) in feeding for at, pair in rows.iter_rows()],
        dtype=pl.Boolean,
    )
    if not on.any():
        return None
    changed = steps.with_columns(meet=pl.when(on).then(pl.lit(True)).otherwise("meet"))
    return replace(workload, steps=changed)
