"""The control groups and sessions of a recording, as a workload has them.

The recorder notes each thread's control group, and each group's weight and quota
(`trace.info["groups"]`). A group that has neither does not share CPU time: its threads count in the
next one above that does. Where autogroup is on, threads that are then in no group, or are on a host
without control groups, are in the group of their session, `/autogroup-N` as the kernel calls it,
with the weight of its nice level (`trace.info["autogroups"]`). A thread that was moved to another
group while it was recorded is moved at that instant; one that left all groups is in none from then
on.

The periods of a quota begin when its timer fires, where the recording has that (`quota_refills`):
at the refills that let the group's threads run again, or else at those of the only timer of its
period. Otherwise they begin with the window.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from schedscope.analysis.causes.throttling import throttling
from schedscope.analysis.shares.group_weights import AUTOGROUP, GroupWeights
from schedscope.analysis.threads.levels import LINUX_WEIGHTS
from schedscope.analysis.threads.memberships import memberships
from schedscope.simulator.workloads.groups import (
    GROUPS,
    MOVES,
    PERIOD,
    WEIGHT,
    parent_of,
    weight_of,
)
from schedscope.store.trace import Trace
from schedscope.units import several

_ROOT = 1024
"""`cpu.shares` of cgroup 1's root, which cannot be changed; cgroup 2's root has no weight."""

_FEW = 0.01
"""Of the CPU time of fair threads: threads of unknown groups that took less change little."""

_PERIOD_OFF = 0.02
"""A timer is of a group if its period is the group's, within this part."""


def recorded_groups(trace: Trace, utids: pl.Series) -> tuple[pl.DataFrame, pl.Series, pl.DataFrame]:
    """The groups with a weight or quota of threads `utids`, the first of each, and their moves.

    Threads of the moves are numbered as in `utids`.
    """
    told: dict[str, Mapping[str, Any]] = {
        str(one["cgroup"]): one
        for one in trace.info.get("groups") or []
        if one.get("weight") or one.get("quota")
    }
    root = told.pop("/", {})
    in_shares = root.get("weight") == _ROOT
    known = trace.threads.select("utid", "cgroup").collect()
    paths = dict(known.iter_rows())
    sessions = GroupWeights(trace).sessions if _tells_groups(trace) else {}

    def inside_of(utid: int, cgroup: str | None) -> str | None:
        path = _inside(cgroup, set(told))
        session = sessions.get(utid)
        return f"/autogroup-{session.split()[-1]}" if path is None and session else path

    inside, moves = [], []
    stretches = _stretches(trace) if told else {}
    for number, utid in enumerate(utids):
        (_, cgroup), *later = stretches.get(utid, [(trace.window[0], paths.get(utid))])
        inside.append(inside_of(utid, cgroup))
        last = inside[-1]
        for since, cgroup in later:
            path = inside_of(utid, cgroup)
            if path != last:
                moves.append((since - trace.window[0], number, path))
            last = path
    everywhere = {*inside, *(path for *_, path in moves)}
    used = {path for path in everywhere if path in told}
    for path in list(used):
        above = parent_of(path, set(told))
        while above:
            used.add(above)
            above = parent_of(above, set(told))
    refills = _refills(trace) if any(told[path].get("quota") for path in used) else {}
    rows = [
        {
            "path": path,
            "weight": _weight(told[path].get("weight"), in_shares),
            "quota": told[path].get("quota"),
            "period": told[path].get("period") or PERIOD,
            "phase": _phase(trace, told, path, refills),
        }
        for path in sorted(used)
    ]
    nice = {
        f"/autogroup-{one['session']}": one["nice"] for one in trace.info.get("autogroups") or []
    }
    rows += [
        {
            "path": path,
            "weight": weight_of(LINUX_WEIGHTS[min(max(nice[path], -20), 19) + 20]),
            "quota": None,
            "period": PERIOD,
            "phase": 0,
        }
        for path in sorted({path for path in everywhere if path} - set(told))
    ]
    return (
        pl.DataFrame(rows, schema=GROUPS),
        pl.Series("group", inside, pl.String),
        pl.DataFrame(moves, schema=MOVES, orient="row").sort("at", maintain_order=True),
    )


def _tells_groups(trace: Trace) -> bool:
    """Whether the recorder looked for control groups: it found some, or sessions and no group.

    A host that has mounted no hierarchy of control groups shares CPU time by session alone.
    """
    if trace.info.get("groups"):
        return True
    in_groups = trace.threads.filter(pl.col("cgroup").is_not_null()).select(pl.len()).collect()
    return bool(trace.info.get("autogroups")) and not in_groups.item()


def _stretches(trace: Trace) -> dict[int, list[tuple[int, str | None]]]:
    """For each thread that moved: its groups and since when, in order."""
    found: dict[int, list[tuple[int, str | None]]] = {}
    for utid, since, _, cgroup in memberships(trace).sort("since").iter_rows():
        found.setdefault(utid, []).append((since, cgroup))
    return found


def _weight(recorded: float | None, in_shares: bool) -> float:
    if recorded is None:
        return WEIGHT
    return weight_of(recorded) if in_shares else float(recorded)


def _inside(cgroup: str | None, listed: set[str]) -> str | None:
    if cgroup is None or cgroup in listed:
        return cgroup
    return parent_of(cgroup, listed)


def _refills(trace: Trace) -> dict[str, int]:
    """For each throttled group, when a refill first let it run again."""
    held = throttling(trace)
    ends = {
        path: stretches.select((pl.col("ts") + pl.col("dur")).min()).item()
        for path, stretches in held.by_quota.items()
    }
    return {path: end for path, end in ends.items() if end is not None and end < trace.window[1]}


def _phase(
    trace: Trace, told: Mapping[str, Mapping[str, Any]], path: str, refills: Mapping[str, int]
) -> int:
    period = int(told[path].get("period") or 0)
    if not told[path].get("quota") or not period:
        return 0
    if told[path].get("phase") is not None:  # from a simulation
        return int(told[path]["phase"] - trace.window[0]) % period
    if path in refills:
        return (refills[path] - trace.window[0]) % period
    limited = [one for one in told.values() if one.get("quota") and one.get("period") == period]
    if len(limited) > 1:
        return 0
    fired = trace.quota_refills.select("ts", "timer").collect()
    found = []
    for _, rows in fired.group_by("timer", maintain_order=True):
        typical = rows["ts"].sort().diff().median()
        if isinstance(typical, float) and abs(typical - period) <= _PERIOD_OFF * period:
            found.append(int(rows["ts"].min()) - trace.window[0])  # type: ignore[arg-type]
    return found[0] % period if len(found) == 1 else 0


def lacking(trace: Trace, fair: pl.Series, group: pl.Series) -> str | None:
    """One sentence on what a recording does not show about which threads share CPU time.

    `fair`: the threads of the fair class that are replayed, by utid; `group`: the group of each.
    """
    if trace.info.get("os") != "Linux":
        return None
    tunables = trace.metadata("scheduler", "tunables") or {}
    autogroup = tunables.get(AUTOGROUP) == "1"
    if not _tells_groups(trace):
        also = ", and sessions (autogroup was on: " if autogroup else " ("
        return f"weights and quotas of control groups{also}CPU time is shared among them first)"
    ran = dict(
        trace.states.filter(pl.col("state") == "running", pl.col("utid").is_in(fair.to_list()))
        .group_by("utid")
        .agg(pl.col("dur").sum())
        .collect()
        .iter_rows()
    )
    least = _FEW * sum(ran.values())

    def matter(found: set[int]) -> int:
        return len(found) if sum(ran.get(utid, 0) for utid in found) > least else 0

    cgroup = pl.col("utid").is_in(fair.to_list()) & pl.col("cgroup").is_null()
    unknown = set(trace.threads.filter(cgroup).collect()["utid"].to_list())
    before = memberships(trace).filter(pl.col("cgroup").is_null())["utid"]
    unknown |= set(before.to_list()) & set(fair.to_list())
    if trace.info.get("groups") and (n := matter(unknown)):
        return f"the control group of {several(n, 'thread')}, which are replayed as in none"
    if autogroup:
        known = GroupWeights(trace).sessions
        pairs = zip(fair, group, strict=True)
        if n := matter({utid for utid, path in pairs if path is None} - set(known)):
            return (
                f"the session of {several(n, 'thread')} (autogroup was on: CPU time is shared among"
                " sessions before threads)"
            )
    return None
