"""What `whatif` changes of control groups: weights, quotas, who is in which, and sessions."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from difflib import get_close_matches

import polars as pl

from schedscope.errors import UsageError
from schedscope.simulator.runs.named_threads import kind_of
from schedscope.simulator.workloads.groups import GROUPS, PERIOD, WEIGHT
from schedscope.simulator.workloads.workload import Workload
from schedscope.units import duration, nanoseconds

Matching = Callable[[Workload, str], pl.Series]

_SESSION = r"^/autogroup-\d+$"


def weighted(
    workload: Workload, asked: Mapping[str, float], matching: Matching
) -> tuple[Workload, list[str]]:
    """The workload with these weights, and the change in words; of threads as in `limited`."""
    words = []
    for path, weight in asked.items():
        whole = not isinstance(weight, bool) and isinstance(weight, (int, float))
        if not whole or not math.isfinite(weight) or not 1 <= weight <= 10_000:
            raise UsageError(f"weight {weight!r} of {path}", "a number from 1 to 10000")
        workload, name = _group_for(workload, path, matching)
        here = pl.col("path") == name
        groups = workload.groups.with_columns(
            weight=pl.when(here).then(pl.lit(float(weight))).otherwise(pl.col("weight"))
        )
        workload = replace(workload, groups=groups)
        words.append(f"{name} at weight {weight:g}")
    return workload, words


def limited(
    workload: Workload, asked: Mapping[str, str], matching: Matching
) -> tuple[Workload, list[str]]:
    """The workload with these quotas, and the change in words.

    A name that is no group's is one of threads (`matching` finds them), for which a group is made
    inside the one that they are in, unless a group holds exactly these threads.
    """
    words = []
    for who, text in asked.items():
        workload, path = _group_for(workload, who, matching)
        here = pl.col("path") == path
        (period,) = workload.groups.filter(here)["period"]
        quota, period = parse_quota(who, str(text), period or PERIOD)
        workload = replace(
            workload,
            groups=workload.groups.with_columns(
                quota=pl.when(here).then(pl.lit(quota, pl.Int64)).otherwise(pl.col("quota")),
                period=pl.when(here).then(pl.lit(period, pl.Int64)).otherwise(pl.col("period")),
            ),
        )
        limit = f"{duration(quota)} in each {duration(period)}" if quota else "no quota"
        words.append(f"{path} with {limit}")
    return workload, words


def parse_quota(who: str, text: str, period: int) -> tuple[int | None, int]:
    """Time and period of a quota, ns; a share of a CPU applies to the present period.

    >>> parse_quota("web", "50%", 100_000_000), parse_quota("web", "20ms/50ms", 100_000_000)
    ((50000000, 100000000), (20000000, 50000000))
    """
    text = text.strip()
    if text in ("none", "max"):
        return None, period
    part = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)%", text)
    both = text.split("/")
    if part:
        quota = round(float(part[1]) / 100 * period)
    elif len(both) == 2 and all(re.match(r"[0-9]", one.strip()) for one in both):
        quota, period = nanoseconds(both[0].strip()), nanoseconds(both[1].strip())
    else:
        raise UsageError(
            f"quota {text!r} of {who!r}",
            "a part of a CPU, or a time in a period",
            "50% or 20ms/100ms",
        )
    if not 1_000_000 <= period <= 1_000_000_000:
        raise UsageError(f"quota {text} of {who!r}", "a period from 1 ms to 1 s")
    if not 1_000_000 <= quota < 2**52:
        raise UsageError(f"quota {text} of {who!r}", "1 ms or more in each period, or none")
    return quota, period


def moved(
    workload: Workload, asked: Mapping[str, str], matching: Matching
) -> tuple[Workload, list[str]]:
    """The workload with these threads in these groups all along, and the change in words."""
    words = []
    for who, group in asked.items():
        path = None
        if group != "/":
            path = _group(workload.groups, group)
            if path is None:
                raise _unknown(workload.groups, group)
        workload = _inside(workload, matching(workload, who), path)
        words.append(f"{who!r} in {path or 'no group'}")
    return workload, words


def autogrouped(workload: Workload, asked: str) -> tuple[Workload, list[str]]:
    """The workload with autogroup as asked, and the change in words."""
    if asked != "off":
        raise UsageError(
            f"autogroup {asked}",
            "off",
            "a recording made without autogroup does not show which threads share a session",
        )
    if not workload.groups["path"].str.contains(_SESSION).any():
        raise UsageError("autogroup off", "a recording in which sessions share CPU time", "none do")
    return without_sessions(workload), ["autogroup off"]


def without_sessions(workload: Workload) -> Workload:
    """The workload as with autogroup off: threads in a session's group are in none."""
    left = pl.when(~pl.col("group").str.contains(_SESSION)).then(pl.col("group"))
    return replace(
        workload,
        threads=workload.threads.with_columns(group=left),
        groups=workload.groups.filter(~pl.col("path").str.contains(_SESSION)),
        moves=workload.moves.with_columns(group=left),
    )


def _group_for(workload: Workload, who: str, matching: Matching) -> tuple[Workload, str]:
    """The group that this names; for threads, the one that holds only them, else a new one."""
    path = _group(workload.groups, who)
    if path is not None:
        return workload, path
    if "/" in who and kind_of(who)[0] is None:
        raise _unknown(workload.groups, who)
    mine = matching(workload, who)
    inside = workload.threads["group"]
    above = inside.filter(mine).unique().to_list()
    # A new group around everything in a unit's own group would not change which threads share.
    if len(above) == 1 and above[0] and not (inside.filter(~mine) == above[0]).any():
        return workload, above[0]
    return _in_own_group(workload, who, mine)


def _inside(workload: Workload, mine: pl.Series, path: str | None) -> Workload:
    """The workload with these threads in this group all along."""
    threads = workload.threads.with_columns(
        group=pl.when(mine).then(pl.lit(path, pl.String)).otherwise(pl.col("group"))
    )
    # Moves of these threads would undo it.
    stay = ~pl.col("thread").is_in(mine.arg_true().implode())
    return replace(workload, threads=threads, moves=workload.moves.filter(stay))


def _group(groups: pl.DataFrame, name: str) -> str | None:
    """The group that a path, or its last parts, names."""
    paths = groups["path"].to_list()
    if name in paths:
        return str(name)
    found = [path for path in paths if path.endswith("/" + name.strip("/"))]
    if len(found) > 1:
        raise UsageError(f"group {name!r}", "the path of one group", f"one of {', '.join(found)}")
    return found[0] if found else None


def _unknown(groups: pl.DataFrame, name: str) -> UsageError:
    paths = groups["path"].to_list()
    close = get_close_matches(name, paths, 3) or paths[:3]
    hint = f"there are {', '.join(close)}" if close else "the trace has none with a weight or quota"
    return UsageError(f"no control group {name!r}", "one that threads of the trace are in", hint)


def _in_own_group(workload: Workload, who: str, mine: pl.Series) -> tuple[Workload, str]:
    above = workload.threads.filter(mine)["group"].unique().to_list()
    if len(above) > 1:
        names = ", ".join(path or "none" for path in sorted(above, key=str))
        raise UsageError(
            f"a group of {who!r}, which is in several", "threads of one group", f"in {names}"
        )
    path = f"{above[0] or ''}/{re.sub('[^A-Za-z0-9_.-]', '_', who)}"
    if path in workload.groups["path"]:
        raise UsageError(
            f"a group of threads {who!r}", "another name", f"{path} is a group already"
        )
    row = {"path": path, "weight": WEIGHT, "period": PERIOD, "phase": 0}
    groups = pl.concat([workload.groups, pl.DataFrame([row], schema=GROUPS)])
    return _inside(replace(workload, groups=groups), mine, path), path
