"""Who waited behind threads of a larger weight, by nice level or by control group?"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

import polars as pl

from schedscope.analysis._base.group_weights import GroupWeights
from schedscope.analysis._base.memberships import memberships
from schedscope.analysis._base.memo import once
from schedscope.analysis.findings.finding import Finding, option
from schedscope.analysis.interference import interference
from schedscope.analysis.weights import weights
from schedscope.units import duration, printable, several

if TYPE_CHECKING:
    from schedscope.trace import Trace

_STEP = 1.2
"""One nice level is a factor of 1.25: less is the same weight."""
_WAITED = 0.1
"""Of the window: who waited less behind larger weights got what was to be expected."""
_VICTIMS = 50
"""Threads that are looked at: those that waited longest."""


def lower_weight(
    trace: Trace, quotas: Collection[int], where: pl.Expr | None = None
) -> Iterator[Finding]:
    """The thread that waited longest behind larger weights; `quotas`: whose quota explains it;
    `where`: by `utid`, of which threads."""
    known = once(weights, trace).filter(pl.col("basis").cast(pl.String) == "kernel table")
    if known.is_empty():
        return
    cgroups = trace.threads.select(pl.col("utid").cast(pl.UInt32), "cgroup").collect()
    # Of threads that changed their group meanwhile it is not said whose weight counted when.
    cgroups = cgroups.join(memberships(trace), on="utid", how="anti")
    known = known.select(pl.col("utid").cast(pl.UInt32), "prio", "weight", "sharing").join(
        cgroups, on="utid", how="left"
    )
    groups = GroupWeights(trace)
    victims = _lighter(trace, known, groups, quotas, where)
    if not victims:
        return
    of_victim = known.rename(lambda name: f"victim_{name}")
    pairs = (
        interference(trace, by="thread", where=pl.col("utid").is_in(victims))
        .filter(pl.col("kind") == "thread")
        .with_columns(pl.col("utid", "victim_utid").cast(pl.UInt32))
        .join(known, on="utid")
        .join(of_victim, on="victim_utid")
        .filter(pl.col("sharing") == pl.col("victim_sharing"))
    )
    rows = []
    for pair in pairs.iter_rows(named=True):
        own = pair["victim_weight"], pair["weight"]
        both = pair["victim_utid"], pair["utid"]
        found = groups.compare(pair["victim_cgroup"], pair["cgroup"], own, both)
        if found is not None and found[1] >= _STEP * found[0]:
            rows.append((pair["victim_utid"], pair["time"], pair, found))
    behind: dict[int, int] = {}
    for utid, time, _, _ in rows:
        behind[utid] = behind.get(utid, 0) + time
    behind = {utid: time for utid, time in behind.items() if time >= _WAITED * trace.duration}
    if not behind:
        return
    worst = max(behind, key=lambda utid: (behind[utid], -utid))
    time, pair, found = max(
        ((time, pair, found) for utid, time, pair, found in rows if utid == worst),
        key=lambda row: row[0],
    )
    text = (
        f"{printable(pair['victim_comm'] or '?')} ({pair['victim_tid']}) waited"
        f" {duration(behind[worst])} behind threads of larger weight, {duration(time)} of it behind"
        f" {printable(pair['comm'] or '?')}: {_whose(pair, found)}."
    )
    if len(behind) > 1:
        text += f" So did {several(len(behind) - 1, 'other thread')}."
    text += " Then a larger part of the CPU is due to the others."
    comm = shlex.quote(pair["victim_comm"] or "?")
    options = None
    if found[2] == "thread":
        options = option("set-nice", pair["victim_comm"], _nice(pair["prio"]))
    elif pair["victim_cgroup"] not in (pair["cgroup"], "/"):
        # Of sessions nothing but their nice level is a setting, which `whatif` does not change.
        options = option("set-weight", pair["victim_cgroup"], found[1])
    yield Finding(
        "weight", sum(behind.values()), text, f"interference --comm {comm}", level="note",
        utid=worst, whatif=options,
    )  # fmt: skip


def _lighter(
    trace: Trace,
    known: pl.DataFrame,
    groups: GroupWeights,
    quotas: Collection[int],
    where: pl.Expr | None,
) -> list[int]:
    """Those that waited longest, of threads that waited enough and may have less weight than
    another: the rest of the work is dear."""
    may = known.filter(~pl.col("utid").is_in(list(quotas)))
    if not groups.known:
        most = pl.col("weight").max().over("sharing")
        may = may.filter(most >= _STEP * pl.col("weight"))
    if where is not None:
        may = may.filter(where)
    if may.is_empty():
        return []
    waited = (
        trace.states.filter(pl.col("state") == "runnable")
        .group_by(pl.col("utid").cast(pl.UInt32))
        .agg(pl.col("dur").sum())
        .filter(pl.col("dur") >= _WAITED * trace.duration)
        .collect()
        .join(may, on="utid", how="semi")
        .sort("dur", "utid", descending=[True, False])
    )
    return waited["utid"].head(_VICTIMS).to_list()


def _nice(prio: int) -> int:
    return prio - 120


def _from(cgroup: object) -> str:
    return "" if cgroup == "/" else f", that of its control group {printable(str(cgroup))}"


def _whose(pair: dict[str, object], found: tuple[int, int, str]) -> str:
    small, large, of = found
    if of == "group" and pair["victim_cgroup"] == pair["cgroup"]:
        return f"its session has weight {small}, the other's {large}"
    if of == "group":
        if "/" in (pair["victim_cgroup"], pair["cgroup"]):
            # Beside a group competes the session of a thread, or the thread itself.
            return (
                f"it competes with weight {small}{_from(pair['victim_cgroup'])}, the other with"
                f" {large}{_from(pair['cgroup'])}"
            )
        return (
            f"its control group {printable(str(pair['victim_cgroup']))} has weight {small},"
            f" {printable(str(pair['cgroup']))} has {large}"
        )
    one, other = (_nice(int(str(pair[name]))) for name in ("victim_prio", "prio"))
    return f"its nice level is {one} (weight {small}), the other's {other} (weight {large})"
