"""Control groups of a workload: which threads share CPU time, and how much each group may use.

A group is a path; it lies in the group of the longest path above it that is listed. `weight` is
that of cgroup 2's `cpu.weight`: 100 is as much as a thread of nice 0 beside it. Only Linux's fair
schedulers have groups (`knows_groups`); under every other policy they are ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import polars as pl

from schedscope.analysis.asking.policies import declared
from schedscope.errors import UsageError
from schedscope.units import nanoseconds, several

if TYPE_CHECKING:
    from schedscope.simulator.policies.policy import Policy
    from schedscope.simulator.workloads.workload import Workload

GROUPS = pl.Schema(
    {
        "path": pl.String(),
        "weight": pl.Float64(),
        "quota": pl.Int64(),
        "period": pl.Int64(),
        "phase": pl.Int64(),
    }
)

MOVES = pl.Schema({"at": pl.Int64(), "thread": pl.UInt32(), "group": pl.String()})
"""Which thread goes to which group (null: to none) when, ns from the beginning."""

WEIGHT = 100.0
"""Of a group of which nothing else is said."""

PERIOD = 100_000_000
"""The kernel's default period of a quota, ns."""

_SLICE = "bandwidth_slice"
"""The tunable that is 0 where quotas are not enforced."""

_SHARES = 1024
"""What the kernel calls the weight of a thread of nice 0."""

_MOST_SHARES = 262_144
_LEAST = 1_000_000
_LONGEST = 1_000_000_000

MoveRow = tuple[int, int, int | None]
GroupRow = tuple[str, int | None, int, tuple[int, int, int] | None]


def check_groups(groups: pl.DataFrame, used: pl.Series) -> None:
    """Refuse invalid groups, and threads in groups that are not listed (`used`)."""
    paths = groups["path"].to_list()
    for row in groups.iter_rows(named=True):
        path = row["path"]
        if not path or not path.startswith("/") or path.rstrip("/") != path:
            raise UsageError(f"group {path!r}", "a path below /", "as in /web or /web/batch")
        if paths.count(path) > 1:
            raise UsageError(f"group {path} is listed twice", "each group once")
        shares = shares_of(row["weight"])
        if not 2 <= shares <= _MOST_SHARES:
            raise UsageError(f"weight {row['weight']:g} of {path}", "a weight from 1 to 10000")
        quota, period = row["quota"], row["period"]
        if quota is not None and quota < _LEAST:
            raise UsageError(f"a quota of {quota} ns of {path}", "1 ms or more, or none")
        if period is not None and not _LEAST <= period <= _LONGEST:
            raise UsageError(f"a period of {period} ns of {path}", "a time from 1 ms to 1 s")
    lacking = sorted(set(used.drop_nulls()) - set(paths))
    if lacking:
        raise UsageError(f"threads of group {lacking[0]!r}", "a group of the table `groups`")


def check_moves(moves: pl.DataFrame, groups: pl.DataFrame, n_threads: int) -> None:
    """Refuse invalid moves: to groups that are not listed, of threads that are not there."""
    known = set(groups["path"].to_list())
    for at, thread, group in moves.iter_rows():
        if at is None or at < 0:
            raise UsageError(f"a move between groups at {at}", "an instant, ns from the beginning")
        if thread is None or thread >= n_threads:
            raise UsageError(f"thread {thread} moves to {group}", "the number of a thread")
        if group is not None and group not in known:
            raise UsageError(f"thread {thread} moves to {group!r}", "a group of the table `groups`")


def shares_of(weight: float | None) -> int:
    """The kernel's number for a weight (sched_weight_from_cgroup of kernel/sched/core.c).

    >>> shares_of(100), shares_of(300), shares_of(None)
    (1024, 3072, 1024)
    """
    return round((WEIGHT if weight is None else weight) * _SHARES / WEIGHT)


def weight_of(shares: float) -> float:
    """The weight of cgroup 2 that is the kernel's number `shares`.

    >>> weight_of(1024)
    100.0
    """
    return shares * WEIGHT / _SHARES


def parent_of(path: str, listed: set[str]) -> str | None:
    """The listed group that `path` lies in.

    >>> parent_of("/a/b/c", {"/a", "/b"}), parent_of("/a", {"/a"})
    ('/a', None)
    """
    above = path.rpartition("/")[0]
    while above and above not in listed:
        above = above.rpartition("/")[0]
    return above or None


def in_order(groups: pl.DataFrame) -> list[str]:
    """The paths, parents before their children: the order in which the engine numbers them."""
    return sorted(groups["path"].to_list(), key=lambda path: (path.count("/"), path))


def engine_groups(groups: pl.DataFrame) -> list[GroupRow]:
    """The groups as the engine takes them."""
    rows: dict[str, dict[str, Any]] = {row["path"]: row for row in groups.iter_rows(named=True)}
    paths = in_order(groups)
    number = {path: i for i, path in enumerate(paths)}
    found: list[GroupRow] = []
    for path in paths:
        row = rows[path]
        period = row["period"] or PERIOD
        quota = None
        if row["quota"] is not None:
            quota = (row["quota"], period, (row["phase"] or 0) % period)
        above = parent_of(path, set(paths))
        found.append(
            (path, None if above is None else number[above], shares_of(row["weight"]), quota)
        )
    return found


def engine_moves(moves: pl.DataFrame, groups: pl.DataFrame) -> list[MoveRow]:
    """The moves between groups as the engine takes them: in order of time, groups by number."""
    number = {path: i for i, path in enumerate(in_order(groups))}
    rows = moves.sort("at", maintain_order=True).iter_rows()
    return [(at, thread, None if group is None else number[group]) for at, thread, group in rows]


def trace_groups(groups: pl.DataFrame) -> list[dict[str, Any]]:
    """The groups as recorded in a trace (`trace.info["groups"]`), with the kernel's numbers.

    As in cgroup 1 the root has one, too, which marks the scale.
    """
    rows = groups.rename({"path": "cgroup"}).iter_rows(named=True)
    return [
        {"cgroup": "/", "weight": _SHARES},
        *({**row, "weight": shares_of(row["weight"])} for row in rows),
    ]


def knows_groups(policy: str | Policy) -> bool:
    """Whether a policy shares CPU time among groups first.

    >>> knows_groups("eevdf-6.12"), knows_groups("ule-14")
    (True, False)
    """
    row = declared().get(policy) if isinstance(policy, str) else None
    return row is not None and bool(row["groups"])


def keeps_quotas(policy: str | Policy, settings: Mapping[str, Any]) -> bool:
    """Whether it holds groups back that have used up a quota, with these tunables."""
    row = declared().get(policy) if isinstance(policy, str) else None
    tunables = row["tunables"] if row else []
    default = [one["default"] for one in tunables if one["name"] == _SLICE]
    return bool(default) and nanoseconds(settings.get(_SLICE, default[0])) > 0


def ignored_groups(workload: Workload, scheduler: Mapping[str, Any]) -> list[str]:
    """Settings that a scheduler, as a simulated trace describes it, ignored; in a sentence."""
    groups, name = workload.groups, scheduler["name"]
    if groups.is_empty():
        return []
    if not knows_groups(name) and "groups" not in scheduler:
        return [f"{several(groups.height, 'control group')} ignored: {name} has none"]
    n = groups["quota"].drop_nulls().len()
    if n and not keeps_quotas(name, scheduler.get("tunables") or {}):
        quotas = "a quota of a control group" if n == 1 else f"{n} quotas of control groups"
        return [f"{quotas} ignored: {name} keeps none"]
    return []
